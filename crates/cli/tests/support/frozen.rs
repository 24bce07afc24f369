//! A thread of a program that no longer runs, as if its core were gone.
//!
//! `unsafe` here: ptrace(2) and waitpid(2) of a thread.
#![allow(unsafe_code)]

use std::fs;
use std::ptr;

/// A frozen thread of a child, which goes on when this is dropped.
pub struct Frozen(i32);

impl Frozen {
    /// Freezes the thread with this name; `None` if the system does not allow it. To be dropped by the same
    /// thread of the test.
    pub fn thread(process: u32, name: &str) -> Option<Self> {
        let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
        let mut tasks = tasks.map(|task| task.unwrap().path());
        let is_it = |task: &std::path::PathBuf| {
            fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == name)
        };
        let task = tasks.find(is_it).expect("it has a thread of this name");
        let thread: i32 = task.file_name()?.to_str()?.parse().ok()?;
        let none = ptr::null_mut::<libc::c_void>();
        // SAFETY: neither request reads or writes memory.
        let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, thread, none, none) };
        // SAFETY: as above.
        let stopped = unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, thread, none, none) };
        (seized == 0 && stopped == 0).then_some(Self(thread))
    }

    /// Takes note of its end, without which its process would not end.
    pub fn reap(&self) {
        // SAFETY: no status is written.
        unsafe { libc::waitpid(self.0, ptr::null_mut(), libc::WNOHANG | libc::__WALL) };
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let none = ptr::null_mut::<libc::c_void>();
        // SAFETY: the request reads and writes no memory.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, none, none) };
        self.reap();
    }
}
