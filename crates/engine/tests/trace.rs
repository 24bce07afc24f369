//! Traces: the path of one packet as in a run.

mod common;

use common::{Folder, Tag};
use thalweg_engine::{RunOptions, Trace, TraceError, trace};

const CHAIN: &str = r#"routes = "routes.csv"
[run]
merge = "turn"
[input.left]
capture = "left.pcap"
[input.right]
capture = "right.pcap"
[output.a]
capture = "a.pcap"
[output.b]
discard = true
[[class]]
type = "web"
rules = ["udp,tp_dst=1001"]
[nf.first]
kind = "test"
number = 0
pinned = true
[nf.second]
kind = "test"
number = 1
drop_one_in = 1
[nf.third]
kind = "test"
number = 2
emit_one_in = 1
"#;

fn tag(flow: u32, sequence: u32) -> Tag {
    Tag { flow, back: false, lineage: 0, sequence }
}

fn folder() -> Folder {
    let folder = Folder::new();
    let left: Vec<_> = (0..40).map(|n| tag(2, n)).collect();
    let right: Vec<_> = (0..10).map(|n| tag(5, 100 + n)).collect();
    folder.capture("left.pcap", &left).capture("right.pcap", &right).write("chain.toml", CHAIN);
    let routes = "*,ingress,first\nweb,first,second\n*,second,b\n*,first,third\n*,third,a\n";
    folder.write("routes.csv", routes);
    folder
}

fn traced(packet: u64) -> Result<Trace, TraceError> {
    trace(folder().load().unwrap(), packet, &RunOptions::default())
}

#[test]
fn a_packet_is_followed_through_pinned_nfs_to_its_output() {
    let trace = traced(3).unwrap();
    assert_eq!(trace.input, "left");
    assert_eq!(trace.timestamp_ns, 1_000_002_000);
    assert_eq!(trace.length, 55);
    assert!(trace.flow.starts_with("udp,in_port=left,"), "{}", trace.flow);
    assert!(trace.flow.contains("nw_src=10.0.0.2,nw_dst=192.0.2.1"), "{}", trace.flow);
    assert!(trace.flow.ends_with("tp_src=20002,tp_dst=1002"), "{}", trace.flow);
    assert!(trace.parsed.contains("up to the transport layer, complete, network header at 14"));
    assert_eq!((&*trace.layer, trace.rule.as_deref()), ("megaflow", None));
    assert_eq!(trace.packet_type, "other");
    let steps: Vec<_> = trace.steps.iter().map(|s| (&*s.nf, &*s.verdict)).collect();
    assert_eq!(steps, [("first", "forward"), ("third", "forward")]);
    assert_eq!(trace.steps[1].explanations, ["NF 2 saw flow 2"]);
    assert_eq!(trace.steps[1].emitted.len(), 1);
    assert!(trace.steps[1].emitted[0].starts_with("55 bytes: udp,"), "{:?}", trace.steps[1]);
    assert_eq!(trace.fate, "transmitted by a");
}

#[test]
fn inputs_are_read_in_turn_as_in_a_run() {
    // 32 packets of the first input, 10 of the second, then the rest.
    for (packet, input) in [(32, "left"), (33, "right"), (42, "right"), (43, "left")] {
        assert_eq!(traced(packet).unwrap().input, input, "packet {packet}");
    }
}

#[test]
fn the_rule_the_megaflow_and_the_loss_are_named() {
    let trace = traced(33).unwrap();
    assert_eq!((&*trace.layer, trace.rule.as_deref()), ("rule table", Some("udp,tp_dst=1001")));
    assert!(trace.megaflow.contains("tp_dst=1001"), "{}", trace.megaflow);
    assert_eq!(trace.fate, "dropped by second: filter-drop");
    let text = trace.to_string();
    for line in [
        "packet 33: 55 bytes from right",
        "classification (rule table)",
        "    rule: udp,tp_dst=1001",
        "    type: web",
        "first",
        "    NF 0 saw flow 5",
        "    -> drop: filter-drop",
        "fate: dropped by second: filter-drop",
    ] {
        assert!(text.lines().any(|l| l == line), "no line '{line}' in:\n{text}");
    }
}

#[test]
fn a_number_past_the_end_is_an_error_that_says_how_many_there_are() {
    for packet in [0, 51, u64::MAX] {
        let error = traced(packet).unwrap_err().to_string();
        let expected = format!("there is no packet {packet}: the inputs end after packet 50");
        assert_eq!(error, expected);
    }
}

#[test]
fn tracing_writes_no_output() {
    let folder = folder();
    trace(folder.load().unwrap(), 50, &RunOptions::default()).unwrap();
    assert!(!folder.path("a.pcap").exists());
}

#[test]
fn the_json_form_is_versioned() {
    let json = serde_json::to_value(traced(1).unwrap()).unwrap();
    assert_eq!(json["schema"], "thalweg.trace/1");
    assert_eq!(json["steps"][0]["nf"], "first");
}
