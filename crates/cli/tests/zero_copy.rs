//! Packets are worked on by a device where their port has put them, in memory that the device shares, and
//! what leaves the chain is the same as on the processor. Ports count the packets that they copy.
//!
//! `unsafe` here: unshare(2), for a thread that no other test uses.
#![allow(unsafe_code)]
#![cfg(target_os = "linux")]

#[path = "support/places.rs"]
mod places;
mod support;
#[path = "support/tunnels.rs"]
mod tunnels;
#[path = "support/watched.rs"]
mod watched;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use places::places;
use serde_json::{Value, json};
use support::{capture, command, report, succeeds, write};
use thalweg_accel::Installed;
use thalweg_chain::{Plan, PlanOptions};
use thalweg_cli::built_in_kinds;
use thalweg_engine::{Control, RunOptions};
use thalweg_io::{
    CaptureInput, HAS_DPDK, HAS_FILTERS, Input, InterfaceInput, InterfaceOutput, MemifInput,
    MemifOutput, MemifRole, MemifSettings, Output,
};
use thalweg_nf::device::{Devices, Launches, Named};
use thalweg_packet::write::PacketBuilder;
use thalweg_packet::{BATCH, Batch, DropCounts, HEADROOM, Lanes, MemoryKind, PacketMemory, Pool};
use thalweg_testkit::peer;
use watched::{Seen, Watched};

const PACKETS: usize = 500;

/// Where the kernel puts a packet in a frame that AF_XDP has lent it, and where DPDK's drivers do.
const OF_XDP: usize = 258;
const OF_DPDK: usize = 128;

const RULES: &str = "alert udp any any -> any any (msg:\"m\"; content:\"an attack\"; sid:1;)\n";

