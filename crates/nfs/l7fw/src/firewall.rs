//! The firewall: from packets to flows, applications and verdicts.

use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use thalweg_packet::wire::ip_proto::TCP;
use thalweg_packet::{Batch, DropReason, FiveTuple, Headers, Lanes, Layer, Nanoseconds};
use thalweg_source::SourceError;

use super::application::{Action, HostPattern, Names, Rule, Seen, Wanted};
use super::config::{Options, RuleOptions};
use super::flows::{Flow, FlowId, Flows, Limits};
use super::labels;
use super::ndpi::{Inspection, Library};
use super::report::line;
use thalweg_nf::NfError;
use thalweg_nf::state::{StateError, StateReader, StateWriter};
use thalweg_nf::toolkit::conversation::Conversation;
use thalweg_nf::toolkit::output::LineFile;
use thalweg_nf::toolkit::view::vlan;
use thalweg_nf::{Blueprint, BuildError, Context, Environment, NetworkFunction, Section};

/// The data that all instances share.
struct Policy {
    rules: Vec<Rule>,
    default: Action,
    undecided: Action,
    names: Names,
}

pub(super) fn build(
    section: &Section<'_>,
    environment: &Environment<'_>,
) -> Result<Box<dyn Blueprint>, BuildError> {
    let options: Options = section.parse()?;
    let library = Library::new().ok_or_else(|| {
        section.error(section.span(), "cannot initialise nDPI", "enough memory for its tables")
    })?;
    let names = Names { applications: library.applications(), categories: library.categories() };
    let mut reader = Reader { section, names: &names, errors: Vec::new() };
    let rules = options.rule.iter().map(|rule| reader.rule(rule.get_ref())).collect();
    let limits = reader.limits(&options);
    if !reader.errors.is_empty() {
        return Err(BuildError(reader.errors));
    }
    let flows = section.output(options.flows.as_ref(), environment)?;
    let (default, undecided) = (options.default, options.undecided);
    Ok(Box::new(FirewallBlueprint {
        policy: Arc::new(Policy { rules, default, undecided, names }),
        limits,
        tells: flows.is_some(),
        file: Arc::new(Mutex::new(LineFile::new(flows))),
        library: Mutex::new(Some(library)),
    }))
}

struct Reader<'a> {
    section: &'a Section<'a>,
    names: &'a Names,
    errors: Vec<SourceError>,
}

impl Reader<'_> {
    fn rule(&mut self, options: &RuleOptions) -> Rule {
        let mut rule = Rule {
            action: options.action,
            applications: Vec::new(),
            categories: Vec::new(),
            hosts: Vec::new(),
        };
        for text in &options.application {
            match self.wanted(text.get_ref()) {
                Some(wanted) => rule.applications.push(wanted),
                None => self.unknown(text, "application", &self.names.applications),
            }
        }
        for text in &options.category {
            match self.names.find_category(text.get_ref()) {
                Some(id) => rule.categories.push(id),
                None => self.unknown(text, "category", &self.names.categories),
            }
        }
        for text in &options.host {
            let name = text.get_ref().strip_prefix("*.").unwrap_or(text.get_ref());
            if name.is_empty() || name.contains(['*', '/', ' ']) {
                let expected = "a host such as www.example.com or *.example.com";
                self.errors.push(self.section.error(text.span(), "not a host name", expected));
            }
            rule.hosts.push(HostPattern::new(text.get_ref()));
        }
        rule
    }

    /// An application, or one over another. Some names contain a dot themselves.
    fn wanted(&self, text: &str) -> Option<Wanted> {
        if let Some(id) = self.names.find_application(text) {
            return Some(Wanted::Any(id));
        }
        text.match_indices('.').find_map(|(at, _)| {
            let master = self.names.find_application(&text[..at])?;
            Some(Wanted::Over(master, self.names.find_application(&text[at + 1..])?))
        })
    }

    fn unknown(&mut self, text: &toml::Spanned<String>, what: &str, names: &[String]) {
        let wanted = text.get_ref().to_ascii_lowercase();
        let near: Vec<_> = names
            .iter()
            .filter(|name| name.to_ascii_lowercase().contains(wanted.get(..3).unwrap_or(&wanted)))
            .take(8)
            .map(String::as_str)
            .collect();
        let expected = if near.is_empty() {
            format!("one of nDPI's {} names, as ndpiReader lists them", names.len())
        } else {
            format!("one of nDPI's names, such as {}", near.join(", "))
        };
        let message = format!("unknown {what}");
        self.errors.push(self.section.error(text.span(), message, expected));
    }

    fn limits(&mut self, options: &Options) -> Limits {
        let (section, errors) = (self.section, &mut self.errors);
        Limits {
            packets: [&options.tcp_packets, &options.other_packets]
                .map(|n| section.in_range(n, 1..=65_535, errors).into()),
            flows: section.in_range(&options.max_flows, 2..=1 << 26, errors),
            idle: Nanoseconds::from_secs(section.in_range(
                &options.idle_timeout_s,
                1..=1 << 32,
                errors,
            )),
        }
    }
}

