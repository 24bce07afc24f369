//! Rules that can never match are refused; rules that barely can match are not.

use super::*;

/// Rules, the text that the error points at, and the beginning of its message.
const NEVER: &[(&str, &str, &str)] = &[
    ("tcp # (content:\"abcdef\"; depth:3;)", "'3'", "'depth' is shorter than its content"),
    ("tcp # (content:\"x\"; content:\"abc\"; within:2;)", "'2'", "'within' is shorter"),
    ("tcp # (content:\"abcdef\"; startswith; depth:5;)", "'5'", "'depth' is shorter"),
    ("tcp # (content:\"abcdef\"; dsize:<3;)", "'<3'", "fewer bytes than the rule requires"),
    ("tcp # (dsize:6; content:\"abcdef\"; offset:1;)", "'6'", "fewer bytes than the rule requires"),
    ("udp # (content:\"abc\"; content:\"de\"; distance:4; dsize:<9;)", "'<9'", "fewer bytes"),
    ("udp # (content:\"abc\"; isdataat:!2;)", "'!2'", "fewer bytes than the rule requires"),
    ("udp # (isdataat:8; dsize:8;)", "'8'", "fewer bytes than the rule requires"),
    ("http # (http.uri; content:\"/etc\"; bsize:3;)", "'3'", "fewer bytes than the rule requires"),
    (
        "http # (http.uri; bsize:<4; content:\"/etc\";)",
        "'<4'",
        "fewer bytes than the rule requires",
    ),
    ("http # (http.uri; bsize:>9; bsize:<4;)", "'<4'", "fewer bytes than the rule requires"),
    ("http # (uricontent:\"/etc\"; urilen:3;)", "'3'", "fewer bytes than the rule requires"),
    ("ip # (ttl:300;)", "'300'", "bad number"),
    ("ip # (ttl:>255;)", "'>255'", "nothing is above 255"),
    ("ip # (ttl:<0;)", "'<0'", "nothing is below 0"),
    ("ip # (ttl:!0-255;)", "'0-255'", "an empty range"),
    ("ip # (ttl:9-5;)", "'9-5'", "an empty range"),
    ("ip # (tos:5<>6;)", "'5<>6'", "an empty range"),
    ("ip # (fragoffset:8192;)", "'8192'", "bad number"),
    ("ip # (ttl:1; ttl:>1;)", "'ttl:>1'", "no packet can match this"),
    ("tcp # (stream_size:both,<,0;)", "'both,<,0'", "nothing is below 0"),
    ("tcp # (itype:8;)", "'itype:8'", "no packet can match this"),
    ("udp # (icode:0;)", "'icode:0'", "no packet can match this"),
    ("udp # (flags:S;)", "'flags:S'", "no packet can match this"),
    ("icmp # (window:5;)", "'window:5'", "no packet can match this"),
    ("ip # (itype:8; flags:S;)", "'flags:S'", "no packet can match this"),
    ("tcp # (flags:S; flags:A;)", "'flags:A'", "no packet can match this"),
    ("tcp # (flags:*0;)", "'flags:*0'", "no packet can match this"),
    ("tcp # (ip_proto:17;)", "'ip_proto:17'", "no packet can match this"),
    ("udp # (ip_proto:!udp;)", "'ip_proto:!udp'", "no packet can match this"),
    ("udp # (stream_size:both,>,5;)", "'stream_size:both,>,5'", "no packet can match this"),
    ("ipv6 # (fragbits:M;)", "'fragbits:M'", "no packet can match this"),
    ("udp # (http.uri; content:\"a\";)", "'http.uri'", "no packet can match this"),
    ("icmp # (content:\"a\"; http_uri;)", "'http_uri'", "no packet can match this"),
    ("udp # (app-layer-protocol:tls;)", "'app-layer-protocol:tls'", "no packet can match this"),
    ("http # (app-layer-protocol:dns;)", "'dns'", "a rule for two protocols"),
    ("tcp # (flow:established,not_established;)", "'not_established'", "this contradicts"),
    ("tcp # (flow:to_server,to_client;)", "'to_client'", "this contradicts"),
    ("tcp # (flow:to_server; flow:from_server;)", "'from_server'", "this contradicts"),
    ("tcp # (flow:only_stream,no_stream;)", "'no_stream'", "this contradicts"),
    ("ip ![0.0.0.0/0,::/0] any -> any any ()", "'![0.0.0.0/0,::/0]'", "an empty list"),
    ("ip [10.1.2.0/24,!10.0.0.0/8] any -> any any ()", "'[10", "an empty list"),
    ("ip [10.0.0.0/8,![10.0.0.0/9,10.128.0.0/9]] any -> any any ()", "'[10", "an empty list"),
    ("ip [] any -> any any ()", "'[]'", "bad list"),
    ("udp any ![:99,100:] -> any any ()", "'![:99,100:]'", "an empty list"),
    ("udp any any -> any [80,!80] ()", "'[80,!80]'", "an empty list"),
];

