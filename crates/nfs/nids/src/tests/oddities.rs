//! Odd HTTP messages raise the events that Suricata 7.0.10 raises for them, and no others.

use super::*;
use crate::app::Oddity;

/// A bench with a rule for each event, with the event's place in the list as its number.
fn bench() -> Bench {
    let rule = |(i, name): (usize, &&str)| {
        let body = format!("(msg:\"{name}\"; app-layer-event:http.{name}; sid:{};)", i + 1);
        format!("alert http any any -> any any {body}\n")
    };
    Bench::new(&Oddity::NAMES.iter().enumerate().map(rule).collect::<String>(), "")
}

/// The events of a connection that sends these bytes, in pieces of at most `size`.
fn events(bench: &mut Bench, request: &[u8], response: &[u8], size: usize) -> String {
    bench.begin_again();
    let mut talk = Talk::new();
    bench.send(&talk.handshake());
    for (to_server, bytes) in [(true, request), (false, response)] {
        for piece in bytes.chunks(size) {
            bench.send(&[talk.send(to_server, 24, piece), talk.send(!to_server, 16, b"")]);
        }
    }
    bench.send(&[talk.send(true, 17, b""), talk.send(false, 17, b""), talk.send(true, 16, b"")]);
    let mut names: Vec<_> =
        bench.sids().iter().map(|sid| Oddity::NAMES[*sid as usize - 1]).collect();
    names.sort_unstable();
    names.dedup();
    names.join(" ")
}

const ASKED: &[u8] = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
const ANSWERED: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

#[test]
fn odd_messages_raise_the_events_that_suricata_raises() {
    let mut bench = bench();
    for (request, response, expected) in CASES {
        let (asked, answered) = (request.escape_ascii(), response.escape_ascii());
        for size in [1400, 7] {
            let found = events(&mut bench, request, response, size);
            assert_eq!(found, *expected, "{asked} / {answered} in pieces of {size}");
        }
    }
}

#[test]
fn what_is_long_or_much_is_odd() {
    let mut bench = bench();
    let request =
        |fields: String| format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n").into_bytes();
    let response = |fields: String| {
        format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n{fields}\r\nhi").into_bytes()
    };
    let many = |n: usize| "X-A: 1\r\n".repeat(n);
    let long = |n: usize| format!("X: {}\r\n", "a".repeat(n));
    for (fields, of_request, of_response) in [
        (many(1000), "", ""),
        (many(2000), "request_too_many_headers", "response_too_many_headers"),
        (long(17_000), "", ""),
        (long(20_000), "request_field_too_long", ""),
    ] {
        assert_eq!(events(&mut bench, &request(fields.clone()), ANSWERED, 1400), of_request);
        assert_eq!(events(&mut bench, ASKED, &response(fields), 1400), of_response);
    }
    // A head that does not end.
    let endless = request(long(100_000));
    let endless = &endless[..endless.len() - 4];
    assert!(events(&mut bench, endless, b"", 1400).contains("request_field_too_long"));
}

#[test]
fn bodies_of_many_layers_and_bombs_are_odd() {
    let mut bench = bench();
    let zip = |data: &[u8]| {
        let mut zipper = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        std::io::Write::write_all(&mut zipper, data).unwrap();
        zipper.finish().unwrap()
    };
    let mut of = |codings: &str, body: &[u8]| {
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Encoding: {codings}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        events(&mut bench, ASKED, &[head.as_bytes(), body].concat(), 1400)
    };
    let text = zip(b"hello world");
    let bomb = zip(&vec![0; 30_000_000]);
    assert_eq!(of("gzip", &text), "");
    assert_eq!(of("gzip, gzip", &zip(&text)), "");
    assert_eq!(of("gzip, gzip, gzip", &zip(&zip(&text))), "too_many_encoding_layers");
    assert_eq!(of("gzip", &bomb), "compression_bomb");
    assert_eq!(of("gzip, gzip", &zip(&zip(&vec![0; 3_000_000]))), "compression_bomb");
    assert_eq!(of("gzip", &zip(&vec![b'a'; 100_000])), "");
    // Suricata reports the second, which RFC 9110 allows.
    assert_eq!(of("gzip", b"not in any coding"), "gzip_decompression_failed");
    assert_eq!(of("deflate", b"\x78\x9c\xcb\x48\xcd\xc9\xc9\x07\x00\x06\x2c\x02\x15"), "");
}

