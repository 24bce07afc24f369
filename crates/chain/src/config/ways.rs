//! The paths that packets take through a route table, and the check that they end.

use std::collections::{BTreeSet, HashSet};

use thalweg_packet::{PacketType, PortIndex};
use thalweg_source::{Mistakes, Source, SourceError};

use super::names::Names;
use super::table::{Line, Table};
use crate::route_decider::{Next, NfIndex, RouteDecider, Stage};

/// How a route table is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A file with a hop a line.
    Lines,
    /// Sections with a path each.
    Paths,
}

/// The result of walking every path.
pub(super) struct Ways {
    pub(super) order: Vec<NfIndex>,
    pub(super) unused: Vec<SourceError>,
}

/// Walks the path of each packet type from each input. Every path must end, and every NF must be
/// on a path.
///
/// # Errors
/// Paths that break off, that loop, or that end at an ambiguous output, and NFs that no path
/// reaches.
pub(super) fn check(
    source: &Source,
    form: Form,
    names: &Names,
    table: &Table,
    decider: &RouteDecider,
) -> Result<Ways, Vec<SourceError>> {
    let mut walk = Walk {
        source,
        form,
        names,
        table,
        depth: vec![0; names.nfs.len()],
        taken: BTreeSet::new(),
        reported: HashSet::new(),
        errors: Mistakes::default(),
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

/// One input for each different first step of `packet_type`; `None` if the
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
    /// The file with the routes, or the chain file.
    source: &'a Source,
    form: Form,
    names: &'a Names,
    table: &'a Table,
    /// The longest path to each NF, in NFs; 0 for an NF that no path reaches.
    depth: Vec<usize>,
    /// The numbers of the lines that some packet takes.
    taken: BTreeSet<usize>,
    /// The lines and messages of `errors`.
    reported: HashSet<(Option<usize>, String)>,
    errors: Mistakes,
}

impl Walk<'_> {
    fn way(&mut self, packet_type: PacketType, name: &str, input: Option<PortIndex>) {
        let mut stage = Stage::Ingress(input.unwrap_or(PortIndex(0)));
        if input.is_none() {
            // All inputs lead to the same step, each perhaps by its own line.
            let inputs = (0..self.names.inputs.len()).map(|i| Stage::Ingress(PortIndex(i as u16)));
            let lines = inputs.filter_map(|input| self.table.line(packet_type, input));
            self.taken.extend(lines.map(|line| line.number));
        }
        let table = self.table;
        let mut last = None;
        let mut way: Vec<NfIndex> = Vec::new();
        loop {
            let Some(line) = table.line(packet_type, stage) else {
                self.has_no_route(name, &self.stage_name(stage, input), last);
                return;
            };
            last = Some(line);
            self.taken.insert(line.number);
            let Next::Nf(nf) = line.next else {
                if line.next == Next::Egress {
                    self.check_egress(name, &way, line);
                }
                return;
            };
            if way.contains(&nf) {
                let mut names: Vec<_> = way.iter().map(|n| self.nf_name(*n)).collect();
                names.push(self.nf_name(nf));
                let round = names.join(" -> ");
                let message = format!("packets of type '{name}' loop forever: {round}");
                self.error(last, message, "a path to 'egress', an output or 'drop'");
                return;
            }
            way.push(nf);
            if let Some(depth) = self.depth.get_mut(usize::from(nf.0)) {
                *depth = (*depth).max(way.len());
            }
            stage = Stage::Behind(nf);
        }
    }

    /// Reports that packets have no route from a stage, to which the line `last` led them.
    fn has_no_route(&mut self, name: &str, from: &str, last: Option<&Line>) {
        let message = format!("packets of type '{name}' have no route from '{from}'");
        let expected = match self.form {
            Form::Lines => format!("a line '{name}, {from}, ...' (or '*, {from}, ...')"),
            Form::Paths => {
                format!("a [[route]] of type '{name}' (or '*') with a name after '{from}'")
            }
        };
        self.error(last, message, expected);
    }

    /// Checks that, with several outputs, an NF on the path chooses one.
    fn check_egress(&mut self, name: &str, way: &[NfIndex], line: &Line) {
        let chooses = |nf: &NfIndex| self.names.choosers.get(usize::from(nf.0)) == Some(&true);
        if self.names.outputs.len() > 1 && !way.iter().any(chooses) {
            let message = format!(
                "'egress' is ambiguous for packets of type '{name}': {} outputs, and no NF on \
                 their path chooses one",
                self.names.outputs.len()
            );
            let expected =
                format!("a router on the path, or one of: {}", self.names.outputs.join(", "));
            self.error(Some(line), message, expected);
        }
    }

    fn check_reached(&mut self) {
        for number in 0..self.names.nfs.len() {
            if self.depth[number] == 0 {
                let message = format!("no packet reaches NF '{}'", self.names.nfs[number]);
                self.error(None, message, "a route to each NF");
            }
        }
    }

    /// Adds an error at a line, or at the start of the file.
    fn error(&mut self, line: Option<&Line>, message: String, expected: impl Into<String>) {
        // Several types may share a line: its error is added once.
        if self.reported.insert((line.map(|line| line.number), message.clone())) {
            self.errors.push(match line {
                Some(line) => line.at.error(message, expected),
                None => self.source.error(0..0, message, expected),
            });
        }
    }

    fn finish(self) -> Result<Ways, Vec<SourceError>> {
        if !self.errors.is_empty() {
            return Err(self.errors.into_vec());
        }
        let nfs = 0..self.names.nfs.len();
        let mut order: Vec<NfIndex> = nfs.map(|n| NfIndex(n as u16)).collect();
        order.sort_by_key(|nf| self.depth[usize::from(nf.0)]);
        let lines = self.table.lines().filter(|line| !self.taken.contains(&line.number));
        let mut unused: Vec<&Line> = lines.collect();
        unused.sort_by_key(|line| line.number);
        let expected = match self.form {
            Form::Lines => "a route that leads here, or no such line",
            Form::Paths => "a route that leads here, or no such step",
        };
        let report = |line: &Line| line.at.error("no packet takes this route", expected);
        Ok(Ways { order, unused: unused.into_iter().map(report).collect() })
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
