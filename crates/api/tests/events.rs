//! Streams of events, and clients that do not read them.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::time::Duration;

use common::{Served, serve, tight, wait};
use thalweg_api::axum::Router;
use thalweg_api::axum::extract::Request;
use thalweg_api::axum::response::Response;
use thalweg_api::axum::routing::get;
use thalweg_api::{Event, Shared, feed};

/// An event each millisecond, of `size` characters.
fn ticks(size: usize, request: &Request) -> Response {
    let mut shared = Shared::of(request.extensions());
    let (mut feed, response) = feed(&shared);
    tokio::spawn(async move {
        for number in 0_u64.. {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(1)) => {}
                () = shared.closing() => return,
            }
            if feed.push(Event::new("tick", &(number, "x".repeat(size)))).is_err() {
                return;
            }
        }
    });
    response
}

fn served() -> Served {
    let small = get(async |request: Request| ticks(1, &request));
    let large = get(async |request: Request| ticks(100_000, &request));
    serve(tight(), Router::new().route("/small", small).route("/large", large))
}

fn events(served: &Served, target: &str) -> BufReader<std::os::unix::net::UnixStream> {
    let mut stream = served.connect();
    write!(stream, "GET {target} HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    BufReader::new(stream)
}

/// The next event: its name and data.
fn next(stream: &mut impl BufRead) -> (String, serde_json::Value) {
    let mut name = String::new();
    loop {
        let mut line = String::new();
        assert_ne!(stream.read_line(&mut line).unwrap(), 0, "the stream ended");
        if let Some(text) = line.strip_prefix("event: ") {
            text.trim().clone_into(&mut name);
        } else if let Some(text) = line.strip_prefix("data: ") {
            return (name, serde_json::from_str(text).unwrap());
        }
    }
}

#[test]
fn events_arrive_in_order() {
    let served = served();
    let mut stream = events(&served, "/small");
    for number in 0..20 {
        let (name, data) = next(&mut stream);
        assert_eq!((&*name, &data[0]), ("tick", &number.into()));
    }
    assert_eq!(served.counted().events_lost, 0);
}

#[test]
fn a_reader_that_stalls_loses_events_and_learns_how_many() {
    let served = served();
    let mut stream = events(&served, "/large");
    let first = next(&mut stream);
    assert_eq!(first.1[0], 0);
    wait(|| served.counted().events_lost >= 10);
    // It reads again, before its time is over.
    let (mut expected, mut lost) = (1, 0);
    while lost == 0 {
        let (name, data) = next(&mut stream);
        if name == "lost" {
            lost = data["events"].as_u64().unwrap();
            expected += lost;
        } else {
            assert_eq!(data[0], expected, "what is missing is named");
            expected += 1;
        }
    }
    assert_eq!(next(&mut stream).1[0], expected);
}

#[test]
fn a_reader_that_never_reads_is_disconnected_and_others_are_served() {
    let served = served();
    let stalled = events(&served, "/large");
    let mut reader = events(&served, "/small");
    wait(|| {
        next(&mut reader);
        served.counted().stalled == 1
    });
    let lost = served.counted().events_lost;
    assert!(lost > 0);
    // Its feed has ended: nothing is lost any more.
    std::thread::sleep(Duration::from_millis(50));
    (0..20).for_each(|_| drop(next(&mut reader)));
    assert_eq!(served.counted().events_lost, lost);
    drop(stalled);
}

#[test]
fn streams_end_with_the_server() {
    let served = served();
    let mut stream = events(&served, "/small");
    next(&mut stream);
    drop(served);
    let mut rest = Vec::new();
    std::io::Read::read_to_end(&mut stream, &mut rest).unwrap();
    assert!(rest.ends_with(b"0\r\n\r\n"), "the last chunk was sent");
}
