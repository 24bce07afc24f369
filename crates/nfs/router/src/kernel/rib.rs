//! The routes of a kernel table: all of each prefix, in the order in which the kernel prefers them.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::message::{Object, Route, Verb};
use crate::prefix::{IpPrefix, Prefix};

/// Where the packets of a route go, in the kernel's terms.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    /// One of several next hops, or the only one.
    Ways(Vec<Way>),
    /// A next-hop object.
    Object(u32),
    /// The kernel itself.
    Local,
    Blackhole,
    /// `unreachable` of IPv6, or `throw`.
    Unreachable,
    /// `unreachable` of IPv4.
    HostUnreachable,
    Prohibited,
    /// A way that the router does not have: through a tunnel or with a label.
    Unsupported,
}

/// A next hop.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Way {
    /// The index of the interface.
    pub(crate) link: u32,
    /// The next router; `None` if the link has the destination.
    pub(crate) gateway: Option<IpAddr>,
    /// Its share of the flows; 1 or more.
    pub(crate) weight: u16,
    /// Whether the kernel does not use it, as its interface is down.
    pub(crate) is_dead: bool,
}

impl Target {
    /// Whether both are the same way, whatever the state of its interfaces.
    fn is_same(&self, other: &Self) -> bool {
        let (Self::Ways(ways), Self::Ways(others)) = (self, other) else { return self == other };
        let same =
            |(a, b): (&Way, &Way)| (a.link, a.gateway, a.weight) == (b.link, b.gateway, b.weight);
        ways.len() == others.len() && ways.iter().zip(others).all(same)
    }

    /// Whether routes of IPv6 with this target and the same metric are one (ECMP).
    fn joins_others(&self) -> bool {
        matches!(self, Self::Ways(ways) if ways.iter().all(|way| way.gateway.is_some()))
    }
}

/// A route of one prefix.
#[derive(Clone, Debug)]
struct Entry {
    target: Arc<Target>,
    metric: u32,
}

/// What a change did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The routes of the prefix are others now.
    Changed,
    /// A route was removed that was not there.
    Missing,
}

/// All routes of a table. Most prefixes have one.
#[derive(Debug, Default)]
pub(crate) struct Rib {
    v4: HashMap<Prefix<u32>, Vec<Entry>>,
    v6: HashMap<Prefix<u128>, Vec<Entry>>,
    /// Each target once: few are different.
    targets: HashSet<Arc<Target>>,
    /// The size of `targets` from which on unused ones are removed.
    prune_at: usize,
    /// The next-hop objects.
    pub(crate) objects: HashMap<u32, Object>,
}

impl Rib {
    /// Applies a change of a route.
    pub(crate) fn change(&mut self, verb: Verb, route: Route) -> Outcome {
        let Route { prefix, metric, target, .. } = route;
        if verb == Verb::Remove {
            return self.remove(prefix, metric, &target);
        }
        let entry = Entry { target: self.intern(target), metric };
        let entries = match prefix {
            IpPrefix::V4(prefix) => self.v4.entry(prefix).or_insert_with(|| Vec::with_capacity(1)),
            IpPrefix::V6(prefix) => self.v6.entry(prefix).or_insert_with(|| Vec::with_capacity(1)),
        };
        match prefix {
            IpPrefix::V4(_) => add_v4(entries, verb, entry),
            IpPrefix::V6(_) => add_v6(entries, verb, entry),
        }
        Outcome::Changed
    }

    fn remove(&mut self, prefix: IpPrefix, metric: u32, target: &Target) -> Outcome {
        let entries = match prefix {
            IpPrefix::V4(prefix) => self.v4.get_mut(&prefix),
            IpPrefix::V6(prefix) => self.v6.get_mut(&prefix),
        };
        let Some(entries) = entries else { return Outcome::Missing };
        let of_metric = |entry: &Entry| entry.metric == metric;
        let same = |entry: &Entry| of_metric(entry) && entry.target.is_same(target);
        let mut outcome = Outcome::Changed;
        if let Some(at) = entries.iter().position(same) {
            entries.remove(at);
        } else if let (IpPrefix::V6(_), Target::Ways(gone)) = (prefix, target)
            && let Some(at) = entries.iter().position(|e| of_metric(e) && e.target.joins_others())
            && let Some(left) = without(&entries[at].target, gone)
        {
            // One of several next hops.
            entries[at].target = Arc::new(Target::Ways(left));
        } else {
            outcome = Outcome::Missing;
        }
        if entries.is_empty() {
            match prefix {
                IpPrefix::V4(prefix) => drop(self.v4.remove(&prefix)),
                IpPrefix::V6(prefix) => drop(self.v6.remove(&prefix)),
            }
        }
        outcome
    }

