//! Keeps the program's handlers of signals. LLVM, the compiler of PoCL, installs its own for the whole
//! process when it is first used: with them, a signal that should end a run in order, reload its chain or
//! write its files kills the process.
//!
//! `unsafe` here: handlers are exchanged by sigaction(2).
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ptr;

/// The signals that LLVM handles, without SIGFPE and SIGILL, which PoCL handles for its kernels.
const SIGNALS: [i32; 14] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGQUIT,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGSEGV,
    libc::SIGSYS,
    libc::SIGXCPU,
    libc::SIGXFSZ,
    libc::SIGPIPE,
];

/// Calls `call`, which may use LLVM, and puts the handlers back that it has exchanged.
pub(super) fn kept<T>(call: impl FnOnce() -> T) -> T {
    let before = SIGNALS.map(|signal| (signal, handler(signal)));
    let result = call();
    for (signal, before) in before {
        if let Some(before) = before {
            put_back(signal, &before);
        }
    }
    result
}

/// How a signal is handled; `None` if the system refuses to return that.
fn handler(signal: i32) -> Option<libc::sigaction> {
    let mut action = MaybeUninit::uninit();
    // SAFETY: nothing is changed, and the handler is written to memory of its size.
    let result = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: the call has succeeded, and so has written it.
    (result == 0).then(|| unsafe { action.assume_init() })
}

/// Puts a handler back if another one has its place.
fn put_back(signal: i32, before: &libc::sigaction) {
    if handler(signal).is_some_and(|now| now.sa_sigaction != before.sa_sigaction) {
        // SAFETY: the handler was this program's before, and handlers stay where they are.
        unsafe { libc::sigaction(signal, before, ptr::null_mut()) };
    }
}
