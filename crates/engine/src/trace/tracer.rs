//! Records the events of a worker while it handles the traced packet.

use thalweg_classify::Classifier;
use thalweg_nf::{Emitted, Verdict};
use thalweg_packet::{Batch, Decapsulate, DropReason, FlowKey, PortIndex, parse};

use super::path::{Step, Trace};
use super::words::{changes, flow, parsed};
use thalweg_chain::NfIndex;

/// The names of inputs, NFs, outputs and packet types, by number.
pub(crate) struct Labels {
    pub(crate) inputs: Vec<String>,
    pub(crate) nfs: Vec<String>,
    pub(crate) outputs: Vec<String>,
    pub(crate) types: Vec<String>,
}

impl Labels {
    /// A pattern in flow syntax, with the name of its input instead of the number.
    fn named(&self, flow: &str) -> String {
        let name = |part: &str| {
            let number = part.strip_prefix("in_port=")?.parse::<usize>().ok()?;
            self.inputs.get(number).map(|name| format!("in_port={name}"))
        };
        let parts = flow.split(',').map(|part| name(part).unwrap_or_else(|| part.to_owned()));
        parts.collect::<Vec<_>>().join(",")
    }
}

/// Records what happens to the one packet of a batch.
pub(crate) struct Tracer {
    trace: Trace,
    labels: Labels,
    notes: Vec<(usize, String)>,
    /// The packet's bytes before the current NF.
    before: Vec<u8>,
    key_before: FlowKey,
}

impl Tracer {
    /// Creates the record of packet number `packet`, which the input `input` received.
    pub(crate) fn new(packet: u64, input: &str, labels: Labels) -> Self {
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
            labels,
            notes: Vec::new(),
            before: Vec::new(),
            key_before: FlowKey::default(),
        }
    }

    pub(crate) fn finish(self) -> Trace {
        self.trace
    }

    /// Records that the packet is parsed and about to be classified.
    pub(crate) fn received(&mut self, batch: &Batch, classifier: &mut Classifier) {
        let Some(lane) = batch.lanes().into_iter().next() else { return };
        let t = &mut self.trace;
        t.timestamp_ns = batch.meta.timestamp[lane].0;
        t.length = batch.packet_len(lane);
        t.flow = self.labels.named(&flow(&batch.key(lane)));
        t.parsed = parsed(batch.headers(lane));
        let explanation = classifier.explain(&batch.key(lane));
        t.layer = explanation.lookup.layer.name();
        t.rule = explanation.rule_text;
        t.megaflow = self.labels.named(&explanation.megaflow.to_string());
        let number = usize::from(explanation.lookup.packet_type.0);
        t.packet_type = self.labels.types.get(number).cloned().unwrap_or_default();
    }

    /// Begins the step of an NF; returns the list for its explanations.
    pub(crate) fn before(&mut self, batch: &Batch, nf: NfIndex) -> &mut Vec<(usize, String)> {
        self.notes.clear();
        self.before.clear();
        if let Some(lane) = batch.lanes().into_iter().next() {
            self.before.extend_from_slice(batch.bytes(lane));
            self.key_before = batch.key(lane);
        }
        let nf = self.labels.nfs.get(usize::from(nf.0)).cloned().unwrap_or_default();
        self.trace.steps.push(Step { nf, ..Step::default() });
        &mut self.notes
    }

    /// Ends the step of an NF, with the packet still in the batch.
    pub(crate) fn after(&mut self, batch: &Batch, emitted: &Emitted, verdict: Verdict) {
        let Some(step) = self.trace.steps.last_mut() else { return };
        step.explanations = self.notes.drain(..).map(|(_, text)| text).collect();
        if let Some(lane) = batch.lanes().into_iter().next() {
            step.changes = changes(&self.before, batch.bytes(lane));
            step.length = batch.packet_len(lane);
            let key = batch.key(lane);
            step.flow = (key != self.key_before).then(|| self.labels.named(&flow(&key)));
        }
        let lost = match verdict {
            Verdict::Forward => None,
            Verdict::Drop(reason) => Some((format!("drop: {reason}"), reason)),
            Verdict::Punt => Some(("punt".into(), DropReason::Punted)),
        };
        step.verdict = lost.as_ref().map_or("forward".into(), |(verdict, _)| verdict.clone());
        if let Some((_, reason)) = lost {
            self.trace.fate = format!("dropped by {}: {reason}", step.nf);
        }
        let made = |bytes| {
            let (key, _) = parse(bytes, PortIndex::NONE, Decapsulate::No);
            format!("{} bytes: {}", bytes.len(), flow(&key))
        };
        step.emitted = emitted.packets().map(made).collect();
    }

    /// Records that the packet is dropped between NFs.
    pub(crate) fn lost(&mut self, reason: DropReason) {
        self.trace.fate = format!("dropped by the chain: {reason}");
    }

    /// Records that the packet is transmitted.
    pub(crate) fn transmitted(&mut self, output: usize) {
        let name = self.labels.outputs.get(output).map_or("?", String::as_str);
        self.trace.fate = format!("transmitted by {name}");
    }
}
