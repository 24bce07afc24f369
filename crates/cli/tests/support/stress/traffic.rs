//! Packets into a run: bursts, single ones, the last of each flow.

use std::thread;
use std::time::Duration;

use super::chain::Frame;
use super::feed::Feed;
use super::packet::{FLOWS, TYPES, type_of};
use super::pipes::Shared;
use super::random::Random;

/// The ways of packets into a run.
pub struct Traffic<'a> {
    pub frame: &'a Frame,
    pub shared: &'a Shared,
    /// By input.
    pub feeds: &'a mut [Feed],
}

impl Traffic<'_> {
    /// Sends packets of some flows at once.
    ///
    /// # Errors
    /// As [`Feed::send`].
    pub fn burst(&mut self, random: &mut Random) -> Result<(), String> {
        // Types without packets starve the work-groups of their NFs.
        let types = 1 + random.below((1 << TYPES) - 1);
        let flows: Vec<_> = (0..FLOWS).filter(|flow| types & 1 << type_of(*flow) != 0).collect();
        let mut left = random.pick(&[1, 7, 31, 33, 200, 1000, 2500]);
        while left > 0 && !self.is_closed() {
            let now = left.min(1 + random.below(400));
            left -= now;
            let flows: Vec<_> = (0..now).map(|_| random.pick(&flows)).collect();
            self.send(&flows, false, random)?;
        }
        Ok(())
    }

    /// Sends packets one by one.
    ///
    /// # Errors
    /// As [`Feed::send`].
    pub fn trickle(&mut self, random: &mut Random) -> Result<(), String> {
        for _ in 0..=random.below(30) {
            self.send(&[random.below(FLOWS)], false, random)?;
            thread::sleep(Duration::from_micros(random.next() % 5000));
        }
        Ok(())
    }

    /// Sends one more packet of each flow, which no NF drops.
    ///
    /// # Errors
    /// As [`Feed::send`].
    pub fn last(&mut self, random: &mut Random) -> Result<(), String> {
        self.send(&(0..FLOWS).collect::<Vec<_>>(), true, random)
    }

    /// Whether the run takes no more packets of an input.
    pub fn is_closed(&self) -> bool {
        self.feeds.iter().any(Feed::is_closed)
    }

    /// Sends the next packets of these flows, in their order within each queue.
    fn send(&mut self, flows: &[usize], is_kept: bool, random: &mut Random) -> Result<(), String> {
        let mut packets = vec![Vec::new(); self.frame.streams()];
        let mut ledger = self.shared.ledger();
        for &flow in flows {
            let stream = self.frame.stream(self.frame.place_of(flow));
            packets[stream].push(ledger.send(stream, flow, is_kept, random));
        }
        drop(ledger);
        for (input, feed) in self.feeds.iter_mut().enumerate() {
            for queue in 0..self.frame.queues() {
                let packets = &packets[self.frame.stream((input, queue))];
                feed.send(queue, packets, random, self.shared)?;
            }
        }
        Ok(())
    }
}
