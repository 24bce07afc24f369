//! Every class of mistake in a chain file is reported with file, line and column,
//! and all mistakes of a file are reported at once.

mod common;
#[path = "common/whole.rs"]
mod whole;

use proptest::prelude::*;
use whole::{CHAIN, ROUTES, broken, folder, is_told};

#[test]
fn the_chain_that_the_tests_break_is_whole() {
    let plan = folder(CHAIN).load().unwrap();
    assert!(plan.warnings().is_empty());
    assert_eq!(
        plan.graph().to_tree().lines().skip(1).collect::<Vec<_>>(),
        [
            "classification: 2 rules, 2 packet types",
            "├─ other",
            "│  └─ a (test: test NF 0)",
            "│     └─ egress",
            "└─ web",
            "   └─ a (test: test NF 0)",
            "      └─ egress",
        ]
        .into_iter()
        .chain(plan.graph().to_tree().lines().last())
        .collect::<Vec<_>>()
    );
    let hops = "  n1 -->|\"other, web\"| n2\n  n2 -->|\"other, web\"| n3\n";
    assert!(plan.graph().to_mermaid().contains(hops), "{}", plan.graph().to_mermaid());
    assert!(plan.graph().to_dot().contains("\"ingress\" -> \"a\" [label=\"other, web\"];"));
}

#[test]
fn text_that_is_not_toml() {
    let mistakes = broken("number = 0", "number = = 0\n[input");
    assert!(mistakes.len() >= 2, "each mistake: {mistakes:?}");
    assert!(mistakes[0].starts_with("chain.toml:12:10: "), "{mistakes:?}");
}

#[test]
fn unknown_keys_at_every_level() {
    let known =
        "include, run, memory, classify, input, output, nf, default_type, class, routes or route";
    let mistakes = broken("[input.in]", "[color]\n[input.in]\nsped = 3");
    assert_eq!(
        mistakes[0],
        format!("chain.toml:3:2: unknown key 'color': 'color'; expected {known}")
    );
    assert_eq!(
        mistakes[1],
        "chain.toml:5:1: unknown field `sped`, expected one of `capture`, `loop`, `memory`, `zero_copy`, `pace`, \
         `from`, `to`, `filter`: 'sped'; expected [input.NAME] with: capture, loop, memory, zero_copy, pace, from, \
         to, filter"
    );
    assert_eq!(mistakes.len(), 2);
    let of_nf = broken("number = 0", "number = 0\nnummer = 1");
    assert!(of_nf[0].starts_with("chain.toml:13:1: unknown field `nummer`"), "{of_nf:?}");
}

#[test]
fn values_of_a_wrong_type_or_out_of_range() {
    let sections = "[run]\nworkers = 0\npoll_us = 1000001\n[memory]\nframe_size = 100\n[classify]\nemc_entries = 2000000";
    let mistakes = broken("[input.in]", &format!("{sections}\n[input.in]\nloop = \"x\""));
    let starts = [
        "chain.toml:4:11: bad number of workers: '0'; expected 1 to 256",
        "chain.toml:5:11: polls last too long: '1000001'; expected at most 1000000 microseconds",
        "chain.toml:7:14: bad frame size: '100'; expected a multiple of 64",
        "chain.toml:9:15: exact-match cache too large: '2000000'",
        "chain.toml:11:8: invalid type: string \"x\", expected u64",
    ];
    assert_eq!(mistakes.len(), starts.len(), "{mistakes:#?}");
    for (mistake, start) in mistakes.iter().zip(starts) {
        assert!(mistake.starts_with(start), "{mistake}");
    }
}

#[test]
fn a_way_to_decapsulate_that_there_is_not() {
    let mistakes = broken("[input.in]", "[classify]\ndecapsulate = \"twice\"\n[input.in]");
    let start =
        "chain.toml:4:15: invalid value: string \"twice\", expected true, false or \"nested\"";
    assert!(mistakes.len() == 1 && mistakes[0].starts_with(start), "{mistakes:#?}");
    let mistakes = broken("[input.in]", "[classify]\ndecapsulate = 2\n[input.in]");
    let start = "chain.toml:4:15: invalid type: integer `2`, expected true, false or \"nested\"";
    assert!(mistakes.len() == 1 && mistakes[0].starts_with(start), "{mistakes:#?}");
}

