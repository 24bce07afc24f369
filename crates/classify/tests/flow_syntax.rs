//! Printing a flow and reading it back changes nothing.

#[path = "support/flows.rs"]
mod flows;

use std::collections::BTreeSet;

use proptest::prelude::*;
use thalweg_classify::flow_syntax::{self, Flow};

fn parse(text: &str) -> Flow {
    flow_syntax::parse(text, &|_| None).unwrap_or_else(|e| panic!("{text}: {e}"))
}

#[test]
fn a_printed_pattern_reads_back_whatever_its_fields() {
    let mut names = BTreeSet::new();
    for seed in 0..5000 {
        let text = flows::random_flow(seed);
        let pattern = parse(&text).pattern;
        let printed = pattern.to_string();
        assert_eq!(parse(&printed).pattern, pattern, "{text} -> {printed}");
        let name = |part: &str| part.split('=').next().unwrap_or("").to_owned();
        names.extend(printed.split(',').map(name));
    }
    // Every field that can be printed was, but for those with two names.
    assert!(names.len() > 50, "vacuous run: {names:?}");
}

#[test]
fn a_field_and_the_value_zero_differ_from_no_field() {
    for text in ["tcp,tp_dst=0", "tun_id=0", "ip,ip_frag=no", "tcp,tcp_flags=0", "vlan_tci=0"] {
        let pattern = parse(text).pattern;
        let (without, _) = text.rsplit_once(',').unwrap_or(("", text));
        assert_ne!(pattern, parse(without).pattern);
        assert_eq!(parse(&pattern.to_string()).pattern, pattern);
    }
}

proptest! {
    #[test]
    fn any_text_parses_or_fails_within_its_bounds(text in "[a-z_0-9=,./:+|é-]{0,60}") {
        if let Err(e) = flow_syntax::parse(&text, &|_| None) {
            prop_assert!(e.span.start <= e.span.end && text.get(e.span.clone()).is_some());
        }
    }

    #[test]
    fn a_damaged_flow_parses_or_fails_within_its_bounds(
        seed in any::<u64>(), at in any::<prop::sample::Index>(), with in "[=,/:+|x0é-]?",
    ) {
        let mut text = flows::random_flow(seed);
        let at = at.index(text.len());
        text.replace_range(at..=at, &with);
        match flow_syntax::parse(&text, &|_| None) {
            Ok(flow) => {
                let printed = flow.pattern.to_string();
                prop_assert_eq!(parse(&printed).pattern, flow.pattern, "{}", printed);
            }
            Err(e) => prop_assert!(text.get(e.span.clone()).is_some(), "{}", text),
        }
    }
}
