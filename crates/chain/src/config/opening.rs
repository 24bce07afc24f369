//! What keeps ports from being opened: found in the chain file before that, or reported with its place
//! there.

use std::collections::HashMap;
use std::ops::Range;

use thalweg_io::IoError;
use thalweg_io::kind::{HugePages, MemoryAtHand, Neighbour, PortBlueprint, Refusal};
use thalweg_packet::Pool;
use thalweg_source::{Passage, SourceError};
use toml::Spanned;
use toml::de::DeTable;

use super::file::{Memory, Placed};
use super::ports::{INPUT, InputPlan, OUTPUT, OutputPlan, PortPlan};

/// Begins the keys of `[memory]` in a refusal.
const MEMORY: &str = "memory.";

/// A section of a port, and the values of its keys.
pub(super) struct Places {
    section: Passage,
    /// The value of the key that chooses the kind.
    chosen: Range<usize>,
    values: Vec<(String, Range<usize>)>,
}

/// The places of all values of a section, with the keys that lead to them: `queue`, or `link.queue` in a
/// table that is a value.
pub(super) fn values(section: &DeTable<'_>) -> Vec<(String, Range<usize>)> {
    let mut values = Vec::new();
    for (key, value) in section {
        values.push((key.get_ref().to_string(), value.span()));
        for (inner, value) in value.get_ref().as_table().into_iter().flatten() {
            values.push((format!("{}.{}", key.get_ref(), inner.get_ref()), value.span()));
        }
    }
    values
}

impl Places {
    /// The places of a section, whose kind the key `chosen` has chosen.
    pub(super) fn new(section: Passage, chosen: &str, values: Vec<(String, Range<usize>)>) -> Self {
        let find = |(key, span): &(String, Range<usize>)| (key == chosen).then(|| span.clone());
        let chosen = values.iter().find_map(find).unwrap_or_default();
        Self { section, chosen, values }
    }

    /// The section.
    pub(super) fn section(&self) -> &Passage {
        &self.section
    }

    /// The value of a key, if the section has it.
    fn value(&self, key: &str) -> Option<Passage> {
        let (_, span) = self.values.iter().find(|(name, _)| name == key)?;
        Some(Passage::new(self.section.source(), span.clone()))
    }

    /// The value of the first of some keys that the section has, otherwise of the one that chooses its
    /// kind.
    fn first_of(&self, keys: &[&str]) -> Passage {
        let chosen = || Passage::new(self.section.source(), self.chosen.clone());
        keys.iter().find_map(|key| self.value(key)).unwrap_or_else(chosen)
    }
}

impl<B: PortBlueprint + ?Sized> PortPlan<B> {
    /// An error of opening it, with its place in the chain file.
    pub(super) fn placed(&self, error: IoError) -> IoError {
        if matches!(error, IoError::Option(_)) {
            return error;
        }
        let Refusal { keys, message, expected } = error.refusal();
        IoError::Option(Box::new(self.places.first_of(keys).error(message, expected)))
    }

    /// Why it cannot be opened with this packet memory, in the port's section or in `[memory]`.
    fn refused_memory(
        &self,
        at_hand: MemoryAtHand<'_>,
        memory: &Placed<Memory>,
    ) -> Option<SourceError> {
        let Refusal { keys, message, expected } = self.blueprint.check_memory(at_hand).err()?;
        let message = format!("{}: {message}", self.blueprint.title());
        let written = |key: &&str| {
            let Some(key) = key.strip_prefix(MEMORY) else { return self.places.value(key) };
            Some(Passage::new(&memory.source, memory.written(key)?))
        };
        let place = keys.iter().find_map(written).unwrap_or_else(|| self.places.first_of(&[]));
        Some(place.error(message, expected))
    }
}

impl Memory {
    /// The place of a value, if the file has it.
    fn written(&self, key: &str) -> Option<Range<usize>> {
        let value = match key {
            "frame_size" => &self.frame_size,
            "frames" => &self.frames,
            _ => return None,
        };
        value.as_ref().map(Spanned::span)
    }
}

/// Adds an error for each port that cannot be opened with this packet memory, which may be that of
/// another machine.
pub(super) fn check_memory(
    memory: &Placed<Memory>,
    pool: &Pool,
    (inputs, outputs): (&[InputPlan], &[OutputPlan]),
    is_elsewhere: bool,
    errors: &mut Vec<SourceError>,
) {
    let huge_pages = match *memory.huge_pages.get_ref() {
        false => HugePages::NotRequested,
        true if is_elsewhere => HugePages::Elsewhere,
        true => HugePages::Requested,
    };
    let at_hand = MemoryAtHand { pool, huge_pages };
    errors.extend(inputs.iter().filter_map(|port| port.refused_memory(at_hand, memory)));
    errors.extend(outputs.iter().filter_map(|port| port.refused_memory(at_hand, memory)));
}

/// A port as its neighbours see it.
struct Seen<'a> {
    blueprint: &'a dyn PortBlueprint,
    name: &'a str,
    places: &'a Places,
    /// `input` or `output`.
    direction: &'static str,
}

/// Adds an error for each port that cannot be opened together with an earlier one.
pub(super) fn check_neighbours(
    inputs: &[InputPlan],
    outputs: &[OutputPlan],
    errors: &mut Vec<SourceError>,
) {
    let mut shared: HashMap<(&str, String), Vec<Seen<'_>>> = HashMap::new();
    let inputs =
        inputs.iter().map(|port| (port.kind.key, Seen::of(port, &*port.blueprint, INPUT.name)));
    let outputs =
        outputs.iter().map(|port| (port.kind.key, Seen::of(port, &*port.blueprint, OUTPUT.name)));
    for (kind, port) in inputs.chain(outputs) {
        let Some(name) = port.blueprint.shared() else { continue };
        let neighbours = shared.entry((kind, name)).or_default();
        errors.extend(neighbours.iter().find_map(|earlier| port.refused_with(earlier)));
        neighbours.push(port);
    }
}

impl<'a> Seen<'a> {
    fn of<B: ?Sized>(
        port: &'a PortPlan<B>,
        blueprint: &'a dyn PortBlueprint,
        direction: &'static str,
    ) -> Self {
        Self { blueprint, name: &port.name, places: &port.places, direction }
    }

    /// Why this port cannot be opened together with `earlier`.
    fn refused_with(&self, earlier: &Self) -> Option<SourceError> {
        let line = earlier.places.section.seen_from(&self.places.section);
        let neighbour = Neighbour {
            blueprint: earlier.blueprint,
            name: &format!("{} '{}' in {line}", earlier.direction, earlier.name),
            same_direction: self.direction == earlier.direction,
        };
        let Refusal { keys, message, expected } = self.blueprint.check_with(&neighbour).err()?;
        let message = format!("{}: {message}", self.blueprint.title());
        Some(self.places.first_of(keys).error(message, expected))
    }
}
