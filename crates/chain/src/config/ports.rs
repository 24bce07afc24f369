//! Inputs and outputs of a chain file, whatever their kinds.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use serde::Deserialize;
use thalweg_io::kind::{
    Environment, InputBlueprint, InputOpening, Kind, Kinds, Link, NamedFiles, Opened,
    OutputBlueprint, OutputOpening, PortBlueprint, Refusal, Section, Side,
};
use thalweg_io::{Input, IoError, LinkEvents, Output};
use thalweg_source::{OutputFile, Passage, Source, SourceError, SourceTable};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::file::{Placed, PortSection};
use super::files::Files;
use super::opening::{self, Places};
use super::parts::take;

/// The order in which the packets of several inputs with captured times are received. Other inputs
/// take turns with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MergeBy {
    /// The oldest packet first.
    #[default]
    Time,
    /// In turn, a batch of each.
    Turn,
}

/// A port of a chain.
pub struct PortPlan<B: ?Sized> {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: &'static Kind,
    /// What its section describes.
    pub blueprint: Arc<B>,
    /// The files that it reads or writes.
    pub files: Vec<PathBuf>,
    /// What is known once it was opened.
    opened: Arc<OnceLock<Known>>,
    /// Its section.
    pub(super) places: Places,
}

/// What is known of a port that was opened.
struct Known {
    /// How packets pass.
    mode: Option<String>,
    /// What happens to its network interface.
    events: Option<LinkEvents>,
}

/// An input of a chain.
pub type InputPlan = PortPlan<dyn InputBlueprint>;

/// An output of a chain.
pub type OutputPlan = PortPlan<dyn OutputBlueprint>;

impl<B: PortBlueprint + ?Sized> PortPlan<B> {
    /// How its packets pass, in a few words: as it was obtained, once it was opened.
    pub fn mode(&self) -> Option<String> {
        let obtained = self.opened.get().and_then(|opened| opened.mode.clone());
        obtained.or_else(|| self.blueprint.mode())
    }

    /// Whether others send or receive its packets, by an interface, a device or shared memory.
    pub fn is_live(&self) -> bool {
        self.blueprint.interface().is_some() || self.blueprint.shared().is_some()
    }

    /// What happens to its network interface, once it was opened; `None` if it has none.
    pub fn events(&self) -> Option<&LinkEvents> {
        self.opened.get()?.events.as_ref()
    }

    /// The state of its link now, if it has one: of the interface that it has open, by whatever name.
    pub fn link(&self) -> Option<Link> {
        self.events().and_then(LinkEvents::link).or_else(|| self.blueprint.link())
    }

    /// Goes on with the port of a running chain, which is the same.
    pub(super) fn keep(&mut self, running: &Self) {
        self.blueprint = running.blueprint.clone();
        self.opened = running.opened.clone();
    }

    /// Takes the queues of the port `what`, of which there may be `most`.
    fn queues<P: ?Sized>(
        &self,
        what: &str,
        opened: Opened<P>,
        most: Option<usize>,
    ) -> Result<Vec<Box<P>>, IoError> {
        let Opened { queues, mode, events } = opened;
        let found = queues.len();
        if found == 0 || most.is_some_and(|most| found > most) {
            let port = format!("{what} '{}'", self.name);
            let expected = most.map_or("at least 1".into(), |most| format!("1 to {most}"));
            let message = format!("its kind opened {found} queues");
            return Err(Refusal::new(&[], message, expected).of(port));
        }
        // It is opened once; a plan that takes the place of this one has its own.
        let _ = self.opened.set(Known { mode, events });
        Ok(queues)
    }
}

impl InputPlan {
    /// Opens it; returns its queues.
    ///
    /// # Errors
    /// Why it cannot be opened, with its place in the chain file.
    pub fn open(&self, opening: &InputOpening<'_>) -> Result<Vec<Box<dyn Input>>, IoError> {
        let opened = self.blueprint.open(opening);
        opened
            .and_then(|opened| self.queues(INPUT.name, opened, None))
            .map_err(|error| self.placed(error))
    }
}

impl OutputPlan {
    /// Opens it; returns its queues.
    ///
    /// # Errors
    /// Why it cannot be opened, with its place in the chain file.
    pub fn open(&self, opening: &OutputOpening<'_>) -> Result<Vec<Box<dyn Output>>, IoError> {
        let opened = self.blueprint.open(opening);
        opened
            .and_then(|opened| self.queues(OUTPUT.name, opened, Some(opening.queues)))
            .map_err(|error| self.placed(error))
    }
}