    /// The targets of a prefix, the kernel's first choice first.
    pub(crate) fn targets(&self, prefix: IpPrefix) -> impl Iterator<Item = &Arc<Target>> {
        let entries = match prefix {
            IpPrefix::V4(prefix) => self.v4.get(&prefix),
            IpPrefix::V6(prefix) => self.v6.get(&prefix),
        };
        entries.into_iter().flatten().map(|entry| &entry.target)
    }

    /// All prefixes.
    pub(crate) fn prefixes(&self) -> impl Iterator<Item = IpPrefix> + '_ {
        let v4 = self.v4.keys().map(|prefix| IpPrefix::V4(*prefix));
        v4.chain(self.v6.keys().map(|prefix| IpPrefix::V6(*prefix)))
    }

    /// The prefixes with a route to one of `objects`.
    pub(crate) fn prefixes_of(&self, objects: &HashSet<u32>) -> Vec<IpPrefix> {
        let is_of =
            |entry: &Entry| matches!(*entry.target, Target::Object(id) if objects.contains(&id));
        let v4 = self.v4.iter().filter(|(_, entries)| entries.iter().any(is_of));
        let v6 = self.v6.iter().filter(|(_, entries)| entries.iter().any(is_of));
        let v4 = v4.map(|(prefix, _)| IpPrefix::V4(*prefix));
        v4.chain(v6.map(|(prefix, _)| IpPrefix::V6(*prefix))).collect()
    }

    /// The one copy of a target.
    fn intern(&mut self, target: Target) -> Arc<Target> {
        if let Some(known) = self.targets.get(&target) {
            return Arc::clone(known);
        }
        if self.targets.len() >= self.prune_at {
            self.targets.retain(|target| Arc::strong_count(target) > 1);
            self.prune_at = 2 * self.targets.len() + 1024;
        }
        let target = Arc::new(target);
        self.targets.insert(Arc::clone(&target));
        target
    }
}

/// IPv4: routes of one prefix and metric exist side by side; the first one counts.
fn add_v4(entries: &mut Vec<Entry>, verb: Verb, entry: Entry) {
    let first = entries.partition_point(|other| other.metric < entry.metric);
    let end = entries.partition_point(|other| other.metric <= entry.metric);
    let known = entries[first..end].iter().position(|e| e.target.is_same(&entry.target));
    if verb == Verb::Replace {
        // After a dump, the replacement may be there already.
        if first < end && known.is_none_or(|known| known == 0) {
            entries[first] = entry;
        } else {
            entries.insert(first, entry);
        }
        return;
    }
    if let Some(known) = known {
        // It was dumped, or its next hop has come back to life.
        entries[first + known].target = entry.target;
        return;
    }
    entries.insert(if verb == Verb::Append { end } else { first }, entry);
}

/// IPv6: next hops with gateways of one prefix and metric are one route, and each message has all of
/// them; others exist side by side, the first one counts.
fn add_v6(entries: &mut Vec<Entry>, verb: Verb, entry: Entry) {
    let first = entries.partition_point(|other| other.metric < entry.metric);
    let end = entries.partition_point(|other| other.metric <= entry.metric);
    if verb == Verb::Replace {
        entries.splice(first..end, [entry]);
        return;
    }
    let is_same = |other: &Entry| {
        other.target.is_same(&entry.target)
            || (other.target.joins_others() && entry.target.joins_others())
    };
    if let Some(known) = entries[first..end].iter().position(is_same) {
        entries[first + known].target = entry.target;
        return;
    }
    entries.insert(end, entry);
}

/// The next hops of `target` that are not `gone`; `None` if one of these is not among them, or if
/// none is left.
fn without(target: &Target, gone: &[Way]) -> Option<Vec<Way>> {
    let Target::Ways(ways) = target else { return None };
    let mut left = ways.clone();
    for gone in gone {
        let same = |way: &Way| (way.link, way.gateway) == (gone.link, gone.gateway);
        left.remove(left.iter().position(same)?);
    }
    (!left.is_empty()).then_some(left)
}
