//! Packets replayed from memory, for benchmarks and tests.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use thalweg_packet::{Batch, DropCounts, Nanoseconds};

use crate::capture::{CaptureFiles, Next, Records, Selector, Unfit, to_ethernet};
use crate::claims::{Claims, Shared};
use crate::intake::{Arrival, Intake, Taken, count};
use crate::passes::{Passes, Span};
use crate::port::{FOREVER, Input, IoError, Received, Shortfall};
use crate::selection::{PassedOver, Selection};

/// Replays packets that were loaded before: receiving a packet is one copy into a
/// frame and no other work.
///
/// All bytes of the capture are in memory at once. A pipe is loaded as its bytes arrive, and
/// replayed when it has ended.
pub struct MemoryInput {
    /// The pipe that is being loaded.
    loading: Option<Records>,
    selector: Selector,
    /// Packets that a pass passes over, and those that no call has returned yet.
    passed_over: PassedOver,
    unreported: PassedOver,
    bytes: Arc<Vec<u8>>,
    packets: Vec<Stored>,
    /// The next packet, as an index into `packets`.
    next: usize,
    passes: Passes,
    /// The times of all packets.
    span: Span,
    intake: Intake,
    /// Packets that needed only a copy.
    plain: u64,
    /// The damage in the captures; reported after the packets.
    failures: VecDeque<IoError>,
    ended: bool,
}

#[derive(Clone, Copy, Debug)]
struct Stored {
    start: usize,
    /// The length of the packet in bytes, or why it cannot be converted to Ethernet.
    len: Result<u32, Unfit>,
    wire_len: u32,
    timestamp: Nanoseconds,
    /// Whether the capture holds fewer bytes than were on the wire.
    truncated: bool,
}

impl MemoryInput {
    /// Loads the capture at `path`, to be replayed `loops` times (0 =
    /// forever). A damaged capture is loaded until the damage and replayed once.
    ///
    /// # Errors
    /// As [`CaptureInput::open`](crate::CaptureInput::open).
    pub fn load(path: &Path, loops: u64) -> Result<Self, IoError> {
        Self::load_files(&CaptureFiles::one(path), Selection::default(), loops)
    }

    /// Loads the packets of `selection` in captures, to be replayed as one `loops` times (0 =
    /// forever). If one is damaged, the others are loaded, and all are replayed once.
    ///
    /// # Errors
    /// As [`CaptureInput::open_files`](crate::CaptureInput::open_files).
    pub fn load_files(
        files: &CaptureFiles,
        selection: Selection,
        loops: u64,
    ) -> Result<Self, IoError> {
        Ok(Self::over(Records::open(files)?, selection, loops))
    }

    /// Loads the packets of `selection` in open captures.
    pub(crate) fn over(records: Records, selection: Selection, loops: u64) -> Self {
        let (loading, selector) = (Some(records), Selector::new(selection));
        let mut input = Self { loading, selector, ..Self::empty(loops) };
        input.load_more();
        input
    }

    /// Loads the packets that have arrived.
    fn load_more(&mut self) {
        let Some(mut records) = self.loading.take() else { return };
        loop {
            let record = match records.next() {
                Ok(Next::Record(record)) => record,
                Ok(Next::Later) => {
                    self.loading = Some(records);
                    return;
                }
                Ok(Next::End) => return,
                Err(failure) => {
                    self.failures.push_back(failure);
                    continue;
                }
            };
            let data = records.data(&record);
            if !self.selector.takes(&record, data, &mut self.passed_over) {
                continue;
            }
            match to_ethernet(record.link, data) {
                Ok(converted) => self.store(
                    &[converted.header(), converted.rest(data)],
                    converted.wire_len(record.wire_len),
                    record.timestamp,
                ),
                Err(unfit) => self.keep(Stored {
                    start: 0,
                    len: Err(unfit),
                    wire_len: record.wire_len,
                    timestamp: record.timestamp,
                    truncated: false,
                }),
            }
        }
    }