/// Adds an error for each input whose pace is not that of the inputs with which it is merged by
/// time: the packets of one would wait for those of the other.
pub(super) fn check_paces(inputs: &[InputPlan], merge: MergeBy, errors: &mut Vec<SourceError>) {
    let mut merged = inputs.iter().filter(|input| input.blueprint.times().is_some());
    let Some(first) = merged.next().filter(|_| merge == MergeBy::Time) else { return };
    for other in merged.filter(|other| other.blueprint.pace() != first.blueprint.pace()) {
        let message = format!(
            "'pace' of input '{}' is not that of input '{}', with which it is merged by time",
            other.name, first.name
        );
        let expected = "the same pace in both, or merge = \"turn\" in [run]";
        errors.push(other.places.section().error(message, expected));
    }
}

/// What distinguishes inputs and outputs in a chain file.
pub(super) struct Direction<B: ?Sized + 'static> {
    /// The key of their sections.
    pub(super) name: &'static str,
    /// What messages require of a section.
    needs: &'static str,
    side: fn(&'static Kind) -> Option<&'static Side<B>>,
}

/// Inputs.
pub(super) const INPUT: Direction<dyn InputBlueprint> = Direction {
    name: "input",
    needs: "an input needs exactly one source",
    side: |kind| kind.input.as_ref(),
};

/// Outputs.
pub(super) const OUTPUT: Direction<dyn OutputBlueprint> = Direction {
    name: "output",
    needs: "an output needs exactly one target",
    side: |kind| kind.output.as_ref(),
};

impl<B: ?Sized> Direction<B> {
    /// The kinds that have this side.
    fn kinds(&self, kinds: &Kinds) -> impl Iterator<Item = (&'static Kind, &'static Side<B>)> {
        kinds.iter().filter_map(|kind| Some((kind, (self.side)(kind)?)))
    }

    /// The keys that sections may have, by kind.
    fn keys(&self, kinds: &Kinds) -> Vec<&'static str> {
        let mut keys = Vec::new();
        for key in self.kinds(kinds).flat_map(|(_, side)| side.keys) {
            if !keys.contains(key) {
                keys.push(*key);
            }
        }
        keys
    }

    /// What is expected of a section, for messages.
    pub(super) fn expected(&self, kinds: &Kinds) -> String {
        self.with(&self.keys(kinds))
    }

    fn with(&self, keys: &[&str]) -> String {
        format!("[{}.NAME] with: {}", self.name, keys.join(", "))
    }

    /// The kinds that the keys of a section choose.
    fn chosen(&self, kinds: &Kinds, table: &DeTable<'_>) -> Vec<(&'static Kind, &'static Side<B>)> {
        let is_chosen = |kind: &Kind| {
            let value = table.iter().find(|(key, _)| *key.get_ref() == kind.key);
            value.is_some_and(|(_, value)| !matches!(value.get_ref(), DeValue::Boolean(false)))
        };
        self.kinds(kinds).filter(|(kind, _)| is_chosen(kind)).collect()
    }
}

/// Loads the ports of a chain file.
pub(super) struct Loader<'a> {
    /// The chain file itself.
    pub(super) root: &'a Source,
    pub(super) kinds: &'a Kinds,
    /// Accept devices that this machine does not have.
    pub(super) any_device: bool,
    pub(super) files: &'a mut Files,
    /// Warnings.
    pub(super) notes: &'a mut Vec<SourceError>,
    pub(super) errors: &'a mut Vec<SourceError>,
}