#[test]
fn an_event_joins_other_tests_and_drops_the_connection() {
    let rules = "drop http any any -> any any (msg:\"x\"; flow:established,to_server; \
                 app-layer-event:http.missing_host_header; http.uri; content:\"/a\"; sid:1;)\n";
    for (uri, fate) in [("/a", Verdict::Drop(DropReason::Intrusion)), ("/b", Verdict::Forward)] {
        let (mut bench, mut talk) = (Bench::new(rules, ""), Talk::new());
        bench.send(&talk.handshake());
        let request = format!("GET {uri} HTTP/1.1\r\nX: 1\r\n\r\n");
        assert_eq!(bench.send(&[talk.send(true, 24, request.as_bytes())]), [fate]);
        assert_eq!(bench.send(&[talk.send(false, 24, ANSWERED)]), [fate]);
    }
}

/// As in Suricata, an event belongs to the request and its response, whichever has it.
#[test]
fn a_rule_of_requests_may_ask_for_an_event_of_a_response() {
    let rule = |direction: &str, network: &str| {
        format!(
            "alert http {network} any -> any any (msg:\"x\"; flow:established,{direction}; \
             app-layer-event:http.abnormal_ce_header; sid:1;)\n"
        )
    };
    let response = b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\nhi";
    for (direction, network, fires) in [
        ("to_server", "10.0.0.1", true),
        ("to_server", "192.0.2.1", false),
        ("to_client", "10.0.0.1", false),
        ("to_client", "192.0.2.1", true),
    ] {
        let (mut bench, mut talk) = (Bench::new(&rule(direction, network), ""), Talk::new());
        bench.send(&talk.handshake());
        bench.send(&[talk.send(true, 24, ASKED), talk.send(false, 24, response)]);
        let sources: Vec<_> =
            bench.alerts().iter().map(|a| a["src_ip"].as_str().unwrap().to_owned()).collect();
        assert_eq!(sources, vec![network; usize::from(fires)], "{direction} {network}");
    }
}

