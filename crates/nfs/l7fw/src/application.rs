//! Applications, and the rules that match them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the library recognised about a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// The protocol that carries the application; 0 without one.
    pub(super) master: u16,
    /// 0 if it is not known.
    pub(super) application: u16,
    pub(super) category: u16,
    /// Whether further packets may reveal more.
    pub(super) more: bool,
    /// Whether no further packet will.
    pub(super) failed: bool,
    /// Whether it is inferred from ports and addresses alone.
    pub(super) guessed: bool,
}

/// The names of applications and categories, by their numbers.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) applications: Vec<String>,
    pub(super) categories: Vec<String>,
}

impl Names {
    /// The name of the recognised application: `TLS.Google` is Google over TLS.
    pub(super) fn application(&self, seen: Seen) -> String {
        let name = |id: u16| self.applications.get(usize::from(id)).map_or("Unknown", |n| n);
        match seen.master {
            0 => name(seen.application).to_owned(),
            master if master == seen.application => name(master).to_owned(),
            master => format!("{}.{}", name(master), name(seen.application)),
        }
    }

    pub(super) fn category(&self, seen: Seen) -> &str {
        self.categories.get(usize::from(seen.category)).map_or("Unspecified", |name| name)
    }

    /// The number of an application; ignores the case of its name.
    pub(super) fn find_application(&self, name: &str) -> Option<u16> {
        find(&self.applications, name)
    }

    /// The number of a category; ignores the case of its name.
    pub(super) fn find_category(&self, name: &str) -> Option<u16> {
        find(&self.categories, name)
    }
}

fn find(names: &[String], wanted: &str) -> Option<u16> {
    names.iter().position(|name| name.eq_ignore_ascii_case(wanted)).map(|id| id as u16)
}

/// The action for packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Action {
    /// They pass.
    #[default]
    Allow,
    /// They are dropped.
    Block,
}

impl Action {
    pub(super) fn name(self) -> &'static str {
        ["allow", "block"][self as usize]
    }
}

/// The action for packets of flows without a verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Undecided {
    /// They pass.
    #[default]
    Allow,
    /// They are dropped.
    Block,
    /// Those that carry data are held until the verdict, within bounds.
    Hold,
}

/// An application in a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The application itself, or any that it carries.
    Any(u16),
    /// The second, carried by the first.
    Over(u16, u16),
}

impl Wanted {
    pub(super) fn fits(self, seen: Seen) -> bool {
        match self {
            Self::Any(id) => seen.application == id || seen.master == id,
            Self::Over(master, id) => (seen.master, seen.application) == (master, id),
        }
    }
}
