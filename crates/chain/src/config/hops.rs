//! Collects the hops of a route table: looks up their names, and refuses duplicates.

use thalweg_packet::{PacketType, PortIndex};
use thalweg_source::{Mistakes, Passage, Source, SourceError};
use toml::Spanned;

use super::names::Names;
use super::routes::Routes;
use super::table::{From, Table, Which};
use super::ways::{self, Form};
use crate::route_decider::{Next, NfIndex, RouteDecider, Stage};

/// A name in a route.
pub(super) struct Word<'a> {
    text: &'a str,
    at: Passage,
}

impl<'a> Word<'a> {
    pub(super) fn new(text: &'a str, at: Passage) -> Self {
        Self { text, at }
    }

    /// The string of a TOML file.
    pub(super) fn of_string(source: &Source, name: &'a Spanned<String>) -> Self {
        Self::new(name.get_ref(), Passage::new(source, name.span()))
    }
}

/// The hops that were read so far, and the mistakes in them.
pub(super) struct Hops<'a> {
    names: &'a Names,
    table: Table,
    errors: Mistakes,
}

impl<'a> Hops<'a> {
    pub(super) fn new(names: &'a Names) -> Self {
        Self { names, table: Table::default(), errors: Mistakes::default() }
    }

    /// Adds a mistake.
    pub(super) fn refuse(&mut self, describe: impl FnOnce() -> SourceError) {
        self.errors.push_with(describe);
    }

    /// Adds a hop at a place. If there is one from the same stage, `expected` is what was expected.
    pub(super) fn add(
        &mut self,
        packet_type: Which,
        current: From,
        next: Next,
        at: Passage,
        expected: impl FnOnce() -> String,
    ) {
        let Some(before) = self.table.get(packet_type, current) else {
            self.table.insert(packet_type, current, next, at);
            return;
        };
        let first = before.at.clone();
        self.errors.push_with(|| {
            let message = format!("duplicate route; the first is in {}", first.seen_from(&at));
            at.error(message, expected())
        });
    }

    fn unknown<'n, T>(
        &mut self,
        word: &Word<'_>,
        what: &str,
        known: impl Iterator<Item = &'n str>,
    ) -> Option<T> {
        self.errors.push_with(|| {
            let known: Vec<_> = known.collect();
            let expected = format!("one of: {}", known.join(", "));
            word.at.error(format!("unknown {what}"), expected)
        });
        None
    }

    /// The packet types of a hop.
    pub(super) fn packet_type(&mut self, word: &Word<'_>) -> Option<Which> {
        if word.text == "*" {
            return Some(Which::Any);
        }
        if let Some(number) = self.names.types.get_index_of(word.text) {
            return Some(Which::One(PacketType(number as u16)));
        }
        let known = self.names.types.iter().map(String::as_str).chain(["*"]);
        self.unknown(word, "packet type", known)
    }

    /// The start of a hop.
    pub(super) fn current(&mut self, word: &Word<'_>) -> Option<From> {
        if word.text == "ingress" {
            return Some(From::AnyInput);
        }
        if let Some(input) = self.names.inputs.iter().position(|i| *i == word.text) {
            return Some(From::Stage(Stage::Ingress(PortIndex(input as u16))));
        }
        if let Some(nf) = self.nf(word.text) {
            return Some(Self::from_nf(nf));
        }
        let known = self.names.inputs.iter().chain(&self.names.nfs).map(String::as_str);
        self.unknown(word, "NF or input", ["ingress"].into_iter().chain(known))
    }

    /// The end of a hop.
    pub(super) fn next(&mut self, word: &Word<'_>) -> Option<Next> {
        match word.text {
            "egress" => return Some(Next::Egress),
            "drop" => return Some(Next::Drop),
            _ => {}
        }
        if let Some(nf) = self.nf(word.text) {
            return Some(Self::to_nf(nf));
        }
        if let Some(output) = self.names.outputs.iter().position(|o| *o == word.text) {
            return Some(Next::Output(output as u16));
        }
        let known = self.names.nfs.iter().chain(&self.names.outputs).map(String::as_str);
        self.unknown(word, "NF or output", known.chain(["egress", "drop"]))
    }

    /// A stage that is the end of a hop and the start of another: an NF.
    pub(super) fn between(&mut self, word: &Word<'_>) -> Option<NfIndex> {
        if let Some(nf) = self.nf(word.text) {
            return Some(nf);
        }
        let names = self.names;
        let ends = ["egress", "drop"].into_iter().chain(names.outputs.iter().map(String::as_str));
        if ends.into_iter().any(|end| end == word.text) {
            let message = format!("'{}' can only be the last of a path", word.text);
            self.errors.push_with(|| word.at.error(message, "an NF, or no further names"));
            return None;
        }
        let starts = ["ingress"].into_iter().chain(names.inputs.iter().map(String::as_str));
        if starts.into_iter().any(|start| start == word.text) {
            let message = format!("'{}' can only be the first of a path", word.text);
            self.errors.push_with(|| word.at.error(message, "an NF"));
            return None;
        }
        self.unknown(word, "NF", names.nfs.iter().map(String::as_str))
    }

    pub(super) fn from_nf(nf: NfIndex) -> From {
        From::Stage(Stage::Behind(nf))
    }

    pub(super) fn to_nf(nf: NfIndex) -> Next {
        Next::Nf(nf)
    }

    fn nf(&self, name: &str) -> Option<NfIndex> {
        self.names.nfs.iter().position(|n| n == name).map(|n| NfIndex(n as u16))
    }

    /// Checks the paths that the hops make up. `source` holds the routes, in this form.
    ///
    /// # Errors
    /// Every mistake in the hops, else every one in their paths.
    pub(super) fn finish(self, source: &Source, form: Form) -> Result<Routes, Vec<SourceError>> {
        let Self { names, table, errors } = self;
        if !errors.is_empty() {
            return Err(errors.into_vec());
        }
        let decider = decider(&table, names);
        let ways = ways::check(source, form, names, &table, &decider)?;
        Ok(Routes { decider, order: ways.order, unused: ways.unused })
    }
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
