//! The system calls that threads which process packets may make, as a seccomp filter.
//!
//! They may use what is open, wait, and manage memory. They can open, connect, start and execute
//! nothing, and make no memory executable.

use std::collections::BTreeMap;
use std::fs;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// The actions of filters that the kernel has.
const ACTIONS: &str = "/proc/sys/kernel/seccomp/actions_avail";

/// Calls that are permitted whatever their arguments.
const PERMITTED: &[libc::c_long] = &[
    // Open files and sockets.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_accept4,
    libc::SYS_shutdown,
    // Waiting.
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_epoll_ctl,
    libc::SYS_futex,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_sched_yield,
    libc::SYS_restart_syscall,
    // Memory; the calls that map and protect it are below.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_mlock,
    libc::SYS_munlock,
    libc::SYS_membarrier,
    // Times, processors, random numbers, and what the process is.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_getcpu,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_getrandom,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getrusage,
    // Signals and ends of threads. Masks of signals are the handler's: see `trap`.
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Those that only this architecture has.
#[cfg(target_arch = "x86_64")]
const OLDER: &[libc::c_long] =
    &[libc::SYS_poll, libc::SYS_select, libc::SYS_epoll_wait, libc::SYS_time];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[libc::c_long] = &[];

/// Whether the kernel has what the filter needs.
pub fn are_confinable() -> bool {
    let has_trap = || {
        let actions = fs::read_to_string(ACTIONS).unwrap_or_default();
        actions.split_whitespace().any(|action| action == "trap")
    };
    architecture().is_some() && has_trap()
}

fn architecture() -> Option<TargetArch> {
    match std::env::consts::ARCH {
        "x86_64" => Some(TargetArch::x86_64),
        "aarch64" => Some(TargetArch::aarch64),
        _ => None,
    }
}

/// The filter. Calls that it does not permit are not made, and raise the signal SIGSYS.
///
/// # Errors
/// When this architecture is not supported.
pub fn filter() -> Result<BpfProgram, String> {
    let architecture = architecture().ok_or("no system calls are known for this architecture")?;
    let always = PERMITTED.iter().chain(OLDER).map(|call| (*call, Vec::new()));
    let mut rules: BTreeMap<_, _> = always.collect();
    for (call, conditions) in conditional() {
        let rules = rules.entry(call).or_insert_with(Vec::new);
        rules.push(SeccompRule::new(conditions?).map_err(|e| e.to_string())?);
    }
    let filter = SeccompFilter::new(rules, SeccompAction::Trap, SeccompAction::Allow, architecture);
    filter.and_then(TryInto::try_into).map_err(|e| e.to_string())
}

type Conditions = Result<Vec<SeccompCondition>, String>;

/// Calls that are permitted with certain arguments: each alternative with its conditions.
fn conditional() -> Vec<(libc::c_long, Conditions)> {
    let masked = |at, mask: u64, value: u64| {
        let compare = SeccompCmpOp::MaskedEq(mask);
        SeccompCondition::new(at, SeccompCmpArgLen::Dword, compare, value)
            .map(|condition| vec![condition])
            .map_err(|e| e.to_string())
    };
    let equal = |at, value: u64| masked(at, u64::from(u32::MAX), value);
    let (executable, of_file) = (libc::PROT_EXEC as u64, libc::AT_EMPTY_PATH as u64);
    let process = u64::from(std::process::id());
    let mut all = vec![
        (libc::SYS_mmap, masked(2, executable, 0)),
        (libc::SYS_mprotect, masked(2, executable, 0)),
        // Of open files, not of paths.
        (libc::SYS_statx, masked(2, of_file, of_file)),
        (libc::SYS_newfstatat, masked(3, of_file, of_file)),
        // A thread may end its own process, as an abort does.
        (libc::SYS_tgkill, equal(0, process)),
    ];
    // Whether standard error is a terminal, how wide it is; an interface's MTU; whether a TAP device
    // exists; what a pipe holds.
    let queries = [
        libc::TCGETS,
        libc::TIOCGWINSZ,
        libc::SIOCGIFMTU,
        libc::TUNGETIFF,
        libc::FIONREAD,
        libc::FIONBIO,
    ];
    all.extend(queries.map(|query| (libc::SYS_ioctl, equal(1, query))));
    // The C library names memory and threads.
    let names = [libc::PR_SET_NAME, libc::PR_SET_VMA];
    all.extend(names.map(|option| (libc::SYS_prctl, equal(0, option as u64))));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_fits_the_kernel_and_permits_no_call_twice() {
        let program = filter().unwrap();
        assert!((1..4096).contains(&program.len()), "{}", program.len());
        let mut all: Vec<_> = PERMITTED.iter().chain(OLDER).collect();
        all.extend([&libc::SYS_ioctl, &libc::SYS_mmap, &libc::SYS_mprotect, &libc::SYS_statx]);
        let number = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), number);
    }
}
