//! The lines of a route table, and which of them applies.

use std::collections::BTreeMap;

use thalweg_packet::PacketType;
use thalweg_source::Passage;

use crate::route_decider::{Next, Stage};

/// The packet types of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Which {
    Any,
    One(PacketType),
}

/// The start of a line: any input, or a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum From {
    AnyInput,
    Stage(Stage),
}

/// The lines, by packet type and start.
#[derive(Default)]
pub(super) struct Table(BTreeMap<(Which, From), Line>);

/// The target of a line, and its place.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// Its number, in the order in which lines were added.
    pub(super) number: usize,
    pub(super) next: Next,
    pub(super) at: Passage,
}

impl Table {
    /// The line with exactly this type and start.
    pub(super) fn get(&self, packet_type: Which, from: From) -> Option<&Line> {
        self.0.get(&(packet_type, from))
    }

    /// Adds a line with a type and start that no other has.
    pub(super) fn insert(&mut self, packet_type: Which, from: From, next: Next, at: Passage) {
        let line = Line { number: self.0.len(), next, at };
        self.0.insert((packet_type, from), line);
    }

    /// The line that applies to a type at a stage. A line for the type wins over
    /// one for any type, then one for the input over one for any input.
    pub(super) fn line(&self, packet_type: PacketType, stage: Stage) -> Option<&Line> {
        let any = matches!(stage, Stage::Ingress(_)).then_some(From::AnyInput);
        let places = || [Some(From::Stage(stage)), any].into_iter().flatten();
        let types = [Which::One(packet_type), Which::Any];
        types.iter().find_map(|t| places().find_map(|place| self.get(*t, place)))
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = &Line> {
        self.0.values()
    }
}
