//! DPDK's net_memif sends every packet back, in order: `dpdk-testpmd` forwards between the two
//! directions of a connection.
#![cfg(target_os = "linux")]

use std::io::Write;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use thalweg_io::{Input, MemifInput, MemifOutput, MemifRole, MemifSettings, Output};
use thalweg_packet::{
    BATCH, Batch, DEFAULT_FRAME_SIZE, DropCounts, DropReason, HEADROOM, Lanes, PacketMemory, Pool,
};
use thalweg_testkit::peer;

/// Packets that are on their way at most. Of those of all lengths, eight take thirteen buffers of a client
/// that is testpmd, whose rings have 1,024: it drops what finds a ring full.
const UNDER_WAY: u64 = 480;
const LENGTHS: [usize; 8] = [64, 65, 128, 590, 1514, 2048, 4096, 9000];

/// A testpmd that forwards what it receives by memif to where it came from.
struct Testpmd {
    child: Child,
    _commands: ChildStdin,
}

impl Testpmd {
    fn start(folder: &Path, socket: &Path, role: &str, queues: u16) -> Self {
        let device =
            format!("--vdev=net_memif0,role={role},socket={},socket-abstract=no", socket.display());
        // The first of its threads only reads commands.
        let lcores = if processors() > 1 { "0@0,1@1" } else { "0@0,1@0" };
        let log = std::fs::File::create(folder.join("testpmd.log")).unwrap();
        let queues = queues.to_string();
        let prefix = format!("--file-prefix=thalweg-{}-{role}", std::process::id());
        let mut child = Command::new("dpdk-testpmd")
            .args(["--no-huge", "-m", "256", "--no-pci", "--no-telemetry", "--lcores", lcores])
            .args([&prefix, &device, "--", "-i", "--no-flush-rx", "--no-mlockall"])
            .args(["--forward-mode=io", "--total-num-mbufs=8192", "--mbuf-size=9728"])
            .args(["--rxq", &queues, "--txq", &queues, "--nb-cores=1"])
            .stdin(Stdio::piped())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut commands = child.stdin.take().unwrap();
        commands.write_all(b"start\n").unwrap();
        Self { child, _commands: commands }
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// What sends packets by a queue and compares those that come back by it.
struct Exchange {
    input: MemifInput,
    output: MemifOutput,
    out: Batch,
    back: Batch,
    drops: DropCounts,
    sent: u64,
    returned: u64,
}

impl Exchange {
    /// One for each queue of a connection.
    fn open(settings: &MemifSettings, pool: &Arc<Pool>, queues: u16) -> Vec<Self> {
        let inputs = MemifInput::open(settings, pool, queues.into()).unwrap();
        let outputs = MemifOutput::open(settings, pool, queues.into()).unwrap();
        let exchange = |(input, output)| {
            let [out, back] = [(); 2].map(|()| Batch::new(pool.clone()));
            let drops = DropCounts::default();
            Self { input, output, out, back, drops, sent: 0, returned: 0 }
        };
        inputs.into_iter().zip(outputs).map(exchange).collect()
    }

    /// Waits until packets pass; those that are sent before it forwards are not counted.
    fn begin(&mut self) {
        let since = Instant::now();
        while self.returned == 0 {
            assert!(since.elapsed() < Duration::from_secs(20), "testpmd returns no packet");
            self.send(1, |_| 64);
            self.receive(false);
            std::thread::sleep(Duration::from_millis(1));
        }
        let quiet = Instant::now();
        while quiet.elapsed() < Duration::from_millis(200) {
            self.receive(false);
        }
        (self.sent, self.returned, self.drops) = (0, 0, DropCounts::default());
    }

    fn send(&mut self, most: u64, len: impl Fn(u64) -> usize) {
        for number in (self.sent..).take(most as usize) {
            let len = len(number);
            let Some(lane) = self.out.push_blank(len) else { break };
            let bytes = self.out.bytes_mut(lane);
            bytes[14..22].copy_from_slice(&number.to_be_bytes());
            bytes[len - 8..].copy_from_slice(&number.to_be_bytes());
        }
        let lanes = self.out.lanes();
        let sent = self.output.send_frames(&mut self.out, lanes, &mut self.drops).unwrap();
        self.sent += sent.count() as u64;
        self.out.release(Lanes::ALL);
    }

    /// Sends more of `packets`, as far as packets may be on their way, and receives.
    fn step(&mut self, packets: u64) {
        let room = UNDER_WAY - (self.sent - self.returned);
        let most = room.min(packets - self.sent).min(BATCH as u64);
        if most > 0 {
            self.send(most, |number| LENGTHS[number as usize % LENGTHS.len()]);
        }
        self.receive(true);
    }

    fn receive(&mut self, compares: bool) {
        self.input.receive(&mut self.back, BATCH, &mut self.drops).unwrap();
        for lane in self.back.lanes() {
            let bytes = self.back.bytes(lane);
            if compares {
                let [first, last] = [&bytes[14..22], &bytes[bytes.len() - 8..]]
                    .map(|number| u64::from_be_bytes(number.try_into().unwrap()));
                let len = LENGTHS[self.returned as usize % LENGTHS.len()];
                let expected = (self.returned, self.returned, len);
                assert_eq!((first, last, bytes.len()), expected, "of {} sent", self.sent);
            }
            self.returned += 1;
        }
        self.back.release(Lanes::ALL);
    }
}

/// Sends `packets` of all lengths by each queue to a testpmd in a role, which returns them.
fn exchange(role: &str, zero_copy: bool, queues: u16, packets: u64) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("memif.sock");
    let own = if role == "server" { MemifRole::Client } else { MemifRole::Server };
    let settings = MemifSettings::new(socket.to_str().unwrap(), own).unwrap().with_queues(queues);
    let settings = if zero_copy { settings.with_zero_copy() } else { settings };
    let size = (9000 + HEADROOM).next_multiple_of(64).max(DEFAULT_FRAME_SIZE);
    let memory = PacketMemory::shared(Pool::region_len(4096 * usize::from(queues), size)).unwrap();
    let pool = Arc::new(Pool::new(memory, size).unwrap());
    let mut exchanges = Exchange::open(&settings, &pool, queues);
    assert_eq!(exchanges.len(), usize::from(queues));
    let _peer = Testpmd::start(folder.path(), &socket, role, queues);
    exchanges.iter_mut().for_each(Exchange::begin);
    let (began, mut progress) = (Instant::now(), (Instant::now(), 0));
    while exchanges.iter().any(|exchange| exchange.returned < packets) {
        exchanges.iter_mut().for_each(|exchange| exchange.step(packets));
        let returned = exchanges.iter().map(|exchange| exchange.returned).sum();
        if returned > progress.1 {
            progress = (Instant::now(), returned);
        } else {
            std::thread::yield_now();
        }
        assert!(progress.0.elapsed() < Duration::from_secs(10), "{returned} returned");
    }
    let speed = packets as f64 * f64::from(queues) / began.elapsed().as_secs_f64() / 1e6;
    for exchange in &exchanges {
        assert_eq!((exchange.sent, exchange.returned), (packets, packets));
        assert!(DropReason::ALL.iter().all(|reason| exchange.drops.get(*reason) == 0));
        let copied = [exchange.input.copied(), exchange.output.copied()];
        if zero_copy {
            assert_eq!(copied, [Some(0), Some(0)]);
        } else {
            assert!(copied.iter().all(|copied| *copied >= Some(packets)), "{copied:?}");
        }
    }
    println!(
        "testpmd as {role}, zero copy {zero_copy}, {queues} queues: {packets} packets by each, \
         {speed:.2} M/s both ways"
    );
    drop(exchanges);
    assert_eq!(pool.in_use(), 0);
}

fn exchange_all(packets: u64) {
    if !peer::is_there("dpdk-testpmd", &["--version"]) {
        return;
    }
    for (role, zero_copy, queues) in [
        ("client", false, 1),
        ("client", false, 2),
        ("server", false, 1),
        ("server", false, 2),
        ("server", true, 1),
        ("server", true, 2),
    ] {
        exchange(role, zero_copy, queues, packets / u64::from(queues));
    }
}

#[test]
fn testpmd_returns_every_packet_in_order_in_both_roles() {
    exchange_all(100_000);
}

#[test]
#[ignore = "takes minutes: PACKETS (default 100,000,000) packets in each role"]
fn testpmd_returns_very_many_packets_in_order_in_both_roles() {
    let packets = std::env::var("PACKETS").map_or(100_000_000, |text| text.parse().unwrap());
    exchange_all(packets);
}
