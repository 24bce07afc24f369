//! Live ports with several queues, for tests: a source of numbered packets, and a sink that checks their
//! order.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Instant;

use serde::Deserialize;
use thalweg_io::kind::{
    InputBlueprint, InputOpening, Kind, Opened, OutputBlueprint, OutputOpening, PortBlueprint,
    Section, Side,
};
use thalweg_io::{Input, IoError, Output, OutputFailure, Received};
use thalweg_packet::{BATCH, Batch, DropCounts, Lanes, Nanoseconds};

use crate::common::Tag;

pub static SOURCE: Kind = Kind {
    name: "source",
    key: "source",
    example: "source = PACKETS",
    noun: "a source",
    summary: "receives packets in several queues",
    input: Some(Side {
        keys: &["source", "queues", "pauses", "first"],
        instead: &[],
        options: || schemars::json_schema!({}),
        build: |section: &Section<'_>| {
            let source: SourceOptions = section.parse()?;
            Ok(Box::new(source) as Box<dyn InputBlueprint>)
        },
    }),
    output: None,
};

pub static SINK: Kind = Kind {
    name: "sink",
    key: "sink",
    example: "sink = \"NAME\"",
    noun: "a sink",
    summary: "checks the order of packets",
    input: None,
    output: Some(Side {
        keys: &["sink", "queues"],
        instead: &[],
        options: || schemars::json_schema!({}),
        build: |section: &Section<'_>| {
            let sink: SinkOptions = section.parse()?;
            Ok(Box::new(sink) as Box<dyn OutputBlueprint>)
        },
    }),
};

#[derive(Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceOptions {
    /// The packets of each queue; 0 means without end.
    source: u32,
    queues: u32,
    /// Whether there are silences of some milliseconds.
    #[serde(default)]
    pauses: bool,
    /// Its flows begin with this number.
    #[serde(default)]
    first: u32,
}

/// The openings of inputs that come and go.
static OPENED: AtomicU32 = AtomicU32::new(0);

/// The queues of all inputs share their flows among them: flow `n` is in queue `n` modulo this.
const SPREAD: u32 = 16;

impl PortBlueprint for SourceOptions {
    fn describe(&self) -> String {
        format!("{} packets a queue", self.source)
    }

    fn is_same(&self, other: &dyn PortBlueprint) -> bool {
        other.downcast::<Self>() == Some(self)
    }
}

impl InputBlueprint for SourceOptions {
    fn open(&self, opening: &InputOpening<'_>) -> Result<Opened<dyn Input>, IoError> {
        // The packets of an input that comes again have later numbers than before.
        let openings = if self.first > 0 { OPENED.fetch_add(1, Ordering::Relaxed) } else { 0 };
        let queue = |queue| {
            let (never, other) = UnixStream::pair().unwrap();
            let (of, sequences) = (self.clone(), HashMap::new());
            let begin = openings * 1_000_000;
            Box::new(Source {
                of,
                queue,
                begin,
                sent: 0,
                looks: 0,
                began: Instant::now(),
                sequences,
                never,
                _other: other,
            }) as _
        };
        let queues = self.queues.min(opening.queues as u32);
        Ok(Opened::of((0..queues).map(queue).collect(), None))
    }

    fn is_live(&self) -> bool {
        true
    }
}

struct Source {
    of: SourceOptions,
    queue: u32,
    begin: u32,
    sent: u32,
    looks: u32,
    began: Instant,
    sequences: HashMap<u32, u32>,
    /// Never readable.
    never: UnixStream,
    _other: UnixStream,
}

impl Input for Source {
    fn receive(
        &mut self,
        batch: &mut Batch,
        most: usize,
        _drops: &mut DropCounts,
    ) -> Result<Received, IoError> {
        let mut received = Received::default();
        self.looks += 1;
        let is_silent = self.of.pauses && self.began.elapsed().as_millis() % 15 >= 10;
        // Bursts of different lengths.
        let most = if is_silent { 0 } else { most.min(1 + self.looks as usize % BATCH) };
        while received.packets < most && !batch.is_full() && !self.has_ended() {
            let flow = self.of.first + self.sent % 37 * SPREAD + self.queue;
            let sequence = self.sequences.entry(flow).or_insert(self.begin);
            let packet = Tag { flow, back: false, lineage: 0, sequence: *sequence }.packet();
            let Some(lane) = batch.push_bytes(&packet) else { break };
            *sequence += 1;
            batch.meta.timestamp[lane] = Nanoseconds(1_000_000_000 + u64::from(self.sent) * 1000);
            batch.meta.wire_len[lane] = packet.len() as u32;
            received.packets += 1;
            received.bytes += packet.len() as u64;
            self.sent += 1;
        }
        received.ended = self.has_ended();
        Ok(received)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.of.pauses.then(|| self.never.as_fd())
    }
}

impl Source {
    fn has_ended(&self) -> bool {
        self.of.source > 0 && self.sent == self.of.source
    }
}

#[derive(Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct SinkOptions {
    sink: String,
    queues: usize,
}

/// What a sink has seen.
#[derive(Default)]
pub struct Seen {
    /// By flow and the NFs that generated them, the last packet.
    last: HashMap<(u32, u32), u32>,
    pub packets: u64,
    pub disorder: Vec<String>,
}

/// By the name of the sink.
static SEEN: LazyLock<Mutex<HashMap<String, Arc<Mutex<Seen>>>>> = LazyLock::new(Mutex::default);

/// What the sink of this name has seen.
pub fn seen(sink: &str) -> Arc<Mutex<Seen>> {
    SEEN.lock().unwrap().entry(sink.to_owned()).or_default().clone()
}

impl PortBlueprint for SinkOptions {
    fn describe(&self) -> String {
        format!("sink {}", self.sink)
    }

    fn is_same(&self, other: &dyn PortBlueprint) -> bool {
        other.downcast::<Self>() == Some(self)
    }
}

impl OutputBlueprint for SinkOptions {
    fn open(&self, opening: &OutputOpening<'_>) -> Result<Opened<dyn Output>, IoError> {
        let queue = || Box::new(Sink(seen(&self.sink))) as Box<dyn Output>;
        let queues = self.queues.min(opening.queues);
        Ok(Opened::of((0..queues).map(|_| queue()).collect(), None))
    }
}

struct Sink(Arc<Mutex<Seen>>);

impl Output for Sink {
    fn send(
        &mut self,
        batch: &Batch,
        lanes: Lanes,
        _drops: &mut DropCounts,
    ) -> Result<Lanes, OutputFailure> {
        let mut seen = self.0.lock().unwrap();
        for lane in lanes {
            let Tag { flow, lineage, sequence, .. } = Tag::of(batch.bytes(lane));
            let last = seen.last.insert((flow, lineage), sequence);
            if last.is_some_and(|last| last >= sequence) {
                seen.disorder.truncate(9);
                seen.disorder.push(format!("flow {flow}: {sequence} after {last:?}"));
            }
            seen.packets += 1;
        }
        Ok(lanes)
    }

    fn flush(&mut self) -> Result<(), OutputFailure> {
        Ok(())
    }
}
