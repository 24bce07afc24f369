//! A chain as a graph, for `thalweg check`.

mod draw;
#[cfg(test)]
mod tests;

use std::fmt::Write;

use schemars::JsonSchema;
use serde::Serialize;
use thalweg_cpu::cores::as_text;
use thalweg_io::kind::{Capabilities, Link, PortBlueprint};
use thalweg_packet::{PacketType, PortIndex};

use thalweg_source::{counted, visible};

use crate::config::{Plan, PortPlan, distinct_inputs};
use crate::overload::OnOverload;
use crate::route_decider::{Next, NfIndex, Stage};

/// A chain: its ports and NFs, and the path of each packet type.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Graph {
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    /// Worker threads.
    workers: usize,
    /// The core of each worker, by its number; absent if they may use any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cores: Vec<u32>,
    nfs: Vec<Nf>,
    /// The path of each packet type; one for each input where inputs differ.
    types: Vec<TypeWay>,
    packet_types: usize,
    /// The number of rules of all classes.
    rules: usize,
}

/// A port of a chain.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// The name of its kind: `interface`, `capture`, `generator`, `discard`, or that of a kind of
    /// your own.
    pub kind: &'static str,
    /// The interface, the files or the traffic.
    pub what: String,
    /// How packets pass, in a few words: the format of a capture; of an interface what the system
    /// provides, once it is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// The state of its link, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
    /// What its kind can do.
    pub capabilities: Capabilities,
    /// What it is, where nothing else names its kind.
    #[serde(skip)]
    title: String,
}

impl Port {
    fn of<B: PortBlueprint + ?Sized>(port: &PortPlan<B>) -> Self {
        let blueprint = &port.blueprint;
        Self {
            name: port.name.clone(),
            kind: port.kind.name,
            what: blueprint.describe(),
            mode: port.mode(),
            link: port.link(),
            capabilities: blueprint.capabilities(),
            title: blueprint.title(),
        }
    }

    /// What it is, with the state of its link.
    fn shown(&self) -> String {
        let what = visible(&self.what);
        match &self.link {
            Some(link) if *link != Link::default() => format!("{what} ({link})"),
            _ => what.into_owned(),
        }
    }
}

/// An NF of a chain.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Nf {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Its options, in words.
    pub what: String,
    /// Whether it runs on its own worker.
    pub pinned: bool,
    /// The core of that worker; absent if it may use any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub core: Option<u32>,
    /// What becomes of packets that are late when they reach it; absent if they wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_overload: Option<OnOverload>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
struct TypeWay {
    name: String,
    /// The steps from `ingress`, or from an input where inputs differ, to the end.
    way: Vec<String>,
}

impl Nf {
    /// The worker of its own, in words, if it has one.
    fn worker(&self) -> Option<String> {
        let core = self.core.map_or(String::new(), |core| format!(" on core {core}"));
        self.pinned.then(|| format!("on its own worker{core}"))
    }
}

/// Cores in words, such as `cores 2-3,8`.
pub fn on_cores(cores: &[u32]) -> String {
    let s = if cores.len() == 1 { "" } else { "s" };
    format!("core{s} {}", as_text(cores))
}

impl Plan {
    /// The chain as a graph.
    pub fn graph(&self) -> Graph {
        Graph::of(self)
    }
}

impl Graph {
    /// The inputs, in the order of the chain file.
    pub fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    /// The outputs, in the order of the chain file.
    pub fn outputs(&self) -> &[Port] {
        &self.outputs
    }

    /// The NFs, in the order of the chain file.
    pub fn nfs(&self) -> &[Nf] {
        &self.nfs
    }

    fn of(plan: &Plan) -> Self {
        let inputs = plan.inputs.iter().map(Port::of);
        let outputs = plan.outputs.iter().map(Port::of);
        let nfs = plan.nfs.iter().map(|nf| Nf {
            name: nf.name.clone(),
            kind: nf.kind.name.to_owned(),
            what: nf.blueprint.describe(),
            pinned: nf.pinned,
            core: nf.core,
            on_overload: nf.overload.map(|overload| overload.action),
        });
        let routes = &plan.routing.routes;
        let types = plan.types.iter().enumerate().flat_map(|(number, name)| {
            let packet_type = PacketType(number as u16);
            let inputs = distinct_inputs(routes, plan.inputs.len(), packet_type);
            inputs.into_iter().map(move |input| TypeWay {
                name: name.clone(),
                way: way(plan, packet_type, input),
            })
        });
        Self {
            inputs: inputs.collect(),
            outputs: outputs.collect(),
            workers: plan.workers,
            cores: plan.cores.iter().copied().take(plan.workers).collect(),
            nfs: nfs.collect(),
            types: types.collect(),
            packet_types: plan.types.len(),
            rules: plan.rules.load().len(),
        }
    }

    /// A tree: for each packet type its NFs, each below the one before.
    pub fn to_tree(&self) -> String {
        let mut text = String::new();
        for port in &self.inputs {
            let _ = writeln!(text, "input {}: {}", port.name, port.shown());
        }
        if !self.cores.is_empty() {
            let workers = counted(self.workers, "worker");
            let _ = writeln!(text, "{workers} on {}", on_cores(&self.cores));
        }
        let _ = writeln!(
            text,
            "classification: {}, {}",
            counted(self.rules, "rule"),
            counted(self.packet_types, "packet type")
        );
        for (i, packet_type) in self.types.iter().enumerate() {
            let last = i + 1 == self.types.len();
            let (branch, indent) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            let from = match packet_type.way.first().map(String::as_str) {
                None | Some("ingress") => String::new(),
                Some(input) => format!(" from {input}"),
            };
            let _ = writeln!(text, "{branch}{}{from}", packet_type.name);
            for (depth, step) in packet_type.way.iter().skip(1).enumerate() {
                let what = self.nfs.iter().find(|nf| nf.name == *step);
                let what = what.map_or(String::new(), |nf| {
                    let pinned = nf.worker().map_or(String::new(), |on| format!(", {on}"));
                    let late = nf.on_overload.map_or("", |action| match action {
                        OnOverload::Bypass => ", late packets bypass it",
                        OnOverload::Drop => ", late packets are dropped",
                    });
                    format!(" ({}: {}{pinned}{late})", nf.kind, visible(&nf.what))
                });
                let _ = writeln!(text, "{indent}{}└─ {step}{what}", "   ".repeat(depth));
            }
        }
        for port in &self.outputs {
            let _ = writeln!(text, "output {}: {}", port.name, port.shown());
        }
        text
    }
}

fn way(plan: &Plan, packet_type: PacketType, input: Option<PortIndex>) -> Vec<String> {
    let from = input.and_then(|input| plan.inputs.get(usize::from(input.0)));
    let mut way = vec![from.map_or("ingress", |input| &input.name).to_owned()];
    let mut stage = Stage::Ingress(input.unwrap_or(PortIndex(0)));
    // Loading has ensured that each path ends.
    for _ in 0..=plan.nfs.len() {
        match plan.routing.routes.next(packet_type, stage) {
            Next::Nf(nf @ NfIndex(i)) => {
                way.push(plan.nfs[usize::from(i)].name.clone());
                stage = Stage::Behind(nf);
            }
            Next::Output(port) => {
                way.push(plan.outputs[usize::from(port)].name.clone());
                break;
            }
            Next::Egress => {
                way.push("egress".into());
                break;
            }
            Next::Drop | Next::Nowhere => {
                way.push("drop".into());
                break;
            }
        }
    }
    way
}
