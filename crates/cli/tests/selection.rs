//! Options of `run` and `trace` that select packets of captures.

mod support;

use std::path::Path;

use support::{report, succeeds, thalweg, write};

/// A folder with a second of generated traffic, 1000 packets, in a capture, and a chain that reads
/// it, with more `keys` of its input.
fn folder(keys: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    succeeds(path, &["gen", "in.pcap", "--packets", "1000", "--rate", "1000"]);
    chain(path, &format!("capture = 'in.pcap'\n{keys}"));
    write(path, "routes.csv", "*, ingress, n\n*, n, egress\n");
    folder
}

fn chain(path: &Path, input: &str) {
    let chain = format!(
        "routes = 'routes.csv'\n[input.in]\n{input}\n[output.out]\ncapture = 'out.pcap'\n\
         [nf.n]\nkind = 'refrag'\n"
    );
    write(path, "chain.toml", &chain);
}

/// The exit code and the message of a command that fails.
fn fails(path: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = thalweg(path, arguments);
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn packets_outside_of_from_and_to_are_counted_and_not_received() {
    let folder = folder("from = 0.5\nto = \"1970-01-01T00:00:00.6Z\"");
    let path = folder.path();
    for (arguments, packets) in [
        (&[][..], 100),
        (&["--to", "0.8"], 300),
        (&["--from", "1970-01-01T00:00:00.550Z"], 50),
        (&["--from", "0", "--to", "0.2"], 200),
    ] {
        let (report, code, error) =
            report(path, &[&["run", "chain.toml", "--json"], arguments].concat());
        assert_eq!(code, 0, "{error}");
        assert_eq!(report["packets_out"], packets, "{arguments:?}");
        assert_eq!(report["inputs"][0]["outside"], 1000 - packets, "{arguments:?}");
        assert_eq!(report["outputs"][0].get("outside"), None);
    }
    let text = succeeds(path, &["run", "chain.toml"]);
    assert!(text.contains("\nnot received by in: outside 900\n"), "{text}");
    let trace = succeeds(path, &["trace", "chain.toml", "--packet", "3", "--to", "1", "--json"]);
    let trace: serde_json::Value = serde_json::from_str(&trace).unwrap();
    assert_eq!(trace["timestamp_ns"], 502_000_000);
    let (code, error) = fails(path, &["trace", "chain.toml", "--packet", "101"]);
    assert_eq!(code, Some(1));
    assert!(error.contains("the inputs end after packet 100"), "{error}");
}

#[test]
fn times_that_select_nothing_are_refused() {
    let folder = folder("from = 0.5");
    let path = folder.path();
    let before = path.join("out.pcap");
    for command in [&["run", "chain.toml"][..], &["trace", "chain.toml", "--packet", "1"]] {
        for (arguments, expected) in [
            (&["--from", "noon"][..], "'noon' for '--from <TIME>': expected a time such as 2024-"),
            (&["--to", "0.5"], "no time is in the range of input 'in'; expected --from before"),
            (&["--from", "2", "--to", "1"], "no time is in the range of input 'in'"),
        ] {
            let (code, error) = fails(path, &[command, arguments].concat());
            assert_eq!(code, Some(2), "{command:?} {arguments:?}: {error}");
            assert!(error.contains(expected), "{command:?} {arguments:?}: {error}");
        }
    }
    chain(path, "generate = {}");
    let (code, error) = fails(path, &["run", "chain.toml", "--from", "1"]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("--from and --to apply to none of the inputs"), "{error}");
    assert!(!before.exists(), "no output was begun");
}

#[cfg(feature = "libpcap")]
#[test]
fn packets_that_do_not_match_the_filter_are_counted_and_not_received() {
    let folder = folder("filter = 'tcp'");
    let path = folder.path();
    let run = |arguments: &[&str]| {
        let (report, code, error) =
            report(path, &[&["run", "chain.toml", "--json"], arguments].concat());
        assert_eq!(code, 0, "{error}");
        let count = |key: &str| report["inputs"][0][key].as_u64().unwrap_or(0);
        let counts = ["packets", "outside", "filtered"].map(count);
        assert_eq!(counts.iter().sum::<u64>(), 1000, "{report}");
        counts
    };
    let [tcp, ..] = run(&[]);
    let [not_tcp, ..] = run(&["--filter", "not tcp"]);
    assert!(tcp > 300 && not_tcp > 100 && tcp + not_tcp == 1000, "{tcp} and {not_tcp}");
    let [packets, outside, filtered] = run(&["--from", "0.9"]);
    assert_eq!(outside, 900);
    assert!(packets > 10 && filtered > 10, "{packets} and {filtered}");
    let text = succeeds(path, &["run", "chain.toml", "--from", "0.9"]);
    let line = format!("\nnot received by in: outside 900, filtered {filtered}\n");
    assert!(text.contains(&line), "{text}");
    let trace = succeeds(path, &["trace", "chain.toml", "--packet", "1", "--filter", "udp"]);
    assert!(trace.contains("\nflow: udp,"), "{trace}");
}

#[cfg(feature = "libpcap")]
#[test]
fn a_wrong_filter_is_pointed_at_in_the_words_of_libpcap() {
    let folder = folder("filter = 'tcp prt 80'");
    let path = folder.path();
    for command in ["check", "run"] {
        let (code, error) = fails(path, &[command, "chain.toml"]);
        assert_eq!(code, Some(78), "{error}");
        assert!(error.contains("chain.toml:4:10: ") && error.contains("syntax error"), "{error}");
    }
    let (code, error) = fails(path, &["run", "chain.toml", "--filter", "tcp and"]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("'tcp and' for '--filter <FILTER>': "), "{error}");
    assert!(error.contains("syntax error"), "{error}");
    chain(path, "generate = {}\nfilter = 'tcp'");
    let (code, error) = fails(path, &["check", "chain.toml"]);
    assert_eq!(code, Some(78), "{error}");
    assert!(error.contains("'filter' does not apply to generated traffic"), "{error}");
    chain(path, "generate = {}");
    let (code, error) = fails(path, &["run", "chain.toml", "--filter", "tcp"]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("--filter applies to none of the inputs"), "{error}");
}

#[cfg(not(feature = "libpcap"))]
#[test]
fn a_build_without_libpcap_reports_so() {
    let folder = folder("filter = 'tcp'");
    let path = folder.path();
    let (code, error) = fails(path, &["check", "chain.toml"]);
    assert_eq!(code, Some(78), "{error}");
    let message = "this build has no packet filters: it lacks the feature libpcap";
    assert!(error.contains("chain.toml:4:10: ") && error.contains(message), "{error}");
    assert!(error.contains("expected a build with the feature libpcap"), "{error}");
    chain(path, "capture = 'in.pcap'");
    let (code, error) = fails(path, &["run", "chain.toml", "--filter", "tcp"]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains(message), "{error}");
}