#[test]
fn parts_that_are_missing() {
    let mistakes = folder("[nf.a]\nnumber = 0\n").mistakes();
    let starts = [
        "chain.toml:1:1: the chain has no routes; expected routes = \"FILE\", or a section [[route]]",
        "chain.toml:1:1: the chain has no input; expected a section [input.NAME]",
        "chain.toml:1:1: the chain has no output; expected a section [output.NAME]",
        "chain.toml:1:5: NF 'a' has no kind: 'a'; expected kind = \"...\": one of acl, defrag, filter, monitor, nat, test",
    ];
    assert_eq!(mistakes.len(), starts.len(), "{mistakes:#?}");
    for start in starts {
        assert!(mistakes.iter().any(|m| m.starts_with(start)), "{start} in {mistakes:#?}");
    }
}

#[test]
fn files_that_are_missing() {
    let capture = "4:11: cannot read this capture: No such file";
    for (name, place) in
        [("in.pcap", capture), ("routes.csv", "1:10: cannot read the file: No such file")]
    {
        let mistakes = broken(&format!("\"{name}\""), "\"none\"");
        assert_eq!(mistakes.len(), 1);
        assert!(mistakes[0].starts_with(&format!("chain.toml:{place}")), "{mistakes:?}");
        assert!(mistakes[0].contains(": '\"none\"'; expected "), "{mistakes:?}");
    }
    let mistakes = broken("\"out.pcap\"", "\"no/where/out.pcap\"");
    assert!(
        mistakes[0]
            .starts_with("chain.toml:6:11: no such folder for this file: '\"no/where/out.pcap\"'")
    );
    let mistakes = broken("rules = [\"priority=10,tcp,tp_dst=80\", \"udp\"]", "file = \"x.flows\"");
    assert!(mistakes[0].starts_with("chain.toml:9:8: cannot read the file"), "{mistakes:?}");
}

#[test]
fn an_output_that_would_destroy_what_is_read_or_written() {
    is_told(
        "\"out.pcap\"",
        "\"./in.pcap\"",
        "chain.toml:6:11: this would overwrite the file that input 'in' reads: '\"./in.pcap\"'; \
         expected a file of its own",
    );
    is_told(
        "[[class]]",
        "[output.again]\ncapture = \"out.pcap\"\n[[class]]",
        "chain.toml:8:11: this would overwrite the file that output 'out' writes: '\"out.pcap\"'; \
         expected a file of its own",
    );
    assert!(broken("\"out.pcap\"", "\"out.txt\"")[0].contains("unknown capture format"));
}

#[test]
fn an_nf_that_would_destroy_what_is_read_or_written() {
    let test = "kind = \"test\"\nnumber = 0";
    for (json, what) in [
        ("chain.toml", "the chain file"),
        ("routes.csv", "the routes file"),
        ("in.pcap", "the file that input 'in' reads"),
        ("out.pcap", "the file that output 'out' writes"),
        ("./flows.json", "the file that NF 'a' writes"),
    ] {
        let monitor = format!("kind = \"monitor\"\nipfix = \"flows.json\"\njson = \"{json}\"");
        let mistakes = broken(test, &monitor);
        assert_eq!(mistakes.len(), 1, "{json}: {mistakes:?}");
        assert!(mistakes[0].contains(&format!(": this would overwrite {what}: ")), "{mistakes:?}");
    }
    let rules = "kind = \"acl\"\nfiles = [\"my.rules\"]\nhits = \"my.rules\"";
    let chain = folder(&CHAIN.replace(test, rules));
    chain.write("my.rules", "permit ip\n");
    let mistakes = chain.mistakes();
    assert_eq!(mistakes.len(), 1, "{mistakes:?}");
    assert!(
        mistakes[0].contains(": this would overwrite the file that NF 'a' reads: "),
        "{mistakes:?}"
    );
    for (json, what) in
        [("no/flows.json", "no such folder for this file"), (".", "this is a folder")]
    {
        let mistakes = broken(test, &format!("kind = \"monitor\"\njson = \"{json}\""));
        assert!(mistakes[0].contains(what), "{mistakes:?}");
    }
    // Devices lose nothing when they are opened for writing.
    let both = "kind = \"monitor\"\nipfix = \"/dev/null\"\njson = \"/dev/null\"";
    assert!(folder(&CHAIN.replace(test, both)).load().is_ok());
}

