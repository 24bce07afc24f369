//! Waiting for files that are not ready: poll(2).

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Waits until one of several files can be read, at most for `most`; returns whether one can, or
/// has failed.
pub fn wait_readable<'a>(files: impl Iterator<Item = BorrowedFd<'a>>, most: Duration) -> bool {
    first_readable(files, most).is_some()
}

/// Waits until one of several files can be read, at most for `most`; returns the number of the first
/// that can, or has failed.
pub fn first_readable<'a>(
    files: impl Iterator<Item = BorrowedFd<'a>>,
    most: Duration,
) -> Option<usize> {
    let mut all: Vec<_> = files.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    wait(&mut all, most);
    all.iter().position(|file| !file.revents().is_empty())
}

/// Waits until a file can be written, at most for `most`; returns whether it can, or has failed.
pub fn wait_writable(file: impl AsFd, most: Duration) -> bool {
    let mut one = [PollFd::new(&file, PollFlags::OUT)];
    wait(&mut one, most);
    !one[0].revents().is_empty()
}

/// Whether a pipe had writers, and has none any more.
pub fn is_hung_up(pipe: impl AsFd) -> bool {
    let mut one = [PollFd::new(&pipe, PollFlags::IN)];
    wait(&mut one, Duration::ZERO);
    one[0].revents().contains(PollFlags::HUP)
}

/// Polls. An interrupted call is one that found nothing: the callers check again.
fn wait(all: &mut [PollFd<'_>], most: Duration) {
    // A time too long for the system is waited for without end.
    let most = Timespec::try_from(most).ok();
    let _ = poll(all, most.as_ref());
}