/// Packets of UDP, of which every third one has what the rule looks for.
fn packets() -> Vec<Vec<u8>> {
    let packet = |n: usize| {
        let [high, low] = (n as u16).to_be_bytes();
        let mut payload: Vec<u8> = (0..40 + n * 37 % 1200).map(|at| (at * n) as u8).collect();
        if n.is_multiple_of(3) {
            payload[11..20].copy_from_slice(b"an attack");
        }
        PacketBuilder::new([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
            .ip([10, 0, high, low].into(), [198, 51, 100, 7].into())
            .udp(5000 + n as u16, 53)
            .build(&payload)
    };
    (0..PACKETS).map(packet).collect()
}

/// A chain between these ports, `in` and `out`, with intrusion detection and a tunnel at a place.
fn chain(ports: &str, at: &str) -> String {
    let (memory, place) = match at {
        "cpu" => (String::new(), String::new()),
        // A device that shares its cores with other tests may take its time.
        at => (format!("device = '{at}'\n"), format!("at = '{at}'\nfailed_after_ms = 30000\n")),
    };
    format!(
        "[run]\nseed = 5\n[memory]\nframes = 4096\n{memory}{ports}\
         [nf.ids]\nkind = 'nids'\nrules = ['t.rules']\nalerts = 'a.json'\n{place}\
         [nf.vpn]\nkind = 'ipsec'\ndefault_policy = 'bypass'\n{place}{}\
         [[nf.vpn.policy]]\nmatch = 'udp'\naction = 'protect'\nsa = 'a'\n\
         [[route]]\npath = ['ingress', 'ids', 'vpn', 'out']\n",
        tunnels::associations("out")
    )
}

/// Ends a run even if a test fails.
struct Ending<'a>(&'a Control);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Runs a chain at a place while `act` does what a peer does, which gets whether the run has ended, and how
/// many packets it has sent. Returns what `act` returned, the report, and what a device has seen.
fn run<R>(
    folder: &Path,
    (ports, at, workers): (&str, &str, usize),
    act: impl FnOnce(&dyn Fn() -> (bool, u64)) -> R,
) -> (R, Value, Seen) {
    write(folder, "chain.toml", &chain(ports, at));
    write(folder, "t.rules", RULES);
    let watched = Arc::new(Watched::default());
    let kinds = built_in_kinds().with_devices(watched.clone());
    let plan = Plan::load(&folder.join("chain.toml"), &kinds, PlanOptions::default())
        .unwrap_or_else(|e| panic!("{at}: {e:?}"));
    let (control, options) =
        (Control::default(), RunOptions { workers: Some(workers), ..RunOptions::default() });
    let (returned, report) = thread::scope(|scope| {
        let run = scope.spawn(|| thalweg_engine::run(plan, &options, &control).unwrap());
        let ending = Ending(&control);
        let state = || {
            let sent = || control.snapshot(Duration::from_secs(1)).map_or(0, |now| now.packets_out);
            (run.is_finished(), sent())
        };
        let returned = act(&state);
        drop(ending);
        (returned, run.join().unwrap())
    });
    let report = serde_json::to_value(report).unwrap();
    assert_eq!((&report["failures"], &report["conserved"]), (&json!([]), &json!(true)), "{at}");
    assert_eq!(report["leaked_frames"], 0, "{at}: {report}");
    (returned, report, watched.take())
}

/// Checks what a run at a device has seen, and how many packets its ports have copied.
fn check(
    name: &str,
    (report, seen): (&Value, &Seen),
    (place, kind): (usize, MemoryKind),
    copied: [usize; 2],
) {
    let (memory, of) = seen.memory.clone().expect("a device was started");
    assert_eq!(of, kind, "{name}");
    let of = |function: &str| seen.works.iter().filter(|w| w.function == function).count();
    assert_eq!((of("literals"), of("esp")), (PACKETS, PACKETS), "{name}");
    for work in &seen.works {
        assert!(memory.contains(&work.address), "{name}: {work:?} of {memory:?}");
        assert_eq!(work.found, work.address as u32, "{name}: the device found them elsewhere");
        // A payload of UDP is where the port has put it. A packet that is sealed stays there, too, with
        // the SPI, the number and the IV before it.
        let headers = if work.function == "literals" { 14 + 20 + 8 } else { 14 - 8 - 16 };
        assert_eq!(work.place as isize, place as isize + headers, "{name}: {work:?}");
    }
    for (direction, copied) in ["inputs", "outputs"].into_iter().zip(copied) {
        let of = &report[direction][0]["copied"];
        assert_eq!(of, &json!(copied), "{name}: {direction}");
    }
}

/// What must be the same wherever NFs run.
fn counts(report: &Value) -> Value {
    let nf = |nf: usize| ["packets", "drops", "figures"].map(|key| report["nfs"][nf][key].clone());
    json!([report["packets_in"], report["packets_out"], nf(0), nf(1)])
}

/// A medium: its name, the sections of its ports, where it puts packets in a frame, and the packets that
/// Thalweg copies on their way in and out.
struct Medium<'a> {
    name: &'a str,
    ports: &'a str,
    place: usize,
    copied: [usize; 2],
    /// Whether a peer maps packet memory.
    is_mapped: bool,
}

/// Whether a place takes over memory that a peer maps.
fn can_adopt(at: &str) -> bool {
    let device = Named { at, launches: Launches::Never };
    let adopt = || Installed::default().adopt(device, PacketMemory::anonymous(4096).unwrap());
    at == "cpu" || adopt().is_ok()
}

/// Passes packets by `act` through the chain at each place: what comes back, which `act` returns or
/// `collect` finds after the run, and counts, are the same, and devices work on packets where the medium
/// has put them.
fn pass(
    folder: &Path,
    medium: &Medium<'_>,
    mut act: impl FnMut(&dyn Fn() -> (bool, u64)) -> Vec<Vec<u8>>,
    collect: Option<&dyn Fn() -> Vec<Vec<u8>>>,
) {
    let (places, _turn) = places();
    let mut first: Option<(Vec<Vec<u8>>, Value)> = None;
    for at in places.iter().filter(|at| !medium.is_mapped || can_adopt(at)) {
        for workers in [1, 2] {
            let name = format!("{} at {at}, {workers} workers", medium.name);
            let (mut returned, report, seen) = run(folder, (medium.ports, at, workers), &mut act);
            returned.extend(collect.into_iter().flat_map(|collect| collect()));
            assert_eq!(returned.len(), PACKETS, "{name}: {report}");
            let now = (returned, counts(&report));
            let first = first.get_or_insert_with(|| now.clone());
            assert_eq!(now.1, first.1, "{name}");
            assert!(now.0 == first.0, "{name}: packets differ");
            let kind = match &**at {
                "cpu" => continue,
                _ if medium.is_mapped => MemoryKind::Shared,
                "soft" => MemoryKind::Anonymous,
                _ => MemoryKind::Foreign,
            };
            check(&name, (&report, &seen), (medium.place, kind), medium.copied);
        }
    }
    let (_, counts) = first.expect("it runs on the processor");
    assert!(counts.to_string().contains("\"protected\":500"), "{counts}");
    assert!(counts.to_string().contains("\"alerts\":167"), "{counts}");
}

