//! Graphviz and Mermaid accept what is drawn, whatever the names.

use std::collections::BTreeSet;
use std::process::Command;

use thalweg_io::kind::Capabilities;
use thalweg_testkit::peer;

use super::{Graph, Nf, Port, TypeWay};

const ODD: [&str; 8] = [
    "plain",
    "a \"quoted\" name",
    "[b] {c} (d) <e> |f|",
    "end",
    "back\\slash \\N \\",
    "two\nlines & &amp; #quot; `x`; %%",
    "--> n0 -- |y|",
    "\u{1b}[31m\u{7}\u{ffff} ü",
];

/// A chain all of whose names are `name`, or have it in them.
fn chain(name: &str) -> Graph {
    let named = |prefix: &str| format!("{prefix}{name}");
    let way = |from: &str, nf: &str, to: &str| vec![from.to_owned(), nf.to_owned(), to.to_owned()];
    let nf = |name: String, pinned: bool| {
        let core = pinned.then_some(3);
        Nf { name, kind: "filter".into(), what: "any".into(), pinned, core, on_overload: None }
    };
    let port = |name: &str, kind, title: String| Port {
        name: name.to_owned(),
        kind,
        what: String::new(),
        mode: None,
        link: None,
        capabilities: Capabilities::default(),
        title,
    };
    Graph {
        inputs: vec![
            port(&named("p"), "capture", named("capture in/")),
            port("live", "interface", "interface eth1".into()),
            port("made", "generator", "generator: 10 generated packets in 1 flow".into()),
        ],
        outputs: vec![
            port(&named("p"), "capture", named("capture out/")),
            port("nowhere", "discard", "discard".into()),
        ],
        workers: 2,
        cores: vec![1, 2],
        nfs: vec![nf(named("n"), true), nf("other".into(), false)],
        types: vec![
            TypeWay { name: named("t"), way: way("ingress", &named("n"), "egress") },
            TypeWay { name: "u".into(), way: way(&named("p"), "other", &named("p")) },
            TypeWay { name: "v".into(), way: way("live", "other", "drop") },
        ],
        packet_types: 3,
        rules: 2,
    }
}

/// The text of a label of Mermaid.
fn shown(label: &str) -> String {
    let mut text = String::new();
    let mut rest = label;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("<br/>") {
            text.push('\n');
            rest = after;
        } else if let Some(code) = rest.strip_prefix('#') {
            let (number, after) = code.split_once(';').expect("a code ends");
            text.push(char::from_u32(number.parse().expect("a number")).expect("a character"));
            rest = after;
        } else {
            assert!(c.is_alphanumeric() || " .,:-_/".contains(c), "{c} in {label}");
            text.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    text
}

/// The labels of the nodes, and the arrows with theirs, of a flowchart of Mermaid.
fn read_mermaid(text: &str) -> (Vec<String>, Vec<(usize, usize, String)>) {
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("flowchart LR"));
    let (mut nodes, mut arrows) = (Vec::new(), Vec::new());
    let number = |id: &str| id.strip_prefix('n').and_then(|n| n.parse::<usize>().ok());
    for line in lines {
        let line = line.strip_prefix("  n").unwrap_or_else(|| panic!("'{line}'"));
        let digits = line.find(|c: char| !c.is_ascii_digit()).expect("more than a number");
        let (id, rest) = line.split_at(digits);
        let id: usize = id.parse().expect("a number");
        if let Some(arrow) = rest.strip_prefix(" -->") {
            let (label, to) = arrow.rsplit_once(' ').expect("an arrow ends at a node");
            let label = label.strip_prefix("|\"").map(|l| l.strip_suffix("\"|").expect("closed"));
            arrows.push((id, number(to).expect("a node"), label.map_or(String::new(), shown)));
            continue;
        }
        assert_eq!(id, nodes.len(), "nodes are numbered in their order");
        let shapes = [("([\"", "\"])"), ("((\"", "\"))"), ("[\"", "\"]")];
        let label = shapes.iter().find_map(|(open, close)| {
            rest.strip_prefix(open).and_then(|rest| rest.strip_suffix(close))
        });
        nodes.push(shown(label.unwrap_or_else(|| panic!("'{rest}' has no shape"))));
    }
    (nodes, arrows)
}

#[test]
fn mermaid_shows_ports_nfs_their_kinds_and_the_types() {
    for name in ODD {
        let (nodes, arrows) = read_mermaid(&chain(name).to_mermaid());
        let clean = super::draw::printable(name);
        let expected = [
            format!("p{clean}\ncapture in/{clean}"),
            "live\ninterface eth1".into(),
            "made\ngenerator: 10 generated packets in 1 flow".into(),
            "ingress".into(),
            format!("n{clean}\nfilter\non its own worker on core 3"),
            "other\nfilter".into(),
            "egress".into(),
            "drop".into(),
            format!("p{clean}\ncapture out/{clean}"),
            "nowhere\ndiscard".into(),
        ];
        assert_eq!(nodes, expected);
        let hops: BTreeSet<_> = arrows.into_iter().collect();
        let t = format!("t{clean}");
        let hop = |from, to, types: &str| (from, to, types.to_owned());
        let expected = [
            hop(0, 3, ""),
            hop(1, 3, ""),
            hop(2, 3, ""),
            hop(3, 4, &t),
            hop(4, 6, &t),
            hop(6, 8, ""),
            hop(6, 9, ""),
            hop(0, 5, "u"),
            hop(5, 8, "u"),
            hop(1, 5, "v"),
            hop(5, 7, "v"),
        ];
        assert_eq!(hops, expected.into_iter().collect());
    }
}

/// The texts of a picture of Graphviz, one for each line of a label.
fn texts(dot: &str) -> Vec<String> {
    let svg = peer::output(Command::new("dot").arg("-Tsvg"), dot);
    let shown = |part: &str| {
        let text = part.split_once('>').expect("a tag ends").1.split_once("</text>");
        let mut text = text.expect("a text ends").0.replace("&#160;", " ");
        for (code, c) in [("lt", '<'), ("gt", '>'), ("quot", '"'), ("#45", '-'), ("amp", '&')] {
            text = text.replace(&format!("&{code};"), &c.to_string());
        }
        text
    };
    svg.split("<text ").skip(1).map(shown).collect()
}

#[test]
fn graphviz_shows_ports_nfs_their_kinds_and_the_types() {
    if !peer::is_there("dot", &["-V"]) {
        return;
    }
    for name in ODD {
        let texts = texts(&chain(name).to_dot());
        let clean = super::draw::printable(name);
        let labels = [
            format!("p{clean}\ncapture in/{clean}"),
            "live\ninterface eth1".into(),
            "made\ngenerator: 10 generated packets in 1 flow".into(),
            format!("n{clean}\nfilter\non its own worker on core 3"),
            "other\nfilter".into(),
            format!("p{clean}\ncapture out/{clean}"),
            "nowhere\ndiscard".into(),
            format!("t{clean}"),
            "u".into(),
            "v".into(),
        ];
        for line in labels.iter().flat_map(|label| label.lines()) {
            assert!(texts.iter().any(|text| text == line), "{line}: {texts:?}");
        }
    }
}
