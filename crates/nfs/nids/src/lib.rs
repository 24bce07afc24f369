//! NF `nids`: intrusion detection by rules in Snort's syntax.
//!
//! A packet's payload joins its TCP stream, and the stream is parsed into the messages of its
//! application protocol; rules inspect all three.

mod accepted;
mod ahead;
mod alert;
mod app;
mod arrival;
mod ask;
mod assemble;
mod buffer;
mod chosen;
pub mod device;
mod engine;
mod events;
mod filters;
mod fit;
mod flow;
mod flows;
mod group;
mod haystack;
mod heads;
mod inspect;
mod literals;
mod locate;
mod matcher;
mod matches;
mod open;
mod port_groups;
mod quiet;
mod receiver;
mod recent;
mod rule;
mod searched;
mod segment;
mod seldom;
mod setup;
mod stream;
mod swift;
mod tail;
mod teller;
mod twins;
mod wide;
#[cfg(any(test, fuzzing))]
pub mod work;
#[cfg(not(any(test, fuzzing)))]
mod work;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thalweg_packet::wire::ip_proto::TCP;
use thalweg_packet::{BATCH, Batch, Lanes, Nanoseconds};
use thalweg_source::{SourceError, counted};
use toml::Spanned;

use alert::{InputNames, Occasion};
use device::{LITERALS, Results};
use engine::Engine;
use flow::Flow;
use flows::{Flows, Limits};
use inspect::{Inspector, Settings};
use receiver::{Reason, Target};
use rule::Rule;
use setup::{Compiled, Setup};
use stream::Overlaps;
use teller::Teller;
use thalweg_nf::NfError;
use thalweg_nf::device::{DeviceWork, OnDevice};
use thalweg_nf::state::{StateError, StateReader, StateWriter};
use thalweg_nf::toolkit::conversation::Conversation;
use thalweg_nf::toolkit::output::{LineFile, Rotate};
use thalweg_nf::{
    BUCKETS, Blueprint, BuildError, Context, Division, Environment, Grain, Kind, NetworkFunction,
    Note, Part, Renewal, Section, Steering, Units,
};

/// Options of the intrusion detection.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {
    /// Files with rules in Snort's syntax.
    #[schemars(with = "Vec<String>", length(min = 1))]
    rules: Spanned<Vec<Spanned<String>>>,
    /// A file for alerts, as lines of Suricata's EVE JSON.
    #[schemars(with = "Option<String>")]
    alerts: Option<Spanned<String>>,
    /// When the file of alerts is renamed, and a new one is begun; without it, never.
    #[schemars(with = "Option<Rotate>")]
    rotate: Option<Spanned<Rotate>>,
    /// Variables that rules use; they override Suricata's defaults.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, String>")]
    variables: BTreeMap<Spanned<String>, Spanned<String>>,
    /// How to treat rules that need an unsupported feature.
    #[serde(default)]
    unsupported: Unsupported,
    /// Whether to keep packets with a wrong checksum, of the IPv4 or the transport header, out of
    /// streams and connection state.
    #[serde(default = "yes")]
    checksums: bool,
    /// At most this many connections; each one more evicts the least recently used of eight.
    #[serde(default = "max_flows")]
    #[schemars(with = "usize", range(min = 1, max = 67_108_864))]
    max_flows: Spanned<usize>,
    /// Seconds without a packet after which a connection expires.
    #[serde(default = "idle_timeout")]
    #[schemars(with = "u64", range(min = 1, max = 4_294_967_296_u64))]
    idle_timeout_s: Spanned<u64>,
    /// MiB for streams and messages; if they exceed it, reassembly stops for the least recently
    /// used connections.
    #[serde(default = "stream_memory")]
    #[schemars(with = "usize", range(min = 1, max = 1_048_576))]
    stream_memory_mib: Spanned<usize>,
    /// The system of the receivers: segments that it would not take join no stream.
    #[serde(default)]
    target: Target,
    /// Which of two overlapping segments counts while both wait for earlier bytes.
    #[serde(default)]
    overlaps: Overlaps,
    /// Whether to reassemble the streams of connections whose beginning was not seen.
    #[serde(default)]
    midstream: bool,
    /// The smallest TTL or hop limit with which a segment joins its stream.
    #[serde(default)]
    min_ttl: u8,
}