/// Rules that look similar but can match.
const MAY: &[&str] = &[
    "tcp # (content:\"abcdef\"; depth:6;)",
    "tcp # (content:\"x\"; content:\"abc\"; distance:-4; within:3; dsize:3;)",
    "tcp # (content:\"abcdef\"; dsize:6;)",
    "tcp # (content:\"abcdef\"; pcre:\"/a/\"; content:\"b\"; distance:4; dsize:6;)",
    "tcp # (content:!\"abcdef\"; dsize:<3;)",
    "tcp # (flow:only_stream; content:\"abcdef\"; dsize:<3;)",
    "http # (content:\"abcdef\"; http_uri; dsize:<3;)",
    "http # (isdataat:!3; content:\"abcdef\"; http_uri;)",
    "http # (http.uri; dotprefix; content:\".etc\"; bsize:4;)",
    "ip # (ttl:255; tos:!0; ip_proto:!6; id:65535;)",
    "ip # (ttl:>5; ttl:<9; ttl:!7;)",
    "tcp # (flags:+S; flags:+A; ip_proto:6; stream_size:both,>=,0;)",
    "icmp # (itype:8; id:7;)",
    "pkthdr # (itype:8;)",
    "ip # (itype:8;)",
    "udp # (dns.query; content:\"abc\";)",
    "tcp # (dns.query; content:\"abc\";)",
    "http # (app-layer-protocol:http; flow:to_server,established; flow:from_client;)",
    "ip ![0.0.0.0/0] any -> [10.0.0.0/8,!10.0.0.0/9] any ()",
    "udp any ![:99,101:] -> any [80:81,!80] ()",
    "ip ![10.0.0.0/8,!10.1.0.0/16] any -> ![!10.0.0.0/8] any ()",
];

fn written(rule: &str) -> String {
    let rule = rule.replace('#', "any any -> any any");
    let rule = rule.strip_suffix(')').unwrap();
    format!("alert {rule} sid:1;)\n")
}

#[test]
fn a_rule_that_can_never_match_is_refused_where_it_says_so() {
    for (rule, text, message) in NEVER {
        let rule = format!("# one\n{}", written(rule));
        let error = Bench::try_new(&rule, "").err().unwrap_or_else(|| panic!("taken: {rule}"));
        let [error] = &error.0[..] else { panic!("{error}") };
        let error = error.to_string();
        assert!(error.contains("t.rules:2:") && error.contains(&format!(": {message}")), "{error}");
        assert!(error.contains(text.trim_end_matches('\'')), "{text}: {error}");
    }
}

#[test]
fn a_rule_that_may_match_is_taken() {
    for rule in MAY {
        let (_, warnings) =
            Bench::try_new(&written(rule), "").unwrap_or_else(|e| panic!("{rule}: {e}"));
        assert_eq!(warnings, [""; 0], "{rule}");
    }
}

#[test]
fn contents_that_just_fit_are_found() {
    let bodies = [
        "content:\"abcdef\"; depth:6; dsize:6;",
        "content:\"bc\"; content:\"de\"; distance:0; within:2; isdataat:!6;",
        "content:\"ab\"; isdataat:4,relative; dsize:<7;",
    ];
    assert_eq!(fires(&bodies, b"abcdef"), [1, 2, 3]);
}

#[test]
fn what_a_list_excludes_is_in_its_negation() {
    let rules = "alert udp 10.0.0.1 any -> ![192.0.2.0/24,!192.0.2.1] any (sid:1;)\n\
        alert udp ![10.0.0.0/24,!10.0.0.2] any -> any any (sid:2;)\n\
        alert udp ![!10.0.0.0/24] 999: -> any ![!53] (sid:3;)\n\
        alert udp any any -> any ![50:60,!54] (sid:4;)\n";
    let mut bench = Bench::new(rules, "");
    bench.send(&[udp(b"x")]);
    assert_eq!(bench.sids(), [1, 3]);
}
