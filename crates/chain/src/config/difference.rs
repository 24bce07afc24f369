//! How a new plan differs from the running one.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;
use thalweg_io::kind::PortBlueprint;
use thalweg_packet::{PacketType, PortIndex};

use super::plan::Plan;
use super::ports::PortPlan;
use super::succession::{Heir, Succession};
use crate::route_decider::{Next, NfIndex, Stage};

/// All differences between a running plan and the one that takes its place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Difference(pub Vec<Change>);

/// A part of a chain that is added, removed or changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Change {
    /// How it differs.
    pub how: How,
    /// The part: `input`, `output`, `class`, `nf` or `route`.
    pub part: &'static str,
    /// Its name, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it is, or what it was and is.
    pub what: String,
    /// What becomes of its state, if it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<StateFate>,
}

/// How a part differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// It is new.
    Added,
    /// It is there no more.
    Removed,
    /// It is another one.
    Changed,
}

/// What becomes of the state of an NF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StateFate {
    /// The NF keeps it.
    Kept,
    /// It moves to the new instance.
    Moved,
    /// It is lost.
    Lost,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, change) in self.0.iter().enumerate() {
            write!(f, "{}{change}", if n == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.how {
            How::Added => '+',
            How::Removed => '-',
            How::Changed => '~',
        };
        write!(f, "{sign} {}", self.part)?;
        if let Some(name) = &self.name {
            write!(f, " '{name}'")?;
        }
        write!(f, ": {}", self.what)?;
        match self.state {
            Some(StateFate::Kept) => f.write_str("; state kept"),
            Some(StateFate::Moved) => f.write_str("; state moved to a new instance"),
            Some(StateFate::Lost) => f.write_str("; state lost"),
            None => Ok(()),
        }
    }
}

impl Difference {
    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets what becomes of the state of an NF.
    pub fn set_state(&mut self, nf: &str, state: StateFate) {
        let is_it =
            |change: &&mut Change| change.name.as_deref() == Some(nf) && change.part == "nf";
        self.0.iter_mut().filter(is_it).for_each(|change| change.state = Some(state));
    }

    pub(super) fn of(running: &Plan, succession: &Succession) -> Self {
        let new = &succession.plan;
        let mut changes = Changes(Vec::new());
        changes.ports("input", &titles(&running.inputs), &titles(&new.inputs), &succession.inputs);
        let [was, is] = [&running.outputs, &new.outputs].map(|ports| titles(ports));
        changes.ports("output", &was, &is, &succession.outputs);
        changes.classes(running, new);
        changes.nfs(running, succession);
        changes.routes(running, new);
        Self(changes.0)
    }
}

struct Changes(Vec<Change>);

impl Changes {
    fn add(&mut self, how: How, part: &'static str, name: Option<&str>, what: String) {
        self.0.push(Change { how, part, name: name.map(str::to_owned), what, state: None });
    }

    /// Compares ports, each with its name and what it is.
    fn ports(
        &mut self,
        part: &'static str,
        running: &[(String, String)],
        new: &[(String, String)],
        kept: &[Option<usize>],
    ) {
        for ((name, what), kept) in new.iter().zip(kept) {
            let before = running.iter().find(|(old, _)| old == name);
            match (kept, before) {
                (Some(at), _) if running[*at].0 == *name => {}
                (Some(at), _) => {
                    let what = format!("{what}, which was '{}'", running[*at].0);
                    self.add(How::Changed, part, Some(name), what);
                }
                (None, Some((_, was))) => {
                    self.add(How::Changed, part, Some(name), format!("{was} -> {what}"));
                }
                (None, None) => self.add(How::Added, part, Some(name), what.clone()),
            }
        }
        for (at, (name, what)) in running.iter().enumerate() {
            if !kept.contains(&Some(at)) && new.iter().all(|(other, _)| other != name) {
                self.add(How::Removed, part, Some(name), what.clone());
            }
        }
    }