/// How to treat rules that need an unsupported feature.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Unsupported {
    /// Skip them, with one warning for each unsupported feature.
    #[default]
    Skip,
    /// Report them as errors.
    Refuse,
}

fn yes() -> bool {
    true
}

fn max_flows() -> Spanned<usize> {
    Spanned::new(0..0, 262_144)
}

fn idle_timeout() -> Spanned<u64> {
    Spanned::new(0..0, 600)
}

fn stream_memory() -> Spanned<usize> {
    Spanned::new(0..0, 64)
}

/// The kind, for the registry of a program.
pub const KIND: Kind = Kind {
    name: "nids",
    summary: "intrusion detection by Snort-syntax rules",
    state: Some("connections, verdicts, flow bits, streams, messages"),
    grain: Grain::Units,
    limits: &[
        "IP fragments are inspected one by one (put a defrag before it)",
        "rules with several tests reach back 4096 bytes in a stream; 64 KiB per direction wait for \
         missing segments; 64 KiB of a message's head are read, 128 KiB of its body, 1 MiB of it \
         decompressed",
        "4096 positions tried per rule and packet, PCRE2's match limit 3500; a rule that exceeds \
         either is counted (gave_up)",
        "max_flows connections: when full, the least recently used of eight is evicted for each new one",
    ],
    chooses_output: false,
    keeps_names: true,
    takes_supers: true,
    runs_on_devices: true,
    bypass_hazard: None,
    options: || schemars::schema_for!(Options),
    build,
};

fn build(
    section: &Section<'_>,
    environment: &Environment<'_>,
) -> Result<Box<dyn Blueprint>, BuildError> {
    let options: Options = section.parse()?;
    let mut errors = Vec::new();
    let flows = section.in_range(&options.max_flows, 1..=1 << 26, &mut errors);
    let idle = section.in_range(&options.idle_timeout_s, 1..=1 << 32, &mut errors);
    let memory = section.in_range(&options.stream_memory_mib, 1..=1 << 20, &mut errors);
    if options.rules.get_ref().is_empty() {
        let expected = "at least one file with rules";
        errors.push(section.error(options.rules.span(), "no rule files", expected));
    }
    let alerts = options.alerts.as_ref();
    let rotation = section.rotation(options.rotate.as_ref(), &[alerts], &mut errors);
    let mut sources = Vec::new();
    for file in options.rules.get_ref() {
        match section.read(file.span(), file.get_ref()) {
            Ok(source) => sources.push(source),
            Err(e) => errors.push(e),
        }
    }
    let variables = setup::variables(section, &options.variables, &sources, &mut errors);
    if !errors.is_empty() {
        return Err(BuildError(errors));
    }
    let setup = Setup { variables, refuse: options.unsupported == Unsupported::Refuse };
    let Compiled { engine, unsupported, warnings } = setup.compile(&sources)?;
    let alerts = LineFile::new(section.output(alerts, environment)?, rotation);
    let compiled = Arc::new(engine);
    Ok(Box::new(NidsBlueprint {
        rules: compiled.rules.len(),
        is_divided: AtomicBool::new(false),
        engine: Arc::new(ArcSwap::new(compiled.clone())),
        compiled,
        unsupported,
        warnings,
        limits: Limits { flows, idle: Nanoseconds::from_secs(idle), memory: memory << 20 },
        settings: Settings {
            checksums: options.checksums,
            target: options.target,
            overlaps: options.overlaps,
            midstream: options.midstream,
            min_ttl: options.min_ttl,
        },
        inputs: InputNames::new(environment.inputs),
        steering: environment.steering,
        alerts,
    }))
}

/// The rules from which on the inspection of a packet takes so long that it is worth being divided:
/// a part serves fewer packets at a time.
const MANY: usize = 500;

