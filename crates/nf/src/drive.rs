//! An NF that tests send packets through.

use std::path::Path;
use std::sync::Arc;

use thalweg_io::{CaptureInput, Input, IoError};
use thalweg_packet::{BATCH, Batch, Decapsulate, DropCounts, Lanes, Nanoseconds, Pool, parse};

use crate::{Context, Emitted, NetworkFunction, Verdict};

/// Asserts that the keys and headers of the packets of `lanes`, parsed without decapsulation, agree
/// with their bytes: that an NF marked what it changed.
pub(crate) fn assert_fresh(batch: &mut Batch, lanes: Lanes) {
    batch.parse_changed();
    for lane in lanes {
        let now = parse(batch.bytes(lane), batch.meta.in_port[lane], Decapsulate::No);
        assert_eq!((batch.key(lane), *batch.headers(lane)), now, "lane {lane}");
    }
}

/// An NF with a frame pool and a packet time.
pub(crate) struct Drive {
    pub(crate) nf: Box<dyn NetworkFunction>,
    /// Packet time; captures advance it.
    pub(crate) now: Nanoseconds,
    pub(crate) decapsulate: Decapsulate,
    pool: Arc<Pool>,
}

impl Drive {
    pub(crate) fn new(nf: Box<dyn NetworkFunction>) -> Self {
        let pool = Arc::new(Pool::anonymous(128, 16384).unwrap());
        Self { nf, now: Nanoseconds::default(), decapsulate: Decapsulate::No, pool }
    }

    /// Sends packets in batches; returns the verdict on each.
    pub(crate) fn send(&mut self, packets: &[Vec<u8>]) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for packets in packets.chunks(BATCH) {
            let mut batch = Batch::new(self.pool.clone());
            for packet in packets {
                batch.push_bytes(packet).unwrap();
            }
            verdicts.extend(self.batch(&mut batch));
        }
        verdicts
    }

    /// Sends the packets of a capture, that many at a time; returns the verdict on each, and the
    /// error if the capture is damaged after them.
    pub(crate) fn capture(
        &mut self,
        path: &Path,
        many: usize,
    ) -> (Vec<Verdict>, Result<(), IoError>) {
        let mut input = CaptureInput::open(path, 1).unwrap();
        let mut batch = Batch::new(self.pool.clone());
        let mut drops = DropCounts::default();
        let mut verdicts = Vec::new();
        loop {
            let received = input.receive(&mut batch, many, &mut drops);
            verdicts.extend(self.batch(&mut batch));
            match received {
                Ok(received) if !received.ended => {}
                ended => return (verdicts, ended.map(drop)),
            }
        }
    }

    fn batch(&mut self, batch: &mut Batch) -> Vec<Verdict> {
        let lanes = batch.lanes();
        batch.parse(lanes, self.decapsulate);
        let newest = lanes.into_iter().map(|lane| batch.meta.timestamp[lane]).max();
        self.now = self.now.max(newest.unwrap_or_default());
        let mut emitted = Emitted::new(self.pool.clone());
        let mut context = Context::new(self.now, &mut emitted, None);
        self.nf.process(batch, lanes, &mut context);
        let verdicts = lanes.into_iter().map(|lane| context.verdict(lane)).collect();
        batch.release(lanes);
        verdicts
    }

    /// The NF's figure of this name.
    pub(crate) fn figure(&self, name: &str) -> u64 {
        self.nf.figures().iter().find(|(known, _)| *known == name).unwrap().1
    }
}
