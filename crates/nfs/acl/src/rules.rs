//! The rules of an access-control list.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thalweg_classify::{Rule, RuleTable, classbench, flow_syntax};
use thalweg_packet::PacketType;
use thalweg_source::{Source, SourceError};
use toml::Spanned;

use thalweg_nf::toolkit::rules::{RuleList, Syntax};
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
        SYNTAX.actions[self as usize]
    }

    /// The packet type that stands for the action in classification.
    fn packet_type(self) -> PacketType {
        PacketType(self as u16)
    }

    pub(super) fn of(packet_type: PacketType) -> Self {
        Self::ALL.get(usize::from(packet_type.0)).copied().unwrap_or_default()
    }
}

/// The actions in the order of [`Action`].
const SYNTAX: Syntax<'static> =
    Syntax { actions: &["permit", "deny"], parse: flow_syntax::parse_without_port };

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

/// Adds the rules of a ClassBench file to `list`; returns the mistakes.
fn add_classbench(list: &mut RuleList, source: &Source, set: &ClassBench) -> Vec<SourceError> {
    match classbench::parse(source, list.next_id(), 0, set.action.packet_type()) {
        Ok(rules) => {
            let same = |rule| Rule { priority: set.priority.into(), ..rule };
            list.extend(rules.into_iter().map(same));
            Vec::new()
        }
        Err(errors) => errors,
    }
}

/// The rules as read.
pub(super) struct Rules {
    default: Action,
    list: RuleList,
    /// Warnings about rules that can never match, except in ClassBench files, where they are
    /// common.
    pub(super) warnings: Vec<SourceError>,
}

impl Rules {
    pub(super) fn read(section: &Section<'_>, options: &Options) -> Result<Self, BuildError> {
        let mut list = RuleList::default();
        let mut errors = list.add_own(section, &options.rules, &SYNTAX);
        let read = |name: &Spanned<String>| section.read(name.span(), name.get_ref());
        for name in &options.files {
            match read(name) {
                Ok(source) => errors.extend(list.add_lines(&source, &SYNTAX)),
                Err(e) => errors.push(e),
            }
        }
        for set in &options.classbench {
            match read(&set.file) {
                Ok(source) => errors.extend(add_classbench(&mut list, &source, set)),
                Err(e) => errors.push(e),
            }
        }
        let warnings = list.never_met();
        if !errors.is_empty() {
            return Err(BuildError(errors));
        }
        Ok(Self { default: options.default, list, warnings })
    }

    pub(super) fn len(&self) -> usize {
        self.list.as_slice().len()
    }

    pub(super) fn default_action(&self) -> Action {
        self.default
    }

    pub(super) fn table(&self) -> RuleTable {
        self.list.table(self.default.packet_type())
    }
}