struct NidsBlueprint {
    /// The number of its rules.
    rules: usize,
    /// Whether an instance was divided.
    is_divided: AtomicBool,
    /// What its rules were compiled to.
    compiled: Arc<Engine>,
    /// That of the running instance, which takes over those of later configurations.
    engine: Arc<ArcSwap<Engine>>,
    /// The number of rules that were skipped.
    unsupported: usize,
    warnings: Vec<SourceError>,
    alerts: LineFile,
    steering: Steering,
    limits: Limits,
    settings: Settings,
    inputs: InputNames,
}

impl NidsBlueprint {
    /// The inspection of all connections, or of those of one of several parts.
    fn core(&self, teller: Option<Teller>, parts: usize) -> Arc<Mutex<Core>> {
        Arc::new(Mutex::new(Core {
            engine: self.engine.clone(),
            flows: Flows::new(self.limits, self.steering, parts),
            inspector: Inspector::new(self.settings, teller),
        }))
    }

    fn teller(&self) -> Teller {
        Teller::new(self.inputs.clone(), self.alerts.is_wanted(), self.limits.flows)
    }

    fn whole(&self, cores: Vec<Arc<Mutex<Core>>>, teller: Option<Teller>) -> Nids {
        Nids {
            engine: self.engine.clone(),
            cores,
            teller,
            alerts: self.alerts.clone(),
            steering: self.steering,
            failure: None,
            unsupported: self.unsupported as u64,
        }
    }
}

impl Blueprint for NidsBlueprint {
    fn instance(&self) -> Box<dyn NetworkFunction> {
        Box::new(self.whole(vec![self.core(Some(self.teller()), 1)], None))
    }

    fn divide(&self, parts: usize) -> Option<Division> {
        // Limits are divided into shares, and no share into parts. A rule that acts by its count of
        // matches on all connections acts at once.
        let engine = self.engine.load();
        let acts_by_count = engine.rules.iter().any(Rule::acts_by_count);
        if acts_by_count || engine.rules.len() < MANY || parts > self.limits.shares() {
            return None;
        }
        self.is_divided.store(true, Ordering::Relaxed);
        let steering = self.steering;
        let cores: Vec<_> = (0..parts).map(|_| self.core(None, parts)).collect();
        let part = |core: &Arc<Mutex<Core>>| Box::new(NidsPart(core.clone())) as Box<dyn Part>;
        Some(Division {
            parts: cores.iter().map(part).collect(),
            whole: Box::new(self.whole(cores, Some(self.teller()))),
            bucket: Box::new(move |batch, lane| Conversation::bucket_of(batch, lane, steering)),
            takes_whole: Box::new(is_stream),
        })
    }

    fn device_work(&self) -> Option<DeviceWork> {
        let table = self.compiled.automaton()?.table().to_vec();
        Some(DeviceWork { function: LITERALS, table: table.into(), alternatives: None })
    }

    // The first half changes no state, and every packet has a second one.
    fn overlaps_on_device(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        format!("{}, {} unsupported", counted(self.rules, "rule"), self.unsupported)
    }

    fn memory(&self) -> u64 {
        Flows::bytes(self.limits) as u64
    }

    fn warnings(&self) -> &[SourceError] {
        &self.warnings
    }

    fn renew(&mut self, old: &dyn Blueprint) -> Option<Renewal> {
        let same = |old: &&Self| {
            (old.limits, old.settings, &old.inputs) == (self.limits, self.settings, &self.inputs)
                && old.alerts.is_same_file(&self.alerts)
        };
        let old = old.downcast().filter(same)?;
        let is_divided = old.is_divided.load(Ordering::Relaxed);
        let new = self.engine.load_full();
        if is_divided && new.rules.iter().any(Rule::acts_by_count) {
            return None;
        }
        (self.engine, self.is_divided) = (old.engine.clone(), AtomicBool::new(is_divided));
        let (running, unsupported) = (old.engine.clone(), self.unsupported as u64);
        let alerts = self.alerts.clone();
        Some(Box::new(move |whole| {
            if let Some(nids) = whole.downcast_mut::<Nids>() {
                (nids.unsupported, nids.alerts) = (unsupported, alerts);
            }
            Some(Box::new(running.swap(new)))
        }))
    }
}