/// Waits until the run is over, or has sent all packets.
fn wait(state: &dyn Fn() -> (bool, u64)) -> Vec<Vec<u8>> {
    let since = Instant::now();
    while !matches!(state(), (true, _) | (_, 500)) {
        assert!(since.elapsed() < Duration::from_secs(30), "the run goes on");
        thread::sleep(Duration::from_millis(5));
    }
    Vec::new()
}

/// The packets of a capture.
fn read(path: &Path) -> Vec<Vec<u8>> {
    let mut input = CaptureInput::open(path, 1).unwrap();
    let mut batch = Batch::new(Arc::new(Pool::anonymous(64, 2048).unwrap()));
    let mut packets = Vec::new();
    loop {
        let received = input.receive(&mut batch, BATCH, &mut DropCounts::default()).unwrap();
        packets.extend(batch.lanes().into_iter().map(|lane| batch.bytes(lane).to_vec()));
        batch.release(Lanes::ALL);
        if received.ended {
            return packets;
        }
    }
}

/// A folder with the packets in `in.pcap`.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let packets: Vec<_> =
        packets().into_iter().enumerate().map(|(n, bytes)| (1000 * n as u64, bytes)).collect();
    capture(folder.path(), "in.pcap", &packets);
    folder
}

/// Packets of captures are copied once from what was read into frames, and once from frames into what is
/// written, or not at all. In between, they stay where they are.
#[test]
fn packets_of_captures_are_worked_on_where_they_were_read() {
    const ZERO_COPY: &str = "zero_copy = true\n";
    for (name, more, copied) in [
        ("a capture", ["", ""], [PACKETS; 2]),
        ("a capture in memory", ["memory = true\n", ""], [PACKETS; 2]),
        ("a capture without a copy", [ZERO_COPY; 2], [0, 0]),
    ] {
        let folder = folder();
        let [input, output] = more;
        let ports = format!(
            "[input.in]\ncapture = 'in.pcap'\n{input}[output.out]\ncapture = 'out.pcap'\n{output}"
        );
        let medium = Medium { name, ports: &ports, place: HEADROOM, copied, is_mapped: false };
        let out = folder.path().join("out.pcap");
        pass(folder.path(), &medium, wait, Some(&|| read(&out)));
    }
}

