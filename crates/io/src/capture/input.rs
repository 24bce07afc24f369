//! A capture file as an input.

use std::os::fd::BorrowedFd;
use std::path::Path;

use thalweg_cpu::prefetch;
use thalweg_packet::{Batch, DropCounts, Nanoseconds};

use super::files::CaptureFiles;
use super::link::to_ethernet;
use super::read_ahead::BLOCK;
use super::record::{Next, Record};
use super::records::Records;
use super::selector::Selector;
use crate::claims::{Claims, Shared};
use crate::intake::{Intake, Taken, count};
use crate::passes::Passes;
use crate::port::{FOREVER, Input, IoError, Received, Shortfall};
use crate::selection::{PassedOver, Selection};

/// The most packets that a call passes over.
pub(super) const MOST_PASSED_OVER: u64 = 4096;

/// Bytes of a cache line.
const LINE: usize = 64;
/// How far ahead of the packets that are claimed the bytes of a file are prefetched: they come from
/// the cache of the core that has read them, and the worker that claims packets copies them next.
const PREFETCH: usize = 2048;

/// Reads a pcap or pcapng capture, plain or gzip-compressed, as a stream.
///
/// Memory stays bounded whatever the file holds. Captured timestamps and
/// lengths on the wire are kept; link types other than Ethernet get an
/// Ethernet header, or are dropped as
/// [`UnsupportedLinkType`](thalweg_packet::DropReason::UnsupportedLinkType).
///
/// A pipe is read as packets arrive: a call returns those that have arrived whole, and
/// [`descriptor`](Input::descriptor) is the pipe. It is read once, whatever the number of passes.
///
/// Several files are read as one, in the order of time; after the damage of one, the others are
/// read on. Several errors may therefore be returned, each by a call that receives no packet.
///
/// No packet is lost when no frame is free, unless none becomes free for a second:
/// the packet is held back for the next call.
pub struct CaptureInput {
    records: Records,
    selector: Selector,
    /// Packets that were passed over since the last call.
    passed_over: PassedOver,
    passes: Passes,
    intake: Intake,
    /// A record that found no free frame in the last call, or that was read ahead.
    held: Option<Record>,
    /// The length of the blocks in which files are read once packets are claimed.
    pub(super) block_len: usize,
    /// Damage after packets that are delivered first.
    failure: Option<IoError>,
    /// Whether there was damage: then the pass is the last one.
    is_damaged: bool,
    ended: bool,
}

impl CaptureInput {
    /// Opens the capture at `path`, to be read `loops` times (0 = forever).
    /// Each pass shifts the timestamps by the capture's duration and a mean gap.
    ///
    /// # Errors
    /// [`IoError::File`] if it cannot be read, [`IoError::Format`] if it is not a
    /// capture, [`IoError::Damaged`] if its file header is damaged.
    pub fn open(path: &Path, loops: u64) -> Result<Self, IoError> {
        Self::open_files(&CaptureFiles::one(path), Selection::default(), loops)
    }

    /// Opens captures, to be read as one `loops` times (0 = forever). Only packets of `selection`
    /// are received.
    ///
    /// # Errors
    /// As [`open`](Self::open) if it is one file; those of several files are returned when they
    /// are read.
    pub fn open_files(
        files: &CaptureFiles,
        selection: Selection,
        loops: u64,
    ) -> Result<Self, IoError> {
        Ok(Self::over(Records::open(files)?, selection, loops))
    }

    /// Receives the packets of `selection` from open captures.
    pub(super) fn over(records: Records, selection: Selection, loops: u64) -> Self {
        Self {
            records,
            selector: Selector::new(selection),
            passed_over: PassedOver::default(),
            passes: Passes::new(loops),
            intake: Intake::default(),
            held: None,
            block_len: BLOCK,
            failure: None,
            is_damaged: false,
            ended: false,
        }
    }

    /// The next selected record of this pass or, at its end, of the next one.
    fn next_record(&mut self) -> Result<Next, IoError> {
        // The run must be able to end, so that a call returns even if no packet is selected.
        while self.passed_over.total() < MOST_PASSED_OVER {
            match self.records.next().inspect_err(|_| self.is_damaged = true)? {
                Next::Record(record) => {
                    let data = self.records.data(&record);
                    if !self.selector.takes(&record, data, &mut self.passed_over) {
                        continue;
                    }
                    let timestamp = self.passes.timestamp(record.timestamp);
                    return Ok(Next::Record(Record { timestamp, ..record }));
                }
                Next::Later => return Ok(Next::Later),
                Next::End => {}
            }
            let is_last = self.is_damaged || self.records.descriptor().is_some();
            if is_last || !self.passes.next_pass() {
                return Ok(Next::End);
            }
            if let Err(failure) = self.records.restart() {
                self.is_damaged = true;
                return Err(failure);
            }
        }
        Ok(Next::Later)
    }

