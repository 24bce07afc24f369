//! Names that do not exist are errors with a suggestion; those that are not supported are warnings,
//! summed by name.

use super::*;

fn refused(rules: &str) -> Vec<String> {
    let error = Bench::try_new(rules, "").err().unwrap_or_else(|| panic!("accepted: {rules}"));
    error.0.iter().map(ToString::to_string).collect()
}

/// Rules, the misspelt text, what is wrong, and the end of the message.
const TYPOS: &[(&str, &str, &str, &str)] = &[
    ("tcp # (contnet:\"a\";)", "contnet", "unknown keyword", "did you mean 'content'?"),
    ("tcp # (conten:\"a\";)", "conten", "unknown keyword", "did you mean 'content'?"),
    ("http # (http.hots; content:\"a\";)", "http.hots", "unknown keyword", "mean 'http.host'?"),
    ("http # (content:\"a\"; htpp_uri;)", "htpp_uri", "unknown keyword", "mean 'http_uri'?"),
    ("dns # (dns.qeury; content:\"a\";)", "dns.qeury", "unknown keyword", "mean 'dns.query'?"),
    ("tcp # (flwo:established;)", "flwo", "unknown keyword", "did you mean 'flow'?"),
    ("tcp # (byte_mth:1;)", "byte_mth", "unknown keyword", "did you mean 'byte_math'?"),
    ("ftp # (contnet:\"a\";)", "contnet", "unknown keyword", "did you mean 'content'?"),
    ("tcp # (nonsense_of_mine;)", "nonsense_of_mine", "unknown keyword", "Suricata or Snort"),
    ("tcp # (content \"a\";)", "content \"a\"", "no ':' or ';' after 'content'", "KEYWORD;"),
    ("tcp # (flow established;)", "flow established", "no ':' or ';' after 'flow'", "KEYWORD;"),
    ("tpc # (content:\"a\";)", "tpc", "unknown protocol", "did you mean 'tcp'?"),
    ("htttp # (content:\"a\";)", "htttp", "unknown protocol", "did you mean 'http'?"),
    ("smpt # (content:\"a\";)", "smpt", "unknown protocol", "did you mean 'smtp'?"),
    ("tcp # (app-layer-protocol:!htpp;)", "!htpp", "unknown protocol", "did you mean 'http'?"),
    (
        "ip # (decode-event:ipv4.pkt_to_small;)",
        "ipv4.pkt_to_small",
        "unknown event",
        "_too_small'?",
    ),
    (
        "http # (app-layer-event:http.missing_host_heder;)",
        "missing_host_heder",
        "unknown event",
        "did you mean 'missing_host_header'?",
    ),
    ("http # (app-layer-event:htpp.x;)", "htpp", "unknown protocol", "did you mean 'http'?"),
    ("http # (app-layer-event:nonsense;)", "nonsense", "unknown event", "PROTOCOL.EVENT"),
    ("tcp # (flowint:a,++,1;)", "++", "bad operator of flowint", "isset or notset"),
    ("tcp # (flowint:a,+;)", "+", "'+' needs a number or a name", "NAME,OPERATOR,VALUE"),
    ("tcp # (flowint:a,isset,1;)", "1", "'isset' takes no value", "NAME,isset"),
    ("tcp # (flowint:a b,+,1;)", "a b", "bad name of a number", "and '-'"),
    ("tcp # (flowint:a,+,5000000000;)", "5000000000", "bad number", ""),
    ("tcp $HOEM_NET any -> any any ()", "$HOEM_NET", "bad list", "did you mean 'HOME_NET'?"),
    ("tcp any $HTTP_PORST -> any any ()", "$HTTP_PORST", "bad list", "did you mean 'HTTP_PORTS'?"),
    ("tcp # (flow:to_sever;)", "to_sever", "bad flow", "no_stream or only_stream"),
    ("tcp # (flowbits:foo;)", "foo", "bad flowbits", "isnotset or noalert"),
    ("tcp # (flowbits:ste,a;)", "ste", "bad flowbits", "isnotset or noalert"),
    ("tcp # (flowbits:set;)", "set", "flowbits without a name", "such as set,NAME"),
    ("tcp # (flowbits:isset,a|;)", "a|", "bad name of a flow bit", "by | or by &"),
    ("tcp # (flowbits:set,a b;)", "a b", "bad name of a flow bit", "by | or by &"),
    ("http # (urilen:5,foo;)", "foo", "bad form of urilen", "norm or raw"),
    ("http # (urilen:5,RAW;)", "RAW", "bad form of urilen", "norm or raw"),
    ("http # (urilen:>5,norm,raw;)", "norm,raw", "bad form of urilen", "norm or raw"),
    ("tcp # (target:source;)", "source", "bad target", "src_ip, dest_ip or none"),
    ("tcp # (pcre:\"/a/z\";)", "z", "unknown pcre flag 'z'", "WVY"),
    ("tcp # (rev:0;)", "0", "bad number", "a number above 0"),
    ("ip # (fragbits:!;)", "!", "bad fragment bits", "letters from MDR"),
    ("tcp # (reference:;)", "reference", "'reference' needs a value", "a value"),
    ("tcp 10.0.0.0/255.0.255.0 any -> any any ()", "10", "bad list", "such as 255.255.0.0"),
    ("tcp 10.0.0.0/0.0.255.255 any -> any any ()", "10", "bad list", "such as 255.255.0.0"),
    ("tcp 2001:db8::/255.255.0.0 any -> any any ()", "2001", "bad list", "such as 255.255.0.0"),
    ("tcp [10.0.0.1,,10.0.0.2] any -> any any ()", "[10", "bad list", "each comma in a list"),
    ("tcp any [,80] -> any any ()", "[,80]", "bad list", "each comma in a list"),
    ("tcp any 80:70 -> any any ()", "80:70", "bad list", "not '80:70'"),
    ("tcp any 65536 -> any any ()", "65536", "bad list", "not '65536'"),
    ("tcp any !any -> any any ()", "!any", "bad list", "unlike '!any'"),
    ("tcp any any <- any any ()", "<-", "bad direction", "-> or <>"),
];

