//! The ways that packets take through a route table, and whether they end.

use std::collections::BTreeSet;
use std::ops::Range;

use thalweg_packet::{PacketType, PortIndex};
use thalweg_source::{Source, SourceError};

use super::names::Names;
use super::routes::Table;
use crate::route_decider::{Next, NfIndex, RouteDecider, Stage};

/// What walking every way has shown.
pub(super) struct Ways {
    pub(super) order: Vec<NfIndex>,
    pub(super) unused: Vec<SourceError>,
}

/// Walks the way of each packet type from each input. Every way must come to
/// an end, and every NF be on some way.
///
/// # Errors
/// Ways that break off, go round for ever, or end at no certain output, and NFs
/// that no way comes to.
pub(super) fn check(
    source: &Source,
    names: &Names,
    table: &Table,
    decider: &RouteDecider,
) -> Result<Ways, Vec<SourceError>> {
    let mut walk = Walk {
        source,
        names,
        table,
        depth: vec![0; names.nfs.len()],
        taken: BTreeSet::new(),
        errors: Vec::new(),
    };
    for (number, name) in names.types.iter().enumerate() {
        let packet_type = PacketType(number as u16);
        for input in distinct_inputs(decider, names.inputs.len(), packet_type) {
            walk.way(packet_type, name, input);
        }
    }
    walk.check_reached();
    walk.finish()
}

/// One input for each different first step of `packet_type`; `None` when the
/// first step is the same from all inputs.
pub(crate) fn distinct_inputs(
    decider: &RouteDecider,
    inputs: usize,
    packet_type: PacketType,
) -> Vec<Option<PortIndex>> {
    let first = |input: usize| decider.next(packet_type, Stage::Ingress(PortIndex(input as u16)));
    if (1..inputs).all(|input| first(input) == first(0)) {
        return vec![None];
    }
    (0..inputs).map(|input| Some(PortIndex(input as u16))).collect()
}

struct Walk<'a> {
    source: &'a Source,
    names: &'a Names,
    table: &'a Table,
    /// The longest way to each NF, in NFs; 0 where none leads.
    depth: Vec<usize>,
    /// Where the lines stand that some packet takes.
    taken: BTreeSet<usize>,
    errors: Vec<SourceError>,
}

impl Walk<'_> {
    fn way(&mut self, packet_type: PacketType, name: &str, input: Option<PortIndex>) {
        let mut stage = Stage::Ingress(input.unwrap_or(PortIndex(0)));
        if input.is_none() {
            // All inputs lead the same way, each perhaps by a line of its own.
            let inputs = (0..self.names.inputs.len()).map(|i| Stage::Ingress(PortIndex(i as u16)));
            let lines = inputs.filter_map(|input| self.table.line(packet_type, input));
            self.taken.extend(lines.map(|line| line.span.start));
        }
        let mut last = 0..0;
        let mut way: Vec<NfIndex> = Vec::new();
        loop {
            let Some(line) = self.table.line(packet_type, stage) else {
                let from = self.stage_name(stage, input);
                let message = format!("packets of type '{name}' have no route from '{from}'");
                let expected = format!("a line '{name}, {from}, ...' (or '*, {from}, ...')");
                self.error(last, message, expected);
                return;
            };
            last = line.span.clone();
            self.taken.insert(line.span.start);
            let Next::Nf(nf) = line.next else {
                if line.next == Next::Egress {
                    self.check_egress(name, &way, last);
                }
                return;
            };
            if way.contains(&nf) {
                let mut names: Vec<_> = way.iter().map(|n| self.nf_name(*n)).collect();
                names.push(self.nf_name(nf));
                let round = names.join(" -> ");
                let message = format!("packets of type '{name}' go round for ever: {round}");
                self.error(last, message, "a way to 'egress', an output or 'drop'");
                return;
            }
            way.push(nf);
            if let Some(depth) = self.depth.get_mut(usize::from(nf.0)) {
                *depth = (*depth).max(way.len());
            }
            stage = Stage::Behind(nf);
        }
    }

    /// With several outputs, somebody on the way must have chosen one.
    fn check_egress(&mut self, name: &str, way: &[NfIndex], span: Range<usize>) {
        let chooses = |nf: &NfIndex| self.names.choosers.get(usize::from(nf.0)) == Some(&true);
        if self.names.outputs.len() > 1 && !way.iter().any(chooses) {
            let message = format!(
                "'egress' says nothing to packets of type '{name}': no NF on their way chooses \
                 one of the {} outputs",
                self.names.outputs.len()
            );
            let expected = format!("a router on the way, or: {}", self.names.outputs.join(", "));
            self.error(span, message, expected);
        }
    }

    fn check_reached(&mut self) {
        for number in 0..self.names.nfs.len() {
            if self.depth[number] == 0 {
                let message = format!("no packet ever comes to NF '{}'", self.names.nfs[number]);
                self.error(0..0, message, "a route to each NF");
            }
        }
    }

    fn error(&mut self, span: Range<usize>, message: String, expected: impl Into<String>) {
        let error = self.source.error(span, message, expected);
        // Several types may share a line that is wrong in one way.
        let text = error.to_string();
        if !self.errors.iter().any(|e| e.to_string() == text) {
            self.errors.push(error);
        }
    }

    fn finish(self) -> Result<Ways, Vec<SourceError>> {
        if !self.errors.is_empty() {
            return Err(self.errors);
        }
        let nfs = 0..self.names.nfs.len();
        let mut order: Vec<NfIndex> = nfs.map(|n| NfIndex(n as u16)).collect();
        order.sort_by_key(|nf| self.depth[usize::from(nf.0)]);
        let lines = self.table.lines().filter(|line| !self.taken.contains(&line.span.start));
        let mut unused: Vec<SourceError> = lines
            .map(|line| {
                let message = "no packet ever takes this route";
                self.source.error(line.span.clone(), message, "routes that lead here, or no line")
            })
            .collect();
        unused.sort_by_key(SourceError::line);
        Ok(Ways { order, unused })
    }

    fn nf_name(&self, nf: NfIndex) -> &str {
        self.names.nfs.get(usize::from(nf.0)).map_or("?", String::as_str)
    }

    fn stage_name(&self, stage: Stage, input: Option<PortIndex>) -> String {
        match (stage, input) {
            (Stage::Behind(nf), _) => self.nf_name(nf).to_owned(),
            (Stage::Ingress(_), None) => "ingress".into(),
            (Stage::Ingress(_), Some(input)) => {
                self.names.inputs.get(usize::from(input.0)).map_or("?", String::as_str).to_owned()
            }
        }
    }
}
