//! What the system has counted of this thread.
//!
//! `unsafe` here: the kernel fills in a structure.
#![allow(unsafe_code)]

use std::cell::Cell;

/// How often the system gave the core of this thread to another one, although this one could go on,
/// since this thread called this the last time. Takes a system call; 0 on other systems than Linux.
pub fn new_preemptions() -> u64 {
    thread_local!(static BEFORE: Cell<u64> = const { Cell::new(0) });
    let all = preemptions();
    all - BEFORE.replace(all)
}

#[cfg(target_os = "linux")]
fn preemptions() -> u64 {
    usage().ru_nivcsw as u64
}

#[cfg(not(target_os = "linux"))]
fn preemptions() -> u64 {
    0
}

/// How often this thread touched a page that had to come first.
#[cfg(target_os = "linux")]
pub(crate) fn page_faults() -> usize {
    usage().ru_minflt as usize
}

#[cfg(target_os = "linux")]
fn usage() -> libc::rusage {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: there is room for what the kernel writes.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    // SAFETY: it consists of integers, all of them zero at first.
    unsafe { usage.assume_init() }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::cores::{self, Pinned};

    /// Spins until this thread is preempted, or for a time.
    fn spins(core: u32, most: Duration) -> bool {
        let _pinned = Pinned::to(core).unwrap();
        new_preemptions();
        let until = Instant::now() + most;
        while Instant::now() < until {
            if new_preemptions() > 0 {
                return true;
            }
        }
        false
    }

    #[test]
    fn threads_that_share_a_core_preempt_each_other() {
        let core = cores::permitted()[0];
        let spin = || thread::spawn(move || spins(core, Duration::from_secs(20)));
        let both = [spin(), spin()].map(|thread| thread.join().unwrap());
        assert!(both.contains(&true));
    }

    #[test]
    fn a_thread_that_sleeps_is_not_preempted_meanwhile() {
        new_preemptions();
        (0..20).for_each(|_| thread::sleep(Duration::from_millis(1)));
        assert!(new_preemptions() < 20);
    }
}