#[test]
fn a_typo_is_an_error_with_a_suggestion() {
    for (rule, text, message, end) in TYPOS {
        let rule = rule.replace('#', "any any -> any any");
        let rule = format!("# one\nalert {} sid:1;)\n", rule.strip_suffix(')').unwrap());
        let errors = refused(&rule);
        let [error] = &errors[..] else { panic!("{errors:?}") };
        assert!(error.contains("t.rules:2:"), "{error}");
        assert!(error.contains(&format!(": {message}: '{text}")), "{error}");
        let end = if *end == "WVY" { "flags from ismxAEGROBKUIPQHDMCSYVW" } else { end };
        assert!(error.ends_with(end), "{error}");
    }
    for (action, name) in [("alret", "alert"), ("dorp", "drop"), ("regect", "reject")] {
        let errors = refused(&format!("{action} tcp any any -> any any (sid:1;)"));
        let [error] = &errors[..] else { panic!("{errors:?}") };
        assert!(error.contains(&format!("bad action: '{action}'")), "{error}");
        assert!(error.ends_with(&format!("did you mean '{name}'?")), "{error}");
    }
}

#[test]
fn masks_and_lists_that_look_odd_are_taken() {
    let rules = "alert udp 10.0.0.0/255.0.0.0 any -> [192.0.2.0/24,] any (sid:1;)\n\
        alert udp 10.0.0.0/255.255.255.255 any -> any any (sid:2;)\n\
        alert udp 10.0.0.0/0.0.0.0 any -> any [53,] (sid:3;)\n\
        Alert UDP any any -> any any (sid:4;)\n";
    let mut bench = Bench::new(rules, "");
    bench.send(&[udp(b"x")]);
    assert_eq!(bench.sids(), [1, 3, 4]);
}

#[test]
fn every_typo_is_counted() {
    let mut rules = String::new();
    for sid in 1..=300 {
        writeln!(rules, "alert tcp any any -> any any (contnet:\"a\"; sid:{sid};)").unwrap();
    }
    let error = Bench::try_new(&rules, "").err().expect("there are typos");
    assert_eq!(thalweg_source::count(&error.0), 300);
}

