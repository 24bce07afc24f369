//! Messages of protocols, all at once and byte by byte.

use super::*;

/// All messages of a direction, in their last state.
fn messages(app: &mut App, to_server: bool, chunks: &[&[u8]]) -> Vec<Message> {
    let mut messages: Vec<Message> = Vec::new();
    for chunk in chunks {
        app.data(to_server, chunk, 80);
        while app.advance(to_server) != Progress::More {
            take(app, to_server, &mut messages);
        }
    }
    if app.end(to_server) {
        take(app, to_server, &mut messages);
    }
    messages
}

/// Keeps the current message in place of its earlier state.
fn take(app: &mut App, to_server: bool, messages: &mut Vec<Message>) {
    let Some(now) = app.message(to_server).cloned() else { return };
    let grew = |last: &Message| {
        last.buffers.iter().all(|(b, bytes)| {
            now.all(*b)
                .any(|n| n == bytes || *b == Buffer::FileData || *b == Buffer::HttpRequestBody)
        })
    };
    if messages.last().is_some_and(grew) {
        messages.pop();
    }
    messages.push(now);
}

fn text(message: &Message, buffer: Buffer) -> Option<String> {
    message.all(buffer).next().map(|b| String::from_utf8_lossy(b).into_owned())
}

/// The file that rules see in a response.
fn file(response: &[u8]) -> String {
    let mut whole = App::default();
    messages(&mut whole, true, &[b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"]);
    let mut bytewise = whole.clone();
    let seen = messages(&mut whole, false, &[response]);
    let bytes: Vec<&[u8]> = response.chunks(1).collect();
    let slowly = messages(&mut bytewise, false, &bytes);
    let last = |m: &[Message]| m.last().and_then(|m| text(m, Buffer::FileData)).unwrap_or_default();
    assert_eq!(last(&seen), last(&slowly));
    last(&seen)
}

fn compressed(data: &[u8], zlib: bool) -> Vec<u8> {
    let mut compressor = flate2::Compress::new(flate2::Compression::default(), zlib);
    let mut out = Vec::with_capacity(data.len() + 64);
    compressor.compress_vec(data, &mut out, flate2::FlushCompress::Finish).unwrap();
    out
}

#[test]
fn bodies_come_out_of_their_codings() {
    let response = |fields: &str, body: &[u8]| {
        file(&[format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n").as_bytes(), body].concat())
    };
    let gzip = |data: &[u8]| {
        [&[0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 3][..], b"name\0", &compressed(data, false), &[0; 8]]
            .concat()
    };
    let plain = b"a file with a file in it";
    let expected = "a file with a file in it";
    assert_eq!(response("Content-Length: 24", plain), expected);
    assert_eq!(response("X: y", plain), expected, "up to the end of the connection");
    assert_eq!(response("Content-Encoding: gzip", &gzip(plain)), expected);
    assert_eq!(response("Content-Encoding: deflate", &compressed(plain, true)), expected);
    assert_eq!(response("Content-Encoding: deflate", &compressed(plain, false)), expected, "raw");
    assert_eq!(response("Content-Encoding: gzip, x-gzip", &gzip(&gzip(plain))), expected);
    assert_eq!(response("Content-Encoding: gzip", plain), expected, "not at all");
    assert_eq!(response("content-encoding : x\r\n ,deflate", &compressed(plain, true)), expected);
    let chunks = b"5\r\na fil\r\n0013;x\r\ne with a file in it\r\n0\r\nT: x\r\n\r\n";
    assert_eq!(response("Transfer-Encoding: chunked", chunks), expected);
    assert_eq!(response("Transfer-Encoding: chunked", plain), "a file with a file in it");
    assert_eq!(response("Transfer-Encoding:\tCHUNKED", b"5\na fil"), "a fil");
    // A decompression bomb grows up to a limit only.
    assert!(response("Content-Encoding: gzip", &gzip(&vec![b'x'; 40 << 20])).len() <= 1 << 21);
}

/// Oddities of responses from the tests of HTTP Evader (<https://noxxi.de/research/http-evader.html>),
/// as browsers and Suricata read them.
#[test]
fn odd_responses_are_read_as_browsers_do() {
    const FILE: &str = "MARKER-OF-A-DOWNLOAD";
    const CHUNKS: &str = "4\r\nMARK\r\n8\r\nER-OF-A-\r\n8\r\nDOWNLOAD\r\n0\r\n\r\n";
    let plain = |head: &str| format!("{head}{FILE}").into_bytes();
    let chunked = |head: &str| format!("{head}{CHUNKS}").into_bytes();
    let ok = "HTTP/1.1 200 OK\r\n";
    let cases: Vec<(&str, Vec<u8>)> = vec![
        // Ends of lines.
        ("CR ends the status line", chunked("HTTP/1.1 200 OK\rTransfer-Encoding: chunked\r\nX: y\r\n\r\n")),
        ("CR ends every line", chunked("HTTP/1.1 200 OK\rX: y\rTransfer-Encoding: chunked\r\r")),
        ("LF ends every line", plain("HTTP/1.1 200 OK\nContent-Length: 20\n\n")),
        ("LF CR CR LF ends the head", plain(&format!("{ok}Content-Length: 20\n\r\r\n"))),
        ("CR CR LF ends lines", plain("HTTP/1.1 200 OK\r\r\nContent-Length: 20\r\r\n\r\r\n")),
        ("LF CR LF ends the head", plain(&format!("{ok}Content-Length: 20\n\r\n"))),
        ("line ends before the status line", plain(&format!("\r\n\n{ok}Content-Length: 20\r\n\r\n"))),
        // Folded lines.
        ("a field in a folded line", chunked(&format!("{ok}X: y\r\n Transfer-Encoding: chunked\r\n\r\n"))),
        ("a folded value", chunked(&format!("{ok}Transfer-Encoding:\r\n chunked\r\n\r\n"))),
        ("the first field is folded", chunked(&format!("{ok}\tTransfer-Encoding: chunked\r\n\r\n"))),
        (
            "a folded colon",
            chunked(&format!("{ok}Transfer-Encoding\n :chunked\r\nY: z\r\n\r\n")),
        ),
        (
            "a line before the status line",
            chunked(&format!(" SIP/2.0 200 ok\r\n{ok}Transfer-Encoding: chunked\r\n\r\n")),
        ),
        // Characters that receivers skip.
        ("NUL in a value", chunked(&format!("{ok}Transfer-Encoding: chu\0nked\r\n\r\n"))),
        ("NUL after a name", chunked(&format!("{ok}Transfer-Encoding\0: chunked\r\n\r\n"))),
        ("NUL in a name", chunked(&format!("{ok}Transfer\0-Encoding: chunked\r\n\r\n"))),
        ("control characters", chunked(&format!("{ok}Transfer-Encoding: \x0b\x01chunked\x7f\r\n\r\n"))),
        ("a blank before the colon", chunked(&format!("{ok}Transfer-Encoding : chunked\r\n\r\n"))),
        ("several values", chunked(&format!("{ok}Transfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n\r\n"))),
        // Chunks.
        ("LF before a size", [&chunked(&format!("{ok}Transfer-Encoding: chunked\r\n\r\n\n"))[..]].concat()),
        ("CRLF before each size", format!("{ok}Transfer-Encoding: chunked\r\n\r\n\r\n4\r\nMARK\r\n\r\n10\r\nER-OF-A-DOWNLOAD\r\n\r\n0\r\n\r\n").into_bytes()),
        ("blanks, zeros and extensions", format!("{ok}Transfer-Encoding: chunked\r\n\r\n \t0004 ;x=y\r\nMARK\r\n000000000000000000010\nER-OF-A-DOWNLOAD\n0\n\n").into_bytes()),
        ("not chunked at all", plain(&format!("{ok}Transfer-Encoding: chunked\r\n\r\n"))),
        // Status codes that have no body.
        ("100", plain("HTTP/1.1 100 OK\r\nContent-Length: 20\r\n\r\n")),
        ("101", plain("HTTP/1.1 101 OK\r\nContent-Length: 20\r\n\r\n")),
        ("204", plain("HTTP/1.1 204 OK\r\nContent-Length: 20\r\n\r\n")),
        ("0204", plain("HTTP/1.1 0204 OK\r\nContent-Length: 20\r\n\r\n")),
        ("204 chunked", chunked("HTTP/1.1 204 OK\r\nTransfer-Encoding: chunked\r\n\r\n")),
        ("304 until the end", plain("HTTP/1.1 304 OK\r\n\r\n")),
        ("205", plain("HTTP/1.1 205 OK\r\nContent-Length: 20\r\n\r\n")),
        ("no status", plain("HTTP/1.1\r\nContent-Length: 20\r\n\r\n")),
        ("no head", plain("")),
        // Lengths.
        ("two numbers", plain(&format!("{ok}Content-Length: 10 20\r\n\r\n"))),
        ("two lengths", plain(&format!("{ok}Content-Length: 10\r\nContent-Length: 20\r\n\r\n"))),
        ("a sign", plain(&format!("{ok}Content-Length: +20\r\n\r\n"))),
        ("no number", plain(&format!("{ok}Content-Length: twenty\r\n\r\n"))),
        ("too short", plain(&format!("{ok}Content-Length: 3\r\n\r\n"))),
        ("too long", plain(&format!("{ok}Content-Length: 300\r\n\r\n"))),
        ("negative", plain(&format!("{ok}Content-Length: -1\r\n\r\n"))),
    ];
    for (name, response) in cases {
        assert_eq!(file(&response), FILE, "{name}");
    }
}

#[test]
fn codings_of_the_transfer_are_decoded_and_names_may_be_odd() {
    let gzip = |data: &[u8]| {
        [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3][..], &compressed(data, false), &[0; 8]].concat()
    };
    let coded = gzip(b"a file with a file in it");
    let chunked = [format!("{:x}\r\n", coded.len()).as_bytes(), &coded, b"\r\n0\r\n\r\n"].concat();
    for fields in [
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
    ] {
        let head = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n");
        assert_eq!(file(&[head.as_bytes(), &chunked].concat()), "a file with a file in it");
    }
    for field in [
        "Transfer-Encoding: gzip",
        "Content\0-Encoding: gzip",
        "Content-Encoding: g\0zip",
        "Content-Encoding\0: x-gzip",
        "Content-Encoding:\r\n\tgzip",
    ] {
        let head = format!("HTTP/1.1 200 OK\r\n{field}\r\n\r\n");
        assert_eq!(
            file(&[head.as_bytes(), &coded].concat()),
            "a file with a file in it",
            "{field:?}"
        );
    }
}

#[test]
fn what_follows_a_body_belongs_to_it_unless_it_is_a_response() {
    let mut app = App::default();
    messages(&mut app, true, &[b"GET / HTTP/1.1\r\n\r\n"]);
    // The last body is longer than declared; a line between responses does not hide the second.
    let responses = b"HTTP/1.1 304 No\r\nContent-Length: 9\r\n\r\n\r\nHTTP/1.1 200 A\r\n\
        Content-Length: 2\r\n\r\nhi there\r\nhttp/1.1 201 B\r\nContent-Length: 3\r\n\r\nyou and more";
    let seen = messages(&mut app, false, &[responses]);
    let codes: Vec<_> = seen.iter().map(|m| text(m, Buffer::HttpStatusCode).unwrap()).collect();
    assert_eq!(codes, ["304", "200", "201"]);
    let files: Vec<_> =
        seen.iter().map(|m| text(m, Buffer::FileData).unwrap_or_default()).collect();
    assert_eq!(files, ["", "hi there\r\n", "you and more"]);
}

#[test]
fn requests_behind_each_other_are_told_apart() {
    let mut app = App::default();
    let requests = b"POST /a HTTP/1.1\r\nHost: A\r\nContent-Length: 3\r\n\r\nabc\r\n\
        GET http://u@b:8080/%62?c HTTP/1.1\r\nHost: other\r\nCookie: x\r\nX-Y: z\r\n\r\nGET /nine\r\n";
    let mut bytewise = app.clone();
    let seen = messages(&mut app, true, &[requests]);
    let slowly = messages(&mut bytewise, true, &requests.chunks(1).collect::<Vec<_>>());
    assert_eq!(seen.len(), 3, "{seen:?}");
    assert_eq!(slowly.len(), 3);
    for messages in [seen, slowly] {
        let of = |i: usize, buffer| text(&messages[i], buffer).unwrap_or_default();
        assert_eq!(of(0, Buffer::HttpRequestBody), "abc");
        assert_eq!(of(0, Buffer::HttpHost), "a");
        assert_eq!(of(1, Buffer::HttpUri), "/b?c");
        assert_eq!(of(1, Buffer::HttpRawUri), "http://u@b:8080/%62?c");
        assert_eq!(of(1, Buffer::HttpHost), "b");
        assert_eq!(of(1, Buffer::HttpCookie), "x");
        assert_eq!(of(1, Buffer::HttpHeader), "Host: other\r\nX-Y: z\r\n");
        assert_eq!(of(1, Buffer::HttpHeaderNames), "\r\nHost\r\nCookie\r\nX-Y\r\n\r\n");
        assert_eq!(of(2, Buffer::HttpUri), "/nine");
    }
}

#[test]
fn responses_without_body_are_known_by_their_request() {
    let mut app = App::default();
    messages(&mut app, true, &[b"HEAD / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n"]);
    let responses = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n\
        HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 203 Ok\r\nContent-Length: 2\r\n\r\nhi";
    let seen = messages(&mut app, false, &[responses]);
    let codes: Vec<_> = seen.iter().map(|m| text(m, Buffer::HttpStatusCode).unwrap()).collect();
    assert_eq!(codes, ["200", "100", "203"]);
    assert_eq!(text(&seen[2], Buffer::FileData).as_deref(), Some("hi"));
}

#[test]
fn files_come_out_of_forms() {
    let body = "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nnot this\r\n\
        --B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"x\"\r\n\r\nthe file\r\n--B--\r\n";
    let request = format!(
        "POST / HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=\"B\"\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let seen = messages(&mut App::default(), true, &[request.as_bytes()]);
    assert_eq!(text(&seen[0], Buffer::FileData).as_deref(), Some("the file"));
    assert_eq!(text(&seen[0], Buffer::HttpRequestBody).as_deref(), Some(body));
}

#[test]
fn names_in_dns_do_not_go_in_circles() {
    let message = |tail: &[u8]| {
        let header = [0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        dns::message(&[&header[..], tail].concat())
    };
    let name = |tail| message(tail).and_then(|m| text(&m, Buffer::DnsQuery));
    assert_eq!(name(b"\x03www\x02de\0\0\x01\0\x01").as_deref(), Some("www.de"));
    assert_eq!(name(b"\x01a\xc0\x0c\0\x01\0\x01"), None);
    assert_eq!(name(b"\xc0\x0c"), None);
    assert_eq!(name(b"\x3fshort"), None);
    // Over TCP, in pieces.
    let query =
        [&[0, 24][..], &[0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0], b"\x03www\x02de\0\0\x01\0\x01"]
            .concat();
    let mut app = App::default();
    let mut count = 0;
    for byte in query.repeat(2).chunks(1) {
        app.data(true, byte, 53);
        while app.advance(true) != Progress::More {
            count += 1;
        }
    }
    assert_eq!((app.protocol(), count), (Some(Protocol::Dns), 2));
}

#[test]
fn what_is_no_protocol_is_given_up() {
    for (bytes, decided) in [(&b"\x16\x03"[..], false), (b"HELO x", true), (b"GE", false)] {
        let mut app = App::default();
        app.data(true, bytes, 25);
        app.data(false, b"220 hello", 25);
        assert_eq!(app == App::None, decided, "{bytes:?}");
    }
    let mut app = App::default();
    app.data(true, &[0; 300], 25);
    assert_eq!(app, App::None);
}

#[test]
fn white_space_between_messages_is_not_kept() {
    for (to_server, white) in [(true, &b"\r\n\r\n"[..]), (false, b"\r\n \t"), (false, b"\n\n\n\n")]
    {
        let mut app = App::default();
        messages(&mut app, true, &[&b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"[..]; 2]);
        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        messages(&mut app, false, &[response]);
        let before = app.memory();
        for _ in 0..10_000 {
            app.data(to_server, white, 80);
            assert_eq!(app.advance(to_server), Progress::More);
        }
        assert!(app.memory() < before + 2048, "{} bytes after {before}", app.memory());
        // What comes then is a message as any other.
        let next = if to_server { &b"GET /b HTTP/1.1\r\n\r\n"[..] } else { response };
        app.data(to_server, next, 80);
        assert_ne!(app.advance(to_server), Progress::More);
    }
}
