//! Routes in the chain file: they are those of a routes file with a line for each pair of
//! neighbours, and every mistake in them is reported at its name or its pair.

mod common;

use common::{Folder, Tag};
use proptest::prelude::*;
use proptest::sample::select;
use thalweg_chain::Plan;
use thalweg_source::SourceError;

/// Two inputs, two outputs, three NFs and three packet types; routes follow.
const CHAIN: &str = r#"[input.lan]
capture = "in.pcap"
[input.wan]
capture = "in.pcap"
[output.left]
discard = true
[output.right]
discard = true
[nf.vpn]
kind = "test"
number = 0
[nf.ids]
kind = "test"
number = 1
[nf.edge]
kind = "test"
number = 2
[[class]]
type = "branch"
rules = ["udp"]
[[class]]
type = "web"
rules = ["tcp"]
"#;

fn folder(routes: &str) -> Folder {
    let folder = Folder::new();
    let tag = Tag { flow: 1, back: false, lineage: 0, sequence: 0 };
    folder.capture("in.pcap", &[tag]).write("chain.toml", &format!("{CHAIN}{routes}"));
    folder
}

/// The sections of routes, each a type and the names of its path.
fn sections(routes: &[(&str, &[&str])]) -> String {
    let section = |(packet_type, path): &(&str, &[&str])| {
        let packet_type = match *packet_type {
            "*" => String::new(),
            name => format!("type = '{name}'\n"),
        };
        format!("[[route]]\n{packet_type}path = {path:?}\n")
    };
    routes.iter().map(section).collect()
}

/// Loads the same chain with a routes file.
fn in_file(folder: &Folder, lines: &str) -> Result<Plan, Vec<SourceError>> {
    folder.write("routes.csv", lines).write("chain.toml", CHAIN);
    folder.load_with("routes = 'routes.csv'\n")
}

#[track_caller]
fn mistakes(routes: &[(&str, &[&str])]) -> Vec<String> {
    folder(&sections(routes)).mistakes()
}

const WHOLE: (&str, &[&str]) = ("*", &["ingress", "vpn", "ids", "edge", "egress"]);

#[test]
fn each_pair_of_neighbours_is_a_route() {
    let paths = [
        WHOLE,
        ("web", &["wan", "edge", "left"]),
        ("branch", &["ids", "drop"]),
        ("branch", &["lan", "ids"]),
    ];
    let lines = "*,ingress,vpn\n*,vpn,ids\n*,ids,edge\n*,edge,egress\n\
        web,wan,edge\nweb,edge,left\nbranch,ids,drop\nbranch,lan,ids\n";
    let folder = folder(&sections(&paths));
    let plan = folder.load().unwrap();
    assert!(plan.warnings().is_empty());
    assert_eq!(plan.graph().to_tree(), in_file(&folder, lines).unwrap().graph().to_tree());
}

#[test]
fn routes_stand_in_one_place() {
    let both = folder(&sections(&[WHOLE]));
    both.write("routes.csv", "*,ingress,vpn\n");
    let mistakes = both.load_with("routes = 'routes.csv'\n").err().unwrap();
    let [mistake] = &mistakes[..] else { panic!("{mistakes:?}") };
    let text = mistake.to_string();
    assert!(
        text.ends_with(
            "chain.toml:1:1: the routes are in a file, and in [[route]] in line 25: 'routes'; \
             expected either routes = \"FILE\" or [[route]]"
        ),
        "{text}"
    );
    for none in ["", "[[class]]\ntype = 'x'\nrules = ['arp']\n"] {
        assert_eq!(
            folder(none).mistakes(),
            ["chain.toml:1:1: the chain has no routes; \
              expected routes = \"FILE\", or a section [[route]]"]
        );
    }
    assert!(folder("").load_with("route = []\n").is_err());
    let not_a_list = folder("[route]\npath = ['ingress', 'drop']\n").mistakes();
    assert!(not_a_list[0].contains("'route' is not a list of sections"), "{not_a_list:?}");
}

#[test]
fn names_that_a_path_cannot_have_are_each_reported_once() {
    assert_eq!(
        mistakes(&[
            ("bogus", &["ingress", "vpn"]),
            ("*", &["left", "idss", "nowhere"]),
            ("*", &["ingress", "egress", "vpn", "wan", "right"]),
        ]),
        [
            "chain.toml:25:8: unknown packet type: ''bogus''; \
             expected one of: other, branch, web, *",
            "chain.toml:28:9: unknown NF or input: '\"left\"'; \
             expected one of: ingress, lan, wan, vpn, ids, edge",
            "chain.toml:28:17: unknown NF: '\"idss\"'; expected one of: vpn, ids, edge",
            "chain.toml:28:25: unknown NF or output: '\"nowhere\"'; \
             expected one of: vpn, ids, edge, left, right, egress, drop",
            "chain.toml:30:20: 'egress' can only be the last of a path: '\"egress\"'; \
             expected an NF, or no further names",
            "chain.toml:30:37: 'wan' can only be the first of a path: '\"wan\"'; expected an NF",
        ]
    );
}

