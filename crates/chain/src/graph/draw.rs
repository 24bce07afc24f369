//! A chain as a drawing: nodes and arrows, for Graphviz and Mermaid.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{Graph, Nf, Port};

/// The nodes of a chain and the arrows between them.
struct Drawing<'a> {
    nodes: Vec<Node<'a>>,
    arrows: Vec<Arrow>,
}

struct Node<'a> {
    name: &'a str,
    role: Role,
    /// The lines of its label.
    lines: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Input,
    /// `ingress`, `egress` or `drop`.
    End,
    Nf,
    Output,
}

/// An arrow between two nodes, by their numbers, with the packet types that take it; without types
/// it joins ports to `ingress` and `egress`.
struct Arrow {
    from: usize,
    to: usize,
    types: String,
}

impl Graph {
    /// A directed graph for Graphviz.
    pub fn to_dot(&self) -> String {
        let drawing = Drawing::new(self);
        let mut text = String::from("digraph chain {\n  rankdir=LR;\n  node [shape=box];\n");
        for node in &drawing.nodes {
            let shape = match node.role {
                Role::Input | Role::Output => ", shape=oval",
                Role::End => ", shape=plaintext",
                Role::Nf => "",
            };
            let label = node.lines.join("\n");
            let _ = writeln!(text, "  {} [label={}{shape}];", node.dot_id(), dot_label(&label));
        }
        for Arrow { from, to, types } in &drawing.arrows {
            let [from, to] = [*from, *to].map(|node| drawing.nodes[node].dot_id());
            let label = match types.as_str() {
                "" => String::new(),
                types => format!(" [label={}]", dot_label(types)),
            };
            let _ = writeln!(text, "  {from} -> {to}{label};");
        }
        text.push_str("}\n");
        text
    }

    /// A flowchart for Mermaid.
    pub fn to_mermaid(&self) -> String {
        let drawing = Drawing::new(self);
        let mut text = String::from("flowchart LR\n");
        for (number, node) in drawing.nodes.iter().enumerate() {
            let (open, close) = match node.role {
                Role::Input | Role::Output => ("([", "])"),
                Role::End => ("((", "))"),
                Role::Nf => ("[", "]"),
            };
            let label = mermaid_label(&node.lines.join("\n"));
            let _ = writeln!(text, "  n{number}{open}{label}{close}");
        }
        for Arrow { from, to, types } in &drawing.arrows {
            let label = match types.as_str() {
                "" => String::new(),
                types => format!("|{}|", mermaid_label(types)),
            };
            let _ = writeln!(text, "  n{from} -->{label} n{to}");
        }
        text
    }
}

impl<'a> Drawing<'a> {
    fn new(graph: &'a Graph) -> Self {
        let is_taken = |end: &str| {
            graph.types.iter().any(|packet_type| packet_type.way.iter().any(|step| step == end))
        };
        let end = |name: &'static str| {
            is_taken(name).then(|| Node { name, role: Role::End, lines: vec![name.to_owned()] })
        };
        let mut nodes: Vec<Node<'a>> = Vec::new();
        nodes.extend(graph.inputs.iter().map(|port| Node::port(port, Role::Input)));
        nodes.extend(end("ingress"));
        nodes.extend(graph.nfs.iter().map(Node::nf));
        nodes.extend(["egress", "drop"].into_iter().filter_map(end));
        nodes.extend(graph.outputs.iter().map(|port| Node::port(port, Role::Output)));
        let mut drawing = Self { nodes, arrows: Vec::new() };
        drawing.join_inputs();
        drawing.hops(graph);
        drawing.join_outputs();
        drawing
    }

    /// The nodes of a role.
    fn of_role(&self, role: Role) -> Vec<usize> {
        (0..self.nodes.len()).filter(|node| self.nodes[*node].role == role).collect()
    }

    fn end(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.role == Role::End && node.name == name)
    }

    fn join_inputs(&mut self) {
        let Some(ingress) = self.end("ingress") else { return };
        let joined = self.of_role(Role::Input).into_iter();
        let arrow = |from| Arrow { from, to: ingress, types: String::new() };
        self.arrows.extend(joined.map(arrow));
    }

    fn join_outputs(&mut self) {
        let Some(egress) = self.end("egress") else { return };
        let joined = self.of_role(Role::Output).into_iter();
        let arrow = |to| Arrow { from: egress, to, types: String::new() };
        self.arrows.extend(joined.map(arrow));
    }

    /// Adds each hop once, with the packet types that take it.
    fn hops(&mut self, graph: &Graph) {
        // An input and an output may share a name: a path begins at the one and ends at the other.
        let find = |name: &str, other_than: Role| {
            let is_it = |node: &Node<'_>| node.name == name && node.role != other_than;
            self.nodes.iter().position(is_it)
        };
        let mut hops: BTreeMap<_, Vec<&str>> = BTreeMap::new();
        for packet_type in &graph.types {
            for hop in packet_type.way.windows(2) {
                let ends = (find(&hop[0], Role::Output), find(&hop[1], Role::Input));
                if let (Some(from), Some(to)) = ends {
                    hops.entry((from, to)).or_default().push(&packet_type.name);
                }
            }
        }
        let arrow =
            |((from, to), types): (_, Vec<&str>)| Arrow { from, to, types: types.join(", ") };
        self.arrows.extend(hops.into_iter().map(arrow));
    }
}

impl<'a> Node<'a> {
    fn port(port: &'a Port, role: Role) -> Self {
        Self { name: &port.name, role, lines: vec![port.name.clone(), port.title.clone()] }
    }

    fn nf(nf: &'a Nf) -> Self {
        let mut lines = vec![nf.name.clone(), nf.kind.clone()];
        lines.extend(nf.worker());
        Self { name: &nf.name, role: Role::Nf, lines }
    }

    /// Its identifier in Graphviz. No name has a comma, so that those of ports differ from all
    /// others.
    fn dot_id(&self) -> String {
        match self.role {
            Role::Input => dot_string(&format!("input,{}", self.name)),
            Role::Output => dot_string(&format!("output,{}", self.name)),
            Role::End | Role::Nf => dot_string(self.name),
        }
    }
}

/// A string of Graphviz.
fn dot_string(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A label of Graphviz, which reads HTML's entities in it and, after a backslash, its own.
fn dot_label(text: &str) -> String {
    dot_string(&printable(text).replace('&', "&amp;")).replace('\n', "\\n")
}

/// A label of Mermaid: letters, digits and plain punctuation, other characters by their numbers.
fn mermaid_label(text: &str) -> String {
    let mut label = String::from("\"");
    for c in printable(text).chars() {
        match c {
            '\n' => label.push_str("<br/>"),
            ' ' | '.' | ',' | ':' | '-' | '_' | '/' => label.push(c),
            _ if c.is_alphanumeric() => label.push(c),
            _ => {
                let _ = write!(label, "#{};", u32::from(c));
            }
        }
    }
    label.push('"');
    label
}

/// The text with a sign in the place of each character that controls a terminal or is not allowed
/// in SVG.
pub(super) fn printable(text: &str) -> String {
    let is_odd = |c: char| c.is_control() && c != '\n' || matches!(c, '\u{fffe}' | '\u{ffff}');
    text.replace(is_odd, "\u{fffd}")
}
