//! Wakes a thread that waits for packets.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// A descriptor that other threads make readable.
#[derive(Debug)]
pub(super) struct Waker {
    sender: UnixStream,
    receiver: UnixStream,
}

impl Waker {
    pub(super) fn new() -> io::Result<Self> {
        let (sender, receiver) = UnixStream::pair()?;
        sender.set_nonblocking(true)?;
        receiver.set_nonblocking(true)?;
        Ok(Self { sender, receiver })
    }

    /// Makes the descriptor readable.
    pub(super) fn wake(&self) {
        // If there is no room, it is readable.
        let _ = (&self.sender).write(&[1]);
    }

    /// Makes the descriptor unreadable until the next call of [`wake`](Self::wake).
    pub(super) fn rest(&self) {
        let mut bytes = [0; 64];
        while (&self.receiver).read(&mut bytes).is_ok_and(|len| len == bytes.len()) {}
    }

    /// What becomes readable.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use thalweg_source::poll::wait_readable;

    use super::*;

    #[test]
    fn a_waker_is_readable_from_a_call_until_its_rest() {
        let waker = Waker::new().unwrap();
        let is_awake = || wait_readable([waker.descriptor()].into_iter(), Duration::ZERO);
        assert!(!is_awake());
        for _ in 0..100_000 {
            waker.wake();
        }
        assert!(is_awake());
        waker.rest();
        assert!(!is_awake());
        waker.wake();
        assert!(is_awake());
    }
}
