//! Rules that can never match are refused; rules that barely can match are not.

use super::*;

/// Rules, the text that the error points at, and the beginning of its message.
const NEVER: &[(&str, &str, &str)] = &[
    ("tcp # (content:\"abcdef\"; depth:3;)", "'3'", "'depth' is shorter than its content"),
    ("tcp # (content:\"x\"; content:\"abc\"; within:2;)", "'2'", "'within' is shorter"),
    ("tcp # (content:\"abcdef\"; startswith; depth:5;)", "'depth'", "this content already has"),
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
    ("tcp # (flow:to_server; flow:from_server;)", "'flow'", "a second 'flow' in one rule"),
    ("tcp # (flow:established,stateless;)", "'stateless'", "this contradicts"),
    ("tcp # (flow:to_server,from_client;)", "'from_client'", "this repeats"),
    ("tcp # (flow:only_stream,no_stream;)", "'no_stream'", "this contradicts"),
    ("ip ![0.0.0.0/0,::/0] any -> any any ()", "'![0.0.0.0/0,::/0]'", "an empty list"),
    ("ip [10.1.2.0/24,!10.0.0.0/8] any -> any any ()", "'[10", "an empty list"),
    ("ip [10.0.0.0/8,![10.0.0.0/9,10.128.0.0/9]] any -> any any ()", "'[10", "an empty list"),
    ("ip [] any -> any any ()", "'[]'", "bad list"),
    ("udp any ![:99,100:] -> any any ()", "'![:99,100:]'", "an empty list"),
    ("udp any any -> any [80,!80] ()", "'[80,!80]'", "an empty list"),
    ("ip # (ttl:5; ttl:!5;)", "'ttl:!5'", "no packet can match this"),
    ("ip # (ttl:!1-9; ttl:3-5;)", "'ttl:3-5'", "no packet can match this"),
    ("ip # (fragbits:M; fragbits:!M;)", "'fragbits:!M'", "no packet can match this"),
    ("http # (http.uri; content:\"a\"; http.stat_code; content:\"2\";)", "", "buffers of one"),
    ("http # (flow:to_client; http.uri; content:\"a\";)", "", "buffers of one direction"),
];

/// What a rule, a content or a list may have once, and positions that exclude each other.
const ONCE: &[(&str, &str, &str)] = &[
    ("tcp # (msg:\"a\"; msg:\"b\";)", "'msg'", "a second 'msg' in one rule"),
    ("tcp # (sid:2; content:\"a\";)", "'sid'", "a second 'sid' in one rule"),
    ("tcp # (rev:1; content:\"a\"; rev:1;)", "'rev'", "a second 'rev' in one rule"),
    ("tcp # (dsize:5; dsize:5;)", "'dsize'", "a second 'dsize' in one rule"),
    ("tcp # (app-layer-protocol:http; app-layer-protocol:http;)", "'app-l", "a second 'app-layer-"),
    ("tcp # (target:src_ip; target:dest_ip;)", "'dest_ip'", "a second 'target' in one rule"),
    ("tcp # (content:\"a\"; nocase; nocase;)", "'nocase'", "this content already has 'nocase'"),
    ("tcp # (content:\"a\"; offset:1; offset:2;)", "'offset'", "this content already has"),
    ("tcp # (content:\"a\"; depth:3; depth:3;)", "'depth'", "this content already has"),
    ("tcp # (content:\"x\"; content:\"a\"; distance:1; distance:2;)", "'di", "this content alr"),
    ("tcp # (content:\"x\"; content:\"a\"; within:3; within:4;)", "'within'", "this content alr"),
    ("tcp # (content:\"a\"; startswith; startswith;)", "'startswith'", "this content already"),
    ("tcp # (content:\"a\"; depth:5; startswith;)", "'startswith'", "this content already has"),
    ("tcp # (content:\"a\"; startswith; offset:1;)", "'offset'", "this content already has"),
    ("tcp # (content:\"a\"; endswith; endswith;)", "'endswith'", "this content already has"),
    ("tcp # (content:\"a\"; fast_pattern; fast_pattern;)", "'fast_p", "a second 'fast_pattern'"),
    ("tcp # (content:\"a\"; fast_pattern; content:\"b\"; fast_pattern;)", "'f", "a second 'fast"),
    ("tcp # (content:\"a\"; http_uri; http_uri;)", "'http_uri'", "'http_uri' for a content that"),
    (
        "tcp # (content:\"a\"; http_uri; http_header;)",
        "'http_header'",
        "'http_header' for a content",
    ),
    ("http # (http.uri; content:\"a\"; http_header;)", "'http_header'", "'http_header' for a con"),
    ("tcp # (pcre:\"/a/UI\";)", "'UI'", "flags for two buffers"),
    ("http # (http.uri; pcre:\"/a/H\";)", "", "a flag for another buffer"),
    (
        "tcp # (content:\"x\"; content:\"a\"; depth:5; distance:1;)",
        "'distance'",
        "'distance' mixes",
    ),
    ("tcp # (content:\"x\"; content:\"a\"; depth:5; within:3;)", "'within'", "'within' mixes"),
    ("tcp # (content:\"x\"; content:\"a\"; distance:3; offset:5;)", "'offset'", "'offset' mixes"),
    (
        "tcp # (content:\"x\"; content:\"a\"; within:3; startswith;)",
        "'starts",
        "'startswith' mixes",
    ),
    ("tcp # (content:\"a\"; startswith; distance:1;)", "'distance'", "'distance' mixes"),
    ("tcp # (content:\"a\"; depth:5; fast_pattern:only;)", "", "'fast_pattern:only' for a content"),
    (
        "tcp # (content:\"a\"; fast_pattern:only; offset:5;)",
        "",
        "'fast_pattern:only' for a content",
    ),
    ("tcp # (content:\"abc\"; fast_pattern:1,5;)", "'1,5'", "bad fast_pattern"),
    ("tcp # (content:\"abc\"; fast_pattern:foo;)", "'foo'", "bad fast_pattern"),
    (
        "tcp # (threshold:type limit, track by_src, count 1, seconds 1; \
         detection_filter:track by_src, count 1, seconds 1;)",
        "'detection_filter'",
        "a second 'threshold' or 'detection_filter'",
    ),
    ("tcp # (threshold:type limit, track by_src, count 1, count 2, seconds 1;)", "", "a second 'c"),
    ("tcp # (content:\"a\";;)", "';'", "empty option"),
    ("tcp # (; content:\"a\";)", "';'", "empty option"),
    ("tcp # (content:\"a\"; ; content:\"b\";)", "';'", "empty option"),
];

