//! What the tables of NFs take at their limits is known before a run: the estimates hold, and a
//! chain that does not fit is refused.
//!
//! `unsafe` here: a global allocator that counts.
#![allow(unsafe_code)]

#[path = "support/controlled.rs"]
mod controlled;
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use controlled::Controlled;
use support::write;
use thalweg_cpu::memory::mapped;
use thalweg_packet::write::PacketBuilder;
use thalweg_packet::{BATCH, Nanoseconds};
use thalweg_testkit::Drive;

struct Counting;

/// Held by each test, so that no other one allocates.
static ALONE: Mutex<()> = Mutex::new(());
static HELD: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Packets, one after another.
type Packets = Box<dyn Iterator<Item = Vec<u8>>>;

/// A UDP packet of an inside host and port to an outside host.
fn datagram(host: u32, port: u16, remote: u8) -> Vec<u8> {
    let [_, a, b, c] = host.to_be_bytes();
    PacketBuilder::new([2; 6], [4; 6])
        .ip([10, a, b, c].into(), [198, 51, 100, remote].into())
        .udp(1024 + port, 53)
        .build(b"")
}

/// The first fragment of a datagram.
fn fragment(number: u32) -> Vec<u8> {
    let mut packet = datagram(number, 0, 1);
    packet.resize(14 + 68, 0);
    packet[16..18].copy_from_slice(&68u16.to_be_bytes());
    packet[20..22].copy_from_slice(&[0x20, 0]); // more fragments
    packet[24..26].copy_from_slice(&[0, 0]);
    let sum: u32 = packet[14..34].chunks(2).map(|b| u32::from(b[0]) << 8 | u32::from(b[1])).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[24..26].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// The bytes that an instance of `kind` holds after `packets`, and its estimate.
fn measured(kind: &str, options: &str, packets: impl Iterator<Item = Vec<u8>>) -> (usize, usize) {
    let kinds = thalweg_cli::built_in_kinds();
    let blueprint = kinds.nfs.find(kind).unwrap().build_alone(options).unwrap();
    let packets: Vec<_> = packets.collect();
    let held = || HELD.load(Relaxed) + mapped();
    let before = held();
    let mut drive = Drive::new(blueprint.instance());
    let frames = held() - before;
    for (n, packets) in packets.chunks(1024).enumerate() {
        drive.now = Nanoseconds::from_millis(1 + n as u64);
        drive.send(packets);
    }
    // Nearly all flows of a monitor have ended then, and their records wait for the last.
    if kind == "monitor" {
        drive.now = Nanoseconds::from_secs(60);
        let batches = packets.len() / 64 - 1;
        drive.send(&vec![packets[0].clone(); batches * BATCH]);
    }
    (held() - before - frames, blueprint.memory() as usize)
}

/// For each kind whose tables grow, with full tables.
#[test]
fn estimates_are_those_of_full_tables() {
    const MANY: u32 = 150_000;
    let _alone = ALONE.lock();
    let flows = |count: u32| (0..count).map(|n| datagram(n, 0, 1));
    let remotes = |count: u32| (0..4).flat_map(move |r| (0..count).map(move |n| datagram(n, 0, r)));
    let folder = tempfile::tempdir().unwrap();
    write(
        folder.path(),
        "none.rules",
        "alert udp any any -> any any (flow:established; content:\"x\"; sid:1;)\n",
    );
    let rules = format!("rules = ['{}/none.rules']\n", folder.path().display());
    let nat = "inside = ['10.0.0.0/8']\nexternal = ['192.0.2.1-192.0.2.9']\n";
    let cases: [(&str, String, Packets); 7] = [
        ("monitor", format!("max_flows = {MANY}"), Box::new(flows(MANY))),
        ("monitor", "max_flows = 262144".into(), Box::new(flows(262_144))),
        (
            "nat",
            format!("{nat}max_mappings = {MANY}\nmax_sessions = {MANY}"),
            Box::new(flows(MANY)),
        ),
        (
            "nat",
            format!("{nat}max_mappings = 50000\nmax_sessions = 200000"),
            Box::new(remotes(50_000)),
        ),
        (
            "nids",
            format!("{rules}max_flows = {MANY}\nstream_memory_mib = 1"),
            Box::new(flows(MANY)),
        ),
        (
            "assets",
            format!("max_hosts = 2\nmemory_mib = 1\nmax_conversations = {MANY}"),
            Box::new(flows(MANY)),
        ),
        ("defrag", "memory_mib = 32".into(), Box::new((0..MANY).map(fragment))),
    ];
    let mut wrong = Vec::new();
    for (kind, options, packets) in cases {
        let (held, estimate) = measured(kind, &options, packets);
        let ratio = estimate as f64 / held as f64;
        println!("{kind}: {held} bytes held, {estimate} estimated, {ratio:.2}");
        if !(0.75..=1.25).contains(&ratio) {
            wrong.push((kind, held, estimate));
        }
    }
    assert!(wrong.is_empty(), "(kind, held, estimated): {wrong:?}");
}

const CHAIN: &str = "[input.a]\ngenerate = { packets = 1000000000, flows = 10, rate = 1000 }\n\
    pace = 1.0\n\
    [output.o]\ndiscard = true\n[nf.small]\nkind = 'monitor'\nmax_flows = 1000\n\
    [nf.large]\nkind = 'monitor'\nmax_flows = 2000\n[[route]]\npath = ['ingress', 'small', 'large', 'egress']\n";

/// A shell that lets `thalweg` have 4 GB of address space.
fn limited(folder: &std::path::Path, arguments: &str) -> std::process::Command {
    let program = env!("CARGO_BIN_EXE_thalweg");
    let mut shell = std::process::Command::new("sh");
    let script = format!("ulimit -v 4000000; exec '{program}' {arguments}");
    shell.args(["-c", &script]).current_dir(folder).env("NO_COLOR", "1");
    shell
}

#[test]
fn a_chain_that_does_not_fit_is_refused_and_a_running_one_goes_on() {
    let _alone = ALONE.lock();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let too_large = CHAIN.replace("2000", "67108864");
    write(path, "chain.toml", &too_large);
    let run = limited(path, "run chain.toml").output().unwrap();
    let message = String::from_utf8_lossy(&run.stderr).replace('\n', " ");
    assert_eq!(run.status.code(), Some(78), "{message}");
    for part in ["chain.toml:", "NF 'large' may take ", "more than the 3907 MiB"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    // A check is a warning: the chain may run elsewhere.
    let check = limited(path, "check chain.toml").output().unwrap();
    let message = String::from_utf8_lossy(&check.stderr);
    assert!(check.status.success() && message.contains("NF 'large' may take"), "{message}");
    let check = limited(path, "check chain.toml --strict").output().unwrap();
    assert_eq!(check.status.code(), Some(78));
    write(path, "chain.toml", CHAIN);
    let arguments = "run chain.toml --json --control=fit";
    let run = Controlled::spawn(path, "fit", &mut limited(path, arguments));
    let nids = "[nf.small]\nkind = 'monitor'\nmax_flows = 1000\n";
    for text in [&too_large, &CHAIN.replace(nids, &nids.replace("1000", "60000000"))] {
        write(path, "chain.toml", text);
        let reload = run.ctl(&["reload"]);
        let message = String::from_utf8_lossy(&reload.stderr);
        assert!(!reload.status.success() && message.contains("chain.toml:"), "{message}");
        assert!(message.contains(" MiB that are available"), "{message}");
    }
    write(path, "chain.toml", &CHAIN.replace("2000", "3000"));
    assert!(run.succeeds(&["reload"]).contains("~ nf 'large'"));
    run.succeeds(&["stop"]);
    let report = run.end();
    assert_eq!((&report["reloads"], &report["conserved"]), (&1.into(), &true.into()));
}
