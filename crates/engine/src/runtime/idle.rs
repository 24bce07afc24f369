//! Waiting for work.

use std::thread;
use std::time::Duration;

/// Polls without work before a thread yields to others.
const SPINS: u32 = 64;
/// Polls without work before it sleeps: some milliseconds of silence.
const LOOKS: u32 = 10_000;
/// The length of its sleep. The receive rings of interfaces hold the packets that arrive meanwhile.
const NAP: Duration = Duration::from_micros(50);

/// Waits longer the longer there is no work.
#[derive(Default)]
pub(super) struct Idle(u32);

impl Idle {
    /// Whether the thread has polled for a while in vain.
    pub(super) fn is_long(&self) -> bool {
        self.0 >= SPINS
    }

    pub(super) fn worked(&mut self, worked: bool) {
        if worked {
            self.0 = 0;
        } else {
            self.0 = self.0.saturating_add(1);
            match self.0 {
                ..SPINS => std::hint::spin_loop(),
                SPINS..LOOKS => thread::yield_now(),
                LOOKS.. => thread::sleep(NAP),
            }
        }
    }
}
