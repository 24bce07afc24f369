//! Packet types and their rules.

use indexmap::IndexSet;
use thalweg_classify::{Rule, RuleTable, classbench, flow_syntax};
use thalweg_nf::toolkit::rules::RuleList;
use thalweg_packet::PacketType;
use thalweg_source::{Mistakes, Place, Source, SourceError};
use toml::Spanned;

use super::file::{ChainFile, Class};
use super::flows::parse_flow;
use super::paths::read_named;

/// The name of the default type when the file gives none.
const DEFAULT_TYPE: &str = "other";

/// The packet types by number, and the rules that assign them.
pub(super) struct Classes {
    pub(super) types: IndexSet<String>,
    pub(super) table: RuleTable,
}

/// The names of the packet types, by number. Type 0 is the default.
pub(super) fn type_names(file: &ChainFile<'_>) -> IndexSet<String> {
    let default = file.default_type.as_ref().map_or(DEFAULT_TYPE, |name| name.get_ref().as_str());
    let classes = file.classes.iter().map(|class| class.get_ref().r#type.get_ref().as_str());
    std::iter::once(default).chain(classes).map(str::to_owned).collect()
}

/// Reads all classes.
pub(super) fn classes(
    file: &ChainFile<'_>,
    inputs: &[String],
    errors: &mut Vec<SourceError>,
) -> Classes {
    let types = type_names(file);
    // With the places of flows; lines of ClassBench files that can never match are common.
    let mut rules = RuleList::default();
    for class in &file.classes {
        let number = types.get_index_of(class.get_ref().r#type.get_ref());
        let Some(number) = number.and_then(|number| u16::try_from(number).ok()) else {
            let message = "too many packet types";
            errors.push(class.source.error(class.span(), message, "at most 65536"));
            break;
        };
        let (source, packet_type) = (&class.source, PacketType(number));
        Reader { source, inputs, packet_type, rules: &mut rules, errors }.class(class);
    }
    errors.extend(rules.never_met());
    Classes { types, table: rules.table(PacketType(0)) }
}

struct Reader<'a> {
    source: &'a Source,
    inputs: &'a [String],
    packet_type: PacketType,
    rules: &'a mut RuleList,
    errors: &'a mut Vec<SourceError>,
}

impl Reader<'_> {
    fn class(&mut self, class: &Spanned<Class>) {
        let Class { rules, file, classbench, .. } = class.get_ref();
        if rules.is_empty() && file.is_none() && classbench.is_none() {
            let expected = "rules = [...], file = \"FILE\" or classbench = \"FILE\"";
            self.errors.push(self.source.error(class.span(), "this class has no rules", expected));
        }
        let mut mistakes = Mistakes::default();
        for rule in rules {
            let place = Place::of_string(self.source, rule.get_ref(), rule.span());
            mistakes.extend(self.flow(&place, rule.get_ref()).err());
        }
        self.errors.extend(mistakes.into_vec());
        if let Some(file) = file
            && let Some(source) = self.open(file)
        {
            let mut mistakes = Mistakes::default();
            mistakes.extend(source.rules().filter_map(|(at, text)| self.flow(&at, text).err()));
            self.errors.extend(mistakes.into_vec());
        }
        if let Some(file) = classbench
            && let Some(source) = self.open(file)
        {
            self.classbench(&source);
        }
    }

    fn open(&mut self, name: &Spanned<String>) -> Option<Source> {
        read_named(self.source, name, "a readable file", self.errors)
    }

    /// Reads the flow `text` at `place`.
    fn flow(&mut self, place: &Place<'_>, text: &str) -> Result<(), SourceError> {
        let flow = parse_flow(text, self.inputs).map_err(|e| e.in_rule(place, 0))?;
        self.rules.add(place, text, flow, self.packet_type);
        Ok(())
    }

    fn classbench(&mut self, source: &Source) {
        let first = self.rules.next_id();
        match classbench::parse(source, first, u32::MAX, self.packet_type) {
            // All lines get the default priority of flows, and the first of equal
            // priority wins: so the order of the file holds, and flows can stand
            // before it or after it.
            Ok(rules) => self.rules.extend(
                rules.into_iter().map(|r| Rule { priority: flow_syntax::DEFAULT_PRIORITY, ..r }),
            ),
            Err(errors) => self.errors.extend(errors),
        }
    }
}
