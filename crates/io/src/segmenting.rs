//! Outputs that do not send super-packets, or none in tunnels: their segments are sent.

use std::sync::Arc;

use thalweg_packet::{Batch, DropCounts, DropReason, Lanes, Pool};

use crate::port::{IoError, Lost, Output, OutputFailure, Shortfall};

/// An output by which the segments of super-packets that it does not send are sent in their place.
pub struct SegmentingOutput {
    output: Box<dyn Output>,
    /// Whether the output sends super-packets without tunnels itself.
    is_for_tunnels: bool,
    /// Segments on their way; otherwise empty.
    segments: Batch,
    /// Segments that were made, each by a copy.
    made: u64,
}

impl SegmentingOutput {
    /// Sends packets of `pool` by `output`.
    pub fn new(output: Box<dyn Output>, pool: &Arc<Pool>) -> Self {
        let is_for_tunnels = output.takes_supers();
        Self { output, is_for_tunnels, segments: Batch::new(pool.clone()), made: 0 }
    }

    /// The super-packets of `lanes` that the output does not send.
    #[inline]
    fn segmented(&self, batch: &Batch, lanes: Lanes) -> Lanes {
        let supers = if self.is_for_tunnels { batch.tunnelled_supers() } else { batch.supers() };
        supers.and(lanes)
    }

    /// Sends the segments of one super-packet; one that was not sent whole is dropped for the reason
    /// of its first lost segment.
    fn send_super(
        &mut self,
        batch: &Batch,
        lane: usize,
        drops: &mut DropCounts,
    ) -> Result<bool, OutputFailure> {
        let Self { output, segments, made, .. } = self;
        let Some(mut left) = batch.segments(lane) else {
            drops.add(DropReason::Malformed, 1);
            return Ok(false);
        };
        let mut losses = DropCounts::default();
        while !left.is_empty() {
            while !segments.is_full() && segments.push_segment(&mut left, batch, lane).is_some() {}
            if segments.is_empty() {
                losses.add(DropReason::PoolExhausted, left.len() as u64);
                break;
            }
            *made += segments.len() as u64;
            let sent = output.send_frames(segments, segments.lanes(), &mut losses);
            segments.release(Lanes::ALL);
            if let Err(failure) = sent {
                drops.add(DropReason::OutputFailed, 1);
                return Err(failure);
            }
        }
        let first = losses.iter().next().map(|(reason, _)| reason);
        first.iter().for_each(|reason| drops.add(*reason, 1));
        Ok(first.is_none())
    }

    /// Sends the packets of `lanes` in their order; returns those that were sent.
    fn send_each(
        &mut self,
        batch: &Batch,
        lanes: Lanes,
        drops: &mut DropCounts,
    ) -> Result<Lanes, OutputFailure> {
        let (mut sent, mut left) = (Lanes::NONE, lanes);
        for lane in self.segmented(batch, lanes) {
            let before = left.and(Lanes::first(lane));
            sent = sent.or(self.output.send(batch, before, drops)?);
            left = left.without(Lanes::first(lane + 1));
            if self.send_super(batch, lane, drops)? {
                sent.insert(lane);
            }
        }
        Ok(sent.or(self.output.send(batch, left, drops)?))
    }
}

impl Output for SegmentingOutput {
    fn send(
        &mut self,
        batch: &Batch,
        lanes: Lanes,
        drops: &mut DropCounts,
    ) -> Result<Lanes, OutputFailure> {
        if self.segmented(batch, lanes).is_empty() {
            return self.output.send(batch, lanes, drops);
        }
        // What a failing output has lost is counted in segments: so nothing waits in it before and
        // behind super-packets, and all packets of a call that fails count as not sent.
        let mut losses = DropCounts::default();
        let outcome = self.output.flush().and_then(|()| {
            let sent = self.send_each(batch, lanes, &mut losses);
            let flushed = sent.and_then(|sent| self.output.flush().map(|()| sent));
            flushed.map_err(|failure| OutputFailure { lost: Lost::default(), ..failure })
        });
        match outcome {
            Ok(sent) => {
                drops.merge(&losses);
                Ok(sent)
            }
            Err(failure) => {
                drops.add(DropReason::OutputFailed, lanes.count() as u64);
                Err(OutputFailure { sent: Lanes::NONE, ..failure })
            }
        }
    }

    /// Beside super-packets, packets stay in the batch.
    fn send_frames(
        &mut self,
        batch: &mut Batch,
        lanes: Lanes,
        drops: &mut DropCounts,
    ) -> Result<Lanes, OutputFailure> {
        if self.segmented(batch, lanes).is_empty() {
            return self.output.send_frames(batch, lanes, drops);
        }
        self.send(batch, lanes, drops)
    }

    fn takes_supers(&self) -> bool {
        true
    }

    fn takes_tunnelled_supers(&self) -> bool {
        true
    }

    fn flush(&mut self) -> Result<(), OutputFailure> {
        self.output.flush()
    }

    fn shortfall(&self) -> Shortfall {
        self.output.shortfall()
    }

    fn copied(&self) -> Option<u64> {
        self.output.copied().map(|copied| copied + self.made)
    }

    fn check(&mut self) -> Result<(), IoError> {
        self.output.check()
    }

