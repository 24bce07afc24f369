//! One packet's way through a chain, step by step, in the manner of
//! `ofproto/trace`.

use std::fmt;

use serde::Serialize;
use thalweg_classify::{Classifier, Match};
use thalweg_packet::{Batch, DropCounts, DropReason, FlowKey, Headers, Lanes, PortIndex};

use crate::config::Plan;
use crate::route_decider::NfIndex;
use crate::runtime::{RunError, RunOptions, build_worker, open_inputs};
use crate::worker::Exit;

/// What one packet went through.
#[derive(Clone, Debug, Serialize)]
pub struct Trace {
    schema: &'static str,
    /// The packet's number, from 1, in the order of receive.
    pub packet: u64,
    /// The input it came in by.
    pub input: String,
    /// When it was captured, in nanoseconds.
    pub timestamp_ns: u64,
    /// Its length in bytes.
    pub length: usize,
    /// Its flow key in flow syntax.
    pub flow: String,
    /// How far parsing came.
    pub parsed: String,
    /// The layer of classification that answered.
    pub layer: &'static str,
    /// The rule that matched, as written.
    pub rule: Option<String>,
    /// What the megaflow of this answer covers, in flow syntax.
    pub megaflow: String,
    /// Its packet type.
    pub packet_type: String,
    /// What each NF did.
    pub steps: Vec<Step>,
    /// What became of it in the end.
    pub fate: String,
}

/// What one NF did to the packet.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Step {
    /// The NF.
    pub nf: String,
    /// Its reasons, in its own words.
    pub explanations: Vec<String>,
    /// Forward, or drop with the reason.
    pub verdict: String,
    /// The bytes it changed: offset, before, after.
    pub changes: Vec<String>,
    /// Packets it made.
    pub emitted: Vec<String>,
}

/// Why there is no trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The inputs end before the packet.
    #[error("there is no packet {packet}: the inputs have {there}")]
    NoSuchPacket {
        /// The packet that was asked for.
        packet: u64,
        /// How many there are.
        there: u64,
    },
    /// The packet was not taken in.
    #[error("packet {packet} was lost on receive: {reason}")]
    NotReceived {
        /// The packet that was asked for.
        packet: u64,
        /// Why.
        reason: DropReason,
    },
    /// An input failed before the packet.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Sends packets through the chain, one at a time, up to packet number
/// `packet` (from 1), so that the state it meets is that of a run; explains it.
///
/// Nothing is written: packets are discarded at the outputs.
///
/// # Errors
/// When there is no such packet.
pub fn trace(plan: Plan, packet: u64, options: &RunOptions) -> Result<Trace, TraceError> {
    let mut inputs = open_inputs(&plan, options)?;
    let mut worker = build_worker(&plan, 0, 1);
    let mut batch = Batch::new(plan.pool.clone());
    let mut there = 0;
    for (number, input) in inputs.iter_mut().enumerate() {
        let mut ended = false;
        while !ended {
            let mut drops = DropCounts::default();
            let received = match input.receive(&mut batch, 1, &mut drops) {
                Ok(received) => received,
                Err(e) => return Err(RunError::from(e).into()),
            };
            ended = received.ended;
            there += received.packets as u64;
            let wanted = there == packet && received.packets > 0;
            if let Some((reason, _)) = drops.iter().next()
                && wanted
            {
                return Err(TraceError::NotReceived { packet, reason });
            }
            for lane in batch.lanes() {
                batch.meta.in_port[lane] = PortIndex(number as u16);
            }
            if wanted {
                worker.tracer = Some(Tracer::new(&plan, packet, &plan.inputs[number].name));
            }
            worker.ingress(&mut batch, &mut Nowhere);
            if let Some(tracer) = worker.tracer.take() {
                return Ok(tracer.trace);
            }
        }
    }
    Err(TraceError::NoSuchPacket { packet, there })
}

/// An exit that keeps nothing; a traced chain runs on one worker.
struct Nowhere;

impl Exit for Nowhere {
    fn transmit(&mut self, _output: usize, _batch: &mut Batch, _lanes: Lanes) {}

    fn to_pinned(&mut self, _nf: NfIndex, batch: &mut Batch, lanes: Lanes) {
        batch.release(lanes);
    }
}