    /// Creates an input of the given times and Ethernet packets, to be replayed `loops`
    /// times (0 = forever).
    pub fn from_packets<B: AsRef<[u8]>>(
        packets: impl IntoIterator<Item = (Nanoseconds, B)>,
        loops: u64,
    ) -> Self {
        let mut input = Self::empty(loops);
        for (timestamp, bytes) in packets {
            let bytes = bytes.as_ref();
            input.store(&[bytes], bytes.len() as u32, timestamp);
        }
        input
    }

    /// The number of packets in a pass.
    pub fn packets(&self) -> usize {
        self.packets.len()
    }

    fn empty(loops: u64) -> Self {
        Self {
            loading: None,
            selector: Selector::default(),
            passed_over: PassedOver::default(),
            unreported: PassedOver::default(),
            bytes: Arc::default(),
            packets: Vec::new(),
            next: 0,
            passes: Passes::new(loops),
            span: Span::default(),
            intake: Intake::default(),
            plain: 0,
            failures: VecDeque::new(),
            ended: false,
        }
    }

    fn store(&mut self, parts: &[&[u8]], wire_len: u32, timestamp: Nanoseconds) {
        // Shared only once all packets are loaded.
        let bytes = Arc::make_mut(&mut self.bytes);
        let start = bytes.len();
        for part in parts {
            bytes.extend_from_slice(part);
        }
        let len = Ok((bytes.len() - start) as u32);
        let truncated = bytes.len() - start < wire_len as usize;
        self.keep(Stored { start, len, wire_len, timestamp, truncated });
    }

    fn keep(&mut self, packet: Stored) {
        self.span.add(packet.timestamp);
        self.packets.push(packet);
    }

    /// Copies packets that need only a copy into `batch`, until `most` were
    /// received or a packet needs more.
    fn receive_plain(&mut self, batch: &mut Batch, most: usize, received: &mut Received) {
        let shift = self.passes.shift();
        let next = self.packets[self.next..].iter().take(most - received.packets);
        let plain = next.clone().map_while(|packet| {
            let bytes = &self.bytes[packet.start..packet.start + packet.len.ok()? as usize];
            Some((bytes, packet.wire_len, packet.timestamp.plus(shift)))
        });
        let taken = batch.push_copies(plain);
        received.packets += taken;
        self.plain += taken as u64;
        received.bytes += next.take(taken).map(|packet| u64::from(packet.wire_len)).sum::<u64>();
        self.next += taken;
    }

    /// As [`receive_plain`](Self::receive_plain), but leaves the copies to `claims`.
    fn claim_plain(
        &mut self,
        batch: &mut Batch,
        most: usize,
        received: &mut Received,
        claims: &mut Claims,
    ) {
        let shift = self.passes.shift();
        for packet in self.packets[self.next..].iter().take(most - received.packets) {
            let Some((len, lane)) = packet.len.ok().and_then(|len| {
                let len = len as usize;
                Some((len, batch.push_blank(len)?))
            }) else {
                return;
            };
            batch.meta.wire_len[lane] = packet.wire_len;
            batch.meta.timestamp[lane] = packet.timestamp.plus(shift);
            claims.add(lane, Shared { buffer: &self.bytes, start: packet.start }, len);
            count(received, packet.wire_len);
            self.plain += 1;
            self.next += 1;
        }
    }

    /// Takes in the next packet, or counts its drop reason; returns `false` if it has to
    /// wait for a frame.
    fn receive_any(
        &mut self,
        packet: Stored,
        batch: &mut Batch,
        drops: &mut DropCounts,
        received: &mut Received,
    ) -> bool {
        match packet.len {
            Ok(len) => {
                let arrival = Arrival {
                    header: &[],
                    rest: &self.bytes[packet.start..packet.start + len as usize],
                    wire_len: packet.wire_len,
                    timestamp: packet.timestamp.plus(self.passes.shift()),
                };
                if self.intake.take(arrival, batch, drops, received) == Taken::Later {
                    return false;
                }
            }
            Err(unfit) => {
                drops.add(unfit.reason(), 1);
                count(received, packet.wire_len);
            }
        }
        self.next += 1;
        true
    }

