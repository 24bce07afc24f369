//! `routes.csv`: packet type, current NF, next NF.

use std::ops::Range;

use thalweg_packet::{PacketType, PortIndex};
use thalweg_source::{Mistakes, Source, SourceError};

use super::names::Names;
use super::table::{From, Line, Table, Which};
use super::ways;
use crate::route_decider::{Next, NfIndex, RouteDecider, Stage};

/// A checked route table.
#[derive(Clone, Debug)]
pub struct Routes {
    /// The table itself.
    pub decider: RouteDecider,
    /// The order in which to serve NFs: each after those that lead to it, unless
    /// packet types contradict each other.
    pub order: Vec<NfIndex>,
    /// Lines that no packet takes, each with its place.
    pub unused: Vec<SourceError>,
}

type Word = (Range<usize>, String);

/// Reads and checks a route table.
///
/// # Errors
/// Every mistake, with its place.
pub fn read_routes(source: &Source, names: &Names) -> Result<Routes, Vec<SourceError>> {
    let mut reader = Reader { source, names, table: Table::default(), errors: Mistakes::default() };
    let mut heading = true;
    for (span, line) in source.lines() {
        let text = line.split('#').next().unwrap_or("");
        if text.trim().is_empty() {
            continue;
        }
        if !std::mem::take(&mut heading) || !is_heading(text) {
            reader.line(span.start, text);
        }
    }
    let Reader { table, errors, .. } = reader;
    if !errors.is_empty() {
        return Err(errors.into_vec());
    }
    let decider = decider(&table, names);
    let ways = ways::check(source, names, &table, &decider)?;
    Ok(Routes { decider, order: ways.order, unused: ways.unused })
}

/// Whether the first line names the columns instead of a route.
fn is_heading(text: &str) -> bool {
    let mut fields = text.split(',').map(|f| f.trim().to_ascii_lowercase());
    fields.next().as_deref() == Some("packet type")
        && fields.next().as_deref() == Some("current nf")
}

struct Reader<'a> {
    source: &'a Source,
    names: &'a Names,
    table: Table,
    errors: Mistakes,
}

impl Reader<'_> {
    fn line(&mut self, start: usize, text: &str) {
        let words: Vec<Word> = words(start, text);
        let whole = start..start + text.trim_end().len();
        let [packet_type, current, next] = &words[..] else {
            let expected = "packet type, current NF, next NF";
            self.errors.push(self.source.error(whole, "a route needs three fields", expected));
            return;
        };
        let packet_type = self.packet_type(packet_type);
        let current = self.current(current);
        let next = self.next(next);
        let (Some(packet_type), Some(current), Some(next)) = (packet_type, current, next) else {
            return;
        };
        if let Some(before) = self.table.get(packet_type, current) {
            let (source, before) = (self.source, before.span.clone());
            self.errors.push_with(|| {
                let line = source.error(before, "", "").line();
                let message = format!("duplicate route; the first is in line {line}");
                source.error(whole, message, "one route per type and NF")
            });
            return;
        }
        self.table.insert(packet_type, current, Line { next, span: whole });
    }

    fn unknown<'n, T>(
        &mut self,
        word: &Word,
        what: &str,
        known: impl Iterator<Item = &'n str>,
    ) -> Option<T> {
        self.errors.push_with(|| {
            let known: Vec<_> = known.collect();
            let expected = format!("one of: {}", known.join(", "));
            self.source.error(word.0.clone(), format!("unknown {what}"), expected)
        });
        None
    }

    fn packet_type(&mut self, word: &Word) -> Option<Which> {
        if word.1 == "*" {
            return Some(Which::Any);
        }
        if let Some(number) = self.names.types.get_index_of(&word.1) {
            return Some(Which::One(PacketType(number as u16)));
        }
        let known = self.names.types.iter().map(String::as_str).chain(["*"]);
        self.unknown(word, "packet type", known)
    }

    fn current(&mut self, word: &Word) -> Option<From> {
        if word.1 == "ingress" {
            return Some(From::AnyInput);
        }
        if let Some(input) = self.names.inputs.iter().position(|i| *i == word.1) {
            return Some(From::Stage(Stage::Ingress(PortIndex(input as u16))));
        }
        if let Some(nf) = self.nf(&word.1) {
            return Some(From::Stage(Stage::Behind(nf)));
        }
        let known = self.names.inputs.iter().chain(&self.names.nfs).map(String::as_str);
        self.unknown(word, "NF or input", ["ingress"].into_iter().chain(known))
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
        let known = self.names.nfs.iter().chain(&self.names.outputs).map(String::as_str);
        self.unknown(word, "NF or output", known.chain(["egress", "drop"]))
    }

    fn nf(&self, name: &str) -> Option<NfIndex> {
        self.names.nfs.iter().position(|n| n == name).map(|n| NfIndex(n as u16))
    }
}

/// The words between commas, without the blanks around them.
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

fn decider(table: &Table, names: &Names) -> RouteDecider {
    let mut decider = RouteDecider::new(names.inputs.len(), names.nfs.len(), names.types.len());
    for number in 0..names.types.len() {
        let packet_type = PacketType(number as u16);
        for stage in decider.stages() {
            if let Some(line) = table.line(packet_type, stage) {
                decider.set(packet_type, stage, line.next);
            }
        }
    }
    decider
}
