//! Captures over TCP with the programs that users have at the other end: dumpcap and tcpdump.

mod support;

use std::process::{Command, Stdio};

use support::{Running, packets, succeeds, wait, write};
use thalweg_testkit::peer;

const PACKETS: u64 = 3000;

fn folder(port: u16, receives: bool) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write(path, "routes.csv", "*, ingress, egress\n");
    succeeds(path, &["gen", "in.pcap", "--packets", &PACKETS.to_string(), "--size", "64"]);
    let connection = format!("tcp://127.0.0.1:{port}?listen");
    let (input, output) =
        if receives { (&*connection, "out.pcap") } else { ("in.pcap", &*connection) };
    let chain = format!(
        "routes = 'routes.csv'\n[input.a]\ncapture = '{input}'\n[output.o]\ncapture = '{output}'\n"
    );
    write(path, "chain.toml", &chain);
    folder
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Waits until something listens at the port, without connecting to it.
fn wait_for_listener(port: u16) {
    let local = format!("0100007F:{port:04X} 00000000:0000 0A");
    wait(|| std::fs::read_to_string("/proc/net/tcp").unwrap().contains(&local));
}

#[test]
fn dumpcap_reads_what_an_output_writes() {
    if !peer::is_there("dumpcap", &["--version"]) {
        return;
    }
    let port = free_port();
    let folder = folder(port, false);
    let run = Running::start(folder.path(), &[], Stdio::null());
    wait_for_listener(port);
    let from = format!("TCP@127.0.0.1:{port}");
    let arguments = ["-q", "-i", &from, "-w", "read.pcapng"];
    let dumpcap = Command::new("dumpcap").args(arguments).current_dir(folder.path()).output();
    let told = String::from_utf8(dumpcap.unwrap().stderr).unwrap();
    let ended = run.end();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.error);
    assert!(told.contains(&format!("Packets captured: {PACKETS}")), "{told}");
    assert_eq!(packets(&folder.path().join("read.pcapng")), PACKETS);
}

#[test]
fn an_input_reads_what_tcpdump_sends() {
    if !peer::is_there("tcpdump", &["--version"]) || !peer::is_there("bash", &["--version"]) {
        return;
    }
    let port = free_port();
    let folder = folder(port, true);
    let run = Running::start(folder.path(), &["--workers", "2"], Stdio::null());
    wait_for_listener(port);
    let script = format!("tcpdump -r in.pcap -U -w - > /dev/tcp/127.0.0.1/{port}");
    let mut tcpdump = Command::new("bash");
    let output = tcpdump.args(["-c", &script]).current_dir(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let ended = run.end();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.error);
    let (sent, received) = (folder.path().join("in.pcap"), folder.path().join("out.pcap"));
    assert_eq!(packets(&received), PACKETS);
    let packets_of = |path: &std::path::Path| {
        let bytes = std::fs::read(path).unwrap();
        // tcpdump writes microseconds; all else stays.
        let records = bytes[24..].chunks(76).map(|record| record[8..].to_vec());
        records.collect::<Vec<_>>()
    };
    assert!(packets_of(&sent) == packets_of(&received));
}