    /// How many of the next packets, of `most` with those received, are not later than `last`; the
    /// first packet of a call always is.
    fn due(&self, most: usize, last: Nanoseconds, received: &Received) -> usize {
        let most = most - received.packets;
        if last == FOREVER {
            return most;
        }
        let shift = self.passes.shift();
        let first = usize::from(received.packets == 0);
        let next = self.packets[self.next..].iter().take(most).skip(first);
        first + next.take_while(|packet| packet.timestamp.plus(shift) <= last).count()
    }

    /// Whether there are no more packets; begins another pass if one is due.
    fn is_over(&mut self) -> bool {
        if self.next < self.packets.len() || self.ended {
            return self.ended;
        }
        self.unreported.merge(&self.passed_over);
        self.ended = !self.failures.is_empty() || !self.passes.next_pass_after(self.span);
        if !self.ended {
            self.next = 0;
        }
        self.ended
    }

    /// Receives packets as [`Input::receive_until`] does, or claims them.
    fn fill(
        &mut self,
        batch: &mut Batch,
        most: usize,
        last: Nanoseconds,
        drops: &mut DropCounts,
        mut claims: Option<&mut Claims>,
    ) -> Result<Received, IoError> {
        let mut received = Received::default();
        self.load_more();
        if self.loading.is_some() {
            return Ok(received);
        }
        while !self.is_over() && received.packets < most && !batch.is_full() {
            let most = received.packets + self.due(most, last, &received);
            if received.packets == most {
                break;
            }
            match claims.as_deref_mut() {
                Some(claims) => self.claim_plain(batch, most, &mut received, claims),
                None => self.receive_plain(batch, most, &mut received),
            }
            let stuck = received.packets < most && !batch.is_full();
            if let Some(packet) = self.packets.get(self.next).copied().filter(|_| stuck)
                && !self.receive_any(packet, batch, drops, &mut received)
            {
                break;
            }
        }
        if self.is_over()
            && received.packets == 0
            && let Some(failure) = self.failures.pop_front()
        {
            return Err(failure);
        }
        received.ended = self.is_over() && self.failures.is_empty();
        received.passed_over = std::mem::take(&mut self.unreported);
        Ok(received)
    }
}

impl Input for MemoryInput {
    fn receive(
        &mut self,
        batch: &mut Batch,
        most: usize,
        drops: &mut DropCounts,
    ) -> Result<Received, IoError> {
        self.receive_until(batch, most, FOREVER, drops)
    }

    fn receive_until(
        &mut self,
        batch: &mut Batch,
        most: usize,
        last: Nanoseconds,
        drops: &mut DropCounts,
    ) -> Result<Received, IoError> {
        self.fill(batch, most, last, drops, None)
    }

    fn claim(
        &mut self,
        batch: &mut Batch,
        most: usize,
        last: Option<Nanoseconds>,
        drops: &mut DropCounts,
        claims: &mut Claims,
    ) -> Result<Received, IoError> {
        self.fill(batch, most, last.unwrap_or(FOREVER), drops, Some(claims))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.loading.as_ref().and_then(Records::descriptor)
    }

    fn upcoming(&self) -> Option<Nanoseconds> {
        let next = self.packets.get(self.next)?;
        Some(next.timestamp.plus(self.passes.shift()))
    }

    fn following(&mut self) -> Option<Nanoseconds> {
        let following = self.packets.get(self.next + 1)?;
        Some(following.timestamp.plus(self.passes.shift()))
    }

    fn share(&self) -> Option<f64> {
        if self.loading.is_some() {
            return None;
        }
        self.passes.share(self.next as f64 / self.packets.len().max(1) as f64)
    }

    fn shortfall(&self) -> Shortfall {
        let truncated = |packets: &[Stored]| packets.iter().filter(|p| p.truncated).count() as u64;
        let before = self.passes.done().saturating_mul(truncated(&self.packets));
        Shortfall {
            truncated: before + truncated(&self.packets[..self.next]),
            ..self.intake.shortfall()
        }
    }

    fn copied(&self) -> Option<u64> {
        Some(self.plain + self.intake.taken())
    }
}
