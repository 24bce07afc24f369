//! The rules, and their verdicts on flows.

use super::application::{Action, Names, Seen, Undecided, Wanted};
use super::flows::Flow;
use super::host::HostPattern;

/// A rule. An empty list matches everything.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) action: Action,
    pub(super) applications: Vec<Wanted>,
    pub(super) categories: Vec<u16>,
    pub(super) hosts: Vec<HostPattern>,
}

impl Rule {
    /// Whether it matches an application; `None` if that depends on one that is not known.
    fn fits(&self, seen: Option<Seen>) -> Option<bool> {
        if self.applications.is_empty() && self.categories.is_empty() {
            return Some(true);
        }
        let seen = seen?;
        let application =
            self.applications.is_empty() || self.applications.iter().any(|w| w.fits(seen));
        let category = self.categories.is_empty() || self.categories.contains(&seen.category);
        Some(application && category)
    }

    /// Whether it matches a host, or a flow without one; `None` if that depends on one that is not
    /// known.
    fn names(&self, host: Host<'_>) -> Option<bool> {
        match host {
            _ if self.hosts.is_empty() => Some(true),
            Host::Name(name) => Some(self.hosts.iter().any(|pattern| pattern.fits(name))),
            Host::None => Some(false),
            Host::Unknown => None,
        }
    }
}

/// A host that a flow names.
#[derive(Clone, Copy)]
enum Host<'a> {
    Name(&'a str),
    None,
    /// It may still name one.
    Unknown,
}

/// An action, and the number of the rule that decided it; none for the default.
pub(super) type Verdict = (Action, Option<u32>);

/// What decides on flows: the rules, and the actions without one.
pub(super) struct Policy {
    pub(super) rules: Vec<Rule>,
    pub(super) default: Action,
    pub(super) undecided: Undecided,
    pub(super) hold_exceeded: Action,
    pub(super) checksums: bool,
    pub(super) names: Names,
}

impl Policy {
    /// The verdict on a flow of an application that names these hosts, and another one if it is
    /// `pending`. A block by one of them is enough. `None` if it depends on what is not known.
    pub(super) fn verdict(
        &self,
        seen: Option<Seen>,
        hosts: &[Box<str>],
        pending: bool,
    ) -> Option<Verdict> {
        let last = match (pending, hosts) {
            (true, _) => Some(Host::Unknown),
            (false, []) => Some(Host::None),
            (false, _) => None,
        };
        let mut all = hosts.iter().map(|host| Host::Name(host)).chain(last);
        let first = self.by_host(seen, all.next()?);
        let stricter = |former: Option<Verdict>, verdict: Option<Verdict>| match (former, verdict) {
            (Some((Action::Block, _)), _) => former,
            (_, Some((Action::Block, _))) | (Some(_), None) => verdict,
            _ => former,
        };
        all.map(|host| self.by_host(seen, host)).fold(first, stricter)
    }

    fn by_host(&self, seen: Option<Seen>, host: Host<'_>) -> Option<Verdict> {
        if seen.is_none() && !matches!(host, Host::Name(_)) {
            return None;
        }
        for (number, rule) in self.rules.iter().enumerate() {
            match (rule.fits(seen), rule.names(host)) {
                (Some(true), Some(true)) => return Some((rule.action, Some(number as u32))),
                (Some(false), _) | (_, Some(false)) => {}
                _ => return None,
            }
        }
        seen.map(|_| (self.default, None))
    }

    /// Judges a flow of which all is known.
    pub(super) fn judge(&self, flow: &mut Flow) {
        let verdict = self.verdict(Some(flow.seen), &flow.hosts, false);
        (flow.action, flow.rule) = verdict.unwrap_or((self.default, None));
    }

    /// Whether a rule names hosts.
    pub(super) fn names_hosts(&self) -> bool {
        self.rules.iter().any(|rule| !rule.hosts.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Action::{Allow, Block};

    const SEEN: Option<Seen> = Some(Seen {
        master: 91,
        application: 126,
        category: 5,
        more: false,
        failed: false,
        guessed: false,
    });

    fn rule(action: Action, applications: &[Wanted], categories: &[u16], hosts: &[&str]) -> Rule {
        Rule {
            action,
            applications: applications.to_vec(),
            categories: categories.to_vec(),
            hosts: hosts.iter().map(|host| HostPattern::new(host).unwrap()).collect(),
        }
    }

    fn policy(rules: Vec<Rule>) -> Policy {
        let names = Names { applications: Vec::new(), categories: Vec::new() };
        let (undecided, checksums) = (Undecided::Allow, true);
        Policy { rules, default: Allow, undecided, hold_exceeded: Allow, checksums, names }
    }

    #[test]
    fn a_rule_asks_for_all_that_it_says() {
        let fits = |rule: Rule, host: &[Box<str>]| {
            policy(vec![rule]).verdict(SEEN, host, false) == Some((Block, Some(0)))
        };
        assert!(fits(rule(Block, &[], &[], &[]), &[]));
        assert!(fits(rule(Block, &[Wanted::Any(91)], &[], &[]), &[]));
        assert!(fits(rule(Block, &[Wanted::Any(7), Wanted::Over(91, 126)], &[5], &[]), &[]));
        assert!(!fits(rule(Block, &[Wanted::Over(7, 126)], &[], &[]), &[]));
        assert!(!fits(rule(Block, &[Wanted::Any(91)], &[6], &[]), &[]));
        assert!(!fits(rule(Block, &[], &[], &["a"]), &[]));
        assert!(fits(rule(Block, &[], &[], &["a"]), &["a".into()]));
    }

    #[test]
    fn one_blocked_host_is_enough() {
        let policy = policy(vec![rule(Allow, &[], &[], &["a"]), rule(Block, &[], &[], &[])]);
        let verdict = |hosts: &[&str]| {
            let hosts: Vec<_> = hosts.iter().map(|host| Box::from(*host)).collect();
            policy.verdict(SEEN, &hosts, false)
        };
        assert_eq!(verdict(&["a"]), Some((Allow, Some(0))));
        assert_eq!(verdict(&["a", "b"]), Some((Block, Some(1))));
        assert_eq!(verdict(&[]), Some((Block, Some(1))));
    }

    #[test]
    fn a_verdict_waits_only_for_what_it_depends_on() {
        let application = rule(Block, &[Wanted::Any(91)], &[], &[]);
        let a = ["a".into()];
        let first = policy(vec![rule(Block, &[], &[], &["a"]), application.clone()]);
        assert_eq!(first.verdict(None, &a, true), Some((Block, Some(0))));
        assert_eq!(first.verdict(SEEN, &[], true), None);
        assert_eq!(first.verdict(None, &["b".into()], false), None);
        let last = policy(vec![application, rule(Allow, &[], &[], &["a"])]);
        assert_eq!(last.verdict(None, &a, false), None);
        assert_eq!(last.verdict(SEEN, &[], true), Some((Block, Some(0))));
        let none = policy(Vec::new());
        assert_eq!(none.verdict(SEEN, &[], true), Some((Allow, None)));
        assert_eq!(none.verdict(None, &a, false), None);
        assert_eq!(policy(vec![rule(Block, &[], &[], &[])]).verdict(None, &[], false), None);
    }
}
