//! `routes.csv`: packet type, current NF, next NF.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use indexmap::IndexSet;
use thalweg_classify::source::{Source, SourceError};
use thalweg_packet::PacketType;

use crate::route_decider::{Next, NfIndex, RouteDecider, Stage};

/// The names that routes may use.
pub(super) struct Names<'a> {
    pub(super) types: &'a IndexSet<String>,
    pub(super) nfs: &'a [String],
    pub(super) inputs: &'a [String],
    pub(super) outputs: &'a [String],
}

/// The routes, and the order in which to serve NFs.
pub(super) struct Routes {
    pub(super) decider: RouteDecider,
    pub(super) order: Vec<NfIndex>,
}

type Word = (Range<usize>, String);
/// Routes by (type or any, stage), with the place of their line.
type Table = BTreeMap<(Option<PacketType>, Stage), (Next, Range<usize>)>;

/// Reads and checks a route table.
pub(super) fn routes(source: &Source, names: &Names<'_>) -> Result<Routes, Vec<SourceError>> {
    let mut reader = Reader { source, names, table: Table::new(), errors: Vec::new() };
    for (number, (span, line)) in source.lines().enumerate() {
        let text = line.split('#').next().unwrap_or("");
        let heading = number == 0 && text.to_ascii_lowercase().starts_with("packet type");
        if !heading && !text.trim().is_empty() {
            reader.line(span.start, text);
        }
    }
    if reader.errors.is_empty() {
        reader.check();
    }
    let Reader { table, errors, .. } = reader;
    if !errors.is_empty() {
        return Err(errors);
    }
    let decider = decider(&table, names);
    let order = order(&decider, names);
    Ok(Routes { decider, order })
}

struct Reader<'a> {
    source: &'a Source,
    names: &'a Names<'a>,
    table: Table,
    errors: Vec<SourceError>,
}

impl Reader<'_> {
    fn line(&mut self, start: usize, text: &str) {
        let words: Vec<Word> = words(start, text);
        let whole = start..start + text.trim_end().len();
        let [packet_type, current, next] = &words[..] else {
            let expected = "three fields: packet type, current NF, next NF";
            self.errors.push(self.source.error(whole, "this is no route", expected));
            return;
        };
        let packet_type = self.packet_type(packet_type);
        let current = self.current(current);
        let next = self.next(next);
        let (Some(packet_type), Some(current), Some(next)) = (packet_type, current, next) else {
            return;
        };
        if let Some((_, before)) = self.table.get(&(packet_type, current)) {
            let line = self.source.error(before.clone(), "", "").line();
            let message = format!("a second route from here; the first is in line {line}");
            self.errors.push(self.source.error(whole, message, "one next NF for each type and NF"));
            return;
        }
        self.table.insert((packet_type, current), (next, whole));
    }

    fn unknown<T>(&mut self, word: &Word, what: &str, known: Vec<&str>) -> Option<T> {
        let message = format!("there is no {what} of this name");
        let expected = format!("one of: {}", known.join(", "));
        self.errors.push(self.source.error(word.0.clone(), message, expected));
        None
    }

    fn packet_type(&mut self, word: &Word) -> Option<Option<PacketType>> {
        if word.1 == "*" {
            return Some(None);
        }
        if let Some(number) = self.names.types.get_index_of(&word.1) {
            return Some(Some(PacketType(number as u16)));
        }
        let known = self.names.types.iter().map(String::as_str).chain(["*"]).collect();
        self.unknown(word, "packet type", known)
    }

    fn current(&mut self, word: &Word) -> Option<Stage> {
        if word.1 == "ingress"
            || self.names.inputs.contains(&word.1) && self.names.inputs.len() == 1
        {
            return Some(Stage::Ingress);
        }
        if self.names.inputs.contains(&word.1) {
            let message = "routes do not tell inputs apart";
            let expected = "'ingress'; let a class match in_port to tell inputs apart";
            self.errors.push(self.source.error(word.0.clone(), message, expected));
            return None;
        }
        if let Some(nf) = self.nf(&word.1) {
            return Some(Stage::Behind(nf));
        }
        let known =
            ["ingress"].into_iter().chain(self.names.nfs.iter().map(String::as_str)).collect();
        self.unknown(word, "NF", known)
    }

    fn next(&mut self, word: &Word) -> Option<Next> {
        match word.1.as_str() {
            "egress" => return Some(Next::Egress),
            "drop" => return Some(Next::Drop),
            _ => {}
        }
        if let Some(nf) = self.nf(&word.1) {
            return Some(Next::Nf(nf));
        }
        if let Some(output) = self.names.outputs.iter().position(|o| *o == word.1) {
            return Some(Next::Output(output as u16));
        }
        let known = self.names.nfs.iter().chain(self.names.outputs).map(String::as_str);
        let known = known.chain(["egress", "drop"]).collect();
        self.unknown(word, "NF or output", known)
    }

    fn nf(&self, name: &str) -> Option<NfIndex> {
        self.names.nfs.iter().position(|n| n == name).map(|n| NfIndex(n as u16))
    }

    /// Every type must come to an end from the ingress, and every NF be on the
    /// way of some type.
    fn check(&mut self) {
        let whole = 0..0;
        let mut reached = BTreeSet::new();
        for (number, name) in self.names.types.iter().enumerate() {
            let packet_type = PacketType(number as u16);
            let mut stage = Stage::Ingress;
            let mut way = Vec::new();
            let mut last = whole.clone();
            loop {
                let Some((next, span)) = route(&self.table, packet_type, stage) else {
                    let from = self.stage_name(stage);
                    let message = format!("packets of type '{name}' have no route from '{from}'");
                    let expected = format!("a line '{name}, {from}, ...' (or '*, {from}, ...')");
                    self.errors.push(self.source.error(last, message, expected));
                    break;
                };
                last = span.clone();
                let Next::Nf(nf) = next else { break };
                reached.insert(nf);
                if way.contains(&nf) {
                    let names: Vec<_> = way.iter().map(|n: &NfIndex| self.nf_name(*n)).collect();
                    let message = format!(
                        "packets of type '{name}' go round for ever: {} -> {}",
                        names.join(" -> "),
                        self.nf_name(nf)
                    );
                    self.errors.push(self.source.error(
                        last,
                        message,
                        "a way to 'egress', an output or 'drop'",
                    ));
                    break;
                }
                way.push(nf);
                stage = Stage::Behind(nf);
            }
        }
        for (number, name) in self.names.nfs.iter().enumerate() {
            if !reached.contains(&NfIndex(number as u16)) {
                let message = format!("no packet ever comes to NF '{name}'");
                self.errors.push(self.source.error(whole.clone(), message, "a route to each NF"));
            }
        }
    }

    fn nf_name(&self, nf: NfIndex) -> &str {
        self.names.nfs.get(usize::from(nf.0)).map_or("?", String::as_str)
    }

    fn stage_name(&self, stage: Stage) -> String {
        match stage {
            Stage::Ingress => "ingress".into(),
            Stage::Behind(nf) => self.nf_name(nf).to_owned(),
        }
    }
}