#[test]
#[cfg(target_os = "linux")]
fn a_link_is_modelled_by_an_input() {
    let port = "memif = \"@peer\"\nrole = \"client\"\nlink = { latency_us = 10000001 }";
    let mistakes = broken("capture = \"in.pcap\"", port);
    assert!(mistakes[0].contains("'latency_us' of 'link' is 10000001"), "{mistakes:?}");
    let mistakes = broken("capture = \"out.pcap\"", port);
    assert!(mistakes[0].contains("unknown field `link`"), "{mistakes:?}");
}

#[test]
fn ports_that_are_two_things_or_none() {
    let one_of = "expected one of: interface = \"NAME\", xdp = \"NAME\", tap = \"NAME\", memif = \"SOCKET\", dpdk = \"DEVICE\", capture = \"FILE\"";
    let mistakes = broken("capture = \"in.pcap\"", "capture = \"in.pcap\"\ngenerate = {}");
    assert!(
        mistakes[0].starts_with("chain.toml:3:1: an input needs exactly one source"),
        "{mistakes:?}"
    );
    assert!(mistakes[0].contains(one_of));
    let mistakes = broken("capture = \"in.pcap\"", "interface = \"lo\"\ncapture = \"in.pcap\"");
    assert!(
        mistakes[0].starts_with("chain.toml:3:1: an input needs exactly one source"),
        "{mistakes:?}"
    );
    let mistakes = broken("capture = \"out.pcap\"", "discard = false");
    assert!(
        mistakes[0].starts_with("chain.toml:5:1: an output needs exactly one target"),
        "{mistakes:?}"
    );
}

#[test]
fn generated_traffic_that_makes_no_sense() {
    let mistakes =
        broken("capture = \"in.pcap\"", "generate = { malformed = 2.0 }\nloop = 3\nmemory = true");
    assert_eq!(mistakes.len(), 3, "{mistakes:#?}");
    assert!(mistakes[0].starts_with("chain.toml:4:12: malformed: "), "{mistakes:?}");
    assert!(mistakes[1].starts_with("chain.toml:5:8: 'loop' does not apply to generated"));
    assert!(mistakes[2].starts_with("chain.toml:6:10: 'memory' does not apply to generated"));
}

#[test]
fn names_that_routes_cannot_use() {
    for (name, message) in [
        ("egress", "'egress' is reserved in routes: 'egress'; expected another name"),
        ("out", "'out' is also the name of a port: 'out'; expected a name that no port has"),
        (
            "\"a,b\"",
            "'a,b' cannot be used in routes: '\"a,b\"'; \
             expected a name without commas, quotes and '#'",
        ),
    ] {
        let mistakes = broken("[nf.a]", &format!("[nf.{name}]"));
        assert_eq!(mistakes[0], format!("chain.toml:10:5: {message}"));
    }
    let mistakes = broken("type = \"web\"", "type = \" web\"");
    assert!(mistakes[0].starts_with("chain.toml:8:8: the name is empty or has blanks"));
}

#[test]
fn a_kind_of_nf_that_there_is_not() {
    is_told(
        "kind = \"test\"",
        "kind = \"rooter\"",
        "chain.toml:11:8: unknown NF kind 'rooter': '\"rooter\"'; \
         expected one of acl, defrag, filter, monitor, nat, test",
    );
    assert!(
        broken("kind = \"test\"", "kind = 3")[0]
            .starts_with("chain.toml:11:8: 'kind' is not a string")
    );
    let mistakes = broken("number = 0", "number = 0\npinned = \"no\"");
    assert!(mistakes[0].starts_with("chain.toml:13:10: 'pinned' is not a boolean"));
}

#[test]
fn a_rule_within_a_string_is_pointed_at() {
    let mistakes = broken("tp_dst=80", "tp_dst=x80");
    assert_eq!(mistakes.len(), 1);
    assert!(mistakes[0].starts_with("chain.toml:9:"), "{mistakes:?}");
    assert!(mistakes[0].contains(": 'x80'; expected"), "{mistakes:?}");
    let column = CHAIN.lines().nth(8).unwrap().find("80").unwrap() + 1;
    assert!(mistakes[0].starts_with(&format!("chain.toml:9:{column}: ")), "{mistakes:?}");
}