struct FirewallBlueprint {
    policy: Arc<Policy>,
    limits: Limits,
    /// Whether flows are reported.
    tells: bool,
    file: Arc<Mutex<LineFile>>,
    /// For the first instance; creating one takes milliseconds.
    library: Mutex<Option<Library>>,
}

impl Blueprint for FirewallBlueprint {
    /// # Panics
    /// Without memory for the library's tables.
    fn instance(&self, _worker: usize) -> Box<dyn NetworkFunction> {
        Box::new(self.firewall())
    }

    fn describe(&self) -> String {
        let applications = self.policy.names.applications.len();
        let rules = thalweg_source::counted(self.policy.rules.len(), "rule");
        format!("{rules}, {applications} known applications")
    }
}

impl FirewallBlueprint {
    fn firewall(&self) -> Firewall {
        let ready = self.library.lock().unwrap_or_else(PoisonError::into_inner).take();
        let library = ready.or_else(Library::new);
        Firewall {
            policy: self.policy.clone(),
            library: library.expect("there is memory for the library's tables"),
            flows: Flows::new(self.limits),
            tells: self.tells,
            file: self.file.clone(),
            lines: Vec::new(),
            frame: Vec::new(),
            failure: None,
            figures: Figures::default(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    inspected: u64,
    decided: u64,
    guessed: u64,
    unknown: u64,
    blocked: u64,
}

/// A firewall on one worker.
pub(super) struct Firewall {
    policy: Arc<Policy>,
    library: Library,
    flows: Flows,
    tells: bool,
    file: Arc<Mutex<LineFile>>,
    /// Lines not written yet.
    lines: Vec<u8>,
    /// A packet without its labels; reused.
    frame: Vec<u8>,
    failure: Option<NfError>,
    figures: Figures,
}

impl NetworkFunction for Firewall {
    fn process(&mut self, batch: &mut Batch, lanes: Lanes, context: &mut Context<'_>) {
        for lane in lanes {
            self.packet(batch, lane, context);
        }
        self.write();
    }

    fn export_state(&self, writer: &mut StateWriter<'_>) -> Result<(), StateError> {
        let mut known = self.flows.table.iter().filter(|(_, flow)| flow.inspection.is_none());
        known.try_for_each(|(id, flow)| writer.record([flow.tuple], &self.record(id, flow)))
    }

    fn import_state(&mut self, reader: &mut StateReader<'_>) -> Result<usize, StateError> {
        let records: Vec<Record> = reader.records()?;
        let mut flows = Vec::with_capacity(records.len());
        for (index, record) in records.into_iter().enumerate() {
            flows.push(self.flow(record).map_err(|what| StateError::Record { index, what })?);
        }
        let imported = flows.len();
        for (id, flow) in flows {
            self.make_room(&id, flow.last);
            self.flows.table.insert(id, flow);
        }
        Ok(imported)
    }

    fn figures(&self) -> Vec<(&'static str, u64)> {
        let figures = &self.figures;
        vec![
            ("flows", self.flows.table.len() as u64),
            ("flows_evicted", self.flows.evicted),
            ("flows_decided", figures.decided),
            ("flows_guessed", figures.guessed),
            ("flows_unknown", figures.unknown),
            ("packets_inspected", figures.inspected),
            ("packets_blocked", figures.blocked),
        ]
    }

    /// Reports undecided flows with what is known about them so far.
    fn flush(&mut self) -> Result<(), NfError> {
        if !self.tells {
            return Ok(());
        }
        let mut lines = std::mem::take(&mut self.lines);
        for (id, flow) in self.flows.sorted() {
            let Some(inspection) = &flow.inspection else { continue };
            let seen = self.library.guess(inspection);
            let told =
                Flow { seen, host: inspection.host().map(Into::into), inspection: None, ..*flow };
            line(&self.policy.names, &flow.tuple, id.0, &told, true, &mut lines);
        }
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write(&lines)?;
        self.failure.take().map_or(Ok(()), Err)
    }
}

impl Firewall {
    fn packet(&mut self, batch: &Batch, lane: usize, context: &mut Context<'_>) {
        let mut frame = std::mem::take(&mut self.frame);
        let vlan = vlan(batch, lane);
        let at = (lane, batch.meta.timestamp[lane]);
        if let Some(tuple) = FiveTuple::of(batch, lane) {
            let (headers, bytes) = (batch.headers(lane), batch.bytes(lane));
            self.in_flow(vlan, tuple, headers, bytes, at, context);
        } else if let Some(inner) = labels::take_off(batch, lane, &mut frame) {
            self.in_flow(vlan, inner.tuple, &inner.headers, inner.frame, at, context);
        }
        self.frame = frame;
    }

    /// Processes a packet of `tuple`, whose headers are in `bytes` at the places in `headers`.
    fn in_flow(
        &mut self,
        vlan: u16,
        tuple: FiveTuple,
        headers: &Headers,
        bytes: &[u8],
        (lane, now): (usize, Nanoseconds),
        context: &mut Context<'_>,
    ) {
        if headers.layer < Layer::Network || headers.fragment {
            return;
        }
        let id = (vlan, Conversation::of(&tuple).0);
        self.make_room(&id, now);
        let limits = self.flows.limits;
        let flow = self.flows.table.entry(id).or_insert_with(|| begun(tuple, now, &self.policy));
        if now.since(flow.last) >= limits.idle {
            *flow = begun(tuple, now, &self.policy);
        }
        flow.last = flow.last.follow(now);
        flow.packets += 1;
        if flow.inspection.is_some() {
            self.figures.inspected += 1;
            let end = headers.end as usize;
            let packet = bytes.get(headers.l3 as usize..end).unwrap_or(&[]);
            let most = limits.packets[usize::from(tuple.protocol != TCP)];
            if look(&mut self.library, &self.policy, flow, packet, most) {
                self.figures.decided += 1;
                self.figures.guessed += u64::from(flow.seen.guessed);
                self.figures.unknown += u64::from(flow.seen.application == 0);
                if self.tells {
                    line(&self.policy.names, &flow.tuple, id.0, flow, false, &mut self.lines);
                }
            }
        }
        let names = &self.policy.names;
        context
            .explain(lane, || format!("{}: {}", flow.action.name(), names.application(flow.seen)));
        if flow.action == Action::Block {
            flow.dropped += 1;
            self.figures.blocked += 1;
            context.drop(lane, DropReason::Application);
        }
    }

    /// Makes room for a flow; reports flows that are evicted undecided.
    fn make_room(&mut self, id: &FlowId, now: Nanoseconds) {
        let (library, policy, lines) = (&mut self.library, &self.policy, &mut self.lines);
        let tells = self.tells;
        self.flows.make_room(id, now, |(vlan, _), mut flow| {
            if let Some(inspection) = flow.inspection.take()
                && tells
            {
                flow.host = inspection.host().map(Into::into);
                flow.seen = library.give_up(inspection);
                line(&policy.names, &flow.tuple, vlan, &flow, false, lines);
            }
        });
    }

    fn write(&mut self) {
        /// The bytes of lines that are written at once.
        const CHUNK: usize = 1 << 16;
        if self.lines.len() < CHUNK {
            return;
        }
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        self.failure = self.failure.take().or(file.write(&self.lines).err());
        self.lines.clear();
    }
}

/// A new flow, of which nothing is known.
fn begun(tuple: FiveTuple, now: Nanoseconds, policy: &Policy) -> Flow {
    Flow {
        tuple,
        first: now,
        last: now,
        packets: 0,
        dropped: 0,
        seen: Seen::default(),
        host: None,
        action: policy.undecided,
        rule: None,
        // Without memory the flow is never recognised.
        inspection: Inspection::new(),
    }
}

/// Inspects a packet of an undecided flow; returns whether the flow is decided now.
fn look(library: &mut Library, policy: &Policy, flow: &mut Flow, packet: &[u8], most: u64) -> bool {
    let Some(inspection) = &mut flow.inspection else { return false };
    let mut seen = library.packet(inspection, packet, flow.last.0 / 1_000_000);
    let enough = flow.packets > most || seen.failed;
    let decided = enough || seen.application != 0 && !seen.more;
    if flow.host.is_none() {
        flow.host = inspection.host().map(Into::into);
    }
    if decided
        && let Some(inspection) = flow.inspection.take()
        && seen.application == 0
    {
        seen = library.give_up(inspection);
    }
    flow.seen = seen;
    if decided || seen.application != 0 {
        policy.judge(flow);
    }
    decided
}

impl Policy {
    /// Sets the action and the rule of a flow by what is known about it.
    fn judge(&self, flow: &mut Flow) {
        let fits = |rule: &Rule| rule.fits(flow.seen, flow.host.as_deref());
        let rule = self.rules.iter().position(fits);
        flow.action = rule.map_or(self.default, |rule| self.rules[rule].action);
        flow.rule = rule.map(|rule| rule as u32);
    }
}

/// A flow whose application is known. Names instead of numbers, because the numbers differ between
/// versions of the library.
#[derive(Serialize, Deserialize)]
struct Record {
    vlan: u16,
    ends: (std::net::IpAddr, std::net::IpAddr, u8, u16, u16),
    first: Nanoseconds,
    last: Nanoseconds,
    packets: u64,
    dropped: u64,
    master: String,
    application: String,
    category: String,
    guessed: bool,
    host: Option<String>,
}

impl Firewall {
    fn record(&self, (vlan, _): &FlowId, flow: &Flow) -> Record {
        let names = &self.policy.names;
        let name = |id: u16| names.applications.get(usize::from(id)).cloned().unwrap_or_default();
        let t = &flow.tuple;
        Record {
            vlan: *vlan,
            ends: (t.src, t.dst, t.protocol, t.src_port, t.dst_port),
            first: flow.first,
            last: flow.last,
            packets: flow.packets,
            dropped: flow.dropped,
            master: name(flow.seen.master),
            application: name(flow.seen.application),
            category: names.category(flow.seen).to_owned(),
            guessed: flow.seen.guessed,
            host: flow.host.as_deref().map(str::to_owned),
        }
    }

    fn flow(&self, record: Record) -> Result<(FlowId, Flow), String> {
        let names = &self.policy.names;
        let application = |name: &str| {
            names.find_application(name).ok_or_else(|| format!("unknown application '{name}'"))
        };
        let (src, dst, protocol, src_port, dst_port) = record.ends;
        let tuple = FiveTuple { src, dst, protocol, src_port, dst_port };
        let category = names.find_category(&record.category);
        let mut flow = Flow {
            tuple,
            first: record.first,
            last: record.last,
            packets: record.packets,
            dropped: record.dropped,
            seen: Seen {
                master: application(&record.master)?,
                application: application(&record.application)?,
                category: category
                    .ok_or_else(|| format!("unknown category '{}'", record.category))?,
                guessed: record.guessed,
                ..Seen::default()
            },
            host: record.host.map(Into::into),
            action: Action::Allow,
            rule: None,
            inspection: None,
        };
        self.policy.judge(&mut flow);
        Ok(((record.vlan, Conversation::of(&tuple).0), flow))
    }
}
