//! NF `nids`: intrusion detection by rules in Snort's syntax.
//!
//! Each packet's payload is looked at by itself; TCP streams are not put
//! together, so that a pattern split over segments is not found.

mod alert;
mod engine;
mod flows;
mod matcher;
mod rule;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thalweg_classify::source::{Source, SourceError};
use thalweg_packet::checksum::{self, ChecksumStatus};
use thalweg_packet::{Batch, DropReason, FiveTuple, Lanes, Nanoseconds, field};
use toml::Spanned;

use crate::function::NfError;
use crate::state::{StateError, StateReader, StateWriter};
use crate::{Blueprint, BuildError, Context, Environment, Kind, NetworkFunction, Section};
use alert::{AlertFile, Occasion};
use engine::{Engine, Scratch, Subject};
use flows::{Flows, Limits};
use matcher::Outcome;
use rule::{Action, Variables, load};

/// The options of an intrusion detection.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {
    /// Files with rules in Snort's syntax.
    #[schemars(with = "Vec<String>")]
    rules: Vec<Spanned<String>>,
    /// A file for alerts, as lines of Suricata's EVE JSON.
    alerts: Option<String>,
    /// Variables of the rules, over Suricata's defaults.
    #[serde(default)]
    variables: BTreeMap<String, String>,
    /// What becomes of rules that ask for what is not supported.
    #[serde(default)]
    unsupported: Unsupported,
    /// Whether packets with a wrong checksum are left alone.
    #[serde(default = "yes")]
    checksums: bool,
    /// The most connections; of more, the half that was used longest ago goes.
    #[serde(default = "max_flows")]
    #[schemars(with = "usize", range(min = 1, max = 67_108_864))]
    max_flows: Spanned<usize>,
    /// Seconds without a packet after which a connection is forgotten.
    #[serde(default = "idle_timeout")]
    idle_timeout_s: u64,
}

/// What becomes of rules that ask for what is not supported.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Unsupported {
    /// They are left out, each with a warning.
    #[default]
    Skip,
    /// They are mistakes.
    Refuse,
}

fn yes() -> bool {
    true
}

fn max_flows() -> Spanned<usize> {
    Spanned::new(0..0, 262_144)
}

fn idle_timeout() -> u64 {
    600
}

pub(crate) const KIND: Kind = Kind {
    name: "nids",
    summary: "intrusion detection by Snort-syntax rules",
    state: "connections, flow bits",
    limits: &[
        "packets, not streams: a pattern split over segments or fragments is not found",
        "4096 places tried for a rule and packet, PCRE2's match limit 3500; what is given up is \
         counted (gave_up)",
        "max_flows connections",
    ],
    options: || schemars::schema_for!(Options),
    build,
};

fn build(
    section: &Section<'_>,
    environment: &Environment<'_>,
) -> Result<Box<dyn Blueprint>, BuildError> {
    let options: Options = section.parse()?;
    if !(1..=1 << 26).contains(options.max_flows.get_ref()) {
        let span = options.max_flows.span();
        return Err(section.error(span, "bad number of flows", "1 to 67108864").into());
    }
    let mut sources = Vec::new();
    let mut errors = Vec::new();
    for file in &options.rules {
        match section.read(file.span(), file.get_ref()) {
            Ok(source) => sources.push(source),
            Err(e) => errors.push(e),
        }
    }
    if !errors.is_empty() {
        return Err(BuildError(errors));
    }
    let setup = Setup {
        variables: Variables::new(options.variables),
        refuse: options.unsupported == Unsupported::Refuse,
        files: options.rules.iter().map(|f| section.resolve(f.get_ref())).collect(),
    };
    let Compiled { engine, unsupported } = setup.compile(&sources)?;
    let alerts = options.alerts.filter(|_| !environment.dry_run).map(|p| section.resolve(p));
    Ok(Box::new(NidsBlueprint {
        setup,
        engine: Arc::new(ArcSwap::from_pointee(engine)),
        unsupported,
        alerts: Arc::new(Mutex::new(AlertFile::new(alerts))),
        limits: Limits {
            flows: *options.max_flows.get_ref(),
            idle: Nanoseconds::from_secs(options.idle_timeout_s),
        },
        checksums: options.checksums,
    }))
}

/// What it takes to read the rules, again too.
struct Setup {
    variables: Variables,
    refuse: bool,
    files: Vec<PathBuf>,
}

struct Compiled {
    engine: Engine,
    unsupported: Vec<SourceError>,
}

impl Setup {
    fn compile(&self, sources: &[Source]) -> Result<Compiled, BuildError> {
        let (mut rules, mut unsupported, mut errors) = (Vec::new(), Vec::new(), Vec::new());
        for source in sources {
            let loaded = load(source, &self.variables);
            rules.extend(loaded.rules);
            unsupported.extend(loaded.unsupported);
            errors.extend(loaded.errors);
        }
        if self.refuse {
            errors.append(&mut unsupported);
        }
        if !errors.is_empty() {
            return Err(BuildError(errors));
        }
        let engine = Engine::new(rules).map_err(|e| {
            let whole =
                sources.first().map(|s| s.error(0..0, e.to_string(), "fewer or shorter patterns"));
            BuildError(whole.into_iter().collect())
        })?;
        Ok(Compiled { engine, unsupported })
    }
}

struct NidsBlueprint {
    setup: Setup,
    engine: Arc<ArcSwap<Engine>>,
    unsupported: Vec<SourceError>,
    alerts: Arc<Mutex<AlertFile>>,
    limits: Limits,
    checksums: bool,
}

