//! The interface of an NF to its chain while it processes a batch.

use thalweg_packet::{BATCH, Batch, DropReason, Lanes, Nanoseconds};

use crate::{Emitted, Made, Note};

/// What an NF decided about one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// The packet goes to the next NF.
    #[default]
    Forward,
    /// The packet is dropped.
    Drop(DropReason),
    /// The packet goes to the controller.
    Punt,
}

/// What an NF decided about the packets of a batch. Every packet is forwarded unless the NF gives
/// another verdict.
#[derive(Clone, Copy, Debug, Default)]
pub struct Verdicts {
    verdicts: [Verdict; BATCH],
    dropped: Lanes,
    punted: Lanes,
}

impl Verdicts {
    /// The verdict on the packet of `lane`.
    #[inline]
    pub fn of(&self, lane: usize) -> Verdict {
        self.verdicts[lane]
    }

    /// The lanes that were dropped.
    #[inline]
    pub fn dropped(&self) -> Lanes {
        self.dropped
    }

    /// The lanes that go to the controller.
    #[inline]
    pub fn punted(&self) -> Lanes {
        self.punted
    }
}

/// The NF's side of one `process` call: the clock, its verdicts, the packets it
/// generates, and, when the packet is traced, its explanations.
///
/// Every packet is forwarded unless the NF gives another verdict.
#[derive(Debug)]
pub struct Context<'a> {
    clock: Nanoseconds,
    decided: Verdicts,
    emitted: &'a mut Emitted,
    trace: Option<&'a mut Vec<(usize, String)>>,
}

impl<'a> Context<'a> {
    /// A context after packets up to the time `clock` that collects new packets in `emitted`
    /// (empty) and explanations, by lane, in `trace`.
    #[inline]
    pub fn new(
        clock: Nanoseconds,
        emitted: &'a mut Emitted,
        trace: Option<&'a mut Vec<(usize, String)>>,
    ) -> Self {
        Self { clock, decided: Verdicts::default(), emitted, trace }
    }

    /// A context that goes on with what the NF has `decided` about the packets before.
    #[inline]
    pub fn resume(
        clock: Nanoseconds,
        decided: Verdicts,
        emitted: &'a mut Emitted,
        trace: Option<&'a mut Vec<(usize, String)>>,
    ) -> Self {
        Self { clock, decided, emitted, trace }
    }

    /// What the NF has decided.
    #[inline]
    pub fn into_verdicts(self) -> Verdicts {
        self.decided
    }

    /// The newest time of the packets before this batch; of the first packet, if there were none.
    ///
    /// What has ended by then has ended for every packet of the batch, so sweeps go by it. What
    /// depends on the time of a packet goes by its own, `batch.meta.timestamp[lane]`: a batch of a
    /// quiet capture spans minutes.
    #[inline]
    pub fn clock(&self) -> Nanoseconds {
        self.clock
    }

    /// Drops the packet of `lane` for `reason`.
    #[inline]
    pub fn drop(&mut self, lane: usize, reason: DropReason) {
        self.decided.verdicts[lane] = Verdict::Drop(reason);
        self.decided.dropped.insert(lane);
        self.decided.punted.remove(lane);
    }

    /// Sends the packet of `lane` to the controller.
    #[inline]
    pub fn punt(&mut self, lane: usize) {
        self.decided.verdicts[lane] = Verdict::Punt;
        self.decided.punted.insert(lane);
        self.decided.dropped.remove(lane);
    }

    /// Generates a new packet of `bytes` (from the Ethernet header on) on behalf of
    /// the packet in `lane`: an ICMP error, a TCP reset, a fragment. It is forwarded
    /// after this NF on the chain's routes, with the lane's input port and packet
    /// type; it does not start at the ingress. Returns where the new packet lies in
    /// [`emitted`](Self::emitted), or `None` without a free frame, which the caller
    /// counts.
    #[inline]
    pub fn emit(&mut self, batch: &Batch, lane: usize, bytes: &[u8]) -> Option<Made> {
        let made = self.emitted.push(bytes)?;
        Some(self.place(batch, lane, made))
    }

    /// As [`emit`](Self::emit), for a packet that an NF has held: with its `segment_size` if it is a
    /// super-packet, or 0. Of one in a tunnel, the caller sets the `inner_len` in its metadata.
    pub fn emit_again(
        &mut self,
        batch: &Batch,
        lane: usize,
        bytes: &[u8],
        segment_size: u16,
    ) -> Option<Made> {
        let made = match segment_size {
            0 => self.emitted.push(bytes)?,
            size => self.emitted.push_super(bytes, size)?,
        };
        Some(self.place(batch, lane, made))
    }

    /// Gives a generated packet the metadata of the one in `lane`.
    #[inline]
    fn place(&mut self, batch: &Batch, lane: usize, made: Made) -> Made {
        self.emitted.batch_of(made).meta.inherit(made.lane, &batch.meta, lane);
        if self.is_traced() {
            self.emitted.origins.push((lane, made));
        }
        made
    }

    /// Leaves `note` about the packet of `lane` for the whole of a divided NF
    /// ([`Division`](crate::Division)), which settles it behind all earlier packets.
    pub fn later(&mut self, lane: usize, note: Note) {
        self.emitted.notes.push((lane, note));
    }

    /// The packets generated so far.
    #[inline]
    pub fn emitted(&mut self) -> &mut Emitted {
        self.emitted
    }

    /// Explains a decision about the packet of `lane`; calls `text` only if a packet of the batch is
    /// traced.
    #[inline]
    pub fn explain(&mut self, lane: usize, text: impl FnOnce() -> String) {
        if self.is_traced() {
            self.tell(lane, text);
        }
    }

    // Out of line, for the sake of packets that are not traced.
    #[cold]
    fn tell(&mut self, lane: usize, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push((lane, text()));
        }
    }

    /// Whether explanations are collected.
    #[inline]
    pub fn is_traced(&self) -> bool {
        self.trace.is_some()
    }

    /// The verdict on the packet of `lane`.
    #[inline]
    pub fn verdict(&self, lane: usize) -> Verdict {
        self.decided.of(lane)
    }

    /// The lanes that were dropped.
    #[inline]
    pub fn dropped(&self) -> Lanes {
        self.decided.dropped
    }

    /// The lanes that go to the controller.
    #[inline]
    pub fn punted(&self) -> Lanes {
        self.decided.punted
    }
}