impl Loader<'_> {
    /// The ports of `sections`; those with mistakes are left out. `opens`: they are opened later, so
    /// check that this is permitted.
    pub(super) fn load<B: ?Sized>(
        &mut self,
        direction: &Direction<B>,
        sections: Vec<PortSection<'_>>,
        opens: bool,
    ) -> Vec<PortPlan<B>> {
        if sections.is_empty() {
            let name = direction.name;
            let message = format!("the chain has no {name}");
            self.errors.push(self.root.error(0..0, message, format!("a section [{name}.NAME]")));
        }
        let environment = Environment { any_device: self.any_device, opens };
        let port = |section| self.port(direction, section, environment);
        sections.into_iter().filter_map(port).collect()
    }

    fn port<B: ?Sized>(
        &mut self,
        direction: &Direction<B>,
        section: PortSection<'_>,
        environment: Environment,
    ) -> Option<PortPlan<B>> {
        let Placed { source, part: (name, value) } = section;
        let (name, span) = (name.into_inner(), value.span());
        let DeValue::Table(mut table) = value.into_inner() else {
            let message = format!("{} '{name}' is not a table", direction.name);
            self.errors.push(source.error(span, message, direction.expected(self.kinds)));
            return None;
        };
        let chosen = direction.chosen(self.kinds, &table);
        let keys = match chosen[..] {
            [(_, side)] => side.keys.to_vec(),
            _ => direction.keys(self.kinds),
        };
        if !self.check_keys(direction, &source, &table, &keys) {
            return None;
        }
        let place = Passage::new(&source, span.clone());
        let (kind, side) = self.only(direction, &place, &chosen)?;
        self.drop_unchosen(direction, &mut table);
        self.refuse_others(direction, &source, (kind, side), &mut table);
        let values = opening::values(&table);
        let table = SourceTable::new(Spanned::new(span, DeValue::Table(table)), &source);
        let places = Places::new(place, kind.key, values);
        let section = Section::new(&name, table, direction.with(&keys), environment);
        let built = (side.build)(&section);
        let files = self.add_files(direction.name, &name, &source, section.into_files());
        match built {
            Ok(blueprint) => {
                let blueprint = Arc::from(blueprint);
                Some(PortPlan { name, kind, blueprint, files, opened: Arc::default(), places })
            }
            Err(more) => {
                self.errors.extend(more);
                None
            }
        }
    }

    /// Adds an error for each key that no kind has, where `keys` are expected; returns whether there is
    /// none.
    fn check_keys<B: ?Sized>(
        &mut self,
        direction: &Direction<B>,
        source: &Source,
        table: &DeTable<'_>,
        keys: &[&str],
    ) -> bool {
        let known = direction.keys(self.kinds);
        let before = self.errors.len();
        for key in table.keys().filter(|key| !known.contains(&&**key.get_ref())) {
            let all: Vec<_> = keys.iter().map(|key| format!("`{key}`")).collect();
            let key_name = key.get_ref();
            let message = format!("unknown field `{key_name}`, expected one of {}", all.join(", "));
            self.errors.push(source.error(key.span(), message, direction.with(keys)));
        }
        self.errors.len() == before
    }

    /// The only kind that is chosen.
    fn only<B: ?Sized>(
        &mut self,
        direction: &Direction<B>,
        section: &Passage,
        chosen: &[(&'static Kind, &'static Side<B>)],
    ) -> Option<(&'static Kind, &'static Side<B>)> {
        if let [one] = *chosen {
            return Some(one);
        }
        let examples: Vec<_> = direction.kinds(self.kinds).map(|(kind, _)| kind.example).collect();
        let expected = format!("one of: {}", examples.join(", "));
        self.errors.push(section.error(direction.needs, expected));
        None
    }

    /// Takes the keys out of the section that choose nothing.
    fn drop_unchosen<B: ?Sized>(&self, direction: &Direction<B>, table: &mut DeTable<'_>) {
        for (kind, _) in direction.kinds(self.kinds) {
            if let Some((key, value)) = take(table, kind.key)
                && !matches!(value.get_ref(), DeValue::Boolean(false))
            {
                table.insert(key, value);
            }
        }
    }

    /// Takes the keys out of the section that its kind does not have, each with an error: ignoring
    /// them would run something else than the file requests.
    fn refuse_others<B: ?Sized>(
        &mut self,
        direction: &Direction<B>,
        source: &Source,
        (kind, side): (&'static Kind, &'static Side<B>),
        table: &mut DeTable<'_>,
    ) {
        let others = direction.keys(self.kinds).into_iter().filter(|key| !side.keys.contains(key));
        for key in others {
            let Some((_, value)) = take(table, key) else { continue };
            let instead = side.instead.iter().find(|(other, _)| *other == key);
            let expected = instead.map_or_else(
                || {
                    let has_it = direction.kinds(self.kinds).filter(|(_, s)| s.keys.contains(&key));
                    has_it.map(|(kind, _)| kind.noun).collect::<Vec<_>>().join(" or ")
                },
                |(_, expected)| (*expected).to_owned(),
            );
            let message = format!("'{key}' does not apply to {}", kind.noun);
            self.errors.push(source.error(value.span(), message, expected));
        }
    }

    /// Adds the files that a section names to those of the chain; returns them.
    fn add_files(
        &mut self,
        direction: &str,
        name: &str,
        source: &Source,
        found: NamedFiles,
    ) -> Vec<PathBuf> {
        let NamedFiles { read, searched, written, notes } = found;
        self.notes.extend(notes);
        for (path, span) in &read {
            let what = format!("the file that {direction} '{name}' reads");
            self.files.traffic(path, Passage::new(source, span.clone()), what);
        }
        for place in searched {
            self.files.searched(place, format!("those that {direction} '{name}' reads"));
        }
        let mut files: Vec<_> = read.into_iter().map(|(path, _)| path).collect();
        for (path, span) in written {
            let what = format!("the file that {direction} '{name}' writes");
            self.files.written_by_port(OutputFile::new(&path), Passage::new(source, span), what);
            files.push(path);
        }
        files
    }
}
