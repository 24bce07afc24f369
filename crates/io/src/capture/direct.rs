//! A capture file as an input whose packets the kernel puts into their frames: none is copied by this program.
//!
//! The length of a packet stands before it, so that each call that reads packets also reads the header after them.
//! Where records of one length follow each other, as in bulk transfers, a call reads several: the next ones are
//! expected to be as long as this one, twice as many as the last time they were, and one after they were not. What
//! was read into frames in vain is read again.

use std::io::IoSliceMut;
use std::path::{Path, PathBuf};

use arrayvec::ArrayVec;
use thalweg_packet::{BATCH, Batch, DropCounts, Lanes, Nanoseconds};

use super::bytes::Fault;
use super::cursor::Cursor;
use super::input::MOST_PASSED_OVER;
use super::link::{ETHERNET, to_ethernet};
use super::record::{Next, Record, in_file};
use crate::intake::{Intake, Measures, Taken, count};
use crate::passes::Passes;
use crate::port::{FOREVER, Input, IoError, Received, Shortfall};
use crate::selection::{PassedOver, TimeRange};

/// Records with more than this behind their packet (comments) are read one by one.
const MOST_BEHIND: usize = 64;

/// Reads a capture file without copying its packets.
///
/// It receives what [`CaptureInput`](super::CaptureInput) receives from the same file. Packets of link types other
/// than Ethernet are copied, as they get another header.
pub struct DirectInput {
    path: PathBuf,
    cursor: Cursor,
    /// The next packet, if it was looked up; its time is that of this pass.
    next: Option<Record>,
    times: TimeRange,
    passed_over: PassedOver,
    passes: Passes,
    intake: Intake,
    /// Packets that were copied.
    copied: u64,
    /// How many records of one length are expected.
    run: usize,
    /// Runs that were read.
    #[cfg(test)]
    reads: usize,
    /// What follows the packets of a run; reused.
    after: Vec<u8>,
    /// Damage after packets that are delivered first.
    failure: Option<IoError>,
    /// Whether there was damage: then the pass is the last one.
    is_damaged: bool,
    ended: bool,
}

impl DirectInput {
    /// Opens the capture at `path`, to be read `loops` times (0 = forever); only packets captured in `times` are
    /// received.
    ///
    /// # Errors
    /// As [`CaptureInput::open`](super::CaptureInput::open), and [`IoError::Format`] if it is compressed or no file.
    pub fn open(path: &Path, times: TimeRange, loops: u64) -> Result<Self, IoError> {
        Ok(Self {
            path: path.into(),
            cursor: Cursor::open(path)?,
            next: None,
            times,
            passed_over: PassedOver::default(),
            passes: Passes::new(loops),
            intake: Intake::default(),
            copied: 0,
            run: 1,
            #[cfg(test)]
            reads: 0,
            after: Vec::new(),
            failure: None,
            is_damaged: false,
            ended: false,
        })
    }

    #[cfg(test)]
    pub(super) fn reads(&self) -> usize {
        self.reads
    }

    /// The next packet of this pass or, at its end, of the next one.
    fn next_record(&mut self) -> Result<Next, IoError> {
        if let Some(record) = self.next {
            return Ok(Next::Record(record));
        }
        // The run must be able to end, so that a call returns even if no packet is selected.
        while self.passed_over.total() < MOST_PASSED_OVER {
            let record = if self.is_damaged { None } else { self.found(Cursor::record)? };
            if let Some(record) = record {
                if !self.times.contains(record.timestamp) {
                    self.found(|cursor| cursor.check(&record))?;
                    self.cursor.advance(record.total, &[]);
                    self.passed_over.outside += 1;
                    continue;
                }
                let timestamp = self.passes.timestamp(record.timestamp);
                let next = Record { timestamp, ..record };
                self.next = Some(next);
                return Ok(Next::Record(next));
            }
            if self.is_damaged || !self.passes.next_pass() {
                return Ok(Next::End);
            }
            self.cursor = Cursor::open(&self.path).inspect_err(|_| self.is_damaged = true)?;
        }
        Ok(Next::Later)
    }

    /// What `look` returns; a fault is that of the file, and ends its reading.
    fn found<R>(
        &mut self,
        look: impl FnOnce(&mut Cursor) -> Result<R, Fault>,
    ) -> Result<R, IoError> {
        look(&mut self.cursor).map_err(|fault| {
            (self.is_damaged, self.next) = (true, None);
            in_file(&self.path, fault)
        })
    }

