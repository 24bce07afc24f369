//! The route table compared with a naive map, and every mistake it may hold.

use std::collections::HashMap;

use proptest::prelude::*;
use proptest::sample::select;
use thalweg_chain::{Names, Next, NfIndex, Stage, read_routes};
use thalweg_packet::{PacketType, PortIndex};
use thalweg_source::Source;

fn names() -> Names {
    let list = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    Names {
        types: list("other branch web").into_iter().collect(),
        nfs: list("vpn ids edge"),
        choosers: vec![false, false, true],
        inputs: list("lan wan"),
        outputs: list("left right"),
    }
}

fn mistakes(text: &str) -> Vec<String> {
    let errors = read_routes(&Source::new("routes.csv", text), &names()).unwrap_err();
    errors.iter().map(ToString::to_string).collect()
}

/// The answer by searching the lines themselves, the most specific first.
fn naive<'a>(lines: &'a HashMap<(&str, &str), &'a str>, t: &str, at: &str) -> Option<&'a str> {
    let is_input = ["lan", "wan"].contains(&at);
    let places = if is_input { vec![at, "ingress"] } else { vec![at] };
    let keys = [t, "*"].into_iter().flat_map(|t| places.iter().map(move |p| (t, *p)));
    keys.into_iter().find_map(|key| lines.get(&key).copied())
}

