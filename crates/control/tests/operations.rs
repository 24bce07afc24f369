//! Each operation of the API, on a run under way.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use common::{Running, document, events, start, wait};
use serde_json::{Value, json};
use thalweg_api::Limits;

fn running() -> Running {
    start(1, Limits::default())
}

/// Held by tests about the log, whose level is that of the process.
static LOG: Mutex<()> = Mutex::new(());

#[test]
fn status_names_the_run_and_its_progress() {
    let run = running();
    let status = run.json("/v1/status");
    assert_eq!(status["schema"], "thalweg.status/1");
    assert_eq!(status["name"], "test");
    assert_eq!(status["pid"], std::process::id());
    assert_eq!(status["state"], "running");
    assert_eq!(status["workers"], 1);
    assert!(status["chain"].as_str().unwrap().ends_with("/chain.toml"));
    let started = status["started"].as_str().unwrap();
    assert!(started.len() >= 20 && started.ends_with('Z'), "{started}");
    let later = run.json("/v1/status");
    let received = |status: &Value| status["progress"]["packets_in"].as_u64().unwrap();
    assert!(received(&status) > 1000 && received(&later) >= received(&status));
    assert_eq!(later["api"]["requests"], 2);
    assert!(run.end().conserved);
}

#[test]
fn a_report_is_of_one_moment_and_balances() {
    for workers in [1, 2] {
        let run = start(workers, Limits::default());
        let mut before = 0;
        for _ in 0..5 {
            let report = run.json("/v1/report");
            assert_eq!(report["schema"], "thalweg.run/1");
            assert_eq!(report["conserved"], true);
            let count = |key: &str| report[key].as_u64().unwrap();
            let accounted = count("packets_out") + count("packets_dropped");
            assert_eq!(count("packets_in") + count("generated"), accounted);
            assert!(count("packets_in") > before);
            before = count("packets_in");
            // Beyond the age up to which one serves several requests.
            std::thread::sleep(Duration::from_millis(120));
        }
        assert!(run.end().conserved);
    }
}

#[test]
fn requests_of_the_same_moment_share_a_snapshot() {
    let run = running();
    let reports: Vec<_> = (0..20).map(|_| run.get("/v1/report").body).collect();
    let distinct: std::collections::BTreeSet<_> = reports.iter().collect();
    assert!(distinct.len() < 10, "{} of 20 requests made work for the engine", distinct.len());
}

#[test]
fn ports_and_nfs_have_their_counts() {
    let run = running();
    let ports = run.json("/v1/ports");
    let [input, output] = [&ports["ports"][0], &ports["ports"][1]];
    assert_eq!([&input["name"], &output["name"]], ["traffic", "out"]);
    assert_eq!([&input["direction"], &output["direction"]], ["in", "out"]);
    assert_eq!([&input["kind"], &output["kind"]], ["generator", "discard"]);
    assert_eq!(input["what"], "1000000000 generated packets in 100 flows");
    assert!(input["packets"].as_u64().unwrap() > 1000);
    let nfs = run.json("/v1/nfs");
    assert_eq!(nfs["nfs"].as_array().unwrap().len(), 2);
    let gate = run.json("/v1/nfs/gate");
    assert_eq!([&gate["name"], &gate["kind"]], ["gate", "acl"]);
    assert!(gate["drops"]["filter-drop"].as_u64().is_some_and(|drops| drops > 0), "{gate}");
    let answer = run.get("/v1/nfs/gat");
    assert_eq!(answer.status, 404);
    assert_eq!(document(&answer)["detail"], "no NF 'gat'; expected watch, gate");
}

#[test]
fn rules_are_listed_by_part() {
    let run = running();
    let all = run.json("/v1/rules");
    assert_eq!((&all["total"], &all["default_type"]), (&2.into(), &"other".into()));
    assert_eq!(all["rules"][0]["text"], "priority=7,tcp,tp_dst=443");
    assert_eq!(
        (&all["rules"][0]["priority"], &all["rules"][0]["type"]),
        (&7.into(), &"web".into())
    );
    let part = run.json("/v1/rules?from=1&limit=1");
    assert_eq!(part["rules"].as_array().unwrap().len(), 1);
    assert_eq!(part["rules"][0]["id"], 1);
    let past = run.json("/v1/rules?from=4294967295&limit=1000");
    assert_eq!(past["rules"].as_array().unwrap().len(), 0);
    for (query, parameter) in [("limit=0", "limit"), ("limit=1001", "limit"), ("from=-1", "from")] {
        let answer = run.get(&format!("/v1/rules?{query}"));
        assert_eq!(answer.status, 400, "{query}");
        assert_eq!(document(&answer)["errors"][0]["parameter"], parameter);
    }
}

