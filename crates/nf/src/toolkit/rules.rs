//! Lists of rules: an action, then a pattern in flow syntax.

use std::sync::Arc;

use thalweg_classify::flow_syntax::{Flow, FlowError};
use thalweg_classify::{Passages, Rule, RuleId, RuleTable, SharedRules};
use thalweg_packet::PacketType;
use thalweg_source::{Mistakes, Place, Source, SourceError};
use toml::Spanned;

use crate::{Renewal, Section};

/// How the rules `ACTION PATTERN` of an NF are written.
#[derive(Clone, Copy)]
pub struct Syntax<'a> {
    /// The names of the actions. Classification gives an action's index as the packet type.
    pub actions: &'a [&'a str],
    /// Parses the pattern.
    pub parse: fn(&str) -> Result<Flow, FlowError>,
}

impl Syntax<'_> {
    /// Parses a rule; returns the index of its action, and its pattern.
    ///
    /// # Errors
    /// The first word that is wrong.
    fn read(&self, place: &Place<'_>, text: &str) -> Result<(usize, Flow), SourceError> {
        let lead = text.len() - text.trim_start().len();
        let end = text[lead..].find([' ', '\t', ',']).map_or(text.len(), |i| lead + i);
        let Some(action) = self.actions.iter().position(|action| *action == &text[lead..end])
        else {
            let (last, others) = self.actions.split_last().unwrap_or((&"", &[]));
            let names = format!("{} or {last}", others.join(", "));
            let expected = format!("{names}, then a pattern such as tcp,tp_dst=23");
            return Err(place.error(lead..end, "unknown action", expected));
        };
        let flow = (self.parse)(&text[end..]).map_err(|e| e.in_rule(place, end))?;
        Ok((action, flow))
    }
}

/// Lets a running instance of an NF, which shares its rules as `running`, go on with those of `new`;
/// `new` shares the rules of that instance from now on.
pub fn renew(new: &mut Arc<SharedRules>, running: &Arc<SharedRules>) -> Renewal {
    let table = std::mem::replace(new, running.clone()).load();
    let running = running.clone();
    Box::new(move |_| Some(Box::new(running.publish(table))))
}

/// Rules, numbered from 0 in the order they are added.
#[derive(Clone, Debug, Default)]
pub struct RuleList {
    rules: Vec<Rule>,
    /// The places of the rules that were added one by one.
    passages: Passages,
}

impl RuleList {
    /// The number of the next rule.
    pub fn next_id(&self) -> RuleId {
        RuleId(self.rules.len() as u32)
    }

    /// The rules.
    pub fn as_slice(&self) -> &[Rule] {
        &self.rules
    }

    /// Adds the rule `text` at `place`, whose pattern is parsed already.
    pub fn add(&mut self, place: &Place<'_>, text: &str, flow: Flow, packet_type: PacketType) {
        let id = self.next_id();
        self.passages.insert(id, place.passage(text));
        self.rules.push(Rule {
            id,
            priority: flow.priority,
            matches: vec![flow.pattern],
            packet_type,
            text: text.trim().to_owned(),
        });
    }

    /// Adds the rules that the chain file itself lists; returns the mistakes. Rules of files follow
    /// these.
    pub fn add_own(
        &mut self,
        section: &Section<'_>,
        rules: &[Spanned<String>],
        syntax: &Syntax<'_>,
    ) -> Vec<SourceError> {
        let mut errors = Mistakes::default();
        for rule in rules {
            let place = Place::of_string(section.source(), rule.get_ref(), rule.span());
            errors.extend(self.read(&place, rule.get_ref(), syntax).err());
        }
        errors.into_vec()
    }

    /// Adds the rules of a file, one per line; returns the mistakes.
    pub fn add_lines(&mut self, source: &Source, syntax: &Syntax<'_>) -> Vec<SourceError> {
        let mut errors = Mistakes::default();
        errors.extend(source.rules().filter_map(|(at, text)| self.read(&at, text, syntax).err()));
        errors.into_vec()
    }

    fn read(
        &mut self,
        place: &Place<'_>,
        text: &str,
        syntax: &Syntax<'_>,
    ) -> Result<(), SourceError> {
        let (action, flow) = syntax.read(place, text)?;
        self.add(place, text, flow, PacketType(action as u16));
        Ok(())
    }

    /// The rules with a place that can never match, when all rules are added. Forgets the places,
    /// which would keep the texts of files in memory.
    pub fn never_met(&mut self) -> Vec<SourceError> {
        std::mem::take(&mut self.passages).never_met(&self.rules)
    }

    /// The table of the rules; other packets get the type `default`.
    pub fn table(&self, default: PacketType) -> RuleTable {
        let mut table = RuleTable::new(default);
        table.extend(self.rules.iter().cloned());
        table
    }
}

/// Adds rules without places: no warning says that they can never match, but they may cover others.
impl Extend<Rule> for RuleList {
    fn extend<T: IntoIterator<Item = Rule>>(&mut self, rules: T) {
        self.rules.extend(rules);
    }
}