/// The inspection of connections: of all, or of those of a part.
struct Core {
    engine: Arc<ArcSwap<Engine>>,
    flows: Flows,
    inspector: Inspector,
}

impl Core {
    /// Inspects packets, of whose payloads a device may have returned `results`.
    fn process(
        &mut self,
        batch: &Batch,
        lanes: Lanes,
        results: Option<Results>,
        context: &mut Context<'_>,
    ) {
        let engine = self.engine.load();
        self.inspector.search.results = results;
        self.inspector.packets(&engine, &mut self.flows, batch, lanes, context);
    }
}

/// A part of the intrusion detection.
struct NidsPart(Arc<Mutex<Core>>);

impl Part for NidsPart {
    fn process(&mut self, batch: &mut Batch, lanes: Lanes, context: &mut Context<'_>) {
        lock(&self.0).process(batch, lanes, None, context);
    }
}

/// The intrusion detection.
struct Nids {
    engine: Arc<ArcSwap<Engine>>,
    /// One, or one for each part.
    cores: Vec<Arc<Mutex<Core>>>,
    /// That of all parts; undivided, the core has its own.
    teller: Option<Teller>,
    alerts: LineFile,
    steering: Steering,
    failure: Option<NfError>,
    unsupported: u64,
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes alerts, and empties `lines`; the first failure stays.
fn write(alerts: &mut LineFile, lines: &mut Vec<u8>, failure: &mut Option<NfError>) {
    if !lines.is_empty() {
        *failure = failure.take().or(alerts.write(lines).err());
        lines.clear();
    }
}

/// Writes connections in a fixed order.
fn export(
    mut records: Vec<(&Conversation, &Flow)>,
    writer: &mut StateWriter<'_>,
) -> Result<(), StateError> {
    records.sort_unstable_by_key(|(id, _)| **id);
    records.into_iter().try_for_each(|(id, flow)| writer.record([id.tuple()], &(id, flow)))
}

impl Nids {
    /// The number of the core that serves a bucket.
    fn core_of(&self, bucket: u16) -> usize {
        usize::from(bucket) * self.cores.len() / BUCKETS
    }

    /// Inspects packets with the core of an NF that is not divided.
    fn inspect(
        &mut self,
        batch: &Batch,
        lanes: Lanes,
        results: Option<Results>,
        context: &mut Context<'_>,
    ) {
        let mut core = lock(&self.cores[0]);
        core.process(batch, lanes, results, context);
        if let Some(teller) = &mut core.inspector.teller {
            write(&mut self.alerts, &mut teller.lines, &mut self.failure);
        }
    }
}

/// Whether a packet is of TCP, as it is inspected: in its tunnel with `decapsulate`. The payload of such a
/// super-packet is a part of a stream, whereas that of others is several datagrams, of which rules see each
/// alone.
fn is_stream(batch: &Batch, lane: usize) -> bool {
    batch.headers(lane).has_transport(TCP)
}

impl NetworkFunction for Nids {
    fn process(&mut self, batch: &mut Batch, lanes: Lanes, context: &mut Context<'_>) {
        self.inspect(batch, lanes, None, context);
    }

    fn takes_whole(&self, batch: &Batch, lane: usize) -> bool {
        is_stream(batch, lane)
    }

    fn settle(&mut self, note: Note) {
        let Some(mut teller) = self.teller.take() else { return };
        if let Ok(note) = note.downcast::<(Arc<Engine>, Occasion)>() {
            let (engine, occasion) = &*note;
            teller.tell(engine, occasion);
            write(&mut self.alerts, &mut teller.lines, &mut self.failure);
        }
        self.teller = Some(teller);
    }

    fn export_state(&self, writer: &mut StateWriter<'_>) -> Result<(), StateError> {
        let cores: Vec<_> = self.cores.iter().map(|core| lock(core)).collect();
        let records: Vec<_> = cores.iter().flat_map(|core| core.flows.records()).collect();
        writer.expect(records.len());
        export(records, writer)
    }