#[test]
fn captures_whose_packets_are_copied_are_refused_with_zero_copy() {
    let folder = folder();
    let f = folder.path();
    succeeds(f, &["gen", "b.pcap.gz", "--packets", "3"]);
    let chain = |input: &str| {
        format!(
            "[input.a]\n{input}\nzero_copy = true\n[output.o]\ndiscard = true\n\
             [[route]]\npath = ['ingress', 'o']\n"
        )
    };
    for (input, why) in [
        ("capture = 'in.pcap'\nmemory = true", "4:13: with 'memory', packets are copied"),
        ("capture = 'in.pcap'\nfilter = 'udp'", "4:13: with 'filter', packets are copied"),
        ("capture = 'b.pcap.gz'", "3:13: packets of a compressed file are copied"),
        ("capture = ['in.pcap', 'b.pcap.gz']", "3:13: 'zero_copy' is for one file"),
        ("capture = '-'", "3:13: 'zero_copy' is for one file"),
        ("capture = 'tcp://127.0.0.1:1'", "3:13: 'zero_copy' is for one file"),
    ] {
        write(f, "chain.toml", &chain(input));
        let refused = command(f, &["check", "chain.toml"]).output().unwrap();
        let error = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(78), "{input}: {error}");
        assert!(error.contains(&format!("chain.toml:{why}")), "{input}: {error}");
        assert!(error.contains("expected one capture that is not compressed"), "{error}");
    }
    let written = "[input.a]\ncapture = 'in.pcap'\n[output.o]\ncapture = 'o.pcap.gz'\nzero_copy = true\n\
                   [[route]]\npath = ['ingress', 'o']\n";
    write(f, "chain.toml", written);
    let refused = command(f, &["check", "chain.toml"]).output().unwrap();
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(error.contains("5:13: packets of a compressed file are copied"), "{error}");
    // A filter that a run adds has its packets copied.
    write(f, "chain.toml", &chain("capture = 'in.pcap'"));
    for (more, copied) in [(&[][..], 0), (&["--filter", "udp"], PACKETS), (&["--loop", "2"], 0)] {
        if more.contains(&"--filter") && !HAS_FILTERS {
            continue;
        }
        let (report, code, error) = report(f, &[&["run", "chain.toml", "--json"], more].concat());
        let input = &report["inputs"][0];
        assert_eq!((code, &input["copied"]), (0, &json!(copied)), "{error}");
        let mode = if copied == 0 { "pcap, zero copy" } else { "pcap" };
        assert_eq!(input["mode"], mode, "{input}");
        assert_eq!(error.contains("with a filter, packets are copied"), copied > 0, "{error}");
    }
}

/// Sends packets to a chain, some at a time, and receives what it returns.
fn exchange(output: &mut dyn Output, input: &mut dyn Input, pool: &Arc<Pool>) -> Vec<Vec<u8>> {
    let (mut sending, mut arriving) = (Batch::new(pool.clone()), Batch::new(pool.clone()));
    let (mut returned, mut drops) = (Vec::new(), DropCounts::default());
    let mut sent = 0;
    for some in packets().chunks(16) {
        for packet in some {
            sending.push_bytes(packet).unwrap();
        }
        let (mut left, since) = (sending.lanes(), Instant::now());
        sent += some.len();
        while !left.is_empty() || returned.len() < sent {
            if !left.is_empty() {
                // A peer that is not there yet has nothing.
                left = left.without(output.send(&sending, left, &mut drops).unwrap());
                output.flush().unwrap();
            }
            input.receive(&mut arriving, BATCH, &mut drops).unwrap();
            let lanes = arriving.lanes();
            returned.extend(lanes.into_iter().map(|lane| arriving.bytes(lane).to_vec()));
            arriving.release(Lanes::ALL);
            assert!(since.elapsed() < Duration::from_secs(30), "{} of {sent}", returned.len());
            thread::yield_now();
        }
        sending.release(Lanes::ALL);
    }
    returned
}

/// Runs a test in a new network namespace with a veth pair, `near` and `far`, or reports that this user may
/// not.
fn laboratory(name: &'static str, test: impl FnOnce() + Send + 'static) {
    let run = move || {
        // SAFETY: takes no pointer; only this thread, which ends with the test, and threads that it starts
        // change their namespace.
        if !peer::is_root() || unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            peer::missing(&format!("{name}: root"));
            return;
        }
        ip("link add near type veth peer name far");
        for name in ["near", "far"] {
            ip(&format!("link set {name} addrgenmode none"));
            ip(&format!("link set {name} up"));
        }
        test();
    };
    if let Err(panic) = thread::spawn(run).join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs ip(8); it is in the namespace of the thread.
fn ip(arguments: &str) {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let status = Command::new("ip").args(arguments.split(' ')).env("PATH", path).status();
    assert!(status.is_ok_and(|status| status.success()), "ip {arguments}");
}

/// Passes packets through a chain that has the interface `near`.
fn pass_interface(folder: &Path, medium: &Medium<'_>) {
    let theirs = Arc::new(Pool::anonymous(1024, 2048).unwrap());
    let act = |state: &dyn Fn() -> (bool, u64)| {
        let mut input = InterfaceInput::open("far", true, None).unwrap();
        let mut output = InterfaceOutput::open("far").unwrap();
        // It answers once its ports are open.
        state();
        exchange(&mut output, &mut input, &theirs)
    };
    pass(folder, medium, act, None);
}

