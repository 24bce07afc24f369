//! The filter's rules.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thalweg_classify::RuleTable;
use thalweg_classify::flow_syntax::{self, Flow, FlowError};
use thalweg_packet::PacketType;
use toml::Spanned;

use thalweg_nf::toolkit::rules::{RuleList, Syntax};
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
const SYNTAX: Syntax<'static> = Syntax { actions: &["accept", "drop", "reject"], parse };

/// Parses a pattern. The order decides, so that all have the same priority.
fn parse(text: &str) -> Result<Flow, FlowError> {
    flow_syntax::parse_pattern(text).map(|pattern| Flow { priority: 0, pattern })
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

/// The rules as read.
pub(super) struct Rules {
    default: Action,
    list: RuleList,
}

impl Rules {
    pub(super) fn read(section: &Section<'_>) -> Result<Self, BuildError> {
        let options: Options = section.parse()?;
        let mut rules = Self { default: options.default, list: RuleList::default() };
        let mut errors = rules.list.add_own(section, &options.rules, &SYNTAX);
        if let Some(file) = &options.file {
            match section.read(file.span(), file.get_ref()) {
                Ok(source) => errors.extend(rules.list.add_lines(&source, &SYNTAX)),
                Err(e) => errors.push(e),
            }
        }
        errors.extend(rules.list.never_met());
        if errors.is_empty() { Ok(rules) } else { Err(BuildError(errors)) }
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
