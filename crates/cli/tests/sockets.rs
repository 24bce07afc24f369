//! Captures over TCP, in and out: whoever connects, all packets arrive or are counted, and no peer
//! that is absent, stalled or hostile keeps a run from its end.

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use support::{Running, packets, succeeds, thalweg, wait, write};

/// A run that was to end takes this long at most; a stalled reader is given a second.
const SOON: Duration = Duration::from_secs(4);

const DISCARD: &str = "discard = true";
/// Bytes of a packet of 60 bytes in pcapng.
const RECORD: usize = 32 + 60;

fn chain(input: &str, output: &str) -> String {
    format!("routes = 'routes.csv'\n[input.a]\n{input}\n[output.o]\n{output}\n")
}

/// A folder with captures `in.pcap` and `in.pcapng` of the same packets.
fn folder(packets: u32) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write(path, "routes.csv", "*, ingress, egress\n");
    let packets = packets.to_string();
    for name in ["in.pcap", "in.pcapng", "in.pcapng.gz"] {
        succeeds(path, &["gen", name, "--packets", &packets, "--size", "64"]);
    }
    folder
}

fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// A port at which nothing listens.
fn free_port() -> u16 {
    listener().1
}

/// Connects to a run that is about to listen.
fn connect(port: u16) -> TcpStream {
    let mut stream = None;
    wait(|| {
        stream = TcpStream::connect(("127.0.0.1", port)).ok();
        stream.is_some()
    });
    stream.unwrap()
}

fn start<'a>(path: &'a Path, input: &str, output: &str, arguments: &[&str]) -> Running<'a> {
    write(path, "chain.toml", &chain(input, output));
    Running::start(path, arguments, Stdio::null())
}

fn to(port: u16) -> String {
    format!("capture = 'tcp://127.0.0.1:{port}'")
}

fn at(port: u16) -> String {
    format!("capture = 'tcp://127.0.0.1:{port}?listen'")
}

/// Interrupts a run, which must end soon, with all of its packets accounted for.
#[track_caller]
fn ends(run: Running<'_>) -> support::Ended {
    let start = Instant::now();
    run.signal("INT");
    let ended = run.end();
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    assert_eq!(ended.report()["conserved"], true, "{}", ended.report);
    ended
}

#[test]
fn packets_of_a_server_are_read_until_it_closes() {
    let folder = folder(3000);
    let path = folder.path();
    let servers = ["127.0.0.1:0", "[::1]:0"].map(|address| TcpListener::bind(address).unwrap());
    for (server, name, more, workers) in [
        (&servers[0], "in.pcap", "", "1"),
        (&servers[0], "in.pcapng", "", "2"),
        (&servers[1], "in.pcapng.gz", "", "1"),
        (&servers[0], "in.pcapng", "\nmemory = true\nloop = 2", "1"),
    ] {
        let input = std::fs::read(path.join(name)).unwrap();
        let address = server.local_addr().unwrap();
        let source = format!("capture = 'tcp://{address}'{more}");
        let ended = thread::scope(|scope| {
            scope.spawn(|| server.accept().unwrap().0.write_all(&input).unwrap());
            start(path, &source, "capture = 'out.pcap'", &["--workers", workers]).end()
        });
        assert_eq!(ended.status.code(), Some(0), "{}", ended.error);
        let expected = if more.is_empty() { 3000 } else { 6000 };
        assert_eq!(packets(&path.join("out.pcap")), expected, "{name}");
    }
}

