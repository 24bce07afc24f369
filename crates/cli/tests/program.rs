//! The program as a user sees it: help, exit codes, messages.

mod support;

use support::{report, succeeds, thalweg, write};

const CHAIN: &str = "routes = 'routes.csv'\n[input.a]\ngenerate = { packets = 1000 }\n\
    [output.o]\ncapture = 'out.pcapng'\n[nf.count]\nkind = 'monitor'\n";

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "chain.toml", CHAIN);
    write(folder.path(), "routes.csv", "*, ingress, count\n*, count, egress\n");
    folder
}

#[test]
fn every_command_has_help_with_examples() {
    let folder = folder();
    let all = succeeds(folder.path(), &["--help"]);
    for command in [
        "run",
        "check",
        "ids",
        "flows",
        "assets",
        "nat",
        "ctl",
        "top",
        "gen",
        "trace",
        "profile",
        "schema",
        "doctor",
        "devices",
        "place",
        "completions",
        "man",
    ] {
        assert!(all.contains(command), "{command}");
        let help = succeeds(folder.path(), &[command, "--help"]);
        assert!(help.contains("Examples:"), "{command}: {help}");
    }
    assert!(succeeds(folder.path(), &["completions", "bash"]).contains("thalweg"));
    assert!(succeeds(folder.path(), &["man", "run"]).contains(".TH"));
}

#[test]
fn kinds_of_nf_are_told_to_people_and_programs() {
    let folder = folder();
    let list = succeeds(folder.path(), &["nf", "list"]);
    let told: serde_json::Value =
        serde_json::from_str(&succeeds(folder.path(), &["nf", "list", "--json"])).unwrap();
    let kinds = told["kinds"].as_array().unwrap();
    assert!(kinds.len() >= 6, "{told}");
    for kind in kinds {
        let name = kind["kind"].as_str().unwrap();
        assert!(list.contains(name), "{list}");
        let person = succeeds(folder.path(), &["nf", "show", name]);
        let program = succeeds(folder.path(), &["nf", "show", name, "--json"]);
        let program: serde_json::Value = serde_json::from_str(&program).unwrap();
        assert_eq!(program["schema"], "thalweg.nf/1");
        let options = program["options"]["properties"].as_object().unwrap();
        assert!(options.keys().all(|option| person.contains(option.as_str())), "{person}");
        let limit = program["limits"][0].as_str().unwrap();
        assert!(person.contains("default") && person.contains(limit), "{person}");
        // Exactly the kinds without state have nothing to move.
        let (state, grain) = (&program["state"], &program["grain"]);
        assert_eq!(state == "none", grain == "none", "{name}");
        assert_eq!(person.contains("nothing to move"), grain == "none", "{person}");
    }
    let nids = succeeds(folder.path(), &["nf", "show", "nids"]);
    assert!(nids.contains("flow by flow, in up to 4096 units"), "{nids}");
    let router = succeeds(folder.path(), &["nf", "show", "router"]);
    assert!(router.contains("ports.NAME.mac") && router.contains("68 to 65535"), "{router}");
    let wrong = thalweg(folder.path(), &["nf", "show", "rooter"]);
    let told = String::from_utf8(wrong.stderr).unwrap();
    assert!(wrong.status.code() == Some(2) && told.contains("assets, defrag"), "{told}");
}

#[test]
fn kinds_of_port_are_told_to_people_and_programs() {
    let folder = folder();
    let read = |arguments: &[&str]| -> serde_json::Value {
        serde_json::from_str(&succeeds(folder.path(), arguments)).unwrap()
    };
    let list = succeeds(folder.path(), &["port", "list"]);
    let told = read(&["port", "list", "--json"]);
    let kinds = told["kinds"].as_array().unwrap();
    assert_eq!(kinds.len(), 8, "{told}");
    for kind in kinds {
        let (name, key) = (kind["kind"].as_str().unwrap(), kind["key"].as_str().unwrap());
        assert!(list.contains(name) && list.contains(key), "{list}");
        let person = succeeds(folder.path(), &["port", "show", key]);
        let program = read(&["port", "show", name, "--json"]);
        for side in ["input", "output"] {
            let keys = program[side]["properties"].as_object();
            assert_eq!(kind[side], keys.is_some(), "{program}");
            assert_eq!(person.contains(&format!("[{side}.NAME]")), keys.is_some(), "{person}");
            let mut keys = keys.into_iter().flat_map(serde_json::Map::keys);
            assert!(keys.all(|key| person.contains(key.as_str())), "{person}");
            assert!(program[side]["required"].as_array().is_none_or(|keys| keys[0] == key));
        }
    }
    let wrong = thalweg(folder.path(), &["port", "show", "dpkd"]);
    let told = String::from_utf8(wrong.stderr).unwrap();
    assert!(
        wrong.status.code() == Some(2)
            && told.contains("interface, xdp, tap, memif, dpdk, capture, "),
        "{told}"
    );
}