    fn classes(&mut self, running: &Plan, new: &Plan) {
        for name in new.types.difference(&running.types) {
            self.add(How::Added, "class", Some(name), "a packet type".into());
        }
        for name in running.types.difference(&new.types) {
            self.add(How::Removed, "class", Some(name), "a packet type".into());
        }
        let (before, after) = (running.rules.load(), new.rules.load());
        if *before != *after {
            let count = |rules: usize| thalweg_source::counted(rules, "rule");
            let what = format!("{} -> {}", count(before.len()), count(after.len()));
            self.add(How::Changed, "class", None, what);
        }
        if running.classifier != new.classifier {
            self.add(How::Changed, "class", None, "the caches begin empty".into());
        }
    }

    fn nfs(&mut self, running: &Plan, succession: &Succession) {
        for (nf, heir) in succession.plan.nfs.iter().zip(&succession.nfs) {
            let what = nf.blueprint.describe();
            let has_state = nf.kind.state.is_some();
            let (from, state) = match heir {
                Heir::New => {
                    let what = format!("{} ({what})", nf.kind.name);
                    self.add(How::Added, "nf", Some(&nf.name), what);
                    continue;
                }
                Heir::Kept(old) if running.nfs[usize::from(old.0)].is_served_as(nf) => continue,
                Heir::Kept(old) | Heir::Renewed(old, _) => (old, StateFate::Kept),
                Heir::Replaced(old) => (old, StateFate::Moved),
            };
            let was = &running.nfs[usize::from(from.0)];
            let before = was.blueprint.describe();
            let what = if before == what {
                format!("other options ({what})")
            } else {
                format!("{before} -> {what}")
            };
            let (how, part, name) = (How::Changed, "nf", Some(nf.name.clone()));
            self.0.push(Change { how, part, name, what, state: has_state.then_some(state) });
        }
        for (at, nf) in running.nfs.iter().enumerate() {
            let lives = |heir: &Heir| match heir {
                Heir::Kept(old) | Heir::Renewed(old, _) | Heir::Replaced(old) => {
                    usize::from(old.0) == at
                }
                Heir::New => false,
            };
            if !succession.nfs.iter().any(lives) {
                self.0.push(Change {
                    how: How::Removed,
                    part: "nf",
                    name: Some(nf.name.clone()),
                    what: nf.kind.name.to_owned(),
                    state: nf.kind.state.map(|_| StateFate::Lost),
                });
            }
        }
    }

    fn routes(&mut self, running: &Plan, new: &Plan) {
        let (before, after) = (routes(running), routes(new));
        if before == after {
            return;
        }
        let only =
            |a: &Routes<'_>, b: &Routes<'_>| a.keys().filter(|k| !b.contains_key(*k)).count();
        let other = after.iter().filter(|(k, next)| before.get(*k).is_some_and(|was| was != *next));
        let (added, removed) = (only(&after, &before), only(&before, &after));
        let what = format!("{added} added, {removed} removed, {} changed", other.count());
        self.add(How::Changed, "route", None, what);
    }
}

/// The next step by packet type and stage, all by their names.
type Routes<'a> = BTreeMap<(&'a str, &'a str), &'a str>;

fn routes(plan: &Plan) -> Routes<'_> {
    let nf = |nf: NfIndex| plan.nfs.get(usize::from(nf.0)).map_or("", |nf| nf.name.as_str());
    let input = |at: PortIndex| plan.inputs.get(usize::from(at.0)).map_or("", |i| i.name.as_str());
    let mut routes = Routes::new();
    for (number, name) in plan.types.iter().enumerate() {
        for stage in plan.routing.routes.stages() {
            let next = match plan.routing.routes.next(PacketType(number as u16), stage) {
                Next::Nowhere => continue,
                Next::Nf(at) => nf(at),
                Next::Output(at) => {
                    plan.outputs.get(usize::from(at)).map_or("", |output| output.name.as_str())
                }
                Next::Egress => "egress",
                Next::Drop => "drop",
            };
            let from = match stage {
                Stage::Ingress(at) => input(at),
                Stage::Behind(at) => nf(at),
            };
            routes.insert((name, from), next);
        }
    }
    routes
}

/// The names of ports, each with what it is.
fn titles<B: PortBlueprint + ?Sized>(ports: &[PortPlan<B>]) -> Vec<(String, String)> {
    ports.iter().map(|port| (port.name.clone(), port.blueprint.title())).collect()
}