    /// Reads the record after those received, for its time. A pipe that had none for this call is
    /// not read again.
    fn look_ahead(&mut self, is_pending: bool) {
        if self.held.is_some() || self.ended || self.failure.is_some() || is_pending {
            return;
        }
        match self.next_record() {
            Ok(Next::Record(next)) => self.held = Some(next),
            Ok(Next::End) => self.ended = true,
            Ok(Next::Later) => {}
            Err(failure) => self.failure = Some(failure),
        }
    }

    /// Takes in a record; leaves it to `claims`, if there are some, to copy what can be shared.
    fn take(
        &mut self,
        record: &Record,
        batch: &mut Batch,
        drops: &mut DropCounts,
        received: &mut Received,
        claims: Option<&mut Claims>,
    ) -> Taken {
        let data = self.records.data(record);
        let converted = match to_ethernet(record.link, data) {
            Ok(converted) => converted,
            Err(unfit) => {
                drops.add(unfit.reason(), 1);
                count(received, record.wire_len);
                return Taken::Settled;
            }
        };
        let arrival = record.arrival(&converted, data);
        let shared = claims.and_then(|claims| Some((self.records.shared(record)?, claims)));
        let taken = match shared {
            Some((Shared { buffer, start }, claims)) => {
                for line in (0..record.total).step_by(LINE) {
                    prefetch::near(buffer, start + PREFETCH + line);
                }
                let start = start + data.len() - arrival.rest.len();
                let from = (Shared { buffer, start }, claims);
                self.intake.claim(arrival, from, batch, drops, received)
            }
            None => self.intake.take(arrival, batch, drops, received),
        };
        if taken == Taken::Settled && record.is_truncated() {
            self.intake.count_truncated();
        }
        taken
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
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let mut received = Received::default();
        let mut is_pending = false;
        // Dropped packets count as well, so that a call returns even if a
        // capture holds no usable packet.
        while !self.ended && received.packets < most && !batch.is_full() {
            let next = match self.held.take() {
                Some(record) => Ok(Next::Record(record)),
                None => self.next_record(),
            };
            match next {
                Ok(Next::Record(record)) => {
                    let is_due = received.packets == 0 || record.timestamp <= last;
                    let claims = claims.as_deref_mut();
                    if !is_due
                        || self.take(&record, batch, drops, &mut received, claims) == Taken::Later
                    {
                        self.held = Some(record);
                        break;
                    }
                }
                Ok(Next::Later) => {
                    is_pending = true;
                    break;
                }
                Ok(Next::End) => self.ended = true,
                Err(failure) if received.packets == 0 => return Err(failure),
                Err(failure) => {
                    self.failure = Some(failure);
                    break;
                }
            }
        }
        self.look_ahead(is_pending);
        received.passed_over = std::mem::take(&mut self.passed_over);
        received.ended = self.ended && self.failure.is_none();
        Ok(received)
    }
}

impl Input for CaptureInput {
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
        self.records.share_blocks(self.block_len);
        let received = self.fill(batch, most, last.unwrap_or(FOREVER), drops, Some(claims));
        claims.read_later(self.records.read_ahead());
        received
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // A packet that was read ahead needs no further bytes.
        self.records.descriptor().filter(|_| self.held.is_none() && self.failure.is_none())
    }

    fn upcoming(&self) -> Option<Nanoseconds> {
        self.held.map(|record| record.timestamp)
    }

    fn following(&mut self) -> Option<Nanoseconds> {
        let held = self.held?;
        let captured = self.records.following(&held)?;
        Some(captured.plus(self.passes.shift()))
    }

    fn share(&self) -> Option<f64> {
        self.passes.share(self.records.share()?)
    }

    fn shortfall(&self) -> Shortfall {
        self.intake.shortfall()
    }

    fn copied(&self) -> Option<u64> {
        Some(self.intake.taken())
    }
}
