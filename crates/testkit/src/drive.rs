//! One network function that tests send packets through.

use std::path::Path;
use std::sync::Arc;

use thalweg_io::{CaptureInput, Input, IoError};
use thalweg_packet::{BATCH, Batch, Decapsulate, DropCounts, Lanes, Nanoseconds, Pool, parse};

use thalweg_nf::device::{DeviceJob, DeviceWork};
use thalweg_nf::{Context, Emitted, NetworkFunction, Verdict};

/// Asserts that the keys and headers of the packets in `lanes`, parsed without looking into
/// tunnels, match their bytes: that an NF marked every packet it changed.
///
/// # Panics
/// When a packet's key or headers are stale.
pub fn assert_fresh(batch: &mut Batch, lanes: Lanes) {
    batch.parse_changed();
    for lane in lanes {
        let now = parse(batch.bytes(lane), batch.meta.in_port[lane], Decapsulate::No);
        assert_eq!((batch.key(lane), *batch.headers(lane)), now, "lane {lane}");
    }
}

/// A network function with the frames and the time of its packets.
pub struct Drive {
    /// The function.
    pub nf: Box<dyn NetworkFunction>,
    /// Packet time; captures move it on.
    pub now: Nanoseconds,
    /// Whether packets are parsed into their tunnels.
    pub decapsulate: Decapsulate,
    pool: Arc<Pool>,
}

impl Drive {
    /// Begins at time zero, with 128 frames of 16 KiB.
    ///
    /// # Panics
    /// When there is no memory for the frames.
    pub fn new(nf: Box<dyn NetworkFunction>) -> Self {
        let pool = Arc::new(Pool::anonymous(128, 16384).unwrap());
        Self { nf, now: Nanoseconds::default(), decapsulate: Decapsulate::No, pool }
    }

    /// Sends packets in full batches to the function and a device, which has the packets of all batches
    /// before the function gets the first result; returns the verdict on each.
    ///
    /// # Panics
    /// When the function has no halves around a device, or there are not enough frames.
    pub fn send_by_device(&mut self, work: &DeviceWork, packets: &[Vec<u8>]) -> Vec<Verdict> {
        let nf = self.nf.on_device().expect("a function in two halves");
        let mut emitted = Emitted::new(self.pool.clone());
        let mut under_way = Vec::new();
        for packets in packets.chunks(BATCH) {
            let (mut batch, mut jobs) = (Batch::new(self.pool.clone()), Vec::new());
            for packet in packets {
                let lane = batch.push_bytes(packet).unwrap();
                batch.meta.timestamp[lane] = self.now;
            }
            let lanes = batch.lanes();
            batch.parse(lanes, self.decapsulate);
            let mut context = Context::new(self.now, &mut emitted, None);
            nf.begin(&mut batch, lanes, &mut context, &mut jobs);
            let verdicts: Vec<_> = lanes.into_iter().map(|lane| context.verdict(lane)).collect();
            under_way.push((batch, jobs, verdicts));
        }
        let mut all = Vec::new();
        for (mut batch, jobs, mut verdicts) in under_way {
            let result = |job: &DeviceJob| {
                let bytes = &mut batch.bytes_mut(job.lane)[job.start..job.start + job.len];
                (job.lane, Some((work.function.scalar)(bytes, job.argument, &work.table)))
            };
            let results: Vec<_> = jobs.iter().map(result).collect();
            let mut context = Context::new(self.now, &mut emitted, None);
            nf.finish(&mut batch, &results, &mut context);
            results.iter().for_each(|(lane, _)| verdicts[*lane] = context.verdict(*lane));
            batch.release(batch.lanes());
            all.extend(verdicts);
        }
        all
    }

    /// Sends packets in full batches; returns the verdict on each.
    ///
    /// # Panics
    /// When a packet does not fit into a frame.
    pub fn send(&mut self, packets: &[Vec<u8>]) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for packets in packets.chunks(BATCH) {
            let mut batch = Batch::new(self.pool.clone());
            for packet in packets {
                let lane = batch.push_bytes(packet).unwrap();
                batch.meta.timestamp[lane] = self.now;
            }
            verdicts.extend(self.batch(&mut batch));
        }
        verdicts
    }

    /// Sends the packets of a capture, `many` at a time; returns the verdict on each, and the error
    /// that ended the capture if it is damaged.
    ///
    /// # Panics
    /// When the capture cannot be opened.
    pub fn capture(&mut self, path: &Path, many: usize) -> (Vec<Verdict>, Result<(), IoError>) {
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
        let mut emitted = Emitted::new(self.pool.clone());
        let mut context = Context::new(self.now, &mut emitted, None);
        self.nf.process(batch, lanes, &mut context);
        let verdicts = lanes.into_iter().map(|lane| context.verdict(lane)).collect();
        batch.release(lanes);
        self.now = self.now.max(newest.unwrap_or_default());
        verdicts
    }

    /// One of the function's figures.
    ///
    /// # Panics
    /// When it has no figure of this name.
    pub fn figure(&self, name: &str) -> u64 {
        self.nf.figures().iter().find(|(known, _)| *known == name).unwrap().1
    }
}
