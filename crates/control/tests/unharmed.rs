//! Packets pass and are accounted for, whatever clients of the API do.

mod common;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use common::{start, start_at_full_speed};
use thalweg_api::Limits;

/// For this long clients misbehave.
const SIEGE: Duration = Duration::from_secs(2);

fn limits() -> Limits {
    Limits {
        head_time: Duration::from_millis(200),
        body_time: Duration::from_millis(200),
        write_time: Duration::from_millis(300),
        ..Limits::default()
    }
}

/// What a client does with a connection.
type Attack = fn(&mut UnixStream);

/// Attacks, each by a client of its own.
const ATTACKS: &[Attack] = &[malformed, too_large, silent, deaf, flood, flood];

fn send(stream: &mut UnixStream, bytes: &[u8]) {
    // The server may have closed it.
    let _ = stream.write_all(bytes);
}

fn malformed(stream: &mut UnixStream) {
    send(stream, b"\0\xff rubbish\r\n\r\n");
    // One who does not wait for the answer counts as one who has closed the connection.
    let _ = stream.read(&mut [0; 64]);
}

fn too_large(stream: &mut UnixStream) {
    send(stream, &[b"GET /", &*vec![b'x'; 1 << 18]].concat());
}

fn silent(stream: &mut UnixStream) {
    let _ = stream.read(&mut [0]);
}

/// Reads no event that it wants.
fn deaf(stream: &mut UnixStream) {
    send(stream, b"GET /v1/events?every=0.1&what=report HTTP/1.1\r\nhost: x\r\n\r\n");
    std::thread::sleep(Duration::from_millis(50));
}

/// Many requests for what costs the engine most.
fn flood(stream: &mut UnixStream) {
    send(stream, b"POST /v1/export HTTP/1.1\r\nhost: x\r\n\r\n");
    let mut some = vec![0; 65_536];
    for _ in 0..50 {
        send(stream, b"GET /v1/report HTTP/1.1\r\nhost: x\r\n\r\n");
        if !matches!(stream.read(&mut some), Ok(1..)) {
            return;
        }
    }
}

#[test]
fn a_run_under_siege_continues_and_conserves_packets() {
    for workers in [1, 2] {
        let run = start_at_full_speed(workers, limits());
        let over = AtomicBool::new(false);
        let repeat = |attack: Attack| {
            while !over.load(Relaxed) {
                let mut stream = UnixStream::connect(&run.path).unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
                attack(&mut stream);
            }
        };
        std::thread::scope(|scope| {
            for attack in ATTACKS {
                scope.spawn(|| repeat(*attack));
            }
            let start = Instant::now();
            while start.elapsed() < SIEGE {
                let at = run.control.progress().packets_in;
                std::thread::sleep(Duration::from_millis(400));
                assert!(run.control.progress().packets_in > at, "packets stand still");
            }
            over.store(true, Relaxed);
        });
        let counted = run.counted();
        assert!(counted.malformed > 0 && counted.too_large > 0, "{counted:?}");
        assert!(counted.requests > 100 && counted.panics == 0, "{counted:?}");
        // The server is as usable as before.
        std::thread::sleep(limits().head_time * 2);
        assert_eq!(run.json("/v1/status")["state"], "running");
        let report = run.end();
        assert!(report.conserved && !report.failed(), "{:?}", report.failures);
    }
}

#[test]
fn a_request_to_a_run_that_has_ended_is_a_problem() {
    let run = start(1, limits());
    run.control.stop();
    // The engine may still answer some, and then does not any more.
    common::wait(|| run.get("/v1/report").status == 503);
    assert_eq!(run.json("/v1/status")["state"], "stopping");
    assert!(run.end().conserved);
}