/// Suricata's own rules for these events count them with `flowint`.
#[test]
fn a_connection_counts_in_numbers_which_move_with_it() {
    let rules = "alert http any any -> any any (msg:\"odd\"; flow:established,to_server; \
        app-layer-event:http.missing_host_header; flowint:http.anomaly.count,+,1; sid:1;)\n\
        alert http any any -> any any (msg:\"often\"; flow:established,to_server; http.method; \
        content:\"GET\"; flowint:http.anomaly.count,>=,2; flowint:seen,notset; flowint:seen,=,1; sid:2;)\n\
        alert http any any -> any any (msg:\"as often\"; http.method; content:\"HEAD\"; \
        flowint:http.anomaly.count,==,limit; sid:3;)\n\
        alert http any any -> any any (msg:\"limit\"; http.method; content:\"PUT\"; \
        flowint:limit,+,5; flowint:limit,-,2; sid:4;)\n";
    let odd = b"GET / HTTP/1.1\r\n\r\n";
    let (mut one, mut two, mut talk) = (Bench::new(rules, ""), Bench::new(rules, ""), Talk::new());
    one.send(&talk.handshake());
    one.send(&[talk.send(true, 24, odd)]);
    assert_eq!(one.sids(), [1]);
    one.send(&[talk.send(true, 24, b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")]);
    assert_eq!(one.sids(), [1], "no number is equal to one that is not set");
    streams::hand_over(&one, &mut two);
    two.send(&[talk.send(true, 24, odd), talk.send(true, 24, odd)]);
    assert_eq!(two.sids(), [1, 2, 1], "it alerts once, since it then sets a number");
    two.send(&[talk.send(true, 24, b"PUT / HTTP/1.1\r\nHost: a\r\n\r\n")]);
    two.send(&[talk.send(true, 24, b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")]);
    assert_eq!(two.sids(), [1, 2, 1, 4, 3]);
}

/// Requests, responses, and the events of Suricata 7.0.10.
#[rustfmt::skip]
const CASES: &[(&[u8], &[u8], &str)] = &[
    (ASKED, ANSWERED, ""),
    (b"GET / HTTP/1.1\r\nHost: a.example\r\nnocolon\r\n\r\n", ANSWERED, "request_field_missing_colon"),
    (b"GET / HTTP/1.1\r\nnocolon\r\nHost: a.example\r\n\r\n", ANSWERED, "request_field_missing_colon"),
    (b"GET / HTTP/1.1\r\nHost: a.example\r\n: x\r\n\r\n", ANSWERED, "request_header_invalid"),
    (b"GET / HTTP/1.1\r\nHost: a.example\r\nX-A : 1\r\n\r\n", ANSWERED, "request_header_invalid"),
    (b"GET / HTTP/1.1\r\nHost: a.example\r\nX(A): 1\r\n\r\n", ANSWERED, "request_header_invalid"),
    (b"GET / HTTP/1.1\r\nHost: a.example\r\nX A: 1\r\n\r\n", ANSWERED, "request_header_invalid"),
    (b"GET / HTTP/1.1\r\nHost: a.example\r\nX\0A: 1\r\n\r\n", ANSWERED, "request_field_missing_colon"),
    (b"GET / HTTP/1.1\r\nHost: a.example\r\nX\x01A: 1\r\n\r\n", ANSWERED, "request_header_invalid"),
    (b"GET / HTTP/1.1\r\nHost: a.example\r\nX\xe9A: 1\r\n\r\n", ANSWERED, "request_header_invalid"),
    (ASKED, b"HTTP/1.1 200 OK\r\nnocolon\r\nContent-Length: 2\r\n\r\nhi", "response_field_missing_colon"),
    (ASKED, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nnocolon\r\n\r\nhi", "response_field_missing_colon"),
    (ASKED, b"HTTP/1.1 200 OK\r\n: x\r\nContent-Length: 2\r\n\r\nhi", "response_header_invalid"),
    (ASKED, b"HTTP/1.1 200 OK\r\nX-A : 1\r\nContent-Length: 2\r\n\r\nhi", "response_header_invalid"),
    (ASKED, b"HTTP/1.1 200 OK\r\nX(A): 1\r\nContent-Length: 2\r\n\r\nhi", "response_header_invalid"),
    (ASKED, b"HTTP/1.1 200 OK\r\nX A: 1\r\nContent-Length: 2\r\n\r\nhi", "response_header_invalid"),
    (b"GET / HTTP/1.1\r\nHost: a.example\r\nX-A: 1\r\nX-A: 2\r\n\r\n", ANSWERED, ""),
    (b"GET / HTTP/1.1\r\nHost: a.example\r\nX-A: 1\r\nx-a: 2\r\nX-A: 3\r\n\r\n", ANSWERED, ""),
    (b"GET / HTTP/1.1\r\nHost: a.example\r\nHost: a.example\r\n\r\n", ANSWERED, "request_header_host_invalid"),
    (b"GET / HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n", ANSWERED, "request_header_host_invalid"),
    (b"GET / HTTP/1.1\r\nHost: a.example\r\nCookie: 1\r\nCookie: 2\r\n\r\n", ANSWERED, ""),
    (b"GET / HTTP/1.1\r\nHost: a.example\r\nX-A: 1\r\nX-A: 1\r\n\r\n", ANSWERED, ""),
    (ASKED, b"HTTP/1.1 200 OK\r\nX-A: 1\r\nX-A: 2\r\nContent-Length: 2\r\n\r\nhi", ""),
    (ASKED, b"HTTP/1.1 200 OK\r\nSet-Cookie: 1\r\nSet-Cookie: 2\r\nContent-Length: 2\r\n\r\nhi", ""),
    (b"GET / HTTP/1.1\r\n folded\r\nHost: a.example\r\n\r\n", ANSWERED, "invalid_request_field_folding request_field_missing_colon"),
    (b"GET / HTTP/1.1\r\nHost: a.example\r\nX-A: 1\r\n 2\r\n\r\n", ANSWERED, ""),
    (ASKED, b"HTTP/1.1 200 OK\r\n folded\r\nContent-Length: 2\r\n\r\nhi", "invalid_response_field_folding response_field_missing_colon"),
    (ASKED, b"HTTP/1.1 200 OK\r\nX-A: 1\r\n 2\r\nContent-Length: 2\r\n\r\nhi", ""),
    (ASKED, b"HTTP/1.1 200 OK\r\nX-A: 1\r\n X-B: 2\r\nContent-Length: 2\r\n\r\nhi", "invalid_response_field_folding"),
    (b"GET / HTTP/1.1\r\nX-A: 1\r\n\r\n", ANSWERED, "missing_host_header"),
    (b"GET / HTTP/1.0\r\nX-A: 1\r\n\r\n", ANSWERED, ""),
    (b"GET / HTTP/1.1\r\n\r\n", ANSWERED, "missing_host_header"),
    (b"GET / HTTP/1.1\r\nHost: \r\n\r\n", ANSWERED, "request_header_host_invalid"),
    (b"GET http://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, "host_header_ambiguous"),
    (b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, ""),
    (b"GET http://A.Example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, ""),
    (b"GET http://a.example:81/ HTTP/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, ""),
    (b"GET http://a.example:80/ HTTP/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, ""),
    (b"GET http://b.example/ HTTP/1.1\r\nX: 1\r\n\r\n", ANSWERED, "missing_host_header"),
    (b"GET / HTTP/1.1\r\nHost: a b.example\r\n\r\n", ANSWERED, "request_header_host_invalid"),
    (b"GET / HTTP/1.1\r\nHost: a_b.example\r\n\r\n", ANSWERED, ""),
    (b"GET / HTTP/1.1\r\nHost: a..example\r\n\r\n", ANSWERED, "request_header_host_invalid"),
    (b"GET / HTTP/1.1\r\nHost: a.example:99999\r\n\r\n", ANSWERED, "request_header_host_invalid"),
    (b"GET / HTTP/1.1\r\nHost: a.example:abc\r\n\r\n", ANSWERED, "request_header_host_invalid"),
    (b"GET / HTTP/1.1\r\nHost: [::1]\r\n\r\n", ANSWERED, ""),
    (b"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", ANSWERED, "request_header_host_invalid"),
    (b"GET / HTTP/1.1\r\nHost: .example\r\n\r\n", ANSWERED, "request_header_host_invalid"),
    (b"GET / HTTP/1.1\r\nHost: 10.1.1.1\r\n\r\n", ANSWERED, ""),
    (b"GET / HTTP/1.1\r\nHost: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.example\r\n\r\n", ANSWERED, "request_header_host_invalid"),
    (b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", ANSWERED, "request_header_host_invalid"),
    (b"GET / HTTP/1.1\r\nHost: u@b\r\n\r\n", ANSWERED, "request_header_host_invalid"),
    (b"GET / HTTP/1.1\r\nHost: a.example.\r\n\r\n", ANSWERED, ""),
    (b"GET / HTTP/1.1\r\nHost: a\xe9.example\r\n\r\n", ANSWERED, "request_header_host_invalid"),
    (b"GET / HTTP/1.1\r\nHost: a.example:0\r\n\r\n", ANSWERED, "request_header_host_invalid"),
    (b"GET / HTTP/1.1\r\nHost: a.example:\r\n\r\n", ANSWERED, "request_header_host_invalid"),
    (b"GET / HTTP/1.1\r\nHost: a\"b\r\n\r\n", ANSWERED, "request_header_host_invalid"),
    (b"GET / HTTP/1.1\r\nHost: a%41.example\r\n\r\n", ANSWERED, "request_header_host_invalid"),
    (b"GET http://a b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, "host_header_ambiguous"),
    (b"GET http://a%25.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, "host_header_ambiguous request_uri_host_invalid"),
    (b"GET http://a.example:99999/ HTTP/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, "request_uri_host_invalid"),
    (b"GET http://a.example:x/ HTTP/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, "request_uri_host_invalid"),
    (b"GET http://a..example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, "host_header_ambiguous request_uri_host_invalid"),
    (b"GET / HTTP/1.1\r\nHost: a.example:8080\r\n\r\n", ANSWERED, ""),
    (b"GET / HTTP/1.1\r\nHost: a.example:80\r\n\r\n", ANSWERED, ""),
    (b"GET http://a.example:8080/ HTTP/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, ""),
    (b"CONNECT a.example:80 HTTP/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, ""),
    (b"CONNECT a.example:99999 HTTP/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, "request_uri_host_invalid"),
    (b"CONNECT a.example HTTP/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, ""),
    (b"CONNECT a.example:0 HTTP/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, "request_uri_host_invalid"),
    (b"CONNECT b.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, "host_header_ambiguous"),
    (b"GET\t/ HTTP/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, "method_delim_non_compliant"),
    (b"GET  / HTTP/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, ""),
    (b"GET /\tHTTP/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, "uri_delim_non_compliant"),
    (b"GET /  HTTP/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, ""),
    (b"GET /a b HTTP/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, ""),
    (b"GET /a\tb HTTP/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, "uri_delim_non_compliant"),
    (b"GET /a\x0cb HTTP/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, "uri_delim_non_compliant"),
    (b" GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, "request_line_leading_whitespace"),
    (b"\tGET / HTTP/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, "request_line_leading_whitespace"),
    (b"\r\nGET / HTTP/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, ""),
    (b"GET /\r\n\r\n", ANSWERED, ""),
    (b"GET /\r\nHost: a.example\r\n\r\n", ANSWERED, ""),
    (b"GET \r\nHost: a\r\n\r\n", ANSWERED, ""),
    (b"GET / JUNK/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, ""),
    (b"GET / HTTP/1.9\r\nHost: a.example\r\n\r\n", ANSWERED, ""),
    (b"GET / HTTP/2.0\r\nHost: a.example\r\n\r\n", ANSWERED, ""),
    (b"GET / http/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, ""),
    (b"GET / HTTP/ 1.1\r\nHost: a.example\r\n\r\n", ANSWERED, ""),
    (b"GET / HTTP/1.1 \r\nHost: a.example\r\n\r\n", ANSWERED, ""),
    (b"GET / HTTP/1.1x\r\nHost: a.example\r\n\r\n", ANSWERED, ""),
    (b"GET / HTTP/01.1\r\nHost: a.example\r\n\r\n", ANSWERED, ""),
    (b"FOO / HTTP/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, ""),
    (ASKED, b"JUNK/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", ""),
    (ASKED, b"HTTP/9.9 200 OK\r\nContent-Length: 2\r\n\r\nhi", "response_invalid_protocol"),
    (ASKED, b"HTTP/1.1x 200 OK\r\nContent-Length: 2\r\n\r\nhi", "response_invalid_protocol"),
    (ASKED, b"HTTP/0.9 200 OK\r\nContent-Length: 2\r\n\r\nhi", ""),
    (ASKED, b"HTTP/1.2 200 OK\r\nContent-Length: 2\r\n\r\nhi", "response_invalid_protocol"),
    (ASKED, b"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nhi", "response_invalid_protocol"),
    (ASKED, b"http/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "response_invalid_protocol"),
    (ASKED, b"HTTP/1.1 000 OK\r\nContent-Length: 2\r\n\r\nhi", "response_invalid_status"),
    (ASKED, b"HTTP/1.1 abc OK\r\nContent-Length: 2\r\n\r\nhi", "response_invalid_status"),
    (ASKED, b"HTTP/1.1 99 OK\r\nContent-Length: 2\r\n\r\nhi", "response_invalid_status"),
    (ASKED, b"HTTP/1.1 1000 OK\r\nContent-Length: 2\r\n\r\nhi", "response_invalid_status"),
    (ASKED, b"HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi", "response_invalid_status"),
    (ASKED, b"HTTP/1.1 \r\nContent-Length: 2\r\n\r\nhi", "response_invalid_status"),
    (ASKED, b"HTTP/1.1 600 OK\r\nContent-Length: 2\r\n\r\nhi", ""),
    (ASKED, b"HTTP/1.1 999 OK\r\nContent-Length: 2\r\n\r\nhi", ""),
    (ASKED, b"HTTP/1.1 -200 OK\r\nContent-Length: 2\r\n\r\nhi", "response_invalid_status"),
    (ASKED, b"HTTP/1.1 2 OK\r\nContent-Length: 2\r\n\r\nhi", "response_invalid_status"),
    (ASKED, b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nhi", ""),
    (ASKED, b"HTTP/1.1 200x OK\r\nContent-Length: 2\r\n\r\nhi", "response_invalid_status"),
    (ASKED, b"HTTP/1.1\t200 OK\r\nContent-Length: 2\r\n\r\nhi", ""),
    (b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 2\r\n\r\nab", ANSWERED, ""),
    (b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: x\r\n\r\n", ANSWERED, "invalid_content_length_field_in_request"),
    (b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: -2\r\n\r\n", ANSWERED, ""),
    (b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 2x\r\n\r\nab", ANSWERED, ""),
    (b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: x2\r\n\r\nab", ANSWERED, ""),
    (b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: \r\n\r\n", ANSWERED, "invalid_content_length_field_in_request"),
    (b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 99999999999999999999\r\n\r\n", ANSWERED, "invalid_content_length_field_in_request"),
    (b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nab", ANSWERED, "duplicate_content_length_field_in_request"),
    (b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nab", ANSWERED, ""),
    (b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length:\r\n 2\r\n\r\nab", ANSWERED, ""),
    (b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: +2\r\n\r\nab", ANSWERED, ""),
    (b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 2, 2\r\n\r\nab", ANSWERED, ""),
    (b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 2, 3\r\n\r\nab", ANSWERED, ""),
    (ASKED, b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nhi", "invalid_content_length_field_in_response"),
    (ASKED, b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nhi", ""),
    (ASKED, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi", "duplicate_content_length_field_in_response"),
    (ASKED, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi", ""),
    (ASKED, b"HTTP/1.1 200 OK\r\nContent-Length: 2x\r\n\r\nhi", ""),
    (ASKED, b"HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\nhi", "invalid_content_length_field_in_response"),
    (ASKED, b"HTTP/1.1 200 OK\r\nContent-Length: 2, 3\r\n\r\nhi", ""),
    (b"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", ANSWERED, ""),
    (b"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: foo\r\n\r\n", ANSWERED, "invalid_transfer_encoding_value_in_request"),
    (b"POST / HTTP/1.0\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", ANSWERED, "invalid_transfer_encoding_value_in_request"),
    (b"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", ANSWERED, ""),
    (b"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: identity\r\n\r\n", ANSWERED, "invalid_transfer_encoding_value_in_request"),
    (b"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: xchunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", ANSWERED, "invalid_transfer_encoding_value_in_request"),
    (b"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", ANSWERED, ""),
    (b"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n2\r\nab\r\n0\r\n\r\n", ANSWERED, ""),
    (b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", ANSWERED, ""),
    (b"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked;x\r\n\r\n2\r\nab\r\n0\r\n\r\n", ANSWERED, "invalid_transfer_encoding_value_in_request"),
    (b"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n0\r\n\r\n", ANSWERED, "invalid_request_chunk_len"),
    (b"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n2;x=1\r\nab\r\n0\r\n\r\n", ANSWERED, ""),
    (b"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\nab\r\n0\r\n\r\n", ANSWERED, "invalid_request_chunk_len"),
    (b"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffff\r\nab\r\n0\r\n\r\n", ANSWERED, "invalid_request_chunk_len"),
    (b"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n2x\r\nab\r\n0\r\n\r\n", ANSWERED, ""),
    (b"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n2 \r\nab\r\n0\r\n\r\n", ANSWERED, ""),
    (b"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n0x2\r\nab\r\n0\r\n\r\n", ANSWERED, "request_field_missing_colon"),
    (ASKED, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", ""),
    (ASKED, b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", "response_chunked_old_proto"),
    (ASKED, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", "response_abnormal_transfer_encoding"),
    (ASKED, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", "response_abnormal_transfer_encoding"),
    (ASKED, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: foo\r\n\r\nhi", ""),
    (ASKED, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: CHUNKED\r\n\r\n2\r\nab\r\n0\r\n\r\n", ""),
    (ASKED, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\nContent-Length: 2\r\n\r\nhi", ""),
    (ASKED, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\nab\r\n0\r\n\r\n", ""),
    (ASKED, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", "response_abnormal_transfer_encoding"),
    (ASKED, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\x0b\r\n\r\n2\r\nab\r\n0\r\n\r\n", "response_abnormal_transfer_encoding"),
    (ASKED, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n0\r\n\r\n", "invalid_response_chunk_len"),
    (ASKED, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=1\r\nab\r\n0\r\n\r\n", ""),
    (ASKED, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\nab\r\n0\r\n\r\n", "invalid_response_chunk_len"),
    (ASKED, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffff\r\nab\r\n0\r\n\r\n", "invalid_response_chunk_len"),
    (ASKED, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n2\r\nab\r\n0\r\n\r\n", ""),
    (ASKED, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2x\r\nab\r\n0\r\n\r\n", ""),
    (ASKED, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x2\r\nab\r\n0\r\n\r\n", "response_field_missing_colon"),
    (ASKED, b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 31\r\n\r\n\x1f\x8b\x08\0\xa2y\x07k\x02\xff\xcbH\xcd\xc9\xc9W(\xcf/\xcaI\x01\0\x85\x11J\r\x0b\0\0\0", ""),
    (ASKED, b"HTTP/1.1 200 OK\r\nContent-Encoding: x-gzip\r\nContent-Length: 31\r\n\r\n\x1f\x8b\x08\0\xa2y\x07k\x02\xff\xcbH\xcd\xc9\xc9W(\xcf/\xcaI\x01\0\x85\x11J\r\x0b\0\0\0", ""),
    (ASKED, b"HTTP/1.1 200 OK\r\nContent-Encoding: foogzip\r\nContent-Length: 31\r\n\r\n\x1f\x8b\x08\0\xa2y\x07k\x02\xff\xcbH\xcd\xc9\xc9W(\xcf/\xcaI\x01\0\x85\x11J\r\x0b\0\0\0", "abnormal_ce_header"),
    (ASKED, b"HTTP/1.1 200 OK\r\nContent-Encoding: foo\r\nContent-Length: 31\r\n\r\n\x1f\x8b\x08\0\xa2y\x07k\x02\xff\xcbH\xcd\xc9\xc9W(\xcf/\xcaI\x01\0\x85\x11J\r\x0b\0\0\0", "abnormal_ce_header"),
    (ASKED, b"HTTP/1.1 200 OK\r\nContent-Encoding: GZIP\r\nContent-Length: 31\r\n\r\n\x1f\x8b\x08\0\xa2y\x07k\x02\xff\xcbH\xcd\xc9\xc9W(\xcf/\xcaI\x01\0\x85\x11J\r\x0b\0\0\0", ""),
    (ASKED, b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip, gzip\r\nContent-Length: 52\r\n\r\n\x1f\x8b\x08\0\xa2y\x07k\x02\xff\x93\xef\xe6`XT\xc9\x9e\xcd\xf4\xff\xb4\xc7\xd9\x93'\xc35\xce\xeb\x9f\xf2ddh\x15\xf4\xe2\xe5f``\0\0\xf9\x13\xa9\xf5\x1f\0\0\0", ""),
    (ASKED, b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip, gzip, gzip\r\nContent-Length: 75\r\n\r\n\x1f\x8b\x08\0\xa2y\x07k\x02\xff\x014\0\xcb\xff\x1f\x8b\x08\0\xa2y\x07k\x02\xff\x93\xef\xe6`XT\xc9\x9e\xcd\xf4\xff\xb4\xc7\xd9\x93'\xc35\xce\xeb\x9f\xf2ddh\x15\xf4\xe2\xe5f``\0\0\xf9\x13\xa9\xf5\x1f\0\0\0\xf8\xf8\x13\xee4\0\0\0", "too_many_encoding_layers"),
    (ASKED, b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip, identity\r\nContent-Length: 31\r\n\r\n\x1f\x8b\x08\0\xa2y\x07k\x02\xff\xcbH\xcd\xc9\xc9W(\xcf/\xcaI\x01\0\x85\x11J\r\x0b\0\0\0", "abnormal_ce_header"),
    (ASKED, b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 3\r\n\r\nabc", "abnormal_ce_header"),
    (ASKED, b"HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\nContent-Length: 3\r\n\r\nabc", "abnormal_ce_header"),
    (ASKED, b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 32\r\n\r\nnot gzip at all, but long enough", "gzip_decompression_failed"),
    (ASKED, b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 32\r\n\r\n\x1f\x8b\x08\0\xa2y\x07k\x02\xff\xcbH\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", ""),
    (ASKED, b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip;\r\nContent-Length: 31\r\n\r\n\x1f\x8b\x08\0\xa2y\x07k\x02\xff\xcbH\xcd\xc9\xc9W(\xcf/\xcaI\x01\0\x85\x11J\r\x0b\0\0\0", "abnormal_ce_header"),
    (ASKED, b"HTTP/1.1 200 OK\r\nContent-Encoding: deflate\r\nContent-Length: 16\r\n\r\n\xff\xff\xff\xff not deflate", "gzip_decompression_failed"),
    (ASKED, b"HTTP/1.1 200 OK\r\nContent-Encoding: none\r\nContent-Length: 3\r\n\r\nabc", ""),
    (ASKED, b"HTTP/1.1 200 OK\r\nContent-Encoding: lzma\r\nContent-Length: 3\r\n\r\nabc", ""),
    (ASKED, b"HTTP/1.1 200 OK\r\nContent-Encoding: foo, gzip\r\nContent-Length: 31\r\n\r\n\x1f\x8b\x08\0\xa2y\x07k\x02\xff\xcbH\xcd\xc9\xc9W(\xcf/\xcaI\x01\0\x85\x11J\r\x0b\0\0\0", "abnormal_ce_header"),
    (ASKED, b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 15\r\n\r\n\x1f\x8b\x08\0\xa2y\x07k\x02\xff\xcbH\xcd\xc9\xc9", ""),
    (b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 2\r\n\r\nab", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", ""),
    (b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 2\r\n\r\nab", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "100_continue_already_seen"),
    (b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 2\r\n\r\nab", b"HTTP/1.1 100 Continue\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", ""),
    (ASKED, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "unable_to_match_response_to_request"),
    (b"", ANSWERED, "unable_to_match_response_to_request"),
    (ASKED, b"HTTP/1.1 200 OK\r\nContent-Type: multipart/byteranges; boundary=x\r\nContent-Length: 2\r\n\r\nhi", ""),
    (b"GET / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 2\r\n\r\nab", ANSWERED, ""),
    (b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\nab cd\r\n", ANSWERED, "request_body_unexpected"),
    (b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\nab", ANSWERED, ""),
    (b"PUT / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 2\r\n\r\nab", ANSWERED, ""),
    (b"GET /%2541 HTTP/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, ""),
    (b"GET /a%252fb HTTP/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, ""),
    (b"GET /%41 HTTP/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, ""),
    (b"GET /?a=%2541 HTTP/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, ""),
    (b"GET /?a=%252541 HTTP/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, ""),
    (b"GET /%252541 HTTP/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, ""),
    (b"GET /%2f%2e HTTP/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, ""),
    (b"GET / HTTP/1.1\r\nHost: a.example\r\nAuthorization: Basic YTpi\r\n\r\n", ANSWERED, ""),
    (b"GET / HTTP/1.1\r\nHost: a.example\r\nAuthorization: Digest username=\"a\"\r\n\r\n", ANSWERED, ""),
    (b"GET / HTTP/1.1\r\nHost: a.example\r\nAuthorization: Bearer x\r\n\r\n", ANSWERED, ""),
    (b"GET / HTTP/1.1\r\nHost: a.example\r\nAuthorization: Foo x\r\n\r\n", ANSWERED, "request_auth_unrecognized"),
    (b"GET / HTTP/1.1\r\nHost: a.example\r\nAuthorization: Basic\r\n\r\n", ANSWERED, ""),
    (b"GET / HTTP/1.1\r\nHost: a.example\r\nAuthorization: Basic !!!\r\n\r\n", ANSWERED, ""),
    (b"GET / HTTP/1.1\r\nHost: a.example\r\nAuthorization: Digest x\r\n\r\n", ANSWERED, ""),
    (b"GET / HTTP/1.1\r\nHost: a.example\r\nAuthorization: \r\n\r\n", ANSWERED, "request_auth_unrecognized"),
    (b"GET / HTTP/1.1\r\nHost: a.example\r\nAuthorization: basic YTpi\r\n\r\n", ANSWERED, ""),
    (b"GET / HTTP/1.1\r\nHost: a.example\r\nAuthorization: NTLM x\r\n\r\n", ANSWERED, "request_auth_unrecognized"),
    (b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n", b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\njunk junk junk junk junk", ""),
    (b"GET / HTTP/1.1\r\nHost: a.example\r\nUpgrade: foo\r\n\r\n", b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: foo\r\n\r\njunk", ""),
    (b"GET / HTTP/1.1\nHost: a.example\n\n", ANSWERED, ""),
    (ASKED, b"HTTP/1.1 200 OK\rContent-Length: 2\r\rhi", ""),
    (b"GET /\0 HTTP/1.1\r\nHost: a.example\r\n\r\n", ANSWERED, ""),
    (ASKED, b"HTTP/1.1 204 No\r\nContent-Length: 2\r\n\r\nhi", ""),
    (b"GET / HTTP/1.1\r\nHost: a.example\r\nX: a\0b\r\n\r\n", ANSWERED, ""),
    (b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\nGET / HTTP/1.1\r\nHost: a.example\r\n\r\nGET / HTTP/1.1\r\nHost: a.example\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", ""),
    (b"HEAD / HTTP/1.1\r\nHost: a.example\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", ""),
    (b"GET / HTTP/1.1\r\nHost: a.example\r\nRange: bytes=0-5\r\n\r\n", b"HTTP/1.1 206 P\r\nContent-Range: bytes x\r\nContent-Length: 2\r\n\r\nhi", "range_invalid"),
];
