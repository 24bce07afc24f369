//! The signal that the kernel sends to a thread in place of a system call that its filter refuses.
#![allow(unsafe_code)] // installs a signal handler, which reads what the kernel passes to it

use std::io;
use std::ptr;

use syscalls::Sysno;
use thalweg_engine::guard;

/// The code of a signal that a seccomp filter has sent (`asm-generic/siginfo.h`).
const SYS_SECCOMP: libc::c_int = 1;

/// The part of `siginfo_t` that describes a refused system call (`asm-generic/siginfo.h`); the crate
/// `libc` has no names for it.
#[repr(C)]
struct Refused {
    signal: libc::c_int,
    error: libc::c_int,
    code: libc::c_int,
    _pad: libc::c_int,
    address: *const libc::c_void,
    call: libc::c_int,
    architecture: libc::c_uint,
}

/// Has refused system calls fail with `EPERM`, and end the run.
///
/// # Errors
/// When the system refuses the handler.
pub fn install() -> io::Result<()> {
    // SAFETY: all fields are integers, pointers and sets of signals, for which zeros are valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = refused;
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: `action` lives during the call, and its handler only uses what is safe in one.
    match unsafe { libc::sigaction(libc::SIGSYS, &raw const action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What the allocator of the C library reads at the first time that it returns memory of a thread, which
/// may be this one. It does without.
const OF_ALLOCATOR: &[u8] = b"/proc/sys/vm/overcommit_memory\0";

/// Handles the signal: it allocates nothing, takes no lock, and makes no system call.
extern "C" fn refused(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes the description of the signal, which lives during the call. The
    // fields that are read before the code is known are those of every signal.
    let refused = unsafe { &*info.cast::<Refused>() };
    // Other processes of this user may send the signal, too.
    if refused.code != SYS_SECCOMP {
        return;
    }
    // SAFETY: the kernel passes the registers of the thread, which lie on its stack during the call.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let arguments = arguments(context);
    let call = usize::try_from(refused.call).ok().and_then(Sysno::new);
    let result = match call {
        Some(Sysno::rt_sigprocmask) => change_mask(context, arguments),
        Some(Sysno::openat) if is_text(arguments[1], OF_ALLOCATOR) => -libc::EPERM,
        _ => {
            guard::refuse(call.map_or("unknown", |call| call.name()));
            -libc::EPERM
        }
    };
    set_result(context, i64::from(result));
}

/// Changes the mask of signals that the thread continues with, as `rt_sigprocmask(2)` does, except that
/// SIGSYS stays permitted. The C library blocks all signals while it starts threads and processes: if
/// the kernel refused that and could not send the signal, it would kill the process, and nothing would
/// name the NF.
fn change_mask(context: &mut libc::ucontext_t, [how, new, old, size]: [u64; 4]) -> libc::c_int {
    if size != size_of::<u64>() as u64 {
        return -libc::EINVAL;
    }
    // The kernel's masks have 64 bits; those of the C library begin with them.
    let mask = (&raw mut context.uc_sigmask).cast::<u64>();
    // SAFETY: the mask is a part of the context.
    let before = unsafe { mask.read_unaligned() };
    if new != 0 {
        // SAFETY: the caller passes the address of a mask to the kernel, and so here.
        let set = unsafe { (new as *const u64).read_unaligned() };
        let after = match how as libc::c_int {
            libc::SIG_BLOCK => before | set,
            libc::SIG_UNBLOCK => before & !set,
            libc::SIG_SETMASK => set,
            _ => return -libc::EINVAL,
        };
        let after = after & !(1 << (libc::SIGSYS - 1));
        // SAFETY: as above.
        unsafe { mask.write_unaligned(after) };
    }
    if old != 0 {
        // SAFETY: the caller passes the address of a place for a mask.
        unsafe { (old as *mut u64).write_unaligned(before) };
    }
    0
}

/// Whether the text at an address, which was passed to the kernel, is `expected`, which ends with 0.
fn is_text(address: u64, expected: &[u8]) -> bool {
    let text = address as *const u8;
    let is_same = |(at, byte): (usize, &u8)| {
        // SAFETY: all bytes before this one are those of `expected`, so that the text has not ended.
        let found = unsafe { text.wrapping_add(at).read() };
        found == *byte
    };
    !text.is_null() && expected.iter().enumerate().all(is_same)
}

/// The first arguments of the system call.
#[cfg(target_arch = "x86_64")]
fn arguments(context: &libc::ucontext_t) -> [u64; 4] {
    let registers = [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10];
    registers.map(|register| context.uc_mcontext.gregs[register as usize] as u64)
}

#[cfg(target_arch = "aarch64")]
fn arguments(context: &libc::ucontext_t) -> [u64; 4] {
    std::array::from_fn(|at| context.uc_mcontext.regs[at])
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn arguments(_: &libc::ucontext_t) -> [u64; 4] {
    [0; 4]
}

/// Sets what the system call returns.
fn set_result(context: &mut libc::ucontext_t, result: i64) {
    #[cfg(target_arch = "x86_64")]
    {
        context.uc_mcontext.gregs[libc::REG_RAX as usize] = result;
    }
    #[cfg(target_arch = "aarch64")]
    {
        context.uc_mcontext.regs[0] = result as u64;
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = (context, result);
}