/// Where the naive walk of a type from an input ends; `None` when it does not.
fn naive_end<'a>(
    lines: &'a HashMap<(&str, &str), &'a str>,
    t: &str,
    input: &'a str,
) -> Option<(Vec<&'a str>, &'a str)> {
    let (mut at, mut way) = (input, Vec::new());
    loop {
        let next = naive(lines, t, at)?;
        if !["vpn", "ids", "edge"].contains(&next) {
            return Some((way, next));
        }
        if way.contains(&next) {
            return None;
        }
        way.push(next);
        at = next;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn the_table_is_taken_exactly_when_every_way_ends_and_answers_as_its_lines(
        lines in prop::collection::hash_map(
            (
                select(vec!["*", "*", "other", "branch", "web"]),
                select(vec!["ingress", "ingress", "lan", "wan", "vpn", "ids", "edge"]),
            ),
            select(vec!["vpn", "ids", "edge", "egress", "left", "right", "drop"]),
            4..16,
        ),
        base in prop::bool::weighted(0.8),
    ) {
        let mut lines = lines;
        if base {
            // Without these, very few tables would be whole.
            for (at, next) in [("ingress", "vpn"), ("vpn", "ids"), ("ids", "edge"), ("edge", "egress")] {
                lines.entry(("*", at)).or_insert(next);
            }
        }
        let lines_text = lines.iter().map(|((t, at), next)| format!("{t},{at} , {next}"));
        let text = lines_text.collect::<Vec<_>>().join("\n");
        let names = names();
        let mut reached = Vec::new();
        let mut whole = true;
        for t in &names.types {
            for input in ["lan", "wan"] {
                match naive_end(&lines, t, input) {
                    Some((way, end)) => {
                        whole &= end != "egress" || way.contains(&"edge");
                        reached.extend(way);
                    }
                    None => whole = false,
                }
            }
        }
        whole &= names.nfs.iter().all(|nf| reached.contains(&nf.as_str()));
        let read = read_routes(&Source::new("routes.csv", text.as_str()), &names);
        prop_assert_eq!(read.is_ok(), whole, "{}", text);
        let Ok(routes) = read else { return Ok(()) };
        for (number, t) in names.types.iter().enumerate() {
            for stage in routes.decider.stages() {
                let at = match stage {
                    Stage::Ingress(input) => &names.inputs[usize::from(input.0)],
                    Stage::Behind(nf) => &names.nfs[usize::from(nf.0)],
                };
                let expected = match naive(&lines, t, at) {
                    None => Next::Nowhere,
                    Some("egress") => Next::Egress,
                    Some("drop") => Next::Drop,
                    Some("left") => Next::Output(0),
                    Some("right") => Next::Output(1),
                    Some(nf) => Next::Nf(NfIndex(
                        names.nfs.iter().position(|n| n == nf).unwrap() as u16,
                    )),
                };
                prop_assert_eq!(routes.decider.next(PacketType(number as u16), stage), expected);
            }
        }
        prop_assert_eq!(routes.order.len(), names.nfs.len());
    }

    #[test]
    fn no_text_makes_the_reader_fall(text in "([a-z*]{0,6}[,#\n ]{0,2}){0,12}") {
        let _ = read_routes(&Source::new("routes.csv", text.as_str()), &names());
    }
}

const WHOLE: &str = "*,ingress,vpn\n*,vpn,ids\n*,ids,edge\n*,edge,egress\n";

#[test]
fn a_heading_comments_and_blanks_are_skipped() {
    let text = format!("# ways\n\nPacket Type , current NF, next NF\n  \n{WHOLE} # end\n");
    let routes = read_routes(&Source::new("r", text), &names()).unwrap();
    assert!(routes.unused.is_empty());
    assert_eq!(routes.order, [NfIndex(0), NfIndex(1), NfIndex(2)]);
    let first = Stage::Ingress(PortIndex(1));
    assert_eq!(routes.decider.next(PacketType(2), first), Next::Nf(NfIndex(0)));
}

#[test]
fn unknown_names_are_each_shown_with_what_there_is() {
    assert_eq!(
        mistakes("bogus,ingress,vpn\n*,left,ids\n*,vpn,nowhere\n*,vpn\n"),
        [
            "routes.csv:1:1: unknown packet type: 'bogus'; \
             expected one of: other, branch, web, *",
            "routes.csv:2:3: unknown NF or input: 'left'; \
             expected one of: ingress, lan, wan, vpn, ids, edge",
            "routes.csv:3:7: unknown NF or output: 'nowhere'; \
             expected one of: vpn, ids, edge, left, right, egress, drop",
            "routes.csv:4:1: a route needs three fields: '*,vpn'; \
             expected packet type, current NF, next NF",
        ]
    );
}

#[test]
fn a_second_route_from_one_place_names_the_first() {
    let text = format!("{WHOLE}web,ids,left\nweb,ids,right\n");
    assert_eq!(
        mistakes(&text),
        ["routes.csv:6:1: duplicate route; the first is in line 5: \
          'web,ids,right'; expected one route per type and NF"]
    );
}

#[test]
fn a_type_without_a_first_step_is_named() {
    let mistakes =
        mistakes("web,ingress,vpn\nbranch,lan,vpn\n*,vpn,ids\n*,ids,edge\n*,edge,left\n");
    assert_eq!(
        mistakes,
        [
            "routes.csv:1:1: packets of type 'other' have no route from 'ingress'; \
             expected a line 'other, ingress, ...' (or '*, ingress, ...')",
            "routes.csv:1:1: packets of type 'branch' have no route from 'wan'; \
             expected a line 'branch, wan, ...' (or '*, wan, ...')",
        ]
    );
}

#[test]
fn a_way_that_breaks_off_is_named_at_its_last_line() {
    assert_eq!(
        mistakes("*,ingress,vpn\nweb,vpn,ids\n*,ids,edge\n*,edge,left\nother,vpn,drop\n"),
        ["routes.csv:1:1: packets of type 'branch' have no route from 'vpn': '*,ingress,vpn'; \
          expected a line 'branch, vpn, ...' (or '*, vpn, ...')"]
    );
}

#[test]
fn a_loop_is_shown_with_its_way() {
    let text = format!("{WHOLE}web,edge,vpn\n");
    assert_eq!(
        mistakes(&text),
        ["routes.csv:5:1: packets of type 'web' loop forever: vpn -> ids -> edge -> vpn: \
          'web,edge,vpn'; expected a path to 'egress', an output or 'drop'"]
    );
}

#[test]
fn an_nf_that_no_packet_comes_to_is_named() {
    assert_eq!(
        mistakes("*,ingress,vpn\n*,vpn,edge\n*,edge,egress\n*,ids,edge\n"),
        ["routes.csv:1:1: no packet reaches NF 'ids'; expected a route to each NF"]
    );
}

#[test]
fn egress_needs_an_nf_that_chooses_among_several_outputs() {
    let text = format!("{WHOLE}web,ids,egress\n");
    assert_eq!(
        mistakes(&text),
        ["routes.csv:5:1: 'egress' is ambiguous for packets of type 'web': 2 outputs, and \
          no NF on their path chooses one: 'web,ids,egress'; \
          expected a router on the path, or one of: left, right"]
    );
}

#[test]
fn a_route_that_no_packet_takes_is_told() {
    let text = format!("{WHOLE}web,ingress,left\nweb,ids,left\n");
    let routes = read_routes(&Source::new("routes.csv", text), &names()).unwrap();
    let unused: Vec<_> = routes.unused.iter().map(ToString::to_string).collect();
    assert_eq!(
        unused,
        ["routes.csv:6:1: no packet takes this route: 'web,ids,left'; \
          expected a route that leads here, or no such line"]
    );
}