#[test]
fn the_level_of_the_log_can_be_changed() {
    let _lock = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    let run = running();
    let answer = run.request("PUT", "/v1/log", "*/*", Some(r#"{"level": "debug"}"#));
    assert_eq!((answer.status.as_u16(), document(&answer)["level"].clone()), (200, "debug".into()));
    assert_eq!(log::max_level(), log::LevelFilter::Debug);
    assert_eq!(run.json("/v1/log")["level"], "debug");
    let wrong = run.request("PUT", "/v1/log", "*/*", Some(r#"{"level": "loud"}"#));
    assert_eq!(wrong.status, 422);
    let mistake = &document(&wrong)["errors"][0];
    assert_eq!(mistake["pointer"], "/level");
    assert!(mistake["expected"].as_str().unwrap().contains("`trace`"), "{mistake}");
    assert_eq!(log::max_level(), log::LevelFilter::Debug);
    run.request("PUT", "/v1/log", "*/*", Some(r#"{"level": "off"}"#));
}

#[test]
fn an_export_makes_nfs_write_and_is_limited() {
    let folder = tempfile::tempdir().unwrap();
    // One packet, and then silence: the output keeps it until it is full or has to write.
    let pipe = folder.path().join("in");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let chain = "[input.in]\ncapture = \"in\"\n[output.out]\ncapture = \"out.pcap\"\n\
        [[route]]\npath = [\"ingress\", \"egress\"]\n";
    std::fs::write(folder.path().join("chain.toml"), chain).unwrap();
    let run = common::start_in(folder, 1, Limits::default());
    let mut source = std::fs::File::create(pipe).unwrap();
    let head = [0xa1b2_c3d4_u32, 4 << 16 | 2, 0, 0, 65_535, 1, 0, 0, 60, 60];
    source.write_all(&head.map(u32::to_le_bytes).concat()).unwrap();
    source.write_all(&[0; 60]).unwrap();
    wait(|| run.control.progress().packets_out == 1);
    let written = || run.folder().join("out.pcap").metadata().map_or(0, |file| file.len());
    assert!(written() < 60);
    let answer = run.request("POST", "/v1/export", "*/*", None);
    assert_eq!(answer.status, 202);
    wait(|| written() > 60);
    let again = run.request("POST", "/v1/export", "*/*", None);
    assert_eq!(again.status, 429);
    assert!(document(&again)["detail"].as_str().unwrap().contains("less than a second ago"));
}

#[test]
fn a_reload_takes_up_the_chain_file_or_names_its_mistakes() {
    let run = running();
    let path = run.folder().join("chain.toml");
    let chain = std::fs::read_to_string(&path).unwrap();
    let reload = |wish: &str| run.request("POST", "/v1/reload", "*/*", Some(wish));
    let nothing = reload("{}");
    assert_eq!((nothing.status.as_u16(), &document(&nothing)["changes"]), (200, &json!([])));
    let changed =
        chain.replace("\"deny icmp\"", "\"deny icmp\", \"deny udp\"").replace("443", "444");
    std::fs::write(&path, &changed).unwrap();
    let dry = document(&reload(r#"{"dry_run": true}"#));
    assert_eq!(
        (&dry["dry_run"], dry["changes"].as_array().unwrap().len()),
        (&true.into(), 2),
        "{dry}"
    );
    assert_eq!(run.json("/v1/nfs/gate")["what"], "1 rule, default permit");
    let done = document(&reload("{}"));
    assert_eq!((&done["schema"], &done["dry_run"]), (&"thalweg.reload/1".into(), &false.into()));
    assert_eq!(done["changes"], dry["changes"]);
    assert!(done["text"][1].as_str().unwrap().starts_with("~ nf 'gate': "), "{done}");
    // What the API shows is what packets take now.
    assert_eq!(run.json("/v1/nfs/gate")["what"], "2 rules, default permit");
    assert_eq!(run.json("/v1/rules")["rules"][0]["text"], "priority=7,tcp,tp_dst=444");
    std::fs::write(&path, changed.replace("default = \"permit\"", "default = \"pemit\"")).unwrap();
    let refused = reload("{}");
    assert_eq!(refused.status, 422);
    let mistake = &document(&refused)["errors"][0];
    assert!(mistake["source"].as_str().unwrap().ends_with("/chain.toml:14:11"), "{mistake}");
    assert!(mistake["message"].as_str().unwrap().contains("'\"pemit\"'"), "{mistake}");
    assert_eq!(reload(r#"{"dry": true}"#).status, 422);
    assert_eq!(run.json("/v1/nfs/gate")["what"], "2 rules, default permit");
    let report = run.end();
    assert!(report.conserved && report.reloads == 1, "{}", report.reloads);
}

#[test]
fn stop_ends_the_run() {
    let run = running();
    let answer = run.request("POST", "/v1/stop", "*/*", None);
    assert_eq!(
        (answer.status.as_u16(), document(&answer)["state"].clone()),
        (202, "stopping".into())
    );
    assert!(run.control.is_stopping());
    assert!(run.end().conserved);
}

#[test]
fn events_stream_progress_and_reports_until_the_end() {
    let run = running();
    let mut progress = events(&run, "/v1/events?every=0.1");
    let reports = events(&run, "/v1/events?every=0.2&what=report");
    let received: Vec<_> = progress
        .by_ref()
        .take(3)
        .map(|(name, data)| {
            assert_eq!(name, "progress");
            data["packets_in"].as_u64().unwrap()
        })
        .collect();
    assert!(received.is_sorted() && received[0] < received[2], "{received:?}");
    for (name, report) in reports.take(2) {
        assert_eq!((&*name, &report["conserved"]), ("report", &true.into()));
    }
    run.end();
    assert_eq!(progress.last().unwrap().0, "end");
}

#[test]
fn events_have_a_reasonable_interval_and_few_readers() {
    let run = running();
    for every in ["0", "0.05", "3601", "NaN", "inf", "-1", "x"] {
        let answer = run.get(&format!("/v1/events?every={every}"));
        assert_eq!(answer.status, 400, "{every}");
        assert_eq!(document(&answer)["errors"][0]["parameter"], "every", "{every}");
    }
    let readers: Vec<_> = (0..16)
        .map(|_| {
            let mut reader = events(&run, "/v1/events?every=1");
            reader.next();
            reader
        })
        .collect();
    assert_eq!(run.get("/v1/events").status, 503);
    // Their places are free again when they have gone.
    drop(readers);
    wait(|| {
        let mut stream = UnixStream::connect(&run.path).unwrap();
        stream.write_all(b"GET /v1/events HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line.contains(" 200 ")
    });
}
