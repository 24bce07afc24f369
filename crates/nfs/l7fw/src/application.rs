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

/// An application in a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The application itself, or any that it carries.
    Any(u16),
    /// The second, carried by the first.
    Over(u16, u16),
}

impl Wanted {
    fn fits(self, seen: Seen) -> bool {
        match self {
            Self::Any(id) => seen.application == id || seen.master == id,
            Self::Over(master, id) => (seen.master, seen.application) == (master, id),
        }
    }
}

/// A host in a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostPattern {
    /// In lower case.
    name: String,
    /// Whether its subdomains match too.
    within: bool,
}

impl HostPattern {
    /// `www.example.com`, or `*.example.com` for the domain and its subdomains.
    pub(super) fn new(text: &str) -> Self {
        let name = text.to_ascii_lowercase();
        match name.strip_prefix("*.") {
            Some(domain) => Self { name: domain.to_owned(), within: true },
            None => Self { name, within: false },
        }
    }

    fn fits(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.').as_bytes();
        let name = self.name.as_bytes();
        let Some(at) = host.len().checked_sub(name.len()) else { return false };
        let (before, end) = host.split_at(at);
        end.eq_ignore_ascii_case(name)
            && (before.is_empty() || self.within && before.ends_with(b"."))
    }
}

/// A rule. An empty list matches everything.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) action: Action,
    pub(super) applications: Vec<Wanted>,
    pub(super) categories: Vec<u16>,
    pub(super) hosts: Vec<HostPattern>,
}

impl Rule {
    pub(super) fn fits(&self, seen: Seen, host: Option<&str>) -> bool {
        let application =
            self.applications.is_empty() || self.applications.iter().any(|w| w.fits(seen));
        let category = self.categories.is_empty() || self.categories.contains(&seen.category);
        let by_host = |host| self.hosts.iter().any(|pattern| pattern.fits(host));
        application && category && (self.hosts.is_empty() || host.is_some_and(by_host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_fit_whole_names_and_domains() {
        let fits = |pattern: &str, host: &str| HostPattern::new(pattern).fits(host);
        assert!(fits("a.example", "A.Example.") && !fits("a.example", "b.a.example"));
        assert!(fits("*.example", "b.a.example") && fits("*.example", "example"));
        assert!(!fits("*.example", "badexample") && !fits("*.example", "ample"));
    }

    #[test]
    fn a_rule_asks_for_all_that_it_says() {
        let seen = Seen { master: 91, application: 126, category: 5, ..Seen::default() };
        let rule = |applications: &[Wanted], categories: &[u16], hosts: &[&str]| Rule {
            action: Action::Block,
            applications: applications.to_vec(),
            categories: categories.to_vec(),
            hosts: hosts.iter().map(|host| HostPattern::new(host)).collect(),
        };
        assert!(rule(&[], &[], &[]).fits(seen, None));
        assert!(rule(&[Wanted::Any(91)], &[], &[]).fits(seen, None));
        assert!(rule(&[Wanted::Any(7), Wanted::Over(91, 126)], &[5], &[]).fits(seen, None));
        assert!(!rule(&[Wanted::Over(7, 126)], &[], &[]).fits(seen, None));
        assert!(!rule(&[Wanted::Any(91)], &[6], &[]).fits(seen, None));
        assert!(!rule(&[], &[], &["a"]).fits(seen, None));
        assert!(rule(&[], &[], &["a"]).fits(seen, Some("A")));
    }
}