    fn import_state(&mut self, reader: &mut StateReader<'_>) -> Result<usize, StateError> {
        let mut records = reader.records()?;
        let imported = records.len();
        let engine = self.engine.load();
        if let Some(index) = Flows::check(&mut records, engine.fingerprint, engine.rules.len()) {
            return Err(StateError::Record { index, what: "not a possible connection".into() });
        }
        let mut of_cores: Vec<Vec<_>> = self.cores.iter().map(|_| Vec::new()).collect();
        for (id, flow) in records {
            let part = self.core_of(id.bucket(self.steering));
            of_cores[part].push((id, flow));
        }
        let expected = reader.expected().div_ceil(self.cores.len());
        for (core, records) in self.cores.iter().zip(of_cores) {
            lock(core).flows.insert(records, expected);
        }
        Ok(imported)
    }

    /// Fragments are inspected one by one, each as its own connection: the first with its ports.
    fn units_of(&self, batch: &Batch, lanes: Lanes, units: Units) -> [u16; BATCH] {
        let mut of_lanes = [0; BATCH];
        for lane in lanes {
            let bucket = Conversation::bucket_of(batch, lane, units.steering());
            of_lanes[lane] = units.of_bucket(bucket);
        }
        of_lanes
    }

    fn begin_move(&mut self, units: Units) -> bool {
        // One part at a call: each step takes as long as a step of one.
        self.cores.iter().all(|core| lock(core).flows.index_units(units))
    }

    fn export_unit(&self, unit: u16, writer: &mut StateWriter<'_>) -> Result<(), StateError> {
        let cores: Vec<_> = self.cores.iter().map(|core| lock(core)).collect();
        let of_unit = cores.iter().flat_map(|core| core.flows.records_of(unit)).collect();
        export(of_unit, writer)
    }

    fn forget_unit(&mut self, unit: u16) {
        self.cores.iter().for_each(|core| lock(core).flows.forget_unit(unit));
    }

    fn end_move(&mut self) {
        self.cores.iter().for_each(|core| lock(core).flows.end_units());
    }

    fn state_version(&self) -> u16 {
        3
    }

    fn figures(&self) -> Vec<(&'static str, u64)> {
        let cores: Vec<_> = self.cores.iter().map(|core| lock(core)).collect();
        let sum = |of: fn(&Core) -> u64| cores.iter().map(|core| of(core)).sum::<u64>();
        let teller = self.teller.as_ref().or(cores[0].inspector.teller.as_ref());
        let told = |of: fn(&Teller) -> u64| teller.map_or(0, of);
        let mut all = vec![
            ("rules", self.engine.load().rules.len() as u64),
            ("rules_unsupported", self.unsupported),
            ("alerts", told(|teller| teller.alerts)),
            ("rules_verified", sum(|core| core.inspector.figures.verified)),
            ("gave_up", sum(|core| core.inspector.figures.gave_up)),
            ("segments_contradicting", sum(|core| core.inspector.figures.notes.contradictions)),
            ("stream_bytes_missing", sum(|core| core.inspector.figures.notes.gaps)),
            ("packets_dropped_by_flow", sum(|core| core.inspector.figures.decided[0])),
            ("packets_passed_by_flow", sum(|core| core.inspector.figures.decided[1])),
            ("streams_evicted", sum(|core| core.flows.streams_evicted)),
            ("stream_memory", sum(|core| core.flows.memory() as u64)),
            ("flows", sum(|core| core.flows.len() as u64)),
            ("flows_evicted", sum(|core| core.flows.evicted)),
            ("filter_counts_evicted", told(Teller::evicted)),
        ];
        let rejected = |n: usize| cores.iter().map(|core| core.inspector.figures.rejected[n]).sum();
        all.extend(Reason::FIGURES.into_iter().enumerate().map(|(n, name)| (name, rejected(n))));
        all
    }

    fn on_device(&mut self) -> Option<&mut dyn OnDevice> {
        Some(self)
    }

    fn flush(&mut self) -> Result<(), NfError> {
        self.alerts.write(&[])?;
        self.failure.take().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests;