#[test]
fn rules_in_files_are_pointed_at_there() {
    let chain =
        CHAIN.replace("rules = [\"priority=10,tcp,tp_dst=80\", \"udp\"]", "file = \"x.flows\"");
    let folder = folder(&chain);
    folder.write("x.flows", "# web\ntcp,tp_dst=80 # ok\n\nudp,bogus=1\nip,nw_src=1.2.3\n");
    let mistakes = folder.mistakes();
    assert_eq!(mistakes.len(), 2, "{mistakes:#?}");
    assert!(mistakes[0].starts_with("x.flows:4:5: "), "{mistakes:?}");
    assert!(mistakes[1].starts_with("x.flows:5:"), "{mistakes:?}");
    folder.write("x.flows", "tcp,tp_dst=80\nudp\n");
    assert!(folder.load().is_ok());
}

#[test]
fn a_rule_that_can_never_match() {
    let twice = |rules: &str, more: &str| {
        let rules = format!("rules = [{rules}]\n[[class]]\ntype = \"more\"\nrules = [{more}]");
        folder(&CHAIN.replace("rules = [\"priority=10,tcp,tp_dst=80\", \"udp\"]", &rules))
    };
    assert_eq!(
        twice("'ip'", "'arp', 'tcp,tp_dst=80'").mistakes(),
        ["chain.toml:12:18: this rule can never match: 'ip' in line 9 covers it: \
             'tcp,tp_dst=80'; expected the narrower rule first, and each rule once"]
    );
    assert!(twice("'priority=1,tcp'", "'ip'").mistakes()[0].starts_with("chain.toml:9:11: "));
    for (rules, more) in [("'tcp'", "'ip'"), ("'ip'", "'priority=40000,tcp'"), ("'ip'", "'ipv6'")] {
        assert!(twice(rules, more).load().is_ok(), "{rules} {more}");
    }
    // Lines of a ClassBench file may do so, but cover rules after them.
    let folder = twice("'priority=40000,arp'", "'tcp,nw_src=10.1.0.0/16'");
    let chain = std::fs::read_to_string(folder.path("chain.toml")).unwrap();
    let line = "@10.0.0.0/8 0.0.0.0/0 0 : 65535 0 : 65535 0x06/0xFF 0x0000/0x0000\n";
    folder.write(
        "chain.toml",
        &chain.replacen(
            "[[class]]\ntype = \"more\"",
            "classbench = \"x\"\n[[class]]\ntype = \"more\"",
            1,
        ),
    );
    folder.write("x", &line.repeat(2));
    let mistakes = folder.mistakes();
    assert_eq!(mistakes.len(), 1, "{mistakes:?}");
    assert!(
        mistakes[0].starts_with("chain.toml:13:11: this rule can never match: @10."),
        "{mistakes:?}"
    );
}

#[test]
fn an_input_that_is_not_there() {
    is_told(
        "\"udp\"",
        "\"in_port=1,udp\"",
        "chain.toml:9:40: unknown input: 'in_port=1'; expected an input: 'in'",
    );
    is_told(
        "\"udp\"",
        "\"udp,in_port=nope\"",
        "chain.toml:9:52: unknown input: 'nope'; expected an input: 'in'",
    );
    is_told(
        "\"udp\"",
        "\"in_port=ni,udp\"",
        "chain.toml:9:48: unknown input: 'ni'; expected an input: 'in'; did you mean 'in'?",
    );
    let other = "[input.uplink]\ncapture = \"in.pcap\"\n";
    let chain = CHAIN.replace("\"udp\"", "\"in_port=upink\"");
    let told = folder(&format!("{chain}{other}")).mistakes().join("\n");
    assert!(told.contains("an input: 'in', 'uplink'; did you mean 'uplink'?"), "{told}");
    assert!(folder(&CHAIN.replace("\"udp\"", "\"in_port=0,udp\", \"in_port=in\"")).load().is_ok());
}

#[test]
fn a_class_without_rules() {
    let mistakes = broken("rules = [\"priority=10,tcp,tp_dst=80\", \"udp\"]", "");
    assert!(mistakes[0].starts_with("chain.toml:7:1: this class has no rules"), "{mistakes:?}");
}