    /// Goes on behind `record`, after which `head` follows as far as it is known.
    fn advance(&mut self, record: &Record, head: &[u8]) {
        self.cursor.advance(record.total, head);
        self.next = None;
    }

    /// Counts `record`, which was taken in or dropped, if the capture does not hold its packet whole.
    fn count_truncated(&mut self, record: &Record) {
        if record.is_truncated() {
            self.intake.count_truncated();
        }
    }

    /// Reads `record`, the next one, and those after it that are as long, up to `most`, that were captured until
    /// `last`. Returns whether there was a frame.
    fn take(
        &mut self,
        record: Record,
        (most, last): (usize, Nanoseconds),
        batch: &mut Batch,
        drops: &mut DropCounts,
        received: &mut Received,
    ) -> Result<bool, IoError> {
        let behind = behind(&record);
        let run = if behind > MOST_BEHIND { 1 } else { self.run.min(most) };
        let blanks = std::iter::from_fn(|| batch.push_blank(record.len)).take(run);
        let lanes: Lanes = blanks.collect();
        if lanes.is_empty() {
            // It is too long for a frame, or there is none.
            self.found(|cursor| cursor.check(&record))?;
            let taken = self.intake.take_by(|_| None, measures(&record), batch, drops, received);
            if taken == Taken::Settled {
                self.count_truncated(&record);
                self.advance(&record, &[]);
            }
            return Ok(taken == Taken::Settled);
        }
        let each = behind + record.start;
        let mut after = std::mem::take(&mut self.after);
        after.resize(each * lanes.count(), 0);
        let mut parts = ArrayVec::<_, { 2 * BATCH }>::new();
        for ((_, packet), after) in batch.each_mut(lanes).zip(after.chunks_exact_mut(each)) {
            parts.extend([IoSliceMut::new(packet), IoSliceMut::new(after)]);
        }
        #[cfg(test)]
        (self.reads += 1);
        let there = self.found(|cursor| cursor.read_packet(&record, &mut parts));
        drop(parts);
        let read = there.map(|there| Run { first: record, lanes, after: &after, there });
        let accepted = read.and_then(|run| self.accept(&run, last, batch, drops, received));
        let taken = *accepted.as_ref().unwrap_or(&Lanes::NONE);
        batch.release(lanes.without(taken));
        // Of fewer than were expected, for lack of room, nothing is known.
        self.run = if taken == lanes { self.run.max(2 * lanes.count()).min(BATCH) } else { 1 };
        self.after = after;
        accepted.map(|_| true)
    }

    /// Takes in the packets of a run, up to the first that is not what was expected; returns their lanes.
    fn accept(
        &mut self,
        run: &Run<'_>,
        last: Nanoseconds,
        batch: &mut Batch,
        drops: &mut DropCounts,
        received: &mut Received,
    ) -> Result<Lanes, IoError> {
        let Run { first, lanes, after, there } = *run;
        let (start, behind, mut accepted) = (self.cursor.at(), behind(&first), Lanes::NONE);
        for (number, lane) in lanes.into_iter().enumerate() {
            let record = match self.next_record() {
                Ok(Next::Record(record)) => record,
                Ok(Next::Later | Next::End) => break,
                Err(failure) => {
                    self.failure = Some(failure);
                    break;
                }
            };
            let before = number * first.total;
            let is_expected = self.cursor.at() == start + before as u64
                && record.has_layout_of(&first)
                && (number == 0 || record.timestamp <= last);
            if !is_expected {
                break;
            }
            // From the packet on.
            let there = there.saturating_sub(before);
            let (end, head) = after[number * (behind + record.start)..].split_at(behind);
            match self.cursor.check_read(&record, there, end) {
                // It is read again, as the first of a run.
                Err(_) if number > 0 => break,
                checked => self.found(|_| checked)?,
            }
            let push = |_: &mut Batch| Some(lane);
            self.intake.take_by(push, measures(&record), batch, drops, received);
            self.count_truncated(&record);
            accepted.insert(lane);
            let known = there.saturating_sub(record.len + behind).min(record.start);
            self.advance(&record, &head[..known]);
        }
        Ok(accepted)
    }

