//! Live ports with several queues: their workers receive and send in lines of their own.

mod common;

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use common::{Folder, Tag, kinds, wait};
use serde::Deserialize;
use thalweg_chain::Plan;
use thalweg_engine::{Engine, PortReport, Reload, Report, RunOptions};
use thalweg_io::kind::{
    InputBlueprint, InputOpening, Kind, Opened, OutputBlueprint, OutputOpening, PortBlueprint,
    Section, Side,
};
use thalweg_io::{Input, IoError, Output, OutputFailure, Received};
use thalweg_packet::{BATCH, Batch, DropCounts, Lanes, Nanoseconds};
use thalweg_testkit::odd_device::Odd;

static SOURCE: Kind = Kind {
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

static SINK: Kind = Kind {
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
struct Seen {
    /// By flow and the NFs that generated them, the last packet.
    last: HashMap<(u32, u32), u32>,
    packets: u64,
    disorder: Vec<String>,
}

/// By the name of the sink.
static SEEN: LazyLock<Mutex<HashMap<String, Arc<Mutex<Seen>>>>> = LazyLock::new(Mutex::default);

fn seen(sink: &str) -> Arc<Mutex<Seen>> {
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

fn load(folder: &Folder, chain: &str) -> Plan {
    folder.write("chain.toml", chain);
    folder.load_of(&kinds().with_port(&SOURCE).with_port(&SINK)).unwrap()
}

fn start(folder: &Folder, chain: &str, workers: usize) -> Engine {
    let options = RunOptions { workers: Some(workers), ..RunOptions::default() };
    Engine::start(load(folder, chain), options).unwrap()
}

/// A chain of three test NFs, of which the first is pinned and the second divided if `places` says so.
fn chain(input: &str, sink: &str, sink_queues: usize, places: (bool, bool)) -> String {
    let (pinned, divides) = places;
    format!(
        "[input.a]\n{input}\n[output.o]\nsink = '{sink}'\nqueues = {sink_queues}\n\
         [nf.first]\nkind = 'test'\nnumber = 0\ndrop_one_in = 7\nemit_one_in = 5\npinned = {pinned}\n\
         [nf.second]\nkind = 'test'\nnumber = 1\ndrop_one_in = 9\ndivides = {divides}\n\
         [nf.third]\nkind = 'test'\nnumber = 2\nemit_one_in = 9\n\
         [[route]]\npath = ['ingress', 'first', 'second', 'third', 'o']\n"
    )
}

fn is_whole(report: &Report) {
    assert_eq!(report.failures, [""; 0]);
    assert!(report.conserved, "{report:?}");
}

fn by_queue(port: &PortReport) -> Vec<u64> {
    port.queues.iter().map(|queue| queue.packets).collect()
}

/// Checks that each NF has seen the packets of each flow in order.
fn nfs_saw_order(folder: &Folder) {
    for (nf, tags) in &folder.ledger.lock().unwrap().seen {
        let mut last = HashMap::new();
        for tag in tags {
            let before = last.insert((tag.flow, tag.lineage), tag.sequence);
            assert!(before.is_none_or(|before| before < tag.sequence), "NF {nf}: {tag:?}");
        }
    }
}

#[test]
fn packets_of_a_flow_keep_their_order_and_all_are_counted() {
    let places = [(false, false), (true, false), (false, true), (true, true)];
    for (number, (workers, queues, sink_queues)) in
        [(2, 2, 2), (2, 4, 1), (4, 2, 2), (3, 3, 2), (1, 2, 2), (5, 3, 16)].into_iter().enumerate()
    {
        for (place, places) in places.into_iter().enumerate() {
            let case = format!("{workers} workers, {queues} queues, {sink_queues}, {places:?}");
            let (folder, sink) = (Folder::new(), format!("order {number} {place}"));
            let input = format!("source = 3000\nqueues = {queues}\npauses = true");
            let report = start(&folder, &chain(&input, &sink, sink_queues, places), workers).join();
            is_whole(&report);
            let opened = queues.min(workers);
            assert_eq!(report.packets_in, 3000 * opened as u64, "{case}");
            let each = if opened == 1 { vec![] } else { vec![3000; opened] };
            assert_eq!(by_queue(&report.inputs[0]), each, "{case}");
            let used = sink_queues.min(opened);
            let sent = by_queue(&report.outputs[0]);
            assert_eq!(sent.len(), if used == 1 { 0 } else { used }, "{case}: {sent:?}");
            assert!(sent.iter().all(|packets| *packets > 0), "{case}: {sent:?}");
            let seen = seen(&sink);
            let seen = seen.lock().unwrap();
            assert_eq!(seen.disorder, [""; 0], "{case}");
            assert_eq!(seen.packets, report.packets_out, "{case}");
            nfs_saw_order(&folder);
            let counted: u64 = report.by_worker.iter().map(|worker| worker.packets).sum();
            assert_eq!(counted, report.packets_in, "{case}");
        }
    }
}

#[test]
fn inputs_with_one_queue_are_one_line() {
    for input in [
        "source = 1000\nqueues = 1",
        "source = 1000\nqueues = 3\n[input.b]\nsource = 500\nqueues = 1\nfirst = 8",
    ] {
        let (folder, sink) = (Folder::new(), format!("one {}", input.len()));
        let report = start(&folder, &chain(input, &sink, 4, (false, false)), 3).join();
        is_whole(&report);
        assert!(by_queue(&report.outputs[0]).is_empty(), "{:?}", report.outputs[0]);
        assert_eq!(seen(&sink).lock().unwrap().disorder, [""; 0]);
    }
}

#[test]
fn a_number_of_packets_is_kept_to() {
    let (folder, sink) = (Folder::new(), "count");
    let plan = load(&folder, &chain("source = 0\nqueues = 2", sink, 2, (false, false)));
    let options = RunOptions { workers: Some(2), count: Some(12_345), ..RunOptions::default() };
    let report = Engine::start(plan, options).unwrap().join();
    is_whole(&report);
    assert_eq!(report.packets_in, 12_345);
}

#[test]
fn each_snapshot_of_several_lines_balances() {
    for (number, pauses) in [false, true].into_iter().enumerate() {
        for (place, places) in [(false, false), (true, true)].into_iter().enumerate() {
            let (folder, sink) = (Folder::new(), format!("snapshots {number} {place}"));
            let input = format!("source = 0\nqueues = 2\npauses = {pauses}");
            let engine = start(&folder, &chain(&input, &sink, 1 + place, places), 2);
            let mut before = 0;
            for _ in 0..200 {
                let report = engine.control().snapshot(Duration::from_secs(20)).expect("an answer");
                is_whole(&report);
                assert_eq!(report.inputs[0].queues.len(), 2);
                assert!(report.packets_in >= before);
                before = report.packets_in;
            }
            wait(|| engine.control().progress().packets_in > before);
            engine.control().stop();
            let report = engine.join();
            is_whole(&report);
            assert!(report.packets_in > before);
            assert_eq!(seen(&sink).lock().unwrap().disorder, [""; 0]);
        }
    }
}

/// Inputs come and go, so that the number of lines changes, and the queues of those that stay are
/// divided again.
#[test]
fn a_reload_may_change_the_number_of_lines() {
    let more = "[input.b]\nsource = 0\nqueues = 1\nfirst = 8";
    for (number, divides) in [false, true].into_iter().enumerate() {
        let (folder, sink) = (Folder::new(), format!("reloads {number}"));
        let of = |input: &str, first: u32| {
            let chain = chain(input, &sink, 2, (false, divides));
            chain.replace("drop_one_in = 7", &format!("drop_one_in = {first}"))
        };
        let both = format!("source = 0\nqueues = 2\npauses = true\n{more}");
        let engine = start(&folder, &of("source = 0\nqueues = 2\npauses = true", 7), 2);
        for round in 0..20 {
            let input =
                if round % 2 == 0 { &both } else { "source = 0\nqueues = 2\npauses = true" };
            folder.write("chain.toml", &of(input, 3 + round));
            engine.control().reload(Reload::default()).unwrap();
            let at = engine.control().progress().packets_in;
            wait(|| engine.control().progress().packets_in > at + 2000);
            let report = engine.control().snapshot(Duration::from_secs(20)).expect("an answer");
            is_whole(&report);
            assert_eq!(report.reloads, u64::from(round) + 1);
        }
        engine.control().stop();
        let report = engine.join();
        is_whole(&report);
        assert_eq!(seen(&sink).lock().unwrap().disorder, [""; 0]);
        nfs_saw_order(&folder);
        // The input that came and went counts in the sum.
        assert!(report.former.unwrap().inputs.packets > 0);
    }
}

#[test]
fn an_nf_that_panics_ends_all_lines() {
    let (folder, sink) = (Folder::new(), "panics");
    let chain = chain("source = 0\nqueues = 2", sink, 2, (false, false));
    let report =
        start(&folder, &chain.replace("number = 1\n", "number = 1\ndies_at = 100\n"), 2).join();
    assert!(report.failures.iter().any(|failure| failure.contains("second")), "{report:?}");
    assert!(report.conserved, "{:?}", report.failures);
}

#[test]
fn exports_reach_nfs_and_end() {
    let (folder, sink) = (Folder::new(), "exports");
    let engine = start(&folder, &chain("source = 0\nqueues = 2", sink, 2, (false, false)), 2);
    for _ in 0..50 {
        engine.control().request_export();
        let at = engine.control().progress().packets_in;
        wait(|| engine.control().progress().packets_in > at + 500);
    }
    engine.control().stop();
    is_whole(&engine.join());
}

/// The first and the last NF have their packets on a device, which returns them late and in any order.
#[test]
fn packets_keep_their_order_while_a_device_has_those_of_several_lines() {
    for (workers, queues) in [(2, 2), (3, 2), (4, 3), (1, 2)] {
        let case = format!("{workers} workers, {queues} queues");
        let (folder, sink) = (Folder::new(), format!("devices {workers} {queues}"));
        let input = format!("source = 3000\nqueues = {queues}\npauses = true");
        let chain = chain(&input, &sink, queues, (false, false))
            .replace("number = 0\n", "number = 0\nat = 'odd'\nwork_groups = 2\n")
            .replace("number = 2\n", "number = 2\nat = 'odd'\nwork_groups = 4\n");
        folder.write("chain.toml", &chain);
        let devices = Arc::new(Odd { fails_at: None });
        let kinds = kinds().with_port(&SOURCE).with_port(&SINK).with_devices(devices);
        let plan = folder.load_of(&kinds).unwrap();
        let options = RunOptions { workers: Some(workers), ..RunOptions::default() };
        let engine = Engine::start(plan, options).unwrap();
        for _ in 0..20 {
            // `None` once the run has ended.
            if let Some(report) = engine.control().snapshot(Duration::from_secs(20)) {
                is_whole(&report);
            }
        }
        let report = engine.join();
        is_whole(&report);
        assert_eq!(report.packets_in, 3000 * (queues.min(workers)) as u64, "{case}");
        let seen = seen(&sink);
        let seen = seen.lock().unwrap();
        assert_eq!(seen.disorder, [""; 0], "{case}");
        assert_eq!(seen.packets, report.packets_out, "{case}");
        nfs_saw_order(&folder);
    }
}
