//! Waiting for files that are not ready: poll(2).
//!
//! `unsafe` here: a system call that takes a pointer.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

/// Waits until one of several files can be read, at most for `most`; returns whether one can, or
/// has failed.
pub fn wait_readable<'a>(files: impl Iterator<Item = BorrowedFd<'a>>, most: Duration) -> bool {
    let mut all: Vec<_> = files.map(|fd| waiting(fd, libc::POLLIN)).collect();
    poll(&mut all, most);
    all.iter().any(|file| file.revents != 0)
}

/// Waits until a file can be written, at most for `most`; returns whether it can, or has failed.
pub fn wait_writable(file: impl AsFd, most: Duration) -> bool {
    let mut one = [waiting(file.as_fd(), libc::POLLOUT)];
    poll(&mut one, most);
    one[0].revents != 0
}

/// Whether a pipe had writers, and has none any more.
pub fn is_hung_up(pipe: impl AsFd) -> bool {
    let mut one = [waiting(pipe.as_fd(), libc::POLLIN)];
    poll(&mut one, Duration::ZERO);
    one[0].revents & libc::POLLHUP != 0
}

fn waiting(fd: BorrowedFd<'_>, events: i16) -> libc::pollfd {
    libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 }
}

/// Polls. An interrupted call is one that found nothing: the callers check again.
fn poll(all: &mut [libc::pollfd], most: Duration) {
    let milliseconds = libc::c_int::try_from(most.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: the length passed is that of the slice.
    unsafe { libc::poll(all.as_mut_ptr(), all.len() as libc::nfds_t, milliseconds) };
}
