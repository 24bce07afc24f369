//! Copies of dropped packets.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

use thalweg_chain::Plan;
use thalweg_packet::{Batch, DropReason, Nanoseconds};

use super::{Observers, Pattern};

/// The most packets of a request that wait to be read.
const MOST_WAITING: usize = 4096;
/// The most bytes of these packets.
const MOST_BYTES: usize = 16 << 20;

/// Which dropped packets are wanted; by default all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DropsWanted {
    /// A flow in the syntax of rules that the packet matches when it is dropped; empty for all.
    pub pattern: String,
    /// The NF that drops it; `None` for all places.
    pub nf: Option<String>,
}

/// Where a packet was dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DropPlace {
    /// In an NF.
    Nf(String),
    /// Between NFs: after the named one, or ahead of the first.
    Chain(Option<String>),
    /// At an output.
    Output(String),
}

impl Display for DropPlace {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nf(name) => f.write_str(name),
            Self::Chain(None) => f.write_str("the chain at ingress"),
            Self::Chain(Some(name)) => write!(f, "the chain after {name}"),
            Self::Output(name) => write!(f, "output {name}"),
        }
    }
}

/// A copy of a dropped packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropRecord {
    /// Where it was dropped.
    pub place: DropPlace,
    /// Why.
    pub reason: DropReason,
    /// The input that received it, or for which packet it was generated.
    pub input: String,
    /// When it was captured or received.
    pub time: Nanoseconds,
    /// Its bytes when it was dropped, from the Ethernet header on.
    pub bytes: Vec<u8>,
    /// Bytes that it had on the wire; more than `bytes` where its capture truncated it.
    pub wire_len: u32,
    /// Packets between this record and the one before it that are missed.
    pub missed: u64,
}

/// What the packet path and the reader share.
#[derive(Debug, Default)]
struct Counts {
    /// Bytes of the packets that wait to be read.
    bytes: AtomicUsize,
    /// Packets missed since the last record.
    missed_since: AtomicU64,
    missed: AtomicU64,
}

/// A request for dropped packets, as the packet path sees it.
#[derive(Debug)]
pub(crate) struct DropWatch {
    pattern: Pattern,
    nf: Option<String>,
    counts: Arc<Counts>,
    records: SyncSender<DropRecord>,
}

impl DropWatch {
    /// Copies the packet of `lane`, which is parsed and dropped at `place` of `plan`, if it is wanted
    /// and there is room.
    pub(super) fn record(
        &self,
        batch: &Batch,
        lane: usize,
        plan: &Plan,
        place: &DropPlace,
        reason: DropReason,
    ) {
        let is_there = |nf: &String| matches!(place, DropPlace::Nf(name) if name == nf);
        if !self.nf.as_ref().is_none_or(is_there) || !self.pattern.covers(batch, lane, plan) {
            return;
        }
        let bytes = batch.bytes(lane);
        let Counts { bytes: waiting, missed_since, missed } = &*self.counts;
        if waiting.fetch_add(bytes.len(), Relaxed) + bytes.len() <= MOST_BYTES {
            let before = missed_since.swap(0, Relaxed);
            let input = plan.inputs.get(usize::from(batch.meta.in_port[lane].0));
            let record = DropRecord {
                place: place.clone(),
                reason,
                input: input.map_or_else(String::new, |input| input.name.clone()),
                time: batch.meta.captured(lane),
                bytes: bytes.to_vec(),
                wire_len: batch.meta.wire_len[lane].max(bytes.len() as u32),
                missed: before,
            };
            if self.records.try_send(record).is_ok() {
                return;
            }
            missed_since.fetch_add(before, Relaxed);
        }
        waiting.fetch_sub(bytes.len(), Relaxed);
        missed_since.fetch_add(1, Relaxed);
        missed.fetch_add(1, Relaxed);
    }
}

/// A request for dropped packets, and the end where they are read.
pub(super) fn watch(
    pattern: Pattern,
    nf: Option<String>,
    observers: Arc<Observers>,
) -> (DropWatch, Drops) {
    let (send, receive) = sync_channel(MOST_WAITING);
    let counts = Arc::<Counts>::default();
    let watch = DropWatch { pattern, nf, counts: counts.clone(), records: send };
    (watch, Drops { records: receive, counts, observers })
}

/// The dropped packets that [`Control::drops`](crate::Control::drops) has requested. Dropping it ends
/// the request.
///
/// Packets of a batch that one stage drops follow each other; otherwise they have no order with
/// several workers.
#[derive(Debug)]
pub struct Drops {
    records: Receiver<DropRecord>,
    counts: Arc<Counts>,
    observers: Arc<Observers>,
}

impl Drops {
    /// The next packet, if one is there.
    ///
    /// # Errors
    /// [`TryRecvError::Empty`] if none is there yet; [`TryRecvError::Disconnected`] if there will be
    /// none, because the run has ended.
    pub fn try_next(&mut self) -> Result<DropRecord, TryRecvError> {
        let record = self.records.try_recv()?;
        self.counts.bytes.fetch_sub(record.bytes.len(), Relaxed);
        Ok(record)
    }

    /// Packets that were wanted and are not among the records, because those before them waited to be
    /// read.
    pub fn missed(&self) -> u64 {
        self.counts.missed.load(Relaxed)
    }
}

impl Drop for Drops {
    fn drop(&mut self) {
        self.observers.retain(|_| true, |watch| !Arc::ptr_eq(&watch.counts, &self.counts));
    }
}
