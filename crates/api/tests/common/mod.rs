//! A server for tests, and clients that misbehave.
#![allow(dead_code)] // each test file uses a part

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use thalweg_api::axum::Router;
use thalweg_api::{Answer, Client, Counted, Limits, Listeners, Server, Socket};

/// A server on a socket of its own.
pub struct Served {
    pub server: Server,
    pub path: PathBuf,
    _folder: TempDir,
}

/// Limits that a test reaches soon.
pub fn tight() -> Limits {
    Limits {
        connections: 8,
        requests: 2,
        head_bytes: 8 << 10,
        headers: 16,
        body_bytes: 1000,
        head_time: Duration::from_millis(300),
        body_time: Duration::from_millis(300),
        request_time: Duration::from_millis(800),
        write_time: Duration::from_millis(500),
        events: 4,
        closing_time: Duration::from_millis(500),
    }
}

pub fn serve(limits: Limits, router: Router) -> Served {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sock");
    let unix = Some(Socket::claim(&path).unwrap());
    let listeners = Listeners { unix, tcp: None };
    let server = Server::start("test", listeners, limits, router).unwrap();
    Served { server, path, _folder: folder }
}

impl Served {
    pub fn client(&self) -> Client {
        Client::new(&self.path, Duration::from_secs(5))
    }

    pub fn get(&self, target: &str) -> Answer {
        self.client().request("GET".parse().unwrap(), target, "*/*", None).unwrap()
    }

    pub fn post(&self, target: &str, body: &[u8]) -> Answer {
        self.client().request("POST".parse().unwrap(), target, "*/*", Some(body.into())).unwrap()
    }

    pub fn counted(&self) -> Counted {
        self.server.counts().now()
    }

    pub fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        stream
    }

    /// Sends bytes on a connection of its own; returns what arrives until the server closes it.
    pub fn send(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // The server may close it before the end.
        let _ = stream.write_all(bytes);
        rest(stream)
    }
}

/// What arrives until the other end closes the connection.
pub fn rest(mut stream: UnixStream) -> String {
    let mut all = Vec::new();
    // A reset is an end, too.
    match stream.read_to_end(&mut all) {
        Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => panic!("the server holds on"),
        _ => String::from_utf8_lossy(&all).into_owned(),
    }
}

/// Waits until `done`, for some seconds at most.
#[track_caller]
pub fn wait(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(8), "waited without success");
        std::thread::sleep(Duration::from_millis(2));
    }
}
