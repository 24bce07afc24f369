//! DPDK's `net_memif` at the other ends: testpmd receives from one memif and sends what it has received
//! to another one. Both are ours at their other ends, so that each packet passes a ring in each direction.

use std::collections::VecDeque;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use thalweg_testkit::peer;

use super::*;
use crate::memif::registry;

/// The most packets of a queue under way.
const WINDOW: u64 = 256;
/// Bytes of a buffer of the rings, which have 1,024 each.
const BUFFER: usize = 2048;
/// Packets have their number after an Ethernet header.
const NUMBER: usize = 14;
/// The number of packets that are sent until one comes back.
const PROBE: u64 = u64::MAX;

/// A testpmd; killed when it is dropped.
struct Testpmd(Child);

impl Testpmd {
    /// One whose two ports have this role, on the sockets `0` and `1` in `folder`.
    fn start(folder: &Path, role: &str, queues: usize) -> Self {
        let device = |at| {
            format!(
                "--vdev=net_memif{at},role={role},id=0,socket={}/{at},socket-abstract=no,bsize={BUFFER},rsize=10",
                folder.display()
            )
        };
        let log = std::fs::File::create(folder.join("log")).unwrap();
        let queues = queues.to_string();
        let last = std::thread::available_parallelism().map_or(1, usize::from) - 1;
        let mut child = Command::new("dpdk-testpmd")
            .args(["--no-huge", "-m", "256", "--no-pci", "--no-telemetry"])
            .arg(format!("--lcores=0@(0-{last}),1@(0-{last})"))
            .arg(format!(
                "--file-prefix=memif-{}-{}",
                std::process::id(),
                folder.display().to_string().replace('/', "-")
            ))
            .args([device(0), device(1)])
            .args([
                "--",
                "-i",
                "--no-flush-rx",
                "--no-mlockall",
                "--total-num-mbufs=16384",
                "--mbuf-size=9728",
            ])
            .args(["--forward-mode=io", "--rxq", &queues, "--txq", &queues, "--nb-cores=1"])
            .stdin(Stdio::piped())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("testpmd starts");
        child.stdin.as_mut().unwrap().write_all(b"start\n").unwrap();
        Self(child)
    }