impl Blueprint for NidsBlueprint {
    fn instance(&self, worker: usize) -> Box<dyn NetworkFunction> {
        Box::new(Nids {
            engine: self.engine.clone(),
            flows: Flows::new(self.limits),
            alerts: self.alerts.clone(),
            checksums: self.checksums,
            scratch: Scratch::default(),
            lines: Vec::new(),
            failure: None,
            figures: Figures::default(),
            // Figures of workers are added up; what all share is told once.
            unsupported: if worker == 0 { self.unsupported.len() as u64 } else { 0 },
            first: worker == 0,
        })
    }

    fn describe(&self) -> String {
        let rules = self.engine.load().rules.len();
        format!("{rules} rules, {} unsupported", self.unsupported.len())
    }

    fn warnings(&self) -> &[SourceError] {
        &self.unsupported
    }

    fn reload(&self) -> Result<(), BuildError> {
        let sources = self.setup.files.iter().map(Source::read).collect::<Result<Vec<_>, _>>()?;
        let compiled = self.setup.compile(&sources)?;
        self.engine.store(Arc::new(compiled.engine));
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Figures {
    alerts: u64,
    verified: u64,
    gave_up: u64,
}

/// Intrusion detection on one worker.
struct Nids {
    engine: Arc<ArcSwap<Engine>>,
    flows: Flows,
    alerts: Arc<Mutex<AlertFile>>,
    checksums: bool,
    scratch: Scratch,
    lines: Vec<u8>,
    failure: Option<NfError>,
    figures: Figures,
    unsupported: u64,
    first: bool,
}

impl NetworkFunction for Nids {
    fn process(&mut self, batch: &mut Batch, lanes: Lanes, context: &mut Context<'_>) {
        let engine = self.engine.load_full();
        for lane in lanes {
            self.packet(&engine, batch, lane, context);
        }
        if !self.lines.is_empty() {
            let lines = std::mem::take(&mut self.lines);
            let mut file = self.alerts.lock().unwrap_or_else(PoisonError::into_inner);
            self.failure = self.failure.take().or(file.write(&lines).err());
            drop(file);
            self.lines = lines;
            self.lines.clear();
        }
    }

    fn export_state(&self, writer: &mut StateWriter<'_>) -> Result<(), StateError> {
        self.flows.records().iter().try_for_each(|record| writer.record(record))
    }

    fn import_state(&mut self, reader: &mut StateReader<'_>) -> Result<usize, StateError> {
        let records = reader.records()?;
        let imported = records.len();
        self.flows.insert(records);
        Ok(imported)
    }

    fn figures(&self) -> Vec<(&'static str, u64)> {
        let rules = if self.first { self.engine.load().rules.len() as u64 } else { 0 };
        vec![
            ("rules", rules),
            ("rules_unsupported", self.unsupported),
            ("alerts", self.figures.alerts),
            ("rules_verified", self.figures.verified),
            ("gave_up", self.figures.gave_up),
            ("flows", self.flows.len() as u64),
            ("flows_evicted", self.flows.evicted),
        ]
    }

    fn flush(&mut self) -> Result<(), NfError> {
        self.alerts.lock().unwrap_or_else(PoisonError::into_inner).write(&[])?;
        self.failure.take().map_or(Ok(()), Err)
    }
}

impl Nids {
    fn packet(&mut self, engine: &Engine, batch: &Batch, lane: usize, context: &mut Context<'_>) {
        let (bytes, headers, key) = (batch.bytes(lane), batch.headers(lane), batch.key(lane));
        let Some(tuple) = FiveTuple::from_key(&key) else { return };
        let payload = bytes.get(headers.payload as usize..headers.end as usize).unwrap_or(&[]);
        let tcp = headers.has_transport(6);
        let flags = tcp.then(|| key.get(field::TCP_FLAGS) as u16);
        // A segment that its receiver would not accept changes no connection.
        let counts =
            !self.checksums || checksum::verify(bytes, headers) != ChecksumStatus::BadTransport;
        let tracked = headers.l4 != 0;
        let mut seen = tracked.then(|| self.flows.packet(&tuple, flags, counts, context.now()));
        let subject = Subject { bytes, headers, key: &key, tuple: Some(&tuple), payload };
        let occasion = Occasion {
            timestamp: batch.meta.timestamp[lane],
            flow_hash: batch.flow_hash(lane),
            tuple: Some(&tuple),
            interface: batch.meta.in_port[lane].0,
        };
        let candidates = engine.candidates(payload, &mut self.scratch);
        context.explain(lane, || format!("{} rules to verify", candidates.len()));
        for number in candidates {
            let rule = &engine.rules[*number as usize];
            self.figures.verified += 1;
            match rule.matches(&subject, seen.as_ref()) {
                Outcome::Match if rule.bits_fit(seen.as_ref()) => {}
                Outcome::GaveUp => {
                    self.figures.gave_up += 1;
                    continue;
                }
                _ => continue,
            }
            if let Some(seen) = &mut seen {
                if rule.is_ip_only() && !seen.flow.said.insert((rule.sid, seen.to_server)) {
                    continue;
                }
                rule.change_bits(seen);
            }
            context.explain(lane, || format!("rule {}: {}", rule.sid, rule.message));
            if rule.action == Action::Pass {
                break;
            }
            if rule.action == Action::Drop {
                context.drop(lane, DropReason::Intrusion);
            }
            if !rule.no_alert {
                self.figures.alerts += 1;
                alert::line(rule, &occasion, &mut self.lines);
            }
        }
    }
}

#[cfg(test)]
mod tests;