/// Notes what happens to the one packet of a batch.
pub(crate) struct Tracer {
    trace: Trace,
    nf_names: Vec<String>,
    output_names: Vec<String>,
    type_names: Vec<String>,
    notes: Vec<(usize, String)>,
    before: Vec<u8>,
}

impl Tracer {
    fn new(plan: &Plan, packet: u64, input: &str) -> Self {
        let trace = Trace {
            schema: "thalweg.trace/1",
            packet,
            input: input.to_owned(),
            timestamp_ns: 0,
            length: 0,
            flow: String::new(),
            parsed: String::new(),
            layer: "",
            rule: None,
            megaflow: String::new(),
            packet_type: String::new(),
            steps: Vec::new(),
            fate: String::new(),
        };
        Self {
            trace,
            nf_names: plan.nfs.iter().map(|nf| nf.name.clone()).collect(),
            output_names: plan.outputs.iter().map(|o| o.name.clone()).collect(),
            type_names: plan.types.iter().cloned().collect(),
            notes: Vec::new(),
            before: Vec::new(),
        }
    }

    pub(crate) fn received(&mut self, batch: &Batch, classifier: &mut Classifier) {
        let Some(lane) = batch.lanes().into_iter().next() else {
            return;
        };
        let t = &mut self.trace;
        t.timestamp_ns = batch.meta.timestamp[lane].0;
        t.length = batch.packet_len(lane);
        t.flow = flow(batch.key(lane));
        t.parsed = parsed(batch.headers(lane));
        let explanation = classifier.explain(batch.key(lane));
        t.layer = explanation.lookup.layer.name();
        t.rule = explanation.rule_text;
        t.megaflow = explanation.megaflow.to_string();
        let number = usize::from(explanation.lookup.packet_type.0);
        t.packet_type = self.type_names.get(number).cloned().unwrap_or_default();
    }

    /// Before an NF: where its explanations go.
    pub(crate) fn before(&mut self, batch: &Batch, nf: NfIndex) -> &mut Vec<(usize, String)> {
        self.notes.clear();
        let lane = batch.lanes().into_iter().next();
        self.before = lane.map_or(Vec::new(), |lane| batch.bytes(lane).to_vec());
        let nf = self.nf_names.get(usize::from(nf.0)).cloned().unwrap_or_default();
        self.trace.steps.push(Step { nf, ..Step::default() });
        &mut self.notes
    }

    /// After an NF, with the packet still in the batch.
    pub(crate) fn after(&mut self, batch: &Batch, emitted: &Batch, verdict: thalweg_nf::Verdict) {
        let Some(step) = self.trace.steps.last_mut() else { return };
        step.explanations = self.notes.drain(..).map(|(_, text)| text).collect();
        if let Some(lane) = batch.lanes().into_iter().next() {
            step.changes = changes(&self.before, batch.bytes(lane));
        }
        step.verdict = match verdict {
            thalweg_nf::Verdict::Forward => "forward".into(),
            thalweg_nf::Verdict::Drop(reason) => {
                self.trace.fate = format!("dropped by {}: {reason}", step.nf);
                format!("drop: {reason}")
            }
            thalweg_nf::Verdict::Punt => {
                self.trace.fate = format!("dropped by {}: {}", step.nf, DropReason::Punted);
                "punt".into()
            }
        };
        step.emitted = emitted
            .lanes()
            .into_iter()
            .map(|lane| {
                let bytes = emitted.bytes(lane);
                let (key, _) =
                    thalweg_packet::parse(bytes, PortIndex::NONE, thalweg_packet::Decapsulate::No);
                format!("{} bytes: {}", bytes.len(), flow(&key))
            })
            .collect();
    }

    pub(crate) fn lost(&mut self, reason: DropReason) {
        self.trace.fate = format!("dropped by the chain: {reason}");
    }

    pub(crate) fn transmitted(&mut self, output: usize) {
        let name = self.output_names.get(output).map_or("?", String::as_str);
        self.trace.fate = format!("transmitted by {name}");
    }
}

/// The fields of a key that are not zero, in flow syntax.
fn flow(key: &FlowKey) -> String {
    let mut mask = FlowKey::default();
    for (m, word) in mask.words.iter_mut().zip(key.words) {
        // Whole 16-bit parts, so that each field prints as itself.
        for part in 0..4 {
            let bits = 0xffff << (part * 16);
            if word & bits != 0 {
                *m |= bits;
            }
        }
    }
    exact_fields(key, &mut mask);
    Match::new(*key, mask).to_string()
}