#[test]
fn unsupported_rules_are_summed_by_name() {
    let mut rules = String::from("alert udp any any -> any any (content:\"x\"; sid:1;)\n");
    let many_bits = "flowbits:set,a;".repeat(129);
    let unsupported = [
        ("ftp", "content:\"x\";"),
        ("tcp", "byte_math:bytes 1;"),
        ("ftp", ""),
        ("tcp", "byte_math:bytes 2; xbits:set,a,track ip_src;"),
        ("tcp", "xbits:set,a,track ip_src;"),
        ("ftp", "byte_math:bytes 2;"),
        ("ip", "decode-event:ipv4.opt_malformed;"),
        ("tcp", "pcre:\"/a/E\";"),
        ("http1:request_started", "content:\"a\";"),
        ("tcp", "flowbits:set,a|b;"),
        ("tcp", many_bits.as_str()),
    ];
    for (i, (protocol, options)) in unsupported.iter().enumerate() {
        writeln!(rules, "alert {protocol} any any -> any any ({options} sid:{};)", i + 2).unwrap();
    }
    let (bench, warnings) = Bench::try_new(&rules, "").unwrap_or_else(|e| panic!("{e}"));
    let begins = [
        "t.rules:2:7: protocol 'ftp' is not supported; 3 rules are skipped: 'ftp'",
        "t.rules:3:31: option 'byte_math' is not supported; 2 rules are skipped: 'byte_math'",
        "t.rules:6:31: option 'xbits' is not supported; 1 rule is skipped: 'xbits'",
        "t.rules:8:43: event 'ipv4.opt_malformed' is not supported; 1 rule is skipped",
        "t.rules:9:40: pcre flag 'E' is not supported; 1 rule is skipped",
        "t.rules:10:7: protocol 'http1:request_started' is not supported; 1 rule is skipped",
        "t.rules:11:40: flowbits 'set' of several bits joined by | or & is not supported",
        "a rule with more than 128 tests and changes of flow bits is not supported; 1 rule",
    ];
    assert_eq!(warnings.len(), begins.len(), "{warnings:#?}");
    for (warning, begin) in warnings.iter().zip(begins) {
        assert!(warning.contains(begin), "{begin}: {warning}");
    }
    let figures = bench.drive.nf.figures();
    assert!(figures.contains(&("rules_unsupported", 11)), "{figures:?}");
    let refused = Bench::try_new(&rules, "unsupported = 'refuse'").err().unwrap();
    assert_eq!(refused.0.len(), 11, "each rule: {refused}");
}

#[test]
fn odd_classes_and_priorities_are_warnings() {
    let rules = "alert udp any any -> any any (classtype:trojan-activty; sid:1;)\n\
        alert udp any any -> any any (classtype:trojan-activty; sid:2;)\n\
        alert udp any any -> any any (classtype:misc-activity; classtype:misc-attack; sid:3;)\n\
        alert udp any any -> any any (priority:2; priority:4; sid:4;)\n\
        alert udp any any -> any any (flowbits:set,a; flowbits:unset,a; sid:5;)\n";
    let (mut bench, warnings) = Bench::try_new(rules, "").unwrap_or_else(|e| panic!("{e}"));
    let ends = [
        ("unknown class 'trojan-activty', without a category; 2 rules", "mean 'trojan-activity'?"),
        ("a second 'classtype'; the more severe one counts; 1 rule", "one class for each rule"),
        ("a second 'priority'; the more severe one counts; 1 rule", "one priority for each rule"),
        (
            "an earlier option of the rule changes the same flow bit",
            "one change of a bit in a rule",
        ),
    ];
    assert_eq!(warnings.len(), ends.len(), "{warnings:#?}");
    for (warning, (part, end)) in warnings.iter().zip(ends) {
        assert!(warning.contains(part) && warning.ends_with(end), "{warning}");
    }
    bench.send(&[udp(b"x")]);
    for alert in bench.alerts() {
        let severity =
            if matches!(alert["alert"]["signature_id"].as_u64(), Some(3 | 4)) { 2 } else { 3 };
        assert_eq!(alert["alert"]["severity"], severity, "{alert}");
    }
}
