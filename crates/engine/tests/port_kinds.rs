//! Kinds of ports that are not those of `thalweg-io`: the chain and the engine know none.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde::Deserialize;
use thalweg_chain::{Kinds, Plan, PlanOptions};
use thalweg_engine::{Control, Engine, Reload, RunOptions, run};
use thalweg_io::kind::{InputBlueprint, InputOpening, Kind, Opened, PortBlueprint, Section, Side};
use thalweg_io::{Input, IoError, Received};
use thalweg_packet::{Batch, DropCounts, Nanoseconds};
use thalweg_source::{Source, SourceError};

/// How often an input of the kind was opened.
static OPENED: AtomicUsize = AtomicUsize::new(0);

static KIND: Kind = Kind {
    name: "counter",
    key: "count",
    example: "count = N",
    noun: "a counter",
    summary: "receives packets that a test numbers",
    input: Some(Side {
        keys: &["count", "queues", "label"],
        instead: &[],
        options: || schemars::json_schema!({}),
        build,
    }),
    output: None,
};

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Counter {
    /// The packets to receive; 0 means without end.
    count: u64,
    /// The queues that it opens, whatever is requested.
    #[serde(default = "one")]
    queues: usize,
    /// Has no effect on what it receives.
    #[serde(default)]
    label: String,
}

fn one() -> usize {
    1
}

fn build(section: &Section<'_>) -> Result<Box<dyn InputBlueprint>, Vec<SourceError>> {
    let counter: Counter = section.parse()?;
    if counter.label == "odd" {
        section.warn(section.span(), "an odd label", "another one");
    }
    Ok(Box::new(counter))
}

impl PortBlueprint for Counter {
    fn describe(&self) -> String {
        format!("{} packets", self.count)
    }

    fn is_same(&self, other: &dyn PortBlueprint) -> bool {
        other.downcast::<Self>().is_some_and(|other| self.count == other.count)
    }
}

impl InputBlueprint for Counter {
    fn open(&self, opening: &InputOpening<'_>) -> Result<Opened<dyn Input>, IoError> {
        assert!(opening.pool.frames() > 0 && opening.queues == 1);
        let opened = OPENED.fetch_add(1, Ordering::Relaxed);
        let queue = || Box::new(CounterInput { left: self.count, endless: self.count == 0 });
        let queues = (0..self.queues).map(|_| queue() as Box<dyn Input>).collect();
        Ok(Opened::of(queues, format!("opening {opened}")))
    }
}

struct CounterInput {
    left: u64,
    endless: bool,
}

impl Input for CounterInput {
    fn receive(
        &mut self,
        batch: &mut Batch,
        most: usize,
        _drops: &mut DropCounts,
    ) -> Result<Received, IoError> {
        let mut received = Received::default();
        while received.packets < most && !batch.is_full() && (self.endless || self.left > 0) {
            let Some(lane) = batch.push_bytes(&[7; 60]) else { break };
            batch.meta.timestamp[lane] = Nanoseconds(1);
            batch.meta.wire_len[lane] = 60;
            received.packets += 1;
            received.bytes += 60;
            self.left = self.left.saturating_sub(1);
        }
        received.ended = !self.endless && self.left == 0;
        Ok(received)
    }
}

fn chain(input: &str) -> String {
    format!("[input.a]\n{input}\n[output.o]\ndiscard = true\n[[route]]\npath = ['ingress', 'o']\n")
}

fn load(input: &str) -> Result<Plan, Vec<String>> {
    let kinds = Kinds::default().with_port(&KIND);
    let plan = Plan::of_text(&Source::new("", chain(input)), &kinds, PlanOptions::default());
    plan.map_err(|mistakes| mistakes.iter().map(ToString::to_string).collect())
}

fn refused(input: &str) -> Vec<String> {
    load(input).err().expect("it is wrong")
}

#[test]
fn the_packets_of_an_own_kind_pass() {
    let plan = load("count = 1000").unwrap();
    assert!(plan.graph().to_tree().starts_with("input a: 1000 packets\n"));
    assert_eq!(plan.inputs[0].kind.name, "counter");
    let report = run(plan, &RunOptions::default(), &Control::default()).unwrap();
    assert_eq!((report.packets_in, report.packets_out), (1000, 1000));
    assert!(report.conserved && !report.failed());
    assert!(report.inputs[0].mode.as_deref().unwrap().starts_with("opening "));
    assert_eq!(report.outputs[0].mode, None);
}