    fn take_lost(&mut self) -> Lost {
        self.output.take_lost()
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Mutex;

    use thalweg_packet::write::{PacketBuilder, TcpSegment};

    use super::*;

    /// What an output holds back, and what it has passed on.
    #[derive(Default)]
    struct Sent {
        held: Vec<Vec<u8>>,
        passed: Vec<Vec<u8>>,
        /// The packets that it can still pass on.
        room: usize,
    }

    /// An output that holds packets back until it is flushed, and then fails without room for them.
    struct Lazy(Arc<Mutex<Sent>>);

    impl Output for Lazy {
        fn send(
            &mut self,
            batch: &Batch,
            lanes: Lanes,
            drops: &mut DropCounts,
        ) -> Result<Lanes, OutputFailure> {
            let mut sent = Lanes::NONE;
            for lane in lanes {
                if batch.bytes(lane).ends_with(b"bad") {
                    drops.add(DropReason::TooBig, 1);
                } else {
                    self.0.lock().unwrap().held.push(batch.bytes(lane).to_vec());
                    sent.insert(lane);
                }
            }
            Ok(sent)
        }

        fn flush(&mut self) -> Result<(), OutputFailure> {
            let mut sent = self.0.lock().unwrap();
            let Sent { held, passed, room } = &mut *sent;
            if held.len() > *room {
                let lost = Lost { packets: held.len() as u64, bytes: 1 };
                held.clear();
                let source = std::io::ErrorKind::StorageFull.into();
                let error = IoError::File { path: PathBuf::from("full"), source };
                return Err(OutputFailure { error, sent: Lanes::NONE, lost });
            }
            *room -= held.len();
            passed.append(held);
            Ok(())
        }
    }

    /// An output with that much room, and a batch with a packet, super-packets of these payloads, and
    /// another packet.
    fn case(room: usize, supers: &[&[u8]]) -> (Arc<Mutex<Sent>>, SegmentingOutput, Batch) {
        let pool = Arc::new(Pool::anonymous_with(128, 2048, 8).unwrap());
        let sent = Arc::new(Mutex::new(Sent { room, ..Sent::default() }));
        let output = SegmentingOutput::new(Box::new(Lazy(sent.clone())), &pool);
        let mut batch = Batch::new(pool);
        let builder = PacketBuilder::new([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let builder = builder.ip("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        batch.push_bytes(b"the first packet").unwrap();
        for payload in supers {
            let packet = builder.clone().tcp(TcpSegment::default()).build(payload);
            let lane = batch.push_super(packet.len(), 100).unwrap();
            batch.bytes_mut(lane).copy_from_slice(&packet);
        }
        batch.push_bytes(b"the last packet").unwrap();
        (sent, output, batch)
    }

    #[test]
    fn segments_are_sent_in_the_place_of_super_packets() {
        let (sent, mut output, batch) = case(1000, &[&[7; 4000], &[8; 150]]);
        let mut drops = DropCounts::default();
        assert_eq!(output.send(&batch, batch.lanes(), &mut drops).unwrap(), Lanes::first(4));
        assert_eq!(drops.total(), 0);
        let passed = &sent.lock().unwrap().passed;
        let lens: Vec<_> = passed.iter().map(Vec::len).collect();
        let mut expected = vec![16];
        expected.extend([154; 40]);
        expected.extend([154, 104, 15]);
        assert_eq!(lens, expected);
    }

    #[test]
    fn a_super_packet_that_was_not_sent_whole_is_dropped_once() {
        let (_sent, mut output, batch) = case(1000, &[b"some bad", &[7; 1000]]);
        let mut drops = DropCounts::default();
        let sent = output.send(&batch, batch.lanes(), &mut drops).unwrap();
        assert_eq!(sent, Lanes::first(4).without(Lanes::one(1)));
        assert_eq!((drops.get(DropReason::TooBig), drops.total()), (1, 1));
    }

    #[test]
    fn a_failure_counts_packets_and_not_segments() {
        let (sent, mut output, mut batch) = case(1, &[&[7; 1000]]);
        let (first, mut drops) = (Lanes::one(0), DropCounts::default());
        assert_eq!(output.send(&batch, first, &mut drops).unwrap(), first);
        batch.release(first);
        // That one is passed on before, the ten segments and the last are not.
        let failure = output.send(&batch, batch.lanes(), &mut drops).unwrap_err();
        assert_eq!((failure.sent, failure.lost), (Lanes::NONE, Lost::default()));
        assert_eq!((drops.get(DropReason::OutputFailed), drops.total()), (2, 2));
        assert_eq!(sent.lock().unwrap().passed.len(), 1);
    }

    #[test]
    fn what_a_failing_output_had_lost_before_is_reported() {
        let (_sent, mut output, batch) = case(0, &[&[7; 1000]]);
        let (first, mut drops) = (Lanes::one(0), DropCounts::default());
        output.send(&batch, first, &mut drops).unwrap();
        let failure = output.send(&batch, batch.lanes().without(first), &mut drops).unwrap_err();
        assert_eq!(failure.lost.packets, 1);
        assert_eq!((drops.get(DropReason::OutputFailed), drops.total()), (2, 2));
    }
}