#[test]
fn one_client_is_accepted_and_further_ones_are_refused() {
    let folder = folder(5);
    let path = folder.path();
    let input = std::fs::read(path.join("in.pcapng")).unwrap();
    for workers in ["1", "2"] {
        let port = free_port();
        let run = start(path, &at(port), "capture = 'out.pcapng'", &["--workers", workers]);
        let mut client = connect(port);
        client.write_all(&input[..input.len() - RECORD]).unwrap();
        // Packets pass as they arrive.
        wait(|| {
            run.signal("USR1");
            let written = std::fs::metadata(path.join("out.pcapng"));
            written.is_ok_and(|file| file.len() as usize == input.len() - RECORD)
        });
        let second = TcpStream::connect(("127.0.0.1", port));
        assert_eq!(second.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        client.write_all(&input[input.len() - RECORD..]).unwrap();
        drop(client);
        let ended = run.end();
        assert_eq!(ended.status.code(), Some(0), "{}", ended.error);
        assert!(std::fs::read(path.join("out.pcapng")).unwrap() == input);
    }
}

#[test]
fn a_connection_receives_what_a_file_would() {
    let folder = folder(3000);
    let path = folder.path();
    let input = "capture = 'in.pcap'";
    assert_eq!(start(path, input, "capture = 'out.pcapng'", &[]).end().status.code(), Some(0));
    let expected = std::fs::read(path.join("out.pcapng")).unwrap();
    for (workers, listens) in [("1", false), ("2", true)] {
        let (server, port) = listener();
        let arguments = ["--workers", workers];
        let (mut reader, run) = if listens {
            drop(server);
            let run = start(path, input, &at(port), &arguments);
            (connect(port), run)
        } else {
            let run = start(path, input, &to(port), &arguments);
            (server.accept().unwrap().0, run)
        };
        let mut received = Vec::new();
        reader.read_to_end(&mut received).unwrap();
        let ended = run.end();
        assert_eq!(ended.status.code(), Some(0), "{}", ended.error);
        assert!(received == expected, "{} bytes of {}", received.len(), expected.len());
        assert_eq!(ended.report()["outputs"][0]["mode"], "pcapng");
    }
}

#[test]
fn one_signal_ends_a_run_whose_sender_is_absent_or_has_stalled() {
    let folder = folder(10);
    let path = folder.path();
    for more in ["", "\nmemory = true"] {
        let ended = ends(start(path, &format!("{}{more}", at(free_port())), DISCARD, &[]));
        assert_eq!(ended.status.code(), Some(0), "{}", ended.error);
        assert_eq!(ended.report()["packets_in"], 0);
    }
    // Before the file header, within it, and within a record.
    let input = std::fs::read(path.join("in.pcap")).unwrap();
    for (bytes, whole) in [(0, 0), (10, 0), (24 + 76 + 30, 1)] {
        let (server, port) = listener();
        let run = start(path, &to(port), "capture = 'out.pcap'", &[]);
        let (mut sender, _) = server.accept().unwrap();
        sender.write_all(&input[..bytes]).unwrap();
        wait(|| {
            run.signal("USR1");
            packets_there(path) == whole
        });
        let ended = ends(run);
        assert_eq!(ended.status.code(), Some(0), "{}", ended.error);
        assert_eq!(ended.report()["packets_out"], whole, "{bytes}");
    }
}

/// The packets in `out.pcap` so far; 0 without a header.
fn packets_there(path: &Path) -> u64 {
    let len = std::fs::metadata(path.join("out.pcap")).map_or(0, |file| file.len());
    len.saturating_sub(24) / 76
}

#[test]
fn one_signal_ends_a_run_whose_reader_is_absent_or_has_stalled() {
    let folder = folder(100);
    let path = folder.path();
    let input = "capture = 'in.pcap'\nloop = 0";
    let run = start(path, input, &at(free_port()), &[]);
    run.signal("INT");
    let ended = run.end();
    assert_eq!(ended.status.code(), Some(1));
    let told = "chain.toml:6:11: cannot accept a connection: no reader has connected";
    assert!(ended.error.contains(told), "{}", ended.error);
    for workers in ["1", "2"] {
        let (server, port) = listener();
        let mut run = start(path, input, &to(port), &["--workers", workers]);
        let (mut reader, _) = server.accept().unwrap();
        wait_for_stall(&mut run);
        let mut first = Vec::new();
        let ended = ends(run);
        assert_eq!(ended.status.code(), Some(1));
        assert!(ended.error.contains(": its reader has stalled"), "{}", ended.error);
        // The report counts the packets that the reader can still have whole.
        reader.read_to_end(&mut first).unwrap();
        std::fs::write(path.join("held.pcapng"), &first).unwrap();
        let report = ended.report();
        assert!(report["packets_out"].as_u64() >= Some(1000), "{}", ended.report);
        let headers = std::fs::read(path.join("in.pcapng")).unwrap().len() - 100 * RECORD;
        assert_eq!(report["packets_out"], (first.len() - headers) / RECORD);
    }
}

/// Waits until a run writes no more, since all buffers between it and its reader are full.
fn wait_for_stall(run: &mut Running<'_>) {
    let written = format!("/proc/{}/io", run.child().id());
    let mut before = String::new();
    wait(|| {
        thread::sleep(Duration::from_millis(200));
        let now = std::fs::read_to_string(&written).unwrap();
        let now = now.lines().find(|line| line.starts_with("wchar")).unwrap().to_owned();
        let is_same = now == before;
        before = now;
        is_same && !before.ends_with(" 0")
    });
}

#[test]
fn a_peer_that_leaves_is_reported() {
    let folder = folder(10);
    let path = folder.path();
    // Within a record: as a file that is truncated.
    let input = std::fs::read(path.join("in.pcapng")).unwrap();
    let (server, port) = listener();
    let run = start(path, &to(port), DISCARD, &[]);
    server.accept().unwrap().0.write_all(&input[..input.len() - 10]).unwrap();
    let ended = run.end();
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.error.contains(&format!("tcp://127.0.0.1:{port}: at byte ")), "{}", ended.error);
    assert_eq!(ended.report()["packets_in"], 9);
    // A reader: the run ends, and counts what it could not send.
    for workers in ["1", "2"] {
        let (server, port) = listener();
        let input = "generate = { packets = 10000000 }";
        let run = start(path, input, &to(port), &["--workers", workers]);
        server.accept().unwrap().0.read_exact(&mut [0; 1000]).unwrap();
        let ended = run.end();
        assert_eq!(ended.status.code(), Some(1));
        assert!(ended.error.contains(&format!("tcp://127.0.0.1:{port}: ")), "{}", ended.error);
        let report = ended.report();
        assert_eq!(report["conserved"], true);
        assert!(report["packets_in"].as_u64() > report["packets_out"].as_u64(), "{report}");
    }
}

