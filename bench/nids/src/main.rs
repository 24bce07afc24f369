//! The intrusion detection: a packet's whole way through the NF.
//!
//! `PATTERNS PAYLOADS SIZE udp|tcp CONNECTIONS` prints a line of JSON: nanoseconds a packet for
//! finding its connection, reassembling its stream (TCP) and searching for all patterns, and
//! the number of alerts. PATTERNS has a pattern a line, in hexadecimal; PAYLOADS is payloads
//! of SIZE bytes, one after the other. Packets are parsed before, as in a chain, where that is
//! done once for all NFs. `bench/nids.py` runs it beside Hyperscan.

use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::sync::Arc;

use serde_json::json;
use thalweg_cpu::cycles::{self, Clock};
use thalweg_nf::{Context, Emitted, NetworkFunction};
use thalweg_packet::write::{PacketBuilder, TcpSegment};
use thalweg_packet::{BATCH, Batch, Decapsulate, Lanes, Nanoseconds, Pool};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Rounds; the median counts.
const ROUNDS: usize = 31;

/// An NF with a rule for each pattern.
fn nids(patterns: &[Vec<u8>], protocol: &str) -> Outcome<Box<dyn NetworkFunction>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("bench.rules");
    let mut rules = String::new();
    for (number, pattern) in patterns.iter().enumerate() {
        let hex = hex::encode(pattern);
        let sid = number + 1;
        writeln!(
            rules,
            "alert {protocol} any any -> any any (msg:\"p\"; content:\"|{hex}|\"; sid:{sid};)"
        )?;
    }
    fs::write(&path, rules)?;
    let text = format!("rules = ['{}']\nunsupported = 'refuse'\nchecksums = false", path.display());
    let built = thalweg_nids::KIND.build_alone(&text);
    Ok(built.map_err(|e| e.to_string())?.instance())
}

/// Packets of a connection: its beginning, then one after the other.
struct Connection {
    next: u32,
    number: usize,
}

impl Connection {
    fn packet(&mut self, protocol: &str, flags: u8, payload: &[u8]) -> Vec<u8> {
        let [_, a, b, c] = (self.number as u32).to_be_bytes();
        let source = [10, a, b, c];
        let builder = PacketBuilder::new([2; 6], [4; 6]).ip(source.into(), [10, 2, 0, 1].into());
        if protocol == "udp" {
            return builder.udp(1000, 2000).build(payload);
        }
        let segment = TcpSegment {
            src_port: 1000,
            dst_port: 2000,
            seq: self.next,
            ack: 1,
            flags,
            window: 99,
        };
        self.next = self.next.wrapping_add(payload.len() as u32 + u32::from(flags & 2 != 0));
        builder.tcp(segment).build(payload)
    }
}

/// A pass over all packets, batch by batch; cycles spent in the NF.
fn pass(
    nf: &mut dyn NetworkFunction,
    batch: &mut Batch,
    emitted: &mut Emitted,
    packets: &[Vec<u8>],
) -> u64 {
    let mut spent = 0;
    for packets in packets.chunks(BATCH) {
        let copies = packets.iter().map(|p| (&p[..], p.len() as u32, Nanoseconds(0)));
        assert_eq!(batch.push_copies(copies), packets.len());
        let lanes: Lanes = batch.lanes();
        batch.parse(lanes, Decapsulate::No);
        let start = cycles::now();
        let mut context = Context::new(Nanoseconds(0), emitted, None);
        nf.process(batch, lanes, &mut context);
        spent += cycles::now() - start;
        batch.release(lanes);
    }
    spent
}

fn alerts(nf: &dyn NetworkFunction) -> u64 {
    nf.figures().into_iter().find(|(name, _)| *name == "alerts").map_or(0, |(_, n)| n)
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [patterns, payloads, size, protocol, connections] = &arguments[..] else {
        return Err("PATTERNS PAYLOADS SIZE udp|tcp CONNECTIONS".into());
    };
    let patterns = fs::read_to_string(patterns)?;
    let patterns = patterns.lines().map(hex::decode).collect::<Result<Vec<_>, _>>()?;
    let size: usize = size.parse()?;
    let payloads = fs::read(payloads)?;
    let mut nf = nids(&patterns, protocol)?;
    let pool = Arc::new(Pool::anonymous(2 * BATCH, 2048)?);
    let (mut batch, mut emitted) = (Batch::new(pool.clone()), Emitted::new(pool));
    let mut connections: Vec<_> =
        (0..connections.parse()?).map(|number| Connection { next: 1000, number }).collect();
    if protocol == "tcp" {
        let first: Vec<_> = connections.iter_mut().map(|c| c.packet(protocol, 2, b"")).collect();
        pass(&mut *nf, &mut batch, &mut emitted, &first);
    }
    let (clock, mut times, mut found) = (Clock::start(), Vec::new(), 0);
    let mut next = (0..connections.len()).cycle();
    for _ in 0..ROUNDS {
        // Each round continues the connections, so that streams grow.
        let packets: Vec<_> = payloads
            .chunks_exact(size)
            .zip(&mut next)
            .map(|(payload, n)| connections[n].packet(protocol, 24, payload))
            .collect();
        let before = alerts(&*nf);
        let spent = pass(&mut *nf, &mut batch, &mut emitted, &packets);
        times.push(spent as f64 / packets.len() as f64);
        found = alerts(&*nf) - before;
    }
    times.sort_unstable_by(f64::total_cmp);
    let ns = times[ROUNDS / 2] * clock.nanoseconds_per_cycle();
    println!(
        "{}",
        json!({"who": "ours", "protocol": protocol, "size": size, "ns": ns, "matches": found})
    );
    Ok(())
}