    /// Copies `record`, the next one, which gets an Ethernet header. Returns whether there was a frame.
    fn copy(
        &mut self,
        record: &Record,
        batch: &mut Batch,
        drops: &mut DropCounts,
        received: &mut Received,
    ) -> Result<bool, IoError> {
        let mut bytes = vec![0; record.len];
        let mut parts = [IoSliceMut::new(&mut bytes)];
        self.found(|cursor| {
            cursor.check(record)?;
            cursor.read_packet(record, &mut parts)
        })?;
        let taken = match to_ethernet(record.link, &bytes) {
            Ok(converted) => {
                let arrival = record.arrival(&converted, &bytes);
                let taken = self.intake.take(arrival, batch, drops, received);
                if taken == Taken::Settled {
                    self.copied += 1;
                    self.count_truncated(record);
                }
                taken
            }
            Err(unfit) => {
                drops.add(unfit.reason(), 1);
                count(received, record.wire_len);
                Taken::Settled
            }
        };
        if taken == Taken::Settled {
            self.advance(record, &[]);
        }
        Ok(taken == Taken::Settled)
    }

    /// Looks up the packet after those received, for its time, which is that of a whole record.
    fn look_ahead(&mut self) {
        if self.ended || self.failure.is_some() {
            return;
        }
        let next = self.next_record().and_then(|next| match next {
            Next::Record(record) => self.found(|cursor| cursor.check(&record)).map(|()| next),
            Next::Later | Next::End => Ok(next),
        });
        match next {
            Ok(Next::Record(_) | Next::Later) => {}
            Ok(Next::End) => self.ended = true,
            Err(failure) => self.failure = Some(failure),
        }
    }
}

/// Records that were read at once.
#[derive(Clone, Copy)]
struct Run<'a> {
    first: Record,
    /// Where the packets were read to, if all records are as long as the first.
    lanes: Lanes,
    /// What follows each packet: the end of its record, and the header of the next one.
    after: &'a [u8],
    /// The bytes that the file has from the first packet on, of those that were to be read.
    there: usize,
}

/// The bytes of a record behind its packet.
fn behind(record: &Record) -> usize {
    record.total - record.start - record.len
}

/// What is known of a packet of Ethernet before it is read.
fn measures(record: &Record) -> Measures {
    Measures { len: record.len, wire_len: record.wire_len, timestamp: record.timestamp }
}

impl Input for DirectInput {
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
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let mut received = Received::default();
        // Dropped packets count as well, so that a call returns even if a capture holds no usable packet.
        while !self.ended && self.failure.is_none() && received.packets < most && !batch.is_full() {
            let taken = match self.next_record() {
                Ok(Next::Record(record)) => {
                    let left = most - received.packets;
                    if received.packets > 0 && record.timestamp > last {
                        break;
                    }
                    if record.link == ETHERNET {
                        self.take(record, (left, last), batch, drops, &mut received)
                    } else {
                        self.copy(&record, batch, drops, &mut received)
                    }
                }
                Ok(Next::Later) => Ok(false),
                Ok(Next::End) => {
                    self.ended = true;
                    Ok(true)
                }
                Err(failure) => Err(failure),
            };
            match taken {
                Ok(true) => {}
                Ok(false) => break,
                Err(failure) if received.packets == 0 => return Err(failure),
                Err(failure) => self.failure = Some(failure),
            }
        }
        self.look_ahead();
        received.passed_over = std::mem::take(&mut self.passed_over);
        received.ended = self.ended && self.failure.is_none();
        Ok(received)
    }

    fn upcoming(&self) -> Option<Nanoseconds> {
        self.next.map(|record| record.timestamp)
    }

    fn following(&mut self) -> Option<Nanoseconds> {
        let mut ahead = self.cursor.clone();
        ahead.advance(self.next?.total, &[]);
        let record = ahead.record().ok()??;
        ahead.check(&record).ok()?;
        Some(record.timestamp.plus(self.passes.shift()))
    }

    fn share(&self) -> Option<f64> {
        self.passes.share(self.cursor.share()?)
    }

    fn shortfall(&self) -> Shortfall {
        self.intake.shortfall()
    }

    fn copied(&self) -> Option<u64> {
        Some(self.copied)
    }
}