    fn is_there() -> bool {
        let found = Command::new("dpdk-testpmd").arg("--version").output();
        if found.is_err() {
            peer::missing("dpdk-testpmd");
        }
        found.is_ok()
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A queue of both of our ports: what was sent, and what has come back.
struct Stream {
    output: MemifOutput,
    input: MemifInput,
    sent: u64,
    received: u64,
}

impl Stream {
    /// Sends as many packets as may be under way, from number `sent` on.
    fn send(&mut self, batch: &mut Batch, most: u64, len: usize) {
        let room =
            (window(len) - (self.sent - self.received)).min(most - self.sent).min(BATCH as u64);
        (self.sent..self.sent + room).for_each(|number| push(batch, number, len));
        let mut drops = DropCounts::default();
        let sent =
            self.output.send_frames(batch, batch.lanes(), &mut drops).unwrap().count() as u64;
        self.output.flush().unwrap();
        batch.release(Lanes::ALL);
        assert_eq!((sent, drops.total()), (room, 0), "the ring has room");
        self.sent += sent;
    }

    /// Sends single packets until one comes back, and then waits until none does any more: testpmd drops what
    /// arrives before it has noticed that both of its connections are up.
    fn begin(&mut self, batch: &mut Batch, len: usize) {
        let (since, mut drops) = (Instant::now(), DropCounts::default());
        let (mut is_through, mut quiet) = (false, 0);
        while quiet < 50 {
            assert!(since.elapsed() < Duration::from_secs(60), "testpmd passes nothing on");
            if !is_through && quiet % 10 == 0 {
                push(batch, PROBE, len);
                self.output.send_frames(batch, batch.lanes(), &mut drops).unwrap();
                self.output.flush().unwrap();
                batch.release(Lanes::ALL);
            }
            std::thread::sleep(Duration::from_millis(2));
            self.input.receive(batch, BATCH, &mut drops).unwrap();
            is_through |= !batch.is_empty();
            quiet = if batch.is_empty() && is_through { quiet + 1 } else { (quiet + 1) % 10 };
            batch.release(Lanes::ALL);
        }
    }

    /// Receives packets, which must be whole and in order.
    fn receive(&mut self, batch: &mut Batch, len: usize) {
        let mut drops = DropCounts::default();
        self.input.receive(batch, BATCH, &mut drops).unwrap();
        assert_eq!(drops.total(), 0);
        for lane in batch.lanes() {
            let bytes = batch.bytes(lane);
            assert_eq!(bytes.len(), len, "a packet has its length");
            let expected = self.received.to_be_bytes();
            assert_eq!(
                (&bytes[NUMBER..NUMBER + 8], &bytes[len - 8..]),
                (&expected[..], &expected[..])
            );
            self.received += 1;
        }
        batch.release(Lanes::ALL);
    }
}

/// The most packets of a length under way in a queue: no ring overflows, so that none may be missing.
fn window(len: usize) -> u64 {
    WINDOW.min(512 / len.div_ceil(BUFFER) as u64)
}

/// Adds a packet with a number at its beginning and its end.
fn push(batch: &mut Batch, number: u64, len: usize) {
    let lane = batch.push_blank(len).expect("there are frames");
    let bytes = batch.bytes_mut(lane);
    bytes[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    bytes[12..NUMBER].copy_from_slice(&[0x88, 0xb5]);
    bytes[NUMBER..NUMBER + 8].copy_from_slice(&number.to_be_bytes());
    bytes[len - 8..].copy_from_slice(&number.to_be_bytes());
}

/// Waits for testpmd, which takes its time to start on a busy machine.
fn patiently(done: impl Fn() -> bool) {
    let since = Instant::now();
    while !done() {
        assert!(since.elapsed() < Duration::from_secs(60), "it takes too long");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends `packets` of a length by each queue through testpmd, and checks that all come back in order.
fn all_come_back(ours: Role, queues: usize, len: usize, packets: u64) {
    let folder = tempfile::tempdir().unwrap();
    let socket = |at: usize| -> PathBuf { folder.path().join(at.to_string()) };
    let of = [0, 1].map(|at| {
        let mut settings = MemifSettings::new(socket(at).to_str().unwrap(), ours).unwrap();
        (settings.queues, settings.buffer_size) = (queues as u16, BUFFER as u32);
        settings
    });
    let pool = Arc::new(Pool::anonymous(2 * queues * WINDOW as usize + 4 * BATCH, 16_384).unwrap());
    let role = if ours == Role::Server { "client" } else { "server" };
    let before = (ours == Role::Client).then(|| Testpmd::start(folder.path(), role, queues));
    if before.is_some() {
        patiently(|| socket(0).exists() && socket(1).exists());
    }
    let outputs = MemifOutput::open(&of[0], &pool, queues).unwrap();
    let inputs = MemifInput::open(&of[1], &pool, queues).unwrap();
    let _peer = before.unwrap_or_else(|| Testpmd::start(folder.path(), role, queues));
    // What testpmd has no peer for yet, it drops.
    let is_up =
        |at: &MemifSettings| registry::link(at).is_some_and(|link| link.carrier == Some(true));
    patiently(|| of.iter().all(is_up));
    let stream = |(output, input)| Stream { output, input, sent: 0, received: 0 };
    let mut streams: VecDeque<Stream> = outputs.into_iter().zip(inputs).map(stream).collect();
    assert_eq!(streams.len(), queues);
    let mut batch = Batch::new(pool);
    streams.iter_mut().for_each(|stream| stream.begin(&mut batch, len));
    let (mut since, mut before) = (Instant::now(), 0);
    while streams.iter().any(|stream| stream.received < packets) {
        for stream in &mut streams {
            stream.send(&mut batch, packets, len);
            stream.receive(&mut batch, len);
        }
        let received = streams.iter().map(|stream| stream.received).sum();
        if received > before {
            (since, before) = (Instant::now(), received);
        } else if since.elapsed() > Duration::from_millis(1) {
            assert!(
                since.elapsed() < Duration::from_secs(60),
                "{received} of {packets}: it takes too long"
            );
            std::thread::yield_now();
        }
    }
}

#[test]
fn every_packet_passes_testpmd_in_order_in_both_roles() {
    if !Testpmd::is_there() {
        return;
    }
    for (ours, queues, len) in [
        (Role::Client, 1, 64),
        (Role::Server, 1, 64),
        (Role::Client, 2, 1514),
        (Role::Server, 2, 9000),
    ] {
        all_come_back(ours, queues, len, 5000);
    }
}

/// `MEMIF_PACKETS` of 64 bytes (default 100,000,000) in both roles, and a tenth of them of other sizes.
#[test]
#[ignore = "takes many minutes: scripts/long.sh memif"]
fn very_many_packets_pass_testpmd_in_order() {
    if !Testpmd::is_there() {
        return;
    }
    let packets: u64 =
        std::env::var("MEMIF_PACKETS").map_or(100_000_000, |text| text.parse().unwrap());
    for (queues, len) in
        [(1, 64), (2, 64), (1, 65), (1, 512), (1, 1514), (2, 1514), (1, 2049), (1, 9000)]
    {
        for ours in [Role::Client, Role::Server] {
            let count = if (queues, len) == (1, 64) { packets } else { packets / 10 };
            let began = Instant::now();
            all_come_back(ours, queues, len, count / queues as u64);
            println!(
                "{count} packets of {len} bytes, {queues} queues, {ours:?}: in order, {:.1} s",
                began.elapsed().as_secs_f64()
            );
        }
    }
}
