//! A queue of an interface as an input.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thalweg_packet::{Batch, DropCounts, Pool};

use super::receiver::Sink;
use super::registry::Receiving;
use super::settings::{Obtained, XdpSettings};
use crate::clock::now;
use crate::interface::removed;
use crate::links::KnownMtu;
use crate::port::{Input, IoError, Received, Shortfall};
use crate::silence::Silence;

/// Receives the packets of a queue of an interface by AF_XDP, in the frames of packet memory where the
/// kernel or the driver has put them.
///
/// A packet that is longer than a frame is dropped as
/// [`FrameTooSmall`](thalweg_packet::DropReason::FrameTooSmall), one for which the kernel had no frame
/// as [`ReceiveRingFull`](thalweg_packet::DropReason::ReceiveRingFull), or as
/// [`PoolExhausted`](thalweg_packet::DropReason::PoolExhausted) if packet memory had none. Packets have
/// the time at which they were received.
pub struct XdpInput {
    queue: Receiving,
    /// The MTU of the interface while it is followed, and what happens to it is logged elsewhere.
    known: Option<Arc<KnownMtu>>,
    silence: Silence,
    /// Calls since the kernel's counters were last read, or 0 if no packets came.
    uncounted: u32,
    /// Whether the interface went down, and no packets arrived since.
    is_down: bool,
    ended: bool,
}

/// The least time between calls to the kernel without packets.
const PAUSE: Duration = Duration::from_millis(1);

impl XdpInput {
    /// Opens a queue of an interface, into the frames of `pool`.
    ///
    /// # Errors
    /// If there is no such interface or queue, the system does not permit it, another program has it,
    /// it does not have the mode, or the host needs it.
    pub fn open(settings: &XdpSettings, pool: &Arc<Pool>) -> Result<Self, IoError> {
        let queue = Receiving::open(settings, pool)?;
        Ok(Self {
            queue,
            known: None,
            silence: Silence::new(PAUSE),
            uncounted: 0,
            is_down: false,
            ended: false,
        })
    }

    /// This input of an interface that is followed.
    pub(super) fn with_mtu(self, known: Arc<KnownMtu>) -> Self {
        Self { known: Some(known), ..self }
    }

    /// How packets are received, in a few words.
    pub fn mode(&self) -> String {
        self.obtained().to_string()
    }

    pub(super) fn obtained(&self) -> Obtained {
        self.queue.endpoint().obtained
    }

    /// Whether the kernel's counters are due.
    fn is_count_due(&mut self, received: &Received, is_quiet: bool) -> bool {
        const CALLS: u32 = 256;
        if received.packets > 0 {
            self.uncounted += 1;
        }
        let is_due = self.uncounted >= CALLS || is_quiet;
        if is_due {
            self.uncounted = 0;
        }
        is_due
    }

    /// Checks an interface without packets: one that is down may come up again, one that was removed
    /// will not.
    fn check(&mut self) -> Result<(), IoError> {
        let endpoint = self.queue.endpoint();
        let name = &endpoint.settings.interface;
        if !endpoint.watch.has_interface() {
            self.ended = true;
            return Err(removed(name));
        }
        let error = self.queue.half().wake().err();
        let error = error.filter(|error| error.raw_os_error() == Some(libc::ENETDOWN));
        let is_known = self.known.as_ref().is_some_and(|known| known.get().is_some());
        if let Some(error) = error.as_ref().filter(|_| !self.is_down && !is_known) {
            log::warn!("interface {name}: {error}");
        }
        self.is_down = error.is_some();
        Ok(())
    }
}

impl Input for XdpInput {
    fn receive(
        &mut self,
        batch: &mut Batch,
        most: usize,
        drops: &mut DropCounts,
    ) -> Result<Received, IoError> {
        let mut received = Received { ended: self.ended, ..Received::default() };
        let mut is_empty = false;
        let is_busy = self.queue.endpoint().obtained.busy_poll_us > 0;
        let half = self.queue.half_mut();
        if most > 0 {
            is_empty = half.is_empty();
        }
        if most > 0 && !is_empty {
            let mut sink = Sink { batch, drops, received: &mut received, now: now() };
            is_empty = half.receive(most, &mut sink);
        }
        half.refill();
        if is_empty && is_busy {
            // Its errors show in the check below.
            let _ = half.wake();
        }
        let is_quiet = self.silence.is_call_due(is_empty && received.packets == 0, Instant::now);
        if self.is_count_due(&received, is_quiet) {
            self.queue.half_mut().count_lost(drops, &mut received);
        }
        if received.packets == 0 && is_quiet && !self.ended {
            self.check()?;
        }
        Ok(received)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.queue.half().descriptor())
    }

    fn shortfall(&self) -> Shortfall {
        self.queue.half().shortfall()
    }

    fn copied(&self) -> Option<u64> {
        Some(self.queue.half().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_input_calls_the_kernel_once_a_millisecond() {
        let (mut silence, start) = (Silence::new(PAUSE), Instant::now());
        let mut is_due = |is_vain, microseconds| {
            silence.is_call_due(is_vain, || start + Duration::from_micros(microseconds))
        };
        assert!((1..64).all(|at| !is_due(true, at)), "packets may be on their way");
        assert!(is_due(true, 64));
        assert!((65..1064).all(|at| !is_due(true, at)), "the last call is recent");
        assert!(is_due(true, 1064));
        assert!(!is_due(true, 1065));
        assert!(!is_due(false, 5000), "there are packets");
        assert!((5001..5064).all(|at| !is_due(true, at)));
        assert!(is_due(true, 5064));
    }
}