/// Widens the mask to whole fields, those that are zero but meaningful too.
fn exact_fields(key: &FlowKey, mask: &mut FlowKey) {
    use thalweg_packet::field;
    let whole = [
        field::DL_SRC,
        field::DL_DST,
        field::DL_TYPE,
        field::NW_SRC,
        field::NW_DST,
        field::NW_PROTO,
        field::NW_TOS,
        field::NW_TTL,
        field::NW_FRAG,
        field::TP_SRC,
        field::TP_DST,
        field::TUN_SRC,
        field::TUN_DST,
        field::TUN_ID,
        field::ARP_SHA,
        field::ARP_THA,
        field::IPV6_LABEL,
    ];
    let [s, d, t] = [field::IPV6_SRC, field::IPV6_DST, field::ND_TARGET];
    for f in whole {
        mask.set(f, if key.get(f) != 0 { f.max() } else { 0 });
    }
    for pair in [s, d, t, field::TUN_IPV6_SRC, field::TUN_IPV6_DST] {
        mask.set128(pair, if key.get128(pair) != 0 { u128::MAX } else { 0 });
    }
    // What flow syntax has no word for.
    mask.set(field::TUN_KIND, 0);
    mask.set(field::ICMP_ID, 0);
    mask.set(field::VLAN_TPID, 0);
    mask.set(field::VLAN2_TPID, 0);
    mask.set(field::VLAN2_TCI, 0);
    mask.set(field::MPLS_LSE2, 0);
    mask.set(field::MPLS_LSE3, 0);
    if key.get(field::NW_PROTO) == 6 {
        mask.set(field::TCP_FLAGS, 0x1ff);
    } else {
        mask.set(field::TCP_FLAGS, 0);
    }
}

fn parsed(headers: &Headers) -> String {
    let layer = format!("{:?}", headers.layer).to_lowercase();
    let mut text = format!("{layer} layer, {}", format!("{:?}", headers.status).to_lowercase());
    for (name, at) in [("network", headers.l3), ("transport", headers.l4)] {
        if at != 0 {
            text += &format!(", {name} header at {at}");
        }
    }
    text + &format!(", payload {} to {}", headers.payload, headers.end)
}

/// Where two versions of a packet differ; at most 16 places, each up to 16 bytes.
fn changes(before: &[u8], after: &[u8]) -> Vec<String> {
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    if before.len() != after.len() {
        return vec![format!("length {} -> {}", before.len(), after.len())];
    }
    let mut changes = Vec::new();
    let mut at = 0;
    while at < before.len() && changes.len() < 16 {
        if before[at] == after[at] {
            at += 1;
            continue;
        }
        let mut end = at + 1;
        while end < before.len() && end - at < 16 && before[end] != after[end] {
            end += 1;
        }
        changes.push(format!("at {at}: {} -> {}", hex(&before[at..end]), hex(&after[at..end])));
        at = end;
    }
    changes
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "packet {}: {} bytes by {}", self.packet, self.length, self.input)?;
        writeln!(f, "flow: {}", self.flow)?;
        writeln!(f, "parsed: {}", self.parsed)?;
        writeln!(f)?;
        writeln!(f, "classification ({})", self.layer)?;
        writeln!(f, "    rule: {}", self.rule.as_deref().unwrap_or("none, default type"))?;
        let megaflow = if self.megaflow.is_empty() { "every packet" } else { &self.megaflow };
        writeln!(f, "    megaflow: {megaflow}")?;
        writeln!(f, "    type: {}", self.packet_type)?;
        for step in &self.steps {
            writeln!(f)?;
            writeln!(f, "{}", step.nf)?;
            for text in &step.explanations {
                writeln!(f, "    {text}")?;
            }
            for change in &step.changes {
                writeln!(f, "    changed {change}")?;
            }
            for emitted in &step.emitted {
                writeln!(f, "    made a packet of {emitted}")?;
            }
            writeln!(f, "    -> {}", step.verdict)?;
        }
        writeln!(f)?;
        writeln!(f, "fate: {}", self.fate)
    }
}