/// Rules that require and exclude the same, or bytes that a buffer never has.
const OPPOSED: &[(&str, &str, &str)] = &[
    ("tcp # (content:\"a\"; content:!\"a\";)", "'!\"a\"'", "the rule both requires"),
    ("tcp # (content:!\"a\"; content:\"xay\"; depth:9;)", "'!\"a\"'", "the rule both requires"),
    ("tcp # (content:\"aB\"; content:!\"Ab\"; nocase;)", "'!\"Ab\"'", "the rule both requires"),
    ("tcp # (content:\"abc\"; offset:2; content:!\"c\"; offset:4;)", "'!\"c\"'", "the rule both"),
    ("tcp # (content:\"ab\"; depth:4; content:!\"b\"; depth:4;)", "'!\"b\"'", "the rule both"),
    (
        "tcp # (content:\"x\"; content:!\"a\"; within:9; content:\"a\"; within:9;)",
        "'!",
        "the rule bo",
    ),
    ("http # (http.uri; content:\"|61|\"; content:!\"a\";)", "'!\"a\"'", "the rule both requires"),
    ("tcp # (content:\"a\"; endswith; content:!\"a\"; endswith;)", "'!\"a\"'", "the rule both"),
    ("tcp # (pcre:\"/a+/i\"; pcre:!\"/a+/i\";)", "'!\"/a+/i\"'", "the rule both requires"),
    ("tcp # (flowbits:isset,a; flowbits:isnotset,a;)", "'isnotset,a'", "this requires a flow bit"),
    ("tcp # (flowbits:isnotset,a; flowbits:isset,a;)", "'isset,a'", "this requires a flow bit"),
    (
        "tcp # (flowbits:isnotset,a; flowbits:isnotset,b; flowbits:isset,a|b;)",
        "'i",
        "this requires",
    ),
    ("tcp # (flowbits:isset,a&b; flowbits:isnotset,b;)", "'isnotset,b'", "this requires a flow"),
    ("http # (http.host; content:\"A\";)", "'\"A\"'", "no packet can match: http.host"),
    ("http # (http.host; content:!\"|41|\";)", "'!\"|41|\"'", "no packet can match: http.host"),
    ("http # (content:\"aB\"; http_host;)", "'http_host'", "no packet can match: http.host"),
    ("http # (http.host; content:\"A\"; nocase;)", "", "no packet can match: http.host"),
    ("http # (http.host; content:\"a\"; nocase;)", "'nocase'", "'nocase' for http.host"),
    ("http # (content:\"a\"; nocase; http_host;)", "", "no packet can match: http.host"),
    ("http # (pcre:\"/a\\S[A-Z]/W\";)", "", "no packet can match: http.host"),
    ("http # (http.method; content:\"GET \";)", "", "no packet can match: http.method"),
    ("http # (http.uri; to_lowercase; content:\"A\";)", "", "no packet can match: the transf"),
    ("http # (http.uri; to_uppercase; dotprefix; content:\".a\";)", "", "no packet can match"),
    ("http # (http.uri; strip_whitespace; content:\"a b\";)", "", "no packet can match"),
    ("http # (http.uri; compress_whitespace; content:\"a  b\";)", "", "no packet can match"),
    ("http # (http.uri; http.method; content:\"a\";)", "'http.uri'", "no test follows"),
    ("http # (content:\"a\"; http.uri;)", "'http.uri'", "no test follows"),
    ("http # (http.uri; content:\"a\"; dotprefix;)", "'dotprefix'", "no test follows"),
    ("http # (dotprefix; content:\"a\";)", "'dotprefix'", "'dotprefix' needs a buffer"),
    ("tcp # (bsize:5; content:\"a\";)", "'bsize'", "'bsize' needs a buffer"),
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
    "http # (app-layer-protocol:http; flow:to_server,established;)",
    "ip ![0.0.0.0/0] any -> [10.0.0.0/8,!10.0.0.0/9] any ()",
    "udp any ![:99,101:] -> any [80:81,!80] ()",
    "ip ![10.0.0.0/8,!10.1.0.0/16] any -> ![!10.0.0.0/8] any ()",
    "ip # (ttl:!5; ttl:4-6; fragbits:M; fragbits:!D;)",
    "ip # (ttl:>1; ttl:>2; flags:+S; flags:+A;)",
    "tcp # (content:\"a\"; content:!\"a\"; distance:0;)",
    "tcp # (content:\"a\"; content:!\"a\"; depth:1;)",
    "tcp # (content:\"a\"; content:!\"a\"; offset:1;)",
    "tcp # (content:\"a\"; nocase; content:!\"a\";)",
    "tcp # (content:\"a\"; content:!\"ab\";)",
    "tcp # (content:\"a\"; content:!\"a\"; endswith;)",
    "tcp # (content:\"a\"; content:!\"ab\"; distance:-1; within:2;)",
    "tcp # (content:\"x\"; content:!\"a\"; within:3; content:\"a\"; within:9;)",
    "tcp # (content:\"x\"; content:!\"a\"; distance:0; pcre:\"/b/R\"; content:\"a\"; distance:0;)",
    "http # (http.uri; content:\"a\"; http.method; content:!\"a\";)",
    "dns # (dns.query; content:\"a\"; dns.query; content:!\"a\";)",
    "tcp # (pcre:\"/a/\"; pcre:!\"/a/i\"; pcre:!\"/a/R\";)",
    "http # (http.host; content:\"a\"; pcre:\"/[A-Z]?a/\"; http.host.raw; content:\"A\"; nocase;)",
    "http # (pcre:\"/\\S\\x4A\\D/W\"; pcre:\"/A/iW\";)",
    "http # (http.uri; to_lowercase; to_uppercase; content:\"A\";)",
    "http # (http.uri; bsize:5; file_data; content:\"a\"; pkt_data;)",
    "tcp # (Content:\"a\"; NOCASE;)",
    "http # (file_data; content:\"a\"; content:\"b\"; http_header;)",
    "http # (urilen:5,norm; urilen:<9,raw;)",
];

