//! Clients that misbehave: refused or interrupted, counted, and without effect on others.

mod common;

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use common::{Served, rest, serve, tight, wait};
use serde::Deserialize;
use serde_json::Value;
use thalweg_api::axum::Router;
use thalweg_api::axum::routing::{get, post};
use thalweg_api::{Body, Json, Shared};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    text: String,
}

fn served() -> Served {
    let router = Router::new()
        .route("/hello", get(async || "hello"))
        .route("/echo", post(async |Body(wish): Body<Wish>| Json(wish.text)))
        .route("/slow", get(async || tokio::time::sleep(Duration::from_secs(60)).await))
        .route("/short", get(async || tokio::time::sleep(Duration::from_millis(300)).await))
        .route("/patient", get(patient))
        .route("/panic", get(async || -> &'static str { panic!("as the test wants") }))
        .route("/big", get(async || "x".repeat(16 << 20)));
    serve(tight(), router)
}

/// Takes longer than the usual limit, and says so.
async fn patient(shared: Shared) -> &'static str {
    shared.allow(Duration::from_secs(5));
    tokio::time::sleep(tight().request_time * 2).await;
    "done"
}

/// The others are served as before.
#[track_caller]
fn works(served: &Served) {
    assert_eq!(served.get("/hello").body, "hello");
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

#[test]
fn what_is_not_http_is_refused_and_counted() {
    let served = served();
    let malformed: [&[u8]; 5] = [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03 and more of a TLS hello\r\n\r\n",
        b"GET /hello HTTP/9.9\r\n\r\n",
        b"GET /hello HTTP/1.1\r\nbad header\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
    ];
    for bytes in malformed {
        let answer = served.send(bytes);
        assert_eq!(status(&answer), "400", "{answer}");
    }
    wait(|| served.counted().malformed == malformed.len() as u64);
    works(&served);
}

#[test]
fn a_malformed_body_is_a_problem_with_its_place() {
    let served = served();
    assert_eq!(served.post("/echo", br#"{"text": "a"}"#).body, "\"a\"");
    let answer = served.post("/echo", br#"{"text": 7}"#);
    assert_eq!((answer.status.as_u16(), &*answer.media_type), (422, "application/problem+json"));
    let problem: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(problem["errors"][0]["pointer"], "/text");
    assert_eq!(problem["errors"][0]["expected"], "a string");
    let text = "POST /echo HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
    let answer = served.send(text.as_bytes());
    assert_eq!(status(&answer), "415", "{answer}");
    assert_eq!(served.counted().malformed, 1);
    works(&served);
}

#[test]
fn what_is_too_large_is_refused_and_counted() {
    let served = served();
    let head = |headers: &str| format!("GET /hello HTTP/1.1\r\nhost: x\r\n{headers}\r\n");
    let long = served.send(head(&format!("a: {}\r\n", "x".repeat(1 << 20))).as_bytes());
    let many = served.send(head(&"a: b\r\n".repeat(100)).as_bytes());
    assert_eq!([status(&long), status(&many)], ["431", "431"], "{long} {many}");
    let body = format!(r#"{{"text": "{}"}}"#, "x".repeat(2000));
    let answer = served.post("/echo", body.as_bytes());
    assert_eq!(answer.status, 413);
    // One that does not give its length either.
    let mut chunked = b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
                        transfer-encoding: chunked\r\n\r\n"
        .to_vec();
    (0..20).for_each(|_| chunked.extend(format!("64\r\n{}\r\n", " ".repeat(100)).bytes()));
    let answer = served.send(&chunked);
    assert_eq!(status(&answer), "413", "{answer}");
    wait(|| served.counted().too_large == 4);
    works(&served);
}

#[test]
fn what_is_too_slow_is_interrupted_and_counted() {
    let served = served();
    let start = Instant::now();
    // Nothing, half a head, an idle connection after a request, and half a body.
    let nothing = served.send(b"");
    let half = served.send(b"GET /hello HTTP/1.1\r\nhost:");
    let idle = served.send(b"GET /hello HTTP/1.1\r\nhost: x\r\n\r\n");
    let body = served.send(
        b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
          content-length: 100\r\n\r\n{",
    );
    assert_eq!([nothing.as_str(), half.as_str()].map(status), ["", ""]);
    assert_eq!([idle.as_str(), body.as_str()].map(status), ["200", "408"]);
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    wait(|| served.counted().too_slow == 4);
    works(&served);
}

#[test]
fn a_client_that_sends_a_byte_now_and_then_is_too_slow() {
    let served = served();
    let mut stream = served.connect();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(3) && stream.write_all(b"x").is_ok() {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(start.elapsed() < Duration::from_secs(2), "the head has one deadline");
    assert_eq!(served.counted().too_slow, 1);
}

#[test]
fn an_answer_that_takes_too_long_is_a_problem() {
    let served = served();
    let answer = served.get("/slow");
    assert_eq!(answer.status, 503);
    assert!(String::from_utf8_lossy(&answer.body).contains("no answer within 0.8 s"));
    assert_eq!(served.counted().timed_out, 1);
    assert_eq!(served.get("/patient").body, "done");
    assert_eq!(served.counted().timed_out, 1);
    works(&served);
}

#[test]
fn a_panic_is_an_error_of_one_request() {
    let served = served();
    let answer = served.get("/panic");
    assert_eq!((answer.status.as_u16(), &*answer.media_type), (500, "application/problem+json"));
    assert_eq!(served.counted().panics, 1);
    works(&served);
}

#[test]
fn a_client_that_does_not_read_is_disconnected() {
    let served = served();
    let mut stream = served.connect();
    stream.write_all(b"GET /big HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    wait(|| served.counted().stalled == 1);
    let mut some = [0; 1];
    stream.read_exact(&mut some).expect("the socket's queue was filled");
    works(&served);
}

#[test]
fn a_flood_of_requests_is_refused_in_part() {
    let served = served();
    let answers: Vec<_> = std::thread::scope(|scope| {
        let request = || served.get("/short").status.as_u16();
        let threads: Vec<_> = (0..6).map(|_| scope.spawn(request)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let refused = answers.iter().filter(|status| **status == 503).count() as u64;
    assert!(answers.iter().all(|status| [200, 503].contains(status)), "{answers:?}");
    assert!(answers.contains(&200) && refused > 0, "{answers:?}");
    assert_eq!(served.counted().requests_refused, refused);
    works(&served);
}

#[test]
fn a_flood_of_connections_is_refused_in_part() {
    let served = served();
    let streams: Vec<_> = (0..8).map(|_| served.connect()).collect();
    wait(|| served.counted().connections == 8);
    assert_eq!(rest(served.connect()), "");
    assert_eq!(served.counted().connections_refused, 1);
    // Silent ones do not hold their place for long.
    streams.into_iter().for_each(|stream| drop(rest(stream)));
    works(&served);
    assert_eq!(served.counted().connections_refused, 1);
}

#[test]
fn an_unknown_resource_or_method_is_a_problem() {
    let served = served();
    let answer = served.get("/nothing%00\u{1b}".replace('\u{1b}', "%1b").as_str());
    assert_eq!((answer.status.as_u16(), &*answer.media_type), (404, "application/problem+json"));
    let answer = served.send(b"DELETE /hello HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    assert_eq!(status(&answer), "405", "{answer}");
    assert!(answer.contains("\r\nallow: GET,HEAD\r\n"), "{answer}");
    assert!(answer.contains("application/problem+json"), "{answer}");
}

#[test]
fn a_server_that_ends_finishes_what_is_under_way() {
    let served = served();
    let client = served.client();
    let short = std::thread::spawn(move || {
        client.request("GET".parse().unwrap(), "/short", "*/*", None).unwrap().status.as_u16()
    });
    wait(|| served.counted().requests == 1);
    let silent = served.connect();
    let start = Instant::now();
    let Served { server, path, .. } = &served;
    assert!(path.exists());
    let counts = server.counts().clone();
    drop(served);
    assert!(start.elapsed() < Duration::from_secs(3));
    assert_eq!(short.join().unwrap(), 200);
    assert_eq!(rest(silent), "");
    assert_eq!(counts.now().requests, 1);
}