/// The parts between commas, without the blanks around them.
fn words(start: usize, text: &str) -> Vec<Word> {
    let mut at = start;
    let mut words = Vec::new();
    for part in text.split(',') {
        let word = part.trim();
        let from = at + (part.len() - part.trim_start().len());
        words.push((from..from + word.len(), word.to_owned()));
        at += part.len() + 1;
    }
    words
}

/// The route of a type from a stage: its own, else that of any type.
fn route(table: &Table, packet_type: PacketType, stage: Stage) -> Option<(Next, Range<usize>)> {
    table.get(&(Some(packet_type), stage)).or_else(|| table.get(&(None, stage))).cloned()
}

fn stages(nfs: usize) -> impl Iterator<Item = Stage> {
    std::iter::once(Stage::Ingress).chain((0..nfs).map(|n| Stage::Behind(NfIndex(n as u16))))
}

fn decider(table: &Table, names: &Names<'_>) -> RouteDecider {
    let mut decider = RouteDecider::new(names.nfs.len(), names.types.len());
    for number in 0..names.types.len() {
        let packet_type = PacketType(number as u16);
        for stage in stages(names.nfs.len()) {
            if let Some((next, _)) = route(table, packet_type, stage) {
                decider.set(packet_type, stage, next);
            }
        }
    }
    decider
}

/// NFs sorted so that one comes after all that lead to it, as far as types do
/// not contradict each other.
fn order(decider: &RouteDecider, names: &Names<'_>) -> Vec<NfIndex> {
    let mut depth = vec![0usize; names.nfs.len()];
    for number in 0..names.types.len() {
        let packet_type = PacketType(number as u16);
        let (mut stage, mut steps) = (Stage::Ingress, 0);
        while let Next::Nf(nf) = decider.next(packet_type, stage) {
            steps += 1;
            if steps > names.nfs.len() {
                break;
            }
            let at = &mut depth[usize::from(nf.0)];
            *at = (*at).max(steps);
            stage = Stage::Behind(nf);
        }
    }
    let mut order: Vec<NfIndex> = (0..names.nfs.len()).map(|n| NfIndex(n as u16)).collect();
    order.sort_by_key(|nf| depth[usize::from(nf.0)]);
    order
}
