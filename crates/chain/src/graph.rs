//! A chain as a graph, for `thalweg check`.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;
use thalweg_packet::{PacketType, PortIndex};

use thalweg_source::{counted, visible};

use crate::config::{InputSource, OutputTarget, Plan, distinct_inputs};
use crate::route_decider::{Next, NfIndex, Stage};

/// A chain: its ports and NFs, and the path of each packet type.
#[derive(Clone, Debug, Serialize)]
pub struct Graph {
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    nfs: Vec<Nf>,
    types: Vec<TypeWay>,
    packet_types: usize,
    rules: usize,
}

#[derive(Clone, Debug, Serialize)]
struct Port {
    name: String,
    what: String,
}

#[derive(Clone, Debug, Serialize)]
struct Nf {
    name: String,
    kind: String,
    what: String,
    pinned: bool,
}

#[derive(Clone, Debug, Serialize)]
struct TypeWay {
    name: String,
    /// The steps from `ingress`, or from an input where inputs differ, to the end.
    way: Vec<String>,
}

impl Plan {
    /// The chain as a graph.
    pub fn graph(&self) -> Graph {
        Graph::of(self)
    }
}

impl Graph {
    fn of(plan: &Plan) -> Self {
        let inputs = plan.inputs.iter().map(|p| Port {
            name: p.name.clone(),
            what: match &p.source {
                InputSource::Interface { name, .. } => format!("interface {name}"),
                InputSource::Capture { path, .. } => path.display().to_string(),
                InputSource::Generate(spec) => {
                    let flows = counted(spec.flows, "flow");
                    format!("{} in {flows}", counted(spec.packets, "generated packet"))
                }
            },
        });
        let outputs = plan.outputs.iter().map(|p| Port {
            name: p.name.clone(),
            what: match &p.target {
                OutputTarget::Interface(name) => format!("interface {name}"),
                OutputTarget::Capture(path) => path.display().to_string(),
                OutputTarget::Discard => "discard".into(),
            },
        });
        let nfs = plan.nfs.iter().map(|nf| Nf {
            name: nf.name.clone(),
            kind: nf.kind.name.to_owned(),
            what: nf.blueprint.describe(),
            pinned: nf.has_own_worker(plan.workers),
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
            let _ = writeln!(text, "input {}: {}", port.name, visible(&port.what));
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
                    let pinned = if nf.pinned { ", on its own worker" } else { "" };
                    format!(" ({}: {}{pinned})", nf.kind, visible(&nf.what))
                });
                let _ = writeln!(text, "{indent}{}└─ {step}{what}", "   ".repeat(depth));
            }
        }
        for port in &self.outputs {
            let _ = writeln!(text, "output {}: {}", port.name, visible(&port.what));
        }
        text
    }

    /// A directed graph for Graphviz.
    pub fn to_dot(&self) -> String {
        let mut text = String::from("digraph chain {\n  rankdir=LR;\n  node [shape=box];\n");
        for nf in &self.nfs {
            let _ = writeln!(
                text,
                "  {} [label={}];",
                quote(&nf.name),
                quote(&format!("{}\n{}", nf.name, nf.kind))
            );
        }
        for ((from, to), types) in self.edges() {
            let _ = writeln!(
                text,
                "  {} -> {} [label={}];",
                quote(from),
                quote(to),
                quote(&types.join(", "))
            );
        }
        text.push_str("}\n");
        text
    }

    /// A flowchart for Mermaid.
    pub fn to_mermaid(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        let mut lines = String::new();
        for ((from, to), types) in self.edges() {
            let mut id = |name| {
                let at = names.iter().position(|n| *n == name).unwrap_or_else(|| {
                    names.push(name);
                    names.len() - 1
                });
                format!("n{at}")
            };
            let (from, to) = (id(from), id(to));
            let _ = writeln!(lines, "  {from} -->|{}| {to}", types.join(", "));
        }
        let mut text = String::from("flowchart LR\n");
        for (i, name) in names.iter().enumerate() {
            let _ = writeln!(text, "  n{i}[{name}]");
        }
        text + &lines
    }

    /// Each hop once, with the packet types that take it.
    fn edges(&self) -> BTreeMap<(&str, &str), Vec<&str>> {
        let mut edges: BTreeMap<_, Vec<&str>> = BTreeMap::new();
        for packet_type in &self.types {
            for hop in packet_type.way.windows(2) {
                edges
                    .entry((hop[0].as_str(), hop[1].as_str()))
                    .or_default()
                    .push(&packet_type.name);
            }
        }
        edges
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

fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}