#[test]
fn a_path_has_a_start_and_an_end() {
    for path in [&[][..], &["ingress"]] {
        let mistakes = mistakes(&[WHOLE, ("*", path)]);
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        let start = "chain.toml:27:8: a path needs a start and an end: ";
        assert!(mistakes[0].starts_with(start), "{mistakes:?}");
    }
    for (section, part) in [
        ("[[route]]\n", "missing field `path`"),
        ("[[route]]\npath = 'ingress, vpn'\n", "invalid type: string"),
        ("[[route]]\npaths = ['ingress', 'vpn']\n", "unknown field `paths`"),
    ] {
        // A path that cannot be read is no reason to report NFs that it may lead to.
        let mistakes = folder(&format!("{section}{}", sections(&[("*", &["lan", "drop"])])));
        let mistakes = mistakes.mistakes();
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        assert!(mistakes[0].contains(part), "{mistakes:?}");
        assert!(mistakes[0].ends_with("expected [[route]] with: type, path"), "{mistakes:?}");
    }
}

#[test]
fn a_second_step_from_one_stage_names_the_first() {
    assert_eq!(
        mistakes(&[WHOLE, ("*", &["lan", "ids", "edge", "left"])]),
        [
            "chain.toml:27:16: duplicate route; the first is in line 25: '\"ids\", \"edge\"'; \
             expected one step from 'ids' per type; a path may end at 'ids'",
            "chain.toml:27:23: duplicate route; the first is in line 25: '\"edge\", \"left\"'; \
             expected one step from 'edge' per type; a path may end at 'edge'",
        ]
    );
    assert!(folder(&sections(&[WHOLE, ("*", &["lan", "ids"])])).load().is_ok());
}

#[test]
fn paths_that_end_too_early_or_never_or_miss_an_nf() {
    assert_eq!(
        mistakes(&[("web", &["ingress", "vpn", "ids", "edge", "left"])]),
        [
            "chain.toml:1:1: packets of type 'other' have no route from 'ingress'; \
             expected a [[route]] of type 'other' (or '*') with a name after 'ingress'",
            "chain.toml:1:1: packets of type 'branch' have no route from 'ingress'; \
             expected a [[route]] of type 'branch' (or '*') with a name after 'ingress'",
        ]
    );
    assert_eq!(
        mistakes(&[WHOLE, ("web", &["edge", "vpn"])]),
        ["chain.toml:28:9: packets of type 'web' loop forever: vpn -> ids -> edge -> vpn: \
          '\"edge\", \"vpn\"'; expected a path to 'egress', an output or 'drop'"]
    );
    assert_eq!(
        mistakes(&[("*", &["ingress", "vpn", "edge", "left"])]),
        ["chain.toml:1:1: no packet reaches NF 'ids'; expected a route to each NF"]
    );
}

#[test]
fn a_step_that_no_packet_takes_is_a_warning() {
    let plan =
        folder(&sections(&[WHOLE, ("web", &["ingress", "left"]), ("web", &["ids", "left"])]));
    let warnings = plan.load().unwrap().warnings();
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    let text = warning.to_string();
    assert!(
        text.ends_with(
            "chain.toml:31:9: no packet takes this route: '\"ids\", \"left\"'; \
             expected a route that leads here, or no such step"
        ),
        "{text}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// Paths are accepted exactly if a file with their pairs is, and give the same chain.
    #[test]
    fn paths_are_the_lines_of_their_pairs(
        paths in prop::collection::vec(
            (
                select(vec!["*", "*", "other", "branch", "web"]),
                select(vec!["ingress", "ingress", "lan", "wan", "vpn", "ids", "edge"]),
                prop::collection::vec(select(vec!["vpn", "ids", "edge"]), 0..3),
                select(vec!["vpn", "ids", "edge", "egress", "left", "right", "drop"]),
            ),
            0..3,
        ),
        whole in prop::bool::weighted(0.8),
    ) {
        let mut all: Vec<(&str, Vec<&str>)> = Vec::new();
        if whole {
            all.push((WHOLE.0, WHOLE.1.to_vec()));
        }
        for (packet_type, first, between, last) in paths {
            all.push((packet_type, [&[first], &between[..], &[last]].concat()));
        }
        let pairs = all.iter().flat_map(|(t, path)| path.windows(2).map(move |pair| (t, pair)));
        let lines = pairs.map(|(t, pair)| format!("{t},{},{}\n", pair[0], pair[1]));
        let lines: String = lines.collect();
        let all: Vec<_> = all.iter().map(|(t, path)| (*t, &path[..])).collect();
        let folder = folder(&sections(&all));
        match (folder.load(), in_file(&folder, &lines)) {
            (Ok(paths), Ok(lines)) => {
                prop_assert_eq!(paths.graph().to_tree(), lines.graph().to_tree());
                prop_assert_eq!(paths.warnings().len(), lines.warnings().len());
            }
            // A chain without routes is refused before they are read.
            (Err(paths), Err(lines)) => prop_assert!(all.is_empty() || paths.len() == lines.len()),
            (paths, lines) => prop_assert!(false, "{:?} {:?}", paths.err(), lines.err()),
        }
    }
}
