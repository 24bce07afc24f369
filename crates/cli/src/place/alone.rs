//! A chain with a single NF of another one, between captures in memory and outputs that discard.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use thalweg_chain::{Kinds, NfPlan, OnDevice, Plan, PlanOptions};
use thalweg_nf::DEFAULT_FAILED_AFTER_MS;
use thalweg_nf::device::DevicePlace;
use thalweg_source::{Source, SourceError};
use toml::{Table, Value};

use super::traffic::Traffic;

/// The processor as a place.
pub(super) const CPU: &str = "cpu";
/// The device that shares any memory.
pub(super) const SOFT: &str = "soft";

/// The plan of a chain with `nf`, which is one of `plan`, at a place. Its packets have the types of
/// `plan`, whose ports have the same numbers and names, and the NF writes no files.
///
/// # Errors
/// Why there is none, such as no memory of the device.
pub(super) fn plan(
    plan: &Plan,
    nf: &NfPlan,
    at: &str,
    traffic: &Traffic,
    kinds: &Kinds,
) -> Result<Plan, String> {
    let text = text(plan, &nf.name, at, traffic);
    let options = PlanOptions::default();
    let words = |all: Vec<SourceError>| {
        all.iter().map(|e| e.message().to_owned()).collect::<Vec<_>>().join("; ")
    };
    let mut alone = Plan::of_text(&Source::new("", text), kinds, options).map_err(words)?;
    let types = |plan: &Plan| plan.types.iter().cloned().collect::<Vec<_>>();
    if types(&alone) != types(plan) {
        return Err("its packet types have other numbers when it is alone".into());
    }
    alone.rules = plan.rules.clone();
    alone.classifier = plan.classifier;
    if let Some(routing) = Arc::get_mut(&mut alone.routing) {
        routing.decapsulate = plan.routing.decapsulate;
    }
    let own = alone.nfs.first_mut().ok_or("it has no place in a chain of its own")?;
    own.kind = nf.kind;
    own.blueprint = nf.blueprint.clone();
    let device = nf.device.as_ref();
    own.device = (at != CPU).then(|| OnDevice {
        place: DevicePlace {
            at: at.to_owned(),
            work_groups: device.map_or(1, |d| d.place.work_groups),
            patience: device
                .map_or(Duration::from_millis(DEFAULT_FAILED_AFTER_MS), |d| d.place.patience),
        },
        falls_back: false,
    });
    Ok(alone)
}

fn table(entries: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    Value::Table(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

fn strings<'a>(all: impl IntoIterator<Item = &'a str>) -> Value {
    Value::Array(all.into_iter().map(Value::from).collect())
}

/// A path in a chain file, whose strings have variables.
fn path(path: &Path) -> Value {
    path.display().to_string().replace("${", "$${").into()
}

/// The text of the chain, with an NF that forwards all packets in the place of the one to measure.
fn text(plan: &Plan, nf: &str, at: &str, traffic: &Traffic) -> String {
    let mut memory = Table::new();
    memory.insert("frame_size".into(), (plan.pool.frame_size() as i64).into());
    if at != CPU && at != SOFT {
        memory.insert("device".into(), at.into());
        memory.insert("launches".into(), plan.launches.name().into());
    }
    let input = |(number, input): (usize, &thalweg_chain::InputPlan)| {
        let section = match traffic.captures.get(number).and_then(Option::as_ref) {
            Some(capture) => {
                table([("capture", path(capture)), ("memory", true.into()), ("loop", 0.into())])
            }
            None => table([("generate", table([("packets", 1.into())]))]),
        };
        (input.name.clone(), section)
    };
    let inputs: Table = plan.inputs.iter().enumerate().map(input).collect();
    let discards = |output: &thalweg_chain::OutputPlan| {
        (output.name.clone(), table([("discard", true.into())]))
    };
    let outputs: Table = plan.outputs.iter().map(discards).collect();
    let forwards = table([("kind", "filter".into()), ("default", "accept".into())]);
    let out = plan.outputs.first().map_or("egress", |output| &*output.name);
    let route = table([("path", strings(["ingress", nf, out]))]);
    let mut chain = Table::new();
    // Types have numbers in the order of their classes; the rules are replaced.
    let mut types = plan.types.iter();
    if let Some(default) = types.next() {
        chain.insert("default_type".into(), default.clone().into());
    }
    let class = |name: &String| table([("type", name.clone().into()), ("rules", strings(["arp"]))]);
    let classes: Vec<Value> = types.map(class).collect();
    if !classes.is_empty() {
        chain.insert("class".into(), classes.into());
    }
    chain.insert("run".into(), table([("workers", 1.into())]));
    chain.insert("memory".into(), memory.into());
    chain.insert("input".into(), inputs.into());
    chain.insert("output".into(), outputs.into());
    chain.insert("nf".into(), Value::Table([(nf.to_owned(), forwards)].into_iter().collect()));
    chain.insert("route".into(), vec![route].into());
    chain.to_string()
}
