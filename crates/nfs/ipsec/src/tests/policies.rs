//! Policies that can never match, and patterns with fields that have no meaning here.

use super::{GCM, built, options};

const NARROWER_FIRST: &str = "expected the narrower rule first, and each rule once";

/// The mistakes of policies with these patterns, after the lines of an SA.
fn told(sa: &str, patterns: &[&str]) -> Vec<String> {
    let policy = |pattern: &&str| format!("[[policy]]\nmatch = '{pattern}'\naction = 'bypass'\n");
    let text = sa.to_owned() + &patterns.iter().map(policy).collect::<String>();
    let errors = built(&text).err().map_or(Vec::new(), |e| e.0);
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn a_policy_that_an_earlier_one_covers_is_a_mistake() {
    assert_eq!(
        told("", &["ip", "arp", "tcp,nw_dst=10.1.0.0/16"]),
        [format!(
            "chain.toml:8:10: this rule can never match: 'ip' in line 2 covers it: \
             'tcp,nw_dst=10.1.0.0/16'; {NARROWER_FIRST}"
        )]
    );
    assert_eq!(told("", &["ip", "ip"]).len(), 1);
    assert_eq!(told("", &["tcp", "ip,nw_dst=10.1.0.0/16", "ip", "ipv6"]), [""; 0]);
}

/// Packets that the selector of an inbound SA covers are dropped before any policy.
#[test]
fn a_policy_that_a_selector_covers_is_a_mistake() {
    let sa = options(GCM, false, false, false) + "selector = 'ip,nw_src=10.2.0.0/16'\n";
    assert_eq!(told(&sa, &["ip,nw_dst=10.2.0.0/16", "ip"]), [""; 0]);
    let told = told(&sa, &["ip,nw_src=10.2.9.0/24"]);
    let expected = "this rule can never match: the selector of SA 'x' covers it: \
                    'ip,nw_src=10.2.9.0/24'";
    assert!(told.len() == 1 && told[0].contains(expected), "{told:?}");
}

#[test]
fn neither_policy_nor_selector_has_a_priority_or_a_port() {
    assert!(told("", &["priority=65000,ip"])[0].contains("2:10: 'priority' is not supported here"));
    assert!(told("", &["in_port=0"])[0].contains("2:10: 'in_port' is not supported here"));
    let sa = options(GCM, false, false, false) + "selector = 'priority=32768,ip'\n";
    assert!(told(&sa, &[])[0].contains("'priority' is not supported here"));
}
