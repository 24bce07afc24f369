//! The program with its own kind of port: datagrams that pass, the report, and mistakes.

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

fn program(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_own-port"));
    command.args(arguments).current_dir(folder);
    command
}

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn output(folder: &Path, arguments: &[&str]) -> Output {
    program(folder, arguments).output().expect("the program starts")
}

/// An Ethernet packet of a type, whose payload is a number.
fn packet(ethertype: u16, number: u8) -> Vec<u8> {
    let mut packet = [[2; 6], [4; 6]].concat();
    packet.extend(ethertype.to_be_bytes());
    // IPv4 from 10.0.0.1 to 10.0.0.2, whose identification is the number.
    packet.extend([0x45, 0, 0, 20, 0, number, 0, 0, 64, 253, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet
}

#[test]
fn datagrams_pass_from_one_socket_to_the_other() {
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let left = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let count = ["run", "chain.toml", "--count", "4", "--no-control", "--json"];
    let run = program(here(), &count)
        .env("LEFT", left.to_string())
        .env("RIGHT", peer.local_addr().unwrap().to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The first of these are refused, as long as the program has not bound its socket.
    let (started, mut buffer) = (Instant::now(), [0; 100]);
    let first = loop {
        assert!(started.elapsed() < Duration::from_secs(60), "nothing arrives");
        let _ = peer.send_to(&packet(0x0800, 1), left);
        if let Ok(length) = peer.recv(&mut buffer) {
            break buffer[..length].to_vec();
        }
    };
    assert_eq!(first, packet(0x0800, 1));
    // Another type, a datagram too short for Ethernet, and as many as the run still waits for.
    for bytes in [&packet(0x88cc, 2)[..], &[1, 2, 3], &packet(0x0800, 3), &packet(0x0800, 4)] {
        let _ = peer.send_to(bytes, left);
        thread::sleep(Duration::from_millis(5));
    }
    let output = run.wait_with_output().unwrap();
    assert!(output.status.success());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["conserved"], &report["packets_in"]), (&true.into(), &4.into()));
    let mode = report["outputs"][0]["mode"].as_str().unwrap();
    assert!(mode.starts_with("from 127.0.0.1:"), "{mode}");
    // Packets of other types are not sent on.
    while let Ok(length) = peer.recv(&mut buffer) {
        assert_eq!(buffer[12..14], [8, 0], "{:?}", &buffer[..length]);
    }
}

#[test]
fn the_chain_is_shown_with_the_kind_and_its_mistakes_have_places() {
    let kind = String::from_utf8(output(here(), &["port", "show", "udp"]).stdout).unwrap();
    assert!(kind.contains("[output.NAME]") && kind.contains("required"), "{kind}");
    let shown = output(here(), &["check", "chain.toml"]);
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(text.contains("input left: UDP 127.0.0.1:5000\n"), "{text}");
    let json = output(here(), &["check", "chain.toml", "--json"]);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["graph"]["outputs"][0]["kind"], "udp");

    let folder = tempfile::tempdir().unwrap();
    let chain = "[input.a]\nudp = 'x'\nloop = 2\npromiscuous = true\n[input.b]\nupd = 'x'\n\
        [output.o]\nudp = '[::1]:7'\ndiscard = true\n[[route]]\npath = ['ingress', 'drop']\n";
    fs::write(folder.path().join("chain.toml"), chain).unwrap();
    let error = String::from_utf8(output(folder.path(), &["check", "chain.toml"]).stderr).unwrap();
    for mistake in [
        "bad address",
        "an IP address and a port: 127.0.0.1:5000",
        "'loop' does not apply to a UDP socket",
        "--duration or --count to end the run",
        "'promiscuous' does not apply to a UDP socket",
        "an interface",
        "unknown field `upd`",
        "an output needs exactly one target",
        "udp = \"ADDRESS:PORT\"",
    ] {
        assert!(error.contains(mistake), "{mistake}: {error}");
    }
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let run = program(here(), &["run", "chain.toml"]).env("LEFT", address.to_string()).output();
    let output = run.unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    // Values of variables are shown by their names.
    assert!(
        error.contains("chain.toml:6:7: UDP ${LEFT:-127.0.0.1:5000}: Address already"),
        "{error}"
    );
}