#[test]
fn exit_codes_tell_what_kind_of_failure_it_was() {
    let folder = folder();
    let code = |arguments: &[&str]| thalweg(folder.path(), arguments).status.code();
    assert_eq!(code(&["run", "chain.toml"]), Some(0));
    assert_eq!(code(&["run", "chain.toml", "--workers", "none"]), Some(2));
    assert_eq!(code(&["gen", "x.txt"]), Some(2));
    assert_eq!(code(&["gen", "x.pcap", "--ipv6", "7"]), Some(2));
    assert_eq!(code(&["run", "nowhere.toml"]), Some(78));
    assert_eq!(code(&["gen", "/nonexistent/x.pcap"]), Some(1));
    assert_eq!(code(&["trace", "chain.toml", "--packet", "5000"]), Some(1));
}

#[test]
fn bad_configuration_is_shown_with_file_line_and_expectation() {
    let folder = folder();
    let broken = CHAIN.replace("kind = 'monitor'", "kind = 'moniter'")
        + "[[class]]\ntype = 'x'\nrules = ['tp_dst=1']\n";
    write(folder.path(), "chain.toml", &broken);
    let output = thalweg(folder.path(), &["run", "chain.toml"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(78));
    assert!(output.stdout.is_empty() && !folder.path().join("out.pcapng").exists());
    for part in
        ["chain.toml:7:8", "'moniter'", "expected one of acl", "chain.toml:10:11", "'tcp', 'udp'"]
    {
        assert!(error.contains(part), "{part}: {error}");
    }
    write(folder.path(), "chain.toml", &CHAIN.replace("routes =", "rooutes ="));
    let output = thalweg(folder.path(), &["check", "chain.toml"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("rooutes"));
}

#[test]
fn strict_refuses_what_would_only_be_a_warning() {
    let folder = folder();
    let chain = CHAIN.replace("'monitor'", "'nids'\nrules = ['t.rules']");
    write(folder.path(), "chain.toml", &chain);
    let rule =
        |options: &str, sid: u8| format!("alert tcp any any -> any any ({options} sid:{sid};)\n");
    let odd = ["byte_math:bytes 1;", "classtype:misc-activty;", "flowbits:isset,never;"];
    for odd in odd {
        write(folder.path(), "t.rules", &format!("{}{}", rule("content:\"a\";", 1), rule(odd, 2)));
        for command in ["check", "run"] {
            let lax = thalweg(folder.path(), &[command, "chain.toml"]);
            let warned = String::from_utf8(lax.stderr).unwrap();
            assert!(lax.status.success() && warned.contains("t.rules:2:"), "{odd}: {warned}");
            let strict = thalweg(folder.path(), &[command, "chain.toml", "--strict"]);
            let error = String::from_utf8(strict.stderr).unwrap();
            assert_eq!(strict.status.code(), Some(78), "{odd}: {error}");
            assert!(error.contains("t.rules:2:"), "{odd}: {error}");
            assert!(error.contains("1 mistake in 1 file"), "{odd}: {error}");
        }
    }
    write(folder.path(), "t.rules", &rule("content:\"a\";", 1));
    succeeds(folder.path(), &["check", "chain.toml", "--strict"]);
}

#[test]
fn counts_loops_and_workers_are_obeyed() {
    let folder = folder();
    let f = folder.path();
    let (r, ..) = report(f, &["run", "chain.toml", "--json", "--count", "77"]);
    assert_eq!((r["packets_in"].as_u64(), r["schema"].as_str()), (Some(77), Some("thalweg.run/1")));
    let (r, ..) = report(f, &["run", "chain.toml", "--json", "--workers", "3"]);
    assert_eq!((r["workers"].as_u64(), r["packets_out"].as_u64()), (Some(3), Some(1000)));
    succeeds(f, &["gen", "in.pcap", "--packets", "50"]);
    write(f, "chain.toml", &CHAIN.replace("generate = { packets = 1000 }", "capture = 'in.pcap'"));
    let (r, ..) = report(f, &["run", "chain.toml", "--json", "--loop", "4"]);
    assert_eq!(r["packets_out"].as_u64(), Some(200));
    let (r, ..) = report(f, &["run", "chain.toml", "--json", "--loop", "0", "--duration", "100ms"]);
    assert!(r["packets_out"].as_u64().unwrap() > 200);
    assert_eq!(r["conserved"], true);
}

#[test]
fn a_trace_and_a_check_say_what_they_must() {
    let folder = folder();
    let trace = succeeds(folder.path(), &["trace", "chain.toml", "--packet", "3"]);
    for part in ["packet 3:", "classification", "count", "fate: transmitted by o"] {
        assert!(trace.contains(part), "{part}: {trace}");
    }
    let json = succeeds(folder.path(), &["trace", "chain.toml", "--packet", "3", "--json"]);
    let trace: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(trace["schema"], "thalweg.trace/1");
    let dot = succeeds(folder.path(), &["check", "chain.toml", "--format", "dot"]);
    assert!(dot.starts_with("digraph") && dot.contains("\"ingress\" -> \"count\""));
    assert!(!folder.path().join("out.pcapng").exists(), "neither writes outputs");
    let doctor = succeeds(folder.path(), &["doctor", "--json"]);
    let doctor: serde_json::Value = serde_json::from_str(&doctor).unwrap();
    assert_eq!(doctor["schema"], "thalweg.doctor/1");
}

#[test]
fn an_interrupt_ends_a_run_with_its_report_and_readable_output() {
    let folder = folder();
    succeeds(folder.path(), &["gen", "in.pcap", "--packets", "500"]);
    let chain = CHAIN.replace("generate = { packets = 1000 }", "capture = 'in.pcap'\nloop = 0");
    write(folder.path(), "chain.toml", &chain);
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_thalweg"))
        .args(["run", "chain.toml", "--json", "--duration", "60s"])
        .current_dir(folder.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(400));
    // The shell's own kill: a bare system has no other.
    let interrupt = format!("kill -INT {}", child.id());
    let kill = std::process::Command::new("sh").args(["-c", &interrupt]).status();
    assert!(kill.unwrap().success());
    let mut text = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().unwrap(), &mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["conserved"], true);
    assert!(report["duration_s"].as_f64().unwrap() < 30.0);
    let mut input = thalweg_io::CaptureInput::open(&folder.path().join("out.pcapng"), 1).unwrap();
    let pool = std::sync::Arc::new(thalweg_packet::Pool::anonymous(64, 2048).unwrap());
    let mut batch = thalweg_packet::Batch::new(pool);
    let (mut packets, mut drops) = (0, thalweg_packet::DropCounts::default());
    loop {
        use thalweg_io::Input;
        let received = input.receive(&mut batch, 32, &mut drops).unwrap();
        packets += received.packets as u64;
        batch.release(batch.lanes());
        if received.ended {
            break;
        }
    }
    assert_eq!(Some(packets), report["packets_out"].as_u64());
}

#[test]
fn mistakes_in_arguments_name_the_option_as_typed() {
    let folder = folder();
    let mistakes: [(&[&str], &str); 22] = [
        (&["gen", "x.pcap", "--ipv6", "7"], "--ipv6: 7; expected a share"),
        (&["gen", "x.pcap", "--vlan-share", "2"], "--vlan-share: 2;"),
        (&["gen", "x.pcap", "--qinq-share=-1"], "--qinq-share: -1;"),
        (&["gen", "x.pcap", "--malformed", "1.5"], "--malformed: 1.5;"),
        (&["gen", "x.pcap", "--hostile=NaN"], "--hostile: NaN;"),
        (&["gen", "x.pcap", "--tcp=-1"], "--tcp, --udp, --icmp, --sctp: "),
        (&["gen", "x.pcap", "--flows", "0"], "--flows: 0;"),
        (&["gen", "x.pcap", "--rate", "0"], "--rate: 0;"),
        (&["gen", "x.pcap", "--zipf=-1"], "--zipf: -1;"),
        (&["gen", "x.pcap", "--vlan", "5000"], "--vlan: [5000];"),
        (&["gen", "x.pcap", "--clients", "lan"], "--clients: 'lan'"),
        (&["gen", "x.pcap", "--servers", "::/0"], "--servers: no IPv4 prefix"),
        (&["gen", "x.pcap", "--size", "big"], "--size: "),
        (&["gen", "x.pcap", "--packets", "many"], "--packets"),
        (&["run", "chain.toml", "--loop", "3"], "--loop applies to none"),
        (&["trace", "chain.toml", "--packet", "5000"], "--packet: there is no packet 5000"),
        (&["profile", "--emc-entries", "9999999"], "--emc-entries"),
        (&["sim", "run", "--method", "fast"], "--method: unknown method 'fast'"),
        (&["sim", "run", "--set", "core"], "--set: invalid setting 'core'"),
        (&["sim", "run", "--set", "core.wide=1"], "--set: setting 'core.wide=1'"),
        (&["sim", "sweep", "--over", "core", "x.jsonl"], "--over: 'core' is not a setting"),
        (&["sim", "sweep", "--over", "core.width=a", "x.jsonl"], "--over: setting 'core.width=a'"),
    ];
    for (arguments, expected) in mistakes {
        let output = thalweg(folder.path(), arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(expected), "{arguments:?}: {error}");
    }
}