fn written(rule: &str) -> String {
    let rule = rule.replace('#', "any any -> any any");
    let rule = rule.strip_suffix(')').unwrap();
    format!("alert {rule} sid:1;)\n")
}

#[test]
fn a_rule_that_can_never_match_is_refused_where_it_says_so() {
    for (rule, text, message) in NEVER.iter().chain(ONCE).chain(OPPOSED) {
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
fn bits_that_exclude_each_other_only_at_first_sight_are_taken() {
    let bits = "flowbits:isset,a|b; flowbits:isnotset,a|b; flowbits:set,a; flowbits:set,b;";
    let (_, warnings) =
        Bench::try_new(&written(&format!("tcp # ({bits})")), "").unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(warnings, [""; 0]);
}

#[test]
fn isnotset_of_several_bits_holds_until_all_are_set() {
    let rules = "alert udp any any -> any any (content:\"A\"; flowbits:set,a; noalert; sid:1;)\n\
        alert udp any any -> any any (content:\"B\"; flowbits:set,b; noalert; sid:2;)\n\
        alert udp any any -> any any (content:\"?\"; flowbits:isnotset,a|b; sid:3;)\n";
    let mut bench = Bench::new(rules, "");
    for (payload, alerts) in [(b"?", 1), (b"A", 1), (b"?", 2), (b"B", 2), (b"?", 2)] {
        bench.send(&[udp(payload)]);
        assert_eq!(bench.sids().len(), alerts, "{payload:?}");
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
