//! The rules of an access-control list.

use std::path::{Path, PathBuf};

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

/// A file of rules, and how it is read.
#[derive(Clone)]
enum File {
    Lines(PathBuf),
    ClassBench(PathBuf, Action, u16),
}

impl File {
    fn path(&self) -> &Path {
        let (Self::Lines(path) | Self::ClassBench(path, ..)) = self;
        path
    }

    /// Adds the file's rules, read as `source`, to `list`; returns the mistakes.
    fn add(&self, list: &mut RuleList, source: &Source) -> Vec<SourceError> {
        let Self::ClassBench(_, action, priority) = self else {
            return list.add_lines(source, &SYNTAX);
        };
        match classbench::parse(source, list.next_id(), 0, action.packet_type()) {
            Ok(rules) => {
                let same = |rule| Rule { priority: (*priority).into(), ..rule };
                list.extend(rules.into_iter().map(same));
                Vec::new()
            }
            Err(errors) => errors,
        }
    }
}

/// The rules as read, and their files.
#[derive(Clone)]
pub(super) struct Rules {
    default: Action,
    list: RuleList,
    /// Warnings about rules that can never match, except in ClassBench files, where they are
    /// common.
    pub(super) warnings: Vec<SourceError>,
    files: Vec<File>,
}

impl Rules {
    pub(super) fn read(section: &Section<'_>, options: &Options) -> Result<Self, BuildError> {
        let mut list = RuleList::default();
        let mut errors = list.add_own(section, &options.rules, &SYNTAX);
        let path = |name: &Spanned<String>| section.resolve(name.get_ref());
        let lines = options.files.iter().map(|name| (name, File::Lines(path(name))));
        let sets = options.classbench.iter().map(|ClassBench { file, action, priority }| {
            (file, File::ClassBench(path(file), *action, *priority))
        });
        let mut files = Vec::new();
        for (name, file) in lines.chain(sets) {
            match section.read(name.span(), name.get_ref()) {
                Ok(source) => errors.extend(file.add(&mut list, &source)),
                Err(e) => errors.push(e),
            }
            files.push(file);
        }
        Self::checked(options.default, list, files, errors)
    }

    /// The same rules, with those of the files reloaded.
    pub(super) fn reread(&self) -> Result<Self, BuildError> {
        let mut list = self.list.own();
        let mut errors = Vec::new();
        for file in &self.files {
            errors.extend(file.add(&mut list, &Source::read(file.path())?));
        }
        Self::checked(self.default, list, self.files.clone(), errors)
    }

    fn checked(
        default: Action,
        mut list: RuleList,
        files: Vec<File>,
        errors: Vec<SourceError>,
    ) -> Result<Self, BuildError> {
        let warnings = list.never_met();
        if !errors.is_empty() {
            return Err(BuildError(errors));
        }
        Ok(Self { default, list, warnings, files })
    }

    pub(super) fn default_action(&self) -> Action {
        self.default
    }

    pub(super) fn table(&self) -> RuleTable {
        self.list.table(self.default.packet_type())
    }
}
