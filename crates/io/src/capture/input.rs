//! Captures as inputs.

use std::path::Path;

use thalweg_packet::{Batch, DropCounts, DropReason, Nanoseconds};

use super::link::{Conversion, conversion};
use super::reader::{Reader, Record};
use crate::port::{Input, IoError, Received};

/// Reads a capture file from its beginning to its end, as often as asked.
///
/// Nothing is lost for want of a frame: a packet that finds none stays in the
/// file until the next call.
pub struct CaptureInput {
    reader: Reader,
    clock: LoopClock,
    /// Passes that remain after this one; `None` for ever.
    passes: Option<u64>,
    failure: Option<IoError>,
    ended: bool,
}

impl CaptureInput {
    /// Opens the capture at `path`, to be read `loops` times (0 = for ever).
    ///
    /// # Errors
    /// When the file cannot be opened or is no capture.
    pub fn open(path: &Path, loops: u64) -> Result<Self, IoError> {
        Ok(Self {
            reader: Reader::open(path)?,
            clock: LoopClock::default(),
            passes: loops.checked_sub(1),
            failure: None,
            ended: false,
        })
    }

    /// Begins the next pass; `false` when there is none.
    fn rewind(&mut self) -> Result<bool, IoError> {
        let again = match &mut self.passes {
            None => true,
            Some(0) => false,
            Some(n) => {
                *n -= 1;
                true
            }
        };
        // A capture without packets would be read for ever.
        if !again || !self.clock.next_pass() {
            return Ok(false);
        }
        self.reader = Reader::open(&self.reader.path().to_owned())?;
        Ok(true)
    }

    /// The next record; `None` at the end of the last pass.
    fn next(&mut self) -> Result<Option<Record>, IoError> {
        loop {
            if let Some(record) = self.reader.peek()? {
                return Ok(Some(record));
            }
            if !self.rewind()? {
                return Ok(None);
            }
        }
    }
}

impl Input for CaptureInput {
    fn receive(
        &mut self,
        batch: &mut Batch,
        most: usize,
        drops: &mut DropCounts,
    ) -> Result<Received, IoError> {
        let mut received = Received { packets: 0, bytes: 0, ended: self.ended };
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        while !self.ended && received.packets < most && !batch.is_full() {
            let record = match self.next() {
                Ok(Some(record)) => record,
                Ok(None) => {
                    self.ended = true;
                    break;
                }
                Err(failure) => {
                    self.ended = true;
                    self.failure = Some(failure);
                    break;
                }
            };
            let timestamp = self.clock.time(record.timestamp);
            match deliver(batch, self.reader.bytes(&record), &record, timestamp) {
                Ok(()) => {}
                Err(DropReason::PoolExhausted) if !batch.is_empty() => break,
                Err(reason) => drops.add(reason, 1),
            }
            self.clock.passed(record.timestamp);
            self.reader.advance();
            received.packets += 1;
            received.bytes += u64::from(record.wire_len);
        }
        received.ended = self.ended && self.failure.is_none();
        Ok(received)
    }
}

/// Puts a packet into `batch` as Ethernet.
fn deliver(
    batch: &mut Batch,
    bytes: &[u8],
    record: &Record,
    timestamp: Nanoseconds,
) -> Result<(), DropReason> {
    let (header, skip) = match conversion(record.link_type, bytes) {
        Conversion::None => ([0; 14], None),
        Conversion::Header { skip, header } => (header, Some(skip)),
        Conversion::Malformed => return Err(DropReason::Malformed),
        Conversion::Unsupported => return Err(DropReason::UnsupportedLinkType),
    };
    let body = &bytes[skip.unwrap_or(0)..];
    let header = if skip.is_some() { &header[..] } else { &[] };
    let lane = push(batch, header, body)?;
    let taken_off = skip.unwrap_or(0) as u32;
    batch.meta.wire_len[lane] = record.wire_len.saturating_sub(taken_off) + header.len() as u32;
    batch.meta.timestamp[lane] = timestamp;
    Ok(())
}

/// Copies a packet of two parts into a fresh frame.
pub(crate) fn push(batch: &mut Batch, head: &[u8], body: &[u8]) -> Result<usize, DropReason> {
    let len = head.len() + body.len();
    if len > batch.capacity() {
        return Err(DropReason::FrameTooSmall);
    }
    let lane = batch.push_blank(len).ok_or(DropReason::PoolExhausted)?;
    let frame = batch.bytes_mut(lane);
    frame[..head.len()].copy_from_slice(head);
    frame[head.len()..].copy_from_slice(body);
    Ok(lane)
}

/// Packet time over several passes of one capture: each begins where the one
/// before ended, a mean gap later, so that time does not run backwards.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LoopClock {
    shift: u64,
    packets: u64,
    first: Option<u64>,
    last: u64,
}

impl LoopClock {
    /// The time in this pass of a packet that was captured at `timestamp`.
    pub(crate) fn time(&self, timestamp: Nanoseconds) -> Nanoseconds {
        timestamp.plus(Nanoseconds(self.shift))
    }

    /// Notes that a packet captured at `timestamp` has passed.
    pub(crate) fn passed(&mut self, timestamp: Nanoseconds) {
        self.packets += 1;
        let first = self.first.get_or_insert(timestamp.0);
        *first = (*first).min(timestamp.0);
        self.last = self.last.max(timestamp.0);
    }

    /// Begins the next pass; `false` when this one had no packet.
    pub(crate) fn next_pass(&mut self) -> bool {
        let Some(first) = self.first.take() else { return false };
        let span = self.last - first;
        self.shift = self.shift.saturating_add(span + (span / self.packets).max(1));
        (self.packets, self.last) = (0, 0);
        true
    }
}