#[test]
fn mistakes_of_all_files_are_told_together() {
    let chain = CHAIN
        .replace("tp_dst=80", "tp_dst=x80")
        .replace("kind = \"test\"", "kind = \"rooter\"")
        .replace("[input.in]", "[run]\nworkers = 0\n[input.in]");
    let folder = folder(&chain);
    folder.write("routes.csv", "*,ingress,b\n*,a,c\n");
    let places: Vec<_> = folder
        .mistakes()
        .iter()
        .map(|m| m.splitn(3, ':').take(2).collect::<Vec<_>>().join(":"))
        .collect();
    assert_eq!(
        places,
        ["chain.toml:4", "chain.toml:11", "chain.toml:13", "routes.csv:1", "routes.csv:2"]
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Loading a damaged chain ends with a chain or with mistakes that have a
    /// place, never with a panic.
    #[test]
    fn no_damage_makes_loading_fall(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..4usize, 0..15usize), 1..6),
        of_routes in any::<bool>(),
    ) {
        const PIECES: [&str; 15] = [
            "[", "]", "\"", "=", "\n", "{", "*", "é", "#", "0", "[nf.b]\n", "-9999999999999999999",
            "${HOME", "include = ['routes.csv']\n", "[[route]]\npath = ['ingress', 'a']\n",
        ];
        let mut text = String::from(if of_routes { ROUTES } else { CHAIN });
        for (place, what, piece) in edits {
            let ends: Vec<_> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            let at = *place.get(&ends);
            match what {
                0 => text.truncate(at),
                1 => text.insert_str(at, PIECES[piece]),
                2 => drop(text.drain(at..*ends.get(place.index(ends.len()) + piece).unwrap_or(&text.len()))),
                _ => text.insert_str(at, &text.clone()[at..]),
            }
        }
        let folder = folder(if of_routes { CHAIN } else { &text });
        if of_routes {
            folder.write("routes.csv", &text);
        }
        if let Err(mistakes) = folder.load() {
            prop_assert!(!mistakes.is_empty());
            for mistake in mistakes {
                prop_assert!(mistake.span().end <= mistake.source_file().text().len());
                prop_assert!(!mistake.to_string().is_empty());
            }
        }
    }
}

#[test]
fn what_an_nf_does_with_late_packets() {
    let nf = |lines: &str| broken("number = 0", &format!("number = 0\n{lines}"));
    assert_eq!(
        nf("on_overload = \"wait\""),
        ["chain.toml:13:15: unknown value of 'on_overload': '\"wait\"'; \
          expected \"bypass\" or \"drop\"; without it, packets wait"]
    );
    assert_eq!(
        nf("overload_after_ms = 5"),
        ["chain.toml:13:1: 'overload_after_ms' is for an NF with 'on_overload': \
          'overload_after_ms'; expected on_overload = \"bypass\" or \"drop\", too"]
    );
    for wrong in ["0", "60001", "-1", "\"10ms\"", "0.5"] {
        let mistakes = nf(&format!("on_overload = \"drop\"\noverload_after_ms = {wrong}"));
        assert_eq!(mistakes.len(), 1);
        let expected = "chain.toml:14:21: 'overload_after_ms' is out of range: ";
        assert!(mistakes[0].starts_with(expected), "{mistakes:?}");
    }
    let acl = "kind = \"acl\"\nrules = [\"permit ip\"]\non_overload = \"bypass\"";
    assert_eq!(
        broken("kind = \"test\"\nnumber = 0", acl),
        ["chain.toml:13:15: packets must not bypass an NF of kind 'acl': \
          packets that its rules deny would pass: '\"bypass\"'; \
          expected \"drop\"; without it, packets wait"]
    );
    for (lines, words) in [
        ("on_overload = \"bypass\"", "late packets bypass it"),
        ("on_overload = \"drop\"\noverload_after_ms = 60000", "late packets are dropped"),
    ] {
        let plan = folder(&CHAIN.replace("number = 0", &format!("number = 0\n{lines}"))).load();
        let tree = plan.unwrap().graph().to_tree();
        assert!(tree.contains(words), "{tree}");
    }
}