/// Their bytes are copied out of the ring of the packet socket.
#[test]
fn packets_of_interfaces_are_worked_on_where_they_were_copied() {
    laboratory("packet sockets", || {
        // One queue: of several, packets of different flows leave in any order.
        let port = "interface = 'near'\nqueues = 1\n";
        let medium = Medium {
            name: "packet sockets",
            ports: &format!("[input.in]\n{port}[output.out]\n{port}"),
            place: HEADROOM,
            copied: [PACKETS, 0],
            is_mapped: false,
        };
        pass_interface(tempfile::tempdir().unwrap().path(), &medium);
    });
}

#[test]
fn packets_of_af_xdp_are_worked_on_where_the_kernel_put_them() {
    laboratory("AF_XDP", || {
        for mode in ["copy", "generic"] {
            let port = format!("xdp = 'near'\nring_size = 256\nmode = '{mode}'\n");
            let ports = format!("[input.in]\n{port}[output.out]\n{port}");
            let medium = Medium {
                name: &format!("AF_XDP, {mode}"),
                ports: &ports,
                place: OF_XDP,
                copied: [0, 0],
                is_mapped: false,
            };
            pass_interface(tempfile::tempdir().unwrap().path(), &medium);
        }
    });
}

/// A client with `zero_copy` has its peer write into packet memory, which is that of the device as well. A
/// server copies.
#[test]
fn packets_of_memif_are_worked_on_where_the_peer_put_them() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    for (role, peer, copied) in [
        ("role = 'client'\nzero_copy = true\n", MemifRole::Server, [0; 2]),
        ("role = 'client'\n", MemifRole::Server, [PACKETS; 2]),
        ("role = 'server'\n", MemifRole::Client, [PACKETS; 2]),
    ] {
        let port = format!("memif = '{}'\n{role}", socket.display());
        let medium = Medium {
            name: &format!("memif, {role}"),
            ports: &format!("[input.in]\n{port}[output.out]\n{port}"),
            place: HEADROOM,
            copied,
            is_mapped: copied == [0; 2],
        };
        let theirs = Arc::new(Pool::anonymous(4096, 2048).unwrap());
        let settings = MemifSettings::new(&socket.to_string_lossy(), peer).unwrap();
        let act = |_: &dyn Fn() -> (bool, u64)| {
            let mut output = MemifOutput::open(&settings, &theirs, 1).unwrap().remove(0);
            let mut input = MemifInput::open(&settings, &theirs, 1).unwrap().remove(0);
            exchange(&mut output, &mut input, &theirs)
        };
        pass(folder.path(), &medium, act, None);
    }
}

/// Whether the program under test has DPDK.
fn has_dpdk() -> bool {
    if !HAS_DPDK {
        peer::missing("DPDK: a build with the feature dpdk");
    }
    HAS_DPDK
}

#[test]
fn packets_of_dpdk_are_worked_on_where_the_driver_put_them() {
    if !has_dpdk() {
        return;
    }
    let of_captures = folder();
    let out = of_captures.path().join("out.pcap");
    let port = "dpdk = 'net_pcap0,rx_pcap=in.pcap,tx_pcap=out.pcap'\n";
    let medium = Medium {
        name: "DPDK, net_pcap",
        ports: &format!("[input.in]\n{port}[output.out]\n{port}"),
        place: OF_DPDK,
        copied: [0, 0],
        is_mapped: false,
    };
    pass(of_captures.path(), &medium, wait, Some(&|| read(&out)));
    laboratory("DPDK, net_af_packet", || {
        let port = "dpdk = 'net_af_packet0,iface=near'\n";
        let medium = Medium {
            name: "DPDK, net_af_packet",
            ports: &format!("[input.in]\n{port}[output.out]\n{port}"),
            place: OF_DPDK,
            copied: [0, 0],
            is_mapped: false,
        };
        pass_interface(tempfile::tempdir().unwrap().path(), &medium);
    });
}
