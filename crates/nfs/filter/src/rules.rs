//! The filter's rules.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thalweg_classify::{Passages, Rule, RuleId, RuleTable, flow_syntax};
use thalweg_packet::PacketType;
use thalweg_source::{Source, SourceError};
use toml::Spanned;

use thalweg_nf::toolkit::rule_line::{self, Place};
use thalweg_nf::{BuildError, Section};

/// The action of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Action {
    /// The packet is forwarded.
    #[default]
    Accept,
    /// The packet is dropped silently.
    Drop,
    /// The packet is dropped, and its sender gets a TCP reset or an ICMP error.
    Reject,
}

impl Action {
    const ALL: [Self; 3] = [Self::Accept, Self::Drop, Self::Reject];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Drop => "drop",
            Self::Reject => "reject",
        }
    }

    /// The packet type that stands for the action in classification.
    fn packet_type(self) -> PacketType {
        PacketType(self as u16)
    }

    pub(super) fn of(packet_type: PacketType) -> Self {
        Self::ALL.get(usize::from(packet_type.0)).copied().unwrap_or_default()
    }
}

/// The options of a filter.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {
    /// The action for packets that no rule matches.
    #[serde(default)]
    default: Action,
    /// Rules `ACTION PATTERN`, the pattern in flow syntax; the first match decides.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    rules: Vec<Spanned<String>>,
    /// A file with more rules, one per line, appended to `rules`.
    #[schemars(with = "Option<String>")]
    file: Option<Spanned<String>>,
}

/// The rules as read, and their file.
pub(super) struct Rules {
    default: Action,
    rules: Vec<Rule>,
    /// The passages of the rules in the chain file.
    passages: Passages,
    /// Rules of the chain file itself; those of `file` follow.
    own: usize,
    file: Option<PathBuf>,
}

impl Rules {
    pub(super) fn read(section: &Section<'_>) -> Result<Self, BuildError> {
        let options: Options = section.parse()?;
        let mut rules = Self {
            default: options.default,
            rules: Vec::new(),
            passages: Passages::default(),
            own: 0,
            file: None,
        };
        let mut errors = Vec::new();
        for rule in &options.rules {
            let place = Place::of_string(section.source(), rule.get_ref(), rule.span());
            if let Err(e) = rules.add(&place, rule.get_ref()) {
                errors.push(e);
            }
        }
        rules.own = rules.rules.len();
        if let Some(file) = &options.file {
            rules.file = Some(section.resolve(file.get_ref()));
            match section.read(file.span(), file.get_ref()) {
                Ok(source) => errors.extend(rules.add_file(&source)),
                Err(e) => errors.push(e),
            }
        }
        errors.extend(rules.passages.never_met(&rules.rules));
        rules.passages.truncate(rules.own);
        if errors.is_empty() { Ok(rules) } else { Err(BuildError(errors)) }
    }

    /// The same rules, with those of the file reloaded.
    pub(super) fn reread(&self) -> Result<Self, BuildError> {
        let mut again = Self {
            default: self.default,
            rules: self.rules[..self.own].to_vec(),
            passages: self.passages.clone(),
            own: self.own,
            file: self.file.clone(),
        };
        if let Some(file) = &self.file {
            let source = Source::read(file)?;
            let mut errors = again.add_file(&source);
            errors.extend(again.passages.never_met(&again.rules));
            if !errors.is_empty() {
                return Err(BuildError(errors));
            }
        }
        Ok(again)
    }

    pub(super) fn len(&self) -> usize {
        self.rules.len()
    }

    pub(super) fn default_action(&self) -> Action {
        self.default
    }

    pub(super) fn table(&self) -> RuleTable {
        let mut table = RuleTable::new(self.default.packet_type());
        table.extend(self.rules.iter().cloned());
        table
    }

    fn add_file(&mut self, source: &Source) -> Vec<SourceError> {
        rule_line::lines(source).filter_map(|(place, text)| self.add(&place, text).err()).collect()
    }

    fn add(&mut self, place: &Place<'_>, text: &str) -> Result<(), SourceError> {
        let names = Action::ALL.map(Action::name);
        let (action, pattern) = rule_line::read(place, text, &names, flow_syntax::parse_pattern)?;
        let id = RuleId(self.rules.len() as u32);
        self.passages.insert(id, place.passage(text));
        self.rules.push(Rule {
            id,
            priority: 0,
            matches: vec![pattern],
            packet_type: Action::ALL[action].packet_type(),
            text: text.trim().to_owned(),
        });
        Ok(())
    }
}
