//! Answers that are read while they arrive.

mod common;

use std::io::Read;
use std::io::Write;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use common::{Served, serve, tight, wait};
use thalweg_api::axum::Router;
use thalweg_api::axum::extract::Request;
use thalweg_api::axum::http::StatusCode;
use thalweg_api::axum::routing::get;
use thalweg_api::{ClientError, Event, EventReader, Problem, Query, Shared, feed, query, stream};

/// Servers of pieces: numbered ones that end, nothing at all, as many as a client reads, events, and
/// a problem.
fn served() -> Served {
    let counted = get(async || {
        let (stream, response) = stream("application/x-test");
        tokio::spawn(async move {
            for number in 0_u32..100 {
                if stream.send(number.to_le_bytes().repeat(1000)).await.is_err() {
                    return;
                }
            }
        });
        response
    });
    let silent = get(async |request: Request| {
        let mut shared = Shared::of(request.extensions());
        let (stream, response) = stream("application/x-test");
        tokio::spawn(async move {
            tokio::select! {
                () = stream.closed() => {}
                () = shared.closing() => {}
            }
        });
        response
    });
    let endless = get(async || {
        let (stream, response) = stream("application/x-test");
        tokio::spawn(async move { while stream.send(vec![7; 100_000]).await.is_ok() {} });
        response
    });
    let events = get(async |shared: Shared| {
        let (mut feed, response) = feed(&shared);
        tokio::spawn(async move {
            for number in 0..100 {
                if feed.send(Event::new("number", &number)).await.is_err() {
                    return;
                }
            }
        });
        response
    });
    let wrong = get(async || Problem::new(StatusCode::CONFLICT, "not now"));
    let echo = get(async |Query(pairs): Query<Vec<(String, String)>>| format!("{pairs:?}"));
    let router = Router::new().route("/counted", counted).route("/silent", silent);
    let router = router.route("/endless", endless).route("/events", events);
    serve(tight(), router.route("/wrong", wrong).route("/echo", echo))
}

#[test]
fn bytes_arrive_in_order_until_the_end() {
    let served = served();
    let mut all = Vec::new();
    let answer = served.client().stream("/counted", "*/*", |bytes| {
        all.extend_from_slice(bytes);
        ControlFlow::Continue(())
    });
    let answer = answer.unwrap();
    assert_eq!((answer.status.as_u16(), &*answer.media_type), (200, "application/x-test"));
    let expected: Vec<_> = (0_u32..100).flat_map(|n| n.to_le_bytes().repeat(1000)).collect();
    assert!(all == expected, "{} bytes", all.len());
}

/// Unlike those that are pushed, with a queue of four.
#[test]
fn events_that_wait_for_room_are_not_lost() {
    let served = served();
    let (mut reader, mut numbers) = (EventReader::default(), Vec::new());
    let read = |bytes: &[u8]| {
        std::thread::sleep(Duration::from_millis(1));
        for (name, data) in reader.read(bytes).unwrap() {
            assert_eq!(name, "number");
            numbers.push(data.parse::<u32>().unwrap());
        }
        ControlFlow::Continue(())
    };
    served.client().stream("/events", "text/event-stream", read).unwrap();
    assert!(numbers.iter().copied().eq(0..100), "{numbers:?}");
    assert_eq!(served.counted().events_lost, 0);
}

#[test]
fn a_reader_of_a_stream_may_leave_though_nothing_arrives() {
    let served = served();
    let begun = Instant::now();
    let mut calls = 0;
    let read = |bytes: &[u8]| {
        assert!(bytes.is_empty());
        calls += 1;
        if calls == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    served.client().stream("/silent", "*/*", read).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(4));
    assert_eq!(calls, 3);
}

#[test]
fn a_problem_is_the_answer_in_place_of_a_stream() {
    let served = served();
    let answer = served.client().stream("/wrong", "*/*", |_| panic!("no stream")).unwrap();
    assert_eq!(answer.status, 409);
    assert!(String::from_utf8_lossy(&answer.body).contains("not now"));
    let nowhere = thalweg_api::Client::new("/nowhere".as_ref(), Duration::from_secs(1));
    let failed = nowhere.stream("/counted", "*/*", |_| panic!("no stream"));
    assert!(matches!(failed, Err(ClientError::Connect { .. })));
}

#[test]
fn a_client_that_does_not_read_is_disconnected() {
    let served = served();
    let mut client = served.connect();
    client.write_all(b"GET /endless HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    client.read_exact(&mut [0; 100]).unwrap();
    wait(|| served.counted().stalled == 1);
}

#[test]
fn a_query_may_have_any_characters() {
    let pattern = "tcp,nw_src=10.0.0.0/8 tp_dst=&?#%+ä";
    let target = query("/echo", &[("pattern", pattern), ("count", "7")]);
    let answer = served().get(&target);
    let expected = format!("{:?}", [("pattern", pattern), ("count", "7")]);
    assert_eq!(String::from_utf8_lossy(&answer.body), expected);
}
