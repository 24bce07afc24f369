//! The rules of an access-control list.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thalweg_classify::{Passages, Rule, RuleId, RuleTable, classbench, flow_syntax};
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
    Permit,
    /// The packet is dropped.
    #[default]
    Deny,
}

impl Action {
    const ALL: [Self; 2] = [Self::Permit, Self::Deny];

    pub(super) fn name(self) -> &'static str {
        ["permit", "deny"][self as usize]
    }

    /// The packet type that stands for the action in classification.
    fn packet_type(self) -> PacketType {
        PacketType(self as u16)
    }

    pub(super) fn of(packet_type: PacketType) -> Self {
        Self::ALL.get(usize::from(packet_type.0)).copied().unwrap_or_default()
    }
}

/// The options of an access-control list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {
    /// The action for packets that no rule matches.
    #[serde(default)]
    default: Action,
    /// Rules `ACTION PATTERN`, the pattern in flow syntax with its priority; the matching rule of
    /// highest priority decides, the first one among equals.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    rules: Vec<Spanned<String>>,
    /// Files with more rules, one per line, appended to `rules`.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    files: Vec<Spanned<String>>,
    /// ClassBench filter files, appended after those.
    #[serde(default)]
    classbench: Vec<ClassBench>,
    /// A file for the hit counts of each rule, as lines of JSON (schema thalweg.acl/1).
    #[schemars(with = "Option<String>")]
    pub(super) hits: Option<Spanned<String>>,
}

/// A ClassBench filter file: an earlier line takes precedence over a later one.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ClassBench {
    /// The file.
    #[schemars(with = "String")]
    file: Spanned<String>,
    /// The action of all its rules.
    action: Action,
    /// The priority of all its rules.
    #[serde(default = "default_priority")]
    priority: u16,
}

fn default_priority() -> u16 {
    flow_syntax::DEFAULT_PRIORITY as u16
}

/// A file of rules, and how it is read.
#[derive(Clone)]
enum File {
    Lines(PathBuf),
    ClassBench(PathBuf, Action, u16),
}

/// The rules as read, and their files.
#[derive(Clone)]
pub(super) struct Rules {
    default: Action,
    list: Vec<Rule>,
    /// The passages of the rules in the chain file.
    passages: Passages,
    /// Warnings about rules that can never match.
    pub(super) warnings: Vec<SourceError>,
    /// Rules of the chain file itself; those of the files follow.
    own: usize,
    files: Vec<File>,
}

impl Rules {
    pub(super) fn read(section: &Section<'_>, options: &Options) -> Result<Self, BuildError> {
        let mut rules = Self {
            default: options.default,
            list: Vec::new(),
            passages: Passages::default(),
            warnings: Vec::new(),
            own: 0,
            files: Vec::new(),
        };
        let mut errors = Vec::new();
        for rule in &options.rules {
            let place = Place::of_string(section.source(), rule.get_ref(), rule.span());
            errors.extend(rules.add(&place, rule.get_ref()).err());
        }
        rules.own = rules.list.len();
        for file in &options.files {
            match section.read(file.span(), file.get_ref()) {
                Ok(source) => errors.extend(rules.add_lines(&source)),
                Err(e) => errors.push(e),
            }
            rules.files.push(File::Lines(section.resolve(file.get_ref())));
        }
        for ClassBench { file, action, priority } in &options.classbench {
            match section.read(file.span(), file.get_ref()) {
                Ok(source) => errors.extend(rules.add_classbench(&source, *action, *priority)),
                Err(e) => errors.push(e),
            }
            let path = section.resolve(file.get_ref());
            rules.files.push(File::ClassBench(path, *action, *priority));
        }
        rules.find_never_met();
        if errors.is_empty() { Ok(rules) } else { Err(BuildError(errors)) }
    }

    /// The same rules, with those of the files reloaded.
    pub(super) fn reread(&self) -> Result<Self, BuildError> {
        let mut again = Self {
            default: self.default,
            list: self.list[..self.own].to_vec(),
            passages: self.passages.clone(),
            warnings: Vec::new(),
            own: self.own,
            files: self.files.clone(),
        };
        let mut errors = Vec::new();
        for file in &self.files {
            let (File::Lines(path) | File::ClassBench(path, ..)) = file;
            let source = Source::read(path)?;
            errors.extend(match file {
                File::Lines(_) => again.add_lines(&source),
                File::ClassBench(_, action, priority) => {
                    again.add_classbench(&source, *action, *priority)
                }
            });
        }
        again.find_never_met();
        if errors.is_empty() { Ok(again) } else { Err(BuildError(errors)) }
    }

    pub(super) fn default_action(&self) -> Action {
        self.default
    }

    pub(super) fn table(&self) -> RuleTable {
        let mut table = RuleTable::new(self.default.packet_type());
        table.extend(self.list.iter().cloned());
        table
    }

    /// Warns of rules that can never match, except in ClassBench files, where they are common.
    fn find_never_met(&mut self) {
        self.warnings = self.passages.never_met(&self.list);
        self.passages.truncate(self.own);
    }

    fn add_lines(&mut self, source: &Source) -> Vec<SourceError> {
        rule_line::lines(source).filter_map(|(place, text)| self.add(&place, text).err()).collect()
    }

    fn add_classbench(
        &mut self,
        source: &Source,
        action: Action,
        priority: u16,
    ) -> Vec<SourceError> {
        let first = RuleId(self.list.len() as u32);
        match classbench::parse(source, first, 0, action.packet_type()) {
            Ok(rules) => {
                let same = |rule| Rule { priority: priority.into(), ..rule };
                self.list.extend(rules.into_iter().map(same));
                Vec::new()
            }
            Err(errors) => errors,
        }
    }

    fn add(&mut self, place: &Place<'_>, text: &str) -> Result<(), SourceError> {
        let names = Action::ALL.map(Action::name);
        let (action, flow) = rule_line::read(place, text, &names, flow_syntax::parse_without_port)?;
        let id = RuleId(self.list.len() as u32);
        self.passages.insert(id, place.passage(text));
        self.list.push(Rule {
            id,
            priority: flow.priority,
            matches: vec![flow.pattern],
            packet_type: Action::ALL[action].packet_type(),
            text: text.trim().to_owned(),
        });
        Ok(())
    }
}
