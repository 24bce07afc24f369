//! Records what happens to one packet.

use thalweg_chain::{NfIndex, Plan};
use thalweg_classify::Classifier;
use thalweg_nf::{Emitted, Verdict};
use thalweg_packet::{Batch, Decapsulate, DropReason, FlowKey, PortIndex, parse};

use super::path::{SCHEMA, Step, Trace};
use super::words::{changes, flow, parsed};
use crate::observe::DropPlace;

/// Records what happens to one packet of a batch, in which it keeps its lane.
pub(crate) struct Tracer {
    lane: usize,
    trace: Trace,
    /// The packet's bytes before the current NF.
    before: Vec<u8>,
    key_before: FlowKey,
}

impl Tracer {
    /// Begins the trace of the packet in `lane`, the `number`th that was received, which is parsed and
    /// about to be classified.
    pub(crate) fn new(
        number: u64,
        batch: &Batch,
        lane: usize,
        plan: &Plan,
        classifier: &mut Classifier,
    ) -> Self {
        let key = batch.key(lane);
        let explanation = classifier.explain(&key);
        let input = plan.inputs.get(usize::from(batch.meta.in_port[lane].0));
        let packet_type = plan.types.get_index(usize::from(explanation.lookup.packet_type.0));
        let trace = Trace {
            schema: SCHEMA.into(),
            packet: number,
            input: input.map_or_else(String::new, |input| input.name.clone()),
            timestamp_ns: batch.meta.timestamp[lane].0,
            length: batch.packet_len(lane),
            flow: named(plan, &flow(&key)),
            parsed: parsed(batch.headers(lane)),
            layer: explanation.lookup.layer.name().into(),
            rule: explanation.rule_text,
            megaflow: named(plan, &explanation.megaflow.to_string()),
            packet_type: packet_type.cloned().unwrap_or_default(),
            steps: Vec::new(),
            fate: String::new(),
        };
        Self { lane, trace, before: Vec::new(), key_before: FlowKey::default() }
    }

    /// The lane of the packet.
    pub(crate) fn lane(&self) -> usize {
        self.lane
    }

    pub(crate) fn finish(self) -> Trace {
        self.trace
    }

    /// Begins the step of an NF.
    pub(crate) fn enter(&mut self, batch: &Batch, plan: &Plan, nf: NfIndex) {
        self.before.clear();
        self.before.extend_from_slice(batch.bytes(self.lane));
        self.key_before = batch.key(self.lane);
        let nf = plan.nfs[usize::from(nf.0)].name.clone();
        self.trace.steps.push(Step { nf, ..Step::default() });
    }

    /// Ends the step of an NF, with the packet still in the batch and parsed again; `notes` has the
    /// explanations of all packets, by lane.
    pub(crate) fn leave(
        &mut self,
        batch: &Batch,
        plan: &Plan,
        emitted: &Emitted,
        verdict: Verdict,
        notes: &[(usize, String)],
    ) {
        let Some(step) = self.trace.steps.last_mut() else { return };
        let mine = notes.iter().filter(|(lane, _)| *lane == self.lane);
        step.explanations = mine.map(|(_, text)| text.clone()).collect();
        step.changes = changes(&self.before, batch.bytes(self.lane));
        step.length = batch.packet_len(self.lane);
        let key = batch.key(self.lane);
        step.flow = (key != self.key_before).then(|| named(plan, &flow(&key)));
        step.verdict = match verdict {
            Verdict::Forward => "forward".into(),
            Verdict::Drop(reason) => format!("drop: {reason}"),
            Verdict::Punt => "punt".into(),
        };
        let made = |bytes| {
            let (key, _) = parse(bytes, PortIndex::NONE, Decapsulate::No);
            format!("{} bytes: {}", bytes.len(), flow(&key))
        };
        step.emitted = emitted.packets_for(self.lane).map(made).collect();
    }

    /// Records where and why the packet is dropped.
    pub(crate) fn dropped(&mut self, place: &DropPlace, reason: DropReason) {
        self.trace.fate = format!("dropped by {place}: {reason}");
    }

    /// Records that the packet is transmitted by an output.
    pub(crate) fn transmitted(&mut self, output: &str) {
        self.trace.fate = format!("transmitted by {output}");
    }
}

/// A pattern in flow syntax, with the name of its input instead of the number.
fn named(plan: &Plan, flow: &str) -> String {
    let name = |part: &str| {
        let number = part.strip_prefix("in_port=")?.parse::<usize>().ok()?;
        plan.inputs.get(number).map(|input| format!("in_port={}", input.name))
    };
    let parts = flow.split(',').map(|part| name(part).unwrap_or_else(|| part.to_owned()));
    parts.collect::<Vec<_>>().join(",")
}
