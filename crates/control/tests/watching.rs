//! Packets of a run, observed by the API: traces, and copies of those that are dropped.

mod common;

use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Running, document, start, start_at_full_speed, wait};
use serde_json::{Value, json};
use thalweg_api::{EventReader, Limits, query};
use thalweg_io::{CaptureInput, Input};
use thalweg_packet::{BATCH, Batch, DropCounts, Lanes, Pool};

/// The events of a trace, with their names.
fn traced(run: &Running, parameters: &[(&str, &str)]) -> Vec<(String, Value)> {
    let (mut reader, mut events) = (EventReader::default(), Vec::new());
    let read = |bytes: &[u8]| {
        let new = reader.read(bytes).unwrap().into_iter();
        events.extend(new.map(|(name, data)| (name, serde_json::from_str(&data).unwrap())));
        ControlFlow::Continue(())
    };
    let answer = run.client().stream(&query("/v1/trace", parameters), "*/*", read).unwrap();
    assert_eq!((answer.status.as_u16(), &*answer.media_type), (200, "text/event-stream"));
    events
}

/// The bytes of a capture of dropped packets.
fn dropped(run: &Running, parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut capture = Vec::new();
    let read = |bytes: &[u8]| {
        capture.extend_from_slice(bytes);
        ControlFlow::Continue(())
    };
    let answer = run.client().stream(&query("/v1/drops", parameters), "*/*", read).unwrap();
    assert_eq!((answer.status.as_u16(), &*answer.media_type), (200, "application/x-pcapng"));
    capture
}

/// The IP protocols of the packets of a capture.
fn protocols(capture: &[u8]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drops.pcapng");
    std::fs::write(&path, capture).unwrap();
    let mut input = CaptureInput::open(&path, 1).unwrap();
    let mut batch = Batch::new(Arc::new(Pool::anonymous(BATCH, 16 << 10).unwrap()));
    let (mut protocols, mut drops) = (Vec::new(), DropCounts::default());
    loop {
        let received = input.receive(&mut batch, BATCH, &mut drops).unwrap();
        protocols.extend(batch.lanes().into_iter().map(|lane| batch.bytes(lane)[23]));
        batch.release(Lanes::ALL);
        if received.ended {
            return protocols;
        }
    }
}

#[test]
fn the_next_packets_that_match_are_traced() {
    for workers in [1, 2] {
        let run = start(workers, Limits::default());
        let parameters = [("pattern", "in_port=traffic,udp"), ("count", "5")];
        let mut events = traced(&run, &parameters);
        let (name, end) = events.pop().unwrap();
        let expected = json!({"traced": 5, "passed_over": end["passed_over"], "because": "count"});
        assert_eq!((&*name, &end), ("end", &expected));
        assert_eq!(events.len(), 5);
        let numbers = events.iter().map(|(name, trace)| {
            assert_eq!((&**name, &trace["schema"]), ("trace", &"thalweg.trace/1".into()));
            assert!(trace["flow"].as_str().unwrap().starts_with("udp,in_port=traffic,"), "{trace}");
            assert_eq!(trace["steps"][0]["nf"], "watch");
            assert_eq!(trace["fate"], "transmitted by out");
            trace["packet"].as_u64().unwrap()
        });
        assert!(numbers.is_sorted());
        assert!(run.end().conserved);
    }
}

#[test]
fn a_trace_ends_with_its_time_or_with_the_run() {
    let run = start(1, Limits::default());
    let begun = Instant::now();
    let events = traced(&run, &[("pattern", "arp"), ("seconds", "0.3")]);
    let none =
        |because: &str| json!([["end", {"traced": 0, "passed_over": 0, "because": because}]]);
    assert_eq!(json!(events), none("time"));
    assert!(begun.elapsed() >= Duration::from_millis(300));
    let control = run.control.clone();
    let stopping = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        control.stop();
    });
    assert_eq!(json!(traced(&run, &[("pattern", "arp"), ("seconds", "60")])), none("run"));
    stopping.join().unwrap();
}