#[test]
fn a_kind_that_opens_no_queue_is_named() {
    let plan = load("count = 1\nqueues = 0").unwrap();
    let error = run(plan, &RunOptions::default(), &Control::default()).err().unwrap().to_string();
    let message = "input 'a': its kind opened 0 queues: '1'; expected at least 1";
    // The place is that of the key that has chosen the kind.
    assert!(error.contains(":2:9: ") && error.ends_with(message), "{error}");
}

#[test]
fn an_input_may_have_more_queues_than_the_run_serves_at_the_same_time() {
    let plan = load("count = 1000\nqueues = 3").unwrap();
    let report = run(plan, &RunOptions::default(), &Control::default()).unwrap();
    assert_eq!((report.packets_in, report.packets_out), (3000, 3000));
    let queues = report.inputs[0].queues.iter();
    assert!(queues.map(|queue| queue.packets).eq([1000; 3]), "{:?}", report.inputs[0]);
}

#[test]
fn the_keys_of_an_own_kind_are_among_those_that_messages_name() {
    let unknown = refused("cuont = 1");
    assert!(unknown[0].contains("unknown field `cuont`, expected one of "), "{unknown:?}");
    assert!(unknown[0].ends_with("generate, count, label"), "{unknown:?}");
    let both = refused("count = 1\ngenerate = {}");
    assert!(both[0].ends_with("generate = { ... }, count = N"), "{both:?}");
    let others = refused("count = 1\nfilter = 'tcp'\nmemory = true");
    assert!(
        others[0].ends_with(
            "'filter' does not apply to a counter: ''tcp''; expected an interface or a capture"
        ),
        "{others:?}"
    );
    assert!(others[1].ends_with("expected a capture"), "{others:?}");
    // Those of this kind do not apply to others, either.
    let own = refused("generate = {}\nlabel = 'odd'");
    assert!(own[0].contains("'label' does not apply to generated traffic"), "{own:?}");
    assert!(own[0].ends_with("expected a counter"), "{own:?}");
    let wrong = refused("count = 'x'");
    assert!(wrong[0].contains(":2:9: invalid type: string \"x\", expected u64"), "{wrong:?}");
    let warnings = load("count = 1\nlabel = 'odd'").unwrap().warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
}

#[test]
fn options_of_a_run_that_an_own_kind_does_not_know_are_refused() {
    let of = |options: RunOptions| {
        let plan = load("count = 1").unwrap();
        run(plan, &options, &Control::default()).err().map(|error| error.to_string())
    };
    let loops = of(RunOptions { loops: Some(2), ..RunOptions::default() }).unwrap();
    assert!(loops.starts_with("--loop applies to none of the inputs"), "{loops}");
    let from = Some(Nanoseconds(1));
    let times = thalweg_io::TimeRange { from, to: None };
    let times = of(RunOptions { times, ..RunOptions::default() }).unwrap();
    assert!(times.starts_with("--from and --to apply to none of the inputs"), "{times}");
}

#[test]
fn a_reload_goes_on_with_an_own_port_that_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chain.toml");
    let kinds = Kinds::default().with_port(&KIND);
    let write = |input: &str| std::fs::write(&path, chain(input)).unwrap();
    write("count = 0");
    let plan = Plan::load(&path, &kinds, PlanOptions::default()).unwrap();
    let engine = Engine::start(plan, RunOptions::default()).unwrap();
    let mode = || {
        let report = engine.control().snapshot(Duration::from_secs(60)).expect("it answers");
        report.inputs[0].mode.clone().unwrap()
    };
    let first = mode();
    write("count = 0\nlabel = 'another'\n[output.more]\ndiscard = true");
    let changes = engine.control().reload(Reload::default()).unwrap();
    assert_eq!(changes.to_string(), "+ output 'more': discard");
    assert_eq!(mode(), first, "the port is still the one that was opened");
    write("count = 1000000000");
    let changes = engine.control().reload(Reload::default()).unwrap();
    let expected = "~ input 'a': 0 packets -> 1000000000 packets\n- output 'more': discard";
    assert_eq!(changes.to_string(), expected);
    assert_ne!(mode(), first);
    engine.control().stop();
    let report = engine.join();
    assert!(report.conserved && !report.failed(), "{:?}", report.failures);
}
