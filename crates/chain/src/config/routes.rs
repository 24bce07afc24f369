//! The route table, from either of its forms: lines of `routes.csv`, or the paths of `[[route]]`.

use thalweg_source::{Passage, Source, SourceError};
use toml::Spanned;

use super::file::{Placed, Route};
use super::hops::{Hops, Word};
use super::names::Names;
use super::table::{From, Which};
use super::ways::Form;
use crate::route_decider::{NfIndex, RouteDecider, Stage};

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

/// Reads and checks a route table: packet type, current NF, next NF.
///
/// # Errors
/// Every mistake, with its place.
pub fn read_routes(source: &Source, names: &Names) -> Result<Routes, Vec<SourceError>> {
    let mut hops = Hops::new(names);
    let mut heading = true;
    for (span, line) in source.lines() {
        let text = line.split('#').next().unwrap_or("");
        if text.trim().is_empty() {
            continue;
        }
        if !std::mem::take(&mut heading) || !is_heading(text) {
            read_line(&mut hops, source, span.start, text);
        }
    }
    hops.finish(source, Form::Lines)
}

/// Whether the first line names the columns instead of a route.
fn is_heading(text: &str) -> bool {
    let mut fields = text.split(',').map(|f| f.trim().to_ascii_lowercase());
    fields.next().as_deref() == Some("packet type")
        && fields.next().as_deref() == Some("current nf")
}

fn read_line(hops: &mut Hops<'_>, source: &Source, start: usize, text: &str) {
    let words = words(source, start, text);
    let whole = Passage::new(source, start..start + text.trim_end().len());
    let [packet_type, current, next] = &words[..] else {
        let expected = "packet type, current NF, next NF";
        hops.refuse(|| whole.error("a route needs three fields", expected));
        return;
    };
    let packet_type = hops.packet_type(packet_type);
    let current = hops.current(current);
    let next = hops.next(next);
    if let (Some(packet_type), Some(current), Some(next)) = (packet_type, current, next) {
        hops.add(packet_type, current, next, whole, || "one route per type and NF".into());
    }
}

/// The words between commas, without the blanks around them.
fn words<'t>(source: &Source, start: usize, text: &'t str) -> Vec<Word<'t>> {
    let mut at = start;
    let mut words = Vec::new();
    for part in text.split(',') {
        let word = part.trim();
        let from = at + (part.len() - part.trim_start().len());
        words.push(Word::new(word, Passage::new(source, from..from + word.len())));
        at += part.len() + 1;
    }
    words
}

/// Reads and checks the paths of the chain file `source` and those that it includes.
///
/// # Errors
/// Every mistake, with its place.
pub(super) fn read_paths(
    source: &Source,
    routes: &[Placed<Spanned<Route>>],
    names: &Names,
) -> Result<Routes, Vec<SourceError>> {
    let mut hops = Hops::new(names);
    for route in routes {
        read_path(&mut hops, &route.source, route.get_ref());
    }
    hops.finish(source, Form::Paths)
}

/// Adds each pair of neighbours on a path.
fn read_path(hops: &mut Hops<'_>, source: &Source, route: &Route) {
    let Route { r#type, path } = route;
    let word = |name| Word::of_string(source, name);
    let packet_type = match r#type {
        Some(name) => hops.packet_type(&word(name)),
        None => Some(Which::Any),
    };
    let [first, between @ .., last] = &path.get_ref()[..] else {
        let expected = "path = [\"ingress\", ..., \"egress\"]";
        let at = Passage::new(source, path.span());
        hops.refuse(|| at.error("a path needs a start and an end", expected));
        return;
    };
    // Each name is looked up once, so that a misspelt one is one mistake.
    let mut current = hops.current(&word(first));
    let mut from = first;
    for name in between.iter().chain([last]) {
        let is_last = std::ptr::eq(name, last);
        let nf = if is_last { None } else { hops.between(&word(name)) };
        let next = if is_last { hops.next(&word(name)) } else { nf.map(Hops::to_nf) };
        if let (Some(packet_type), Some(current), Some(next)) = (packet_type, current, next) {
            let pair = Passage::new(source, from.span().start..name.span().end);
            let from = from.get_ref();
            hops.add(packet_type, current, next, pair, || match current {
                From::Stage(Stage::Behind(_)) => {
                    format!("one step from '{from}' per type; a path may end at '{from}'")
                }
                _ => format!("one step from '{from}' per type"),
            });
        }
        current = nf.map(Hops::from_nf);
        from = name;
    }
}