#[test]
fn dropped_packets_arrive_as_a_capture() {
    for workers in [1, 2] {
        let run = start(workers, Limits::default());
        let capture = dropped(&run, &[("count", "300")]);
        assert_eq!(protocols(&capture), [1; 300]);
        let comment = b"dropped by gate: filter-drop";
        assert_eq!(capture.windows(comment.len()).filter(|part| part == comment).count(), 300);
        let gate = dropped(&run, &[("nf", "gate"), ("pattern", "icmp"), ("count", "3")]);
        assert_eq!(protocols(&gate), [1; 3]);
        // It is a file, though without packets.
        let none = dropped(&run, &[("nf", "watch"), ("seconds", "0.2")]);
        assert_eq!(protocols(&none), [0; 0]);
        assert!(run.end().conserved);
    }
}

#[test]
fn wrong_parameters_are_named() {
    let run = start(1, Limits::default());
    let wrong = |path: &str, parameters: &[(&str, &str)]| {
        let answer = run.get(&query(path, parameters));
        assert_eq!(answer.status, 400, "{parameters:?}");
        document(&answer)["errors"][0].clone()
    };
    let mistake = wrong("/v1/trace", &[("pattern", "tcp,nw_src=10.1.0.x")]);
    assert_eq!(mistake["parameter"], "pattern");
    let message = "bad value of 'nw_src' at character 12 of the pattern: '10.1.0.x'";
    assert_eq!(mistake["message"], message);
    assert!(mistake["expected"].as_str().unwrap().starts_with("an IPv4 address"), "{mistake}");
    let mistake = wrong("/v1/drops", &[("pattern", "in_port=trafic")]);
    assert!(mistake["expected"].as_str().unwrap().contains("did you mean 'traffic'?"), "{mistake}");
    assert_eq!(wrong("/v1/drops", &[("nf", "gat")])["expected"], "watch, gate");
    for (path, parameter, values) in [
        ("/v1/trace", "count", &["0", "1001", "-1", "x"][..]),
        ("/v1/drops", "count", &["0", "-1"]),
        ("/v1/trace", "seconds", &["0", "NaN", "inf", "3601"]),
        ("/v1/drops", "seconds", &["0.01", "-1"]),
    ] {
        for value in values {
            assert_eq!(wrong(path, &[(parameter, value)])["parameter"], parameter, "{value}");
        }
    }
}

/// A client that reads only the head of an answer.
fn idle(run: &Running, target: &str) -> UnixStream {
    let mut stream = UnixStream::connect(&run.path).unwrap();
    write!(stream, "GET {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    stream.read_exact(&mut [0; 15]).unwrap();
    stream
}

#[test]
fn few_clients_observe_at_a_time_and_their_places_are_freed() {
    let run = start(1, Limits::default());
    for path in ["/v1/trace?pattern=arp&seconds=60", "/v1/drops?pattern=arp&seconds=60"] {
        let clients: Vec<_> = (0..4).map(|_| idle(&run, path)).collect();
        let refused = run.get(path);
        assert_eq!(refused.status, 503);
        assert!(document(&refused)["detail"].as_str().unwrap().contains("4 requests"));
        drop(clients);
        wait(|| {
            let mut client = UnixStream::connect(&run.path).unwrap();
            write!(client, "GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
            let mut head = [0; 12];
            client.read_exact(&mut head).unwrap();
            head == *b"HTTP/1.1 200"
        });
    }
}

/// What it has no room for is counted in the capture, and packets pass meanwhile.
#[test]
fn a_client_that_does_not_read_harms_no_packets() {
    let run = start_at_full_speed(2, Limits::default());
    let mut client = idle(&run, "/v1/drops?seconds=2");
    let received = || run.control.progress().packets_in;
    let drops = run.control.progress().drops;
    wait(|| run.control.progress().drops > drops + 20_000);
    let before = received();
    wait(|| received() > before + 1000);
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap_or_default();
    let text = b"not recorded because the reader was slow";
    let at = rest.windows(text.len()).position(|part| part == text).expect("the number of missed");
    let comment = String::from_utf8_lossy(&rest[at - 40..at]).into_owned();
    let missed = comment.rsplit(' ').nth(1).unwrap().parse::<u64>().unwrap();
    assert!(missed > 0, "{comment}");
    assert!(run.end().conserved);
}