#[test]
fn hostile_bytes_are_those_of_a_file() {
    let folder = folder(1);
    let path = folder.path();
    for (bytes, message) in [
        (&b"GET / HTTP/1.1\r\n"[..], "not a pcap or pcapng capture: it begins with 47 45 54 20"),
        (b"", "the file is empty"),
        (&[0x0a, 0x0d, 0x0d, 0x0a, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0], ": at byte 0: "),
    ] {
        let (server, port) = listener();
        let run = start(path, &to(port), DISCARD, &[]);
        server.accept().unwrap().0.write_all(bytes).unwrap();
        let ended = run.end();
        assert_eq!(ended.status.code(), Some(1));
        assert!(ended.error.contains(message), "{}", ended.error);
    }
}

#[test]
fn a_connection_that_cannot_be_had_is_named_with_its_place() {
    let folder = folder(1);
    let path = folder.path();
    let (_taken, port) = listener();
    let input = "capture = 'in.pcap'";
    let refused = "cannot connect: Connection refused";
    let in_use = "cannot accept a connection: Address already in use";
    for (input, output, place, message) in [
        (&*to(free_port()), DISCARD, "3:11", refused),
        (input, &to(free_port()), "5:11", refused),
        (&at(port), DISCARD, "3:11", in_use),
        (input, &at(port), "5:11", in_use),
    ] {
        write(path, "chain.toml", &chain(input, output));
        // Only a run connects.
        assert!(succeeds(path, &["check", "chain.toml"]).contains(": tcp://127.0.0.1:"));
        let output = thalweg(path, &["run", "chain.toml"]);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains(&format!("chain.toml:{place}: {message}")), "{told}");
    }
}

#[test]
fn mistakes_in_addresses_have_their_place() {
    let folder = folder(1);
    let path = folder.path();
    let input = "capture = 'in.pcap'";
    for (input, output, line, message) in [
        ("capture = 'tcp://h'", DISCARD, 3, "the address has no port"),
        ("capture = 'udp://h:1'", DISCARD, 3, "unknown kind of address"),
        ("capture = 'TCP@h:1'", DISCARD, 3, "unknown kind of address"),
        ("capture = 'tcp://h:1?x'", DISCARD, 3, "unknown option 'x'"),
        ("capture = ['in.pcap', 'tcp://h:1']", DISCARD, 3, "can be one of several captures"),
        ("capture = 'tcp://h:1'\nloop = 2", DISCARD, 4, "the capture can be read only once"),
        (input, "capture = 'tcp://:1'", 5, "the address has no host"),
        (input, "capture = 'tcp://::1:1'", 5, "an IPv6 address without brackets"),
    ] {
        write(path, "chain.toml", &chain(input, output));
        let output = thalweg(path, &["check", "chain.toml"]);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(78), "{told}");
        assert!(told.contains(&format!("chain.toml:{line}:")) && told.contains(message), "{told}");
    }
}

#[test]
fn a_reload_keeps_a_connection() {
    let folder = folder(10);
    let path = folder.path();
    let input = std::fs::read(path.join("in.pcapng")).unwrap();
    let (server, port) = listener();
    let (sink, reader_port) = listener();
    let text = chain(&to(port), &to(reader_port));
    write(path, "chain.toml", &text);
    let run = Running::start(path, &["-v"], Stdio::null());
    let (mut sender, _) = server.accept().unwrap();
    let (mut reader, _) = sink.accept().unwrap();
    let half = input.len() - 5 * RECORD;
    sender.write_all(&input[..half]).unwrap();
    write(path, "routes.csv", "*, ingress, n\n*, n, egress\n");
    write(path, "chain.toml", &format!("{text}[nf.n]\nkind = 'monitor'\n"));
    run.signal("HUP");
    wait(|| std::fs::read_to_string(path.join("error")).unwrap().contains("reloaded"));
    sender.write_all(&input[half..]).unwrap();
    drop(sender);
    let mut received = Vec::new();
    reader.read_to_end(&mut received).unwrap();
    let ended = run.end();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.error);
    assert!(received == input, "one capture, with one header");
    assert_eq!(ended.report()["reloads"], 1, "{}", ended.report);
}
