//! The IPsec gateway, outbound: the whole path of a packet through the NF.
//!
//! `SUITE SIZE...` prints a line of JSON for each size of packet, in bytes of IP inside the
//! tunnel: nanoseconds a packet for parsing, finding its policy, putting it into its tunnel,
//! encrypting and authenticating it. With the feature `aws-lc` also encryption and
//! authentication alone, packet by packet, by aws-lc-rs. `bench/ipsec.py` runs it beside
//! libipsec-mb.

#[cfg(feature = "aws-lc")]
mod aws_lc;

use std::error::Error;
use std::sync::Arc;

use serde_json::json;
use thalweg_cpu::cycles::{self, Clock};
use thalweg_nf::{Context, Emitted, NetworkFunction};
use thalweg_packet::write::PacketBuilder;
use thalweg_packet::{BATCH, Batch, Decapsulate, Lanes, Nanoseconds, Pool};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Batches, so that as much memory is touched as by the peer.
const BATCHES: usize = 16;
/// Rounds; the shortest counts.
const ROUNDS: usize = 2000;
/// Bytes of IP and UDP headers of the packets.
const HEADERS: usize = 28;

/// A gateway with one outbound SA, and a policy for it after others that do not match.
fn gateway(suite: &str) -> Outcome<Box<dyn NetworkFunction>> {
    let key_len = if suite.starts_with("aes128") { 16 } else { 32 };
    let hex = |len: usize| "5a".repeat(len);
    let keys = match suite.split_once("hmac-") {
        Some((_, hash)) => {
            let auth_len = if hash.starts_with("sha1") { 20 } else { 32 };
            let (key, auth) = (hex(key_len), hex(auth_len));
            format!("encryption_key = '{key}'\nauthentication_key = '{auth}'")
        }
        None => format!("encryption_key = '{}'", hex(key_len + 4)),
    };
    let other = |n| format!("[[policy]]\nmatch = 'ip,nw_dst=172.16.{n}.0/24'\naction = 'bypass'\n");
    let others = (0..32).map(other).collect::<Vec<_>>().concat();
    let text = format!(
        "[[sa]]\nname = 'x'\ndirection = 'out'\nspi = 4660\nsuite = '{suite}'\n{keys}\n\
         source = '192.0.2.1'\ndestination = '192.0.2.2'\n{others}\
         [[policy]]\nmatch = 'ip,nw_dst=10.2.0.0/16'\naction = 'protect'\nsa = 'x'\n"
    );
    let built = thalweg_ipsec::KIND.build_alone(&text);
    Ok(built.map_err(|e| e.to_string())?.instance())
}

/// Packets of `size` bytes of IP, of as many flows as there are.
fn packets(size: usize) -> Vec<Vec<u8>> {
    let packet = |n: usize| {
        let destination = [10, 2, (n / 256) as u8, n as u8];
        let builder =
            PacketBuilder::new([2; 6], [4; 6]).ip([10, 1, 0, 1].into(), destination.into());
        builder.udp(1000, 2000).build(&vec![7; size - HEADERS])
    };
    (0..BATCHES * BATCH).map(packet).collect()
}

/// Nanoseconds a packet. All packets are written before the first is processed; they pass through
/// one batch, as in a worker.
fn measure(nf: &mut dyn NetworkFunction, size: usize) -> Outcome<f64> {
    let pool = Arc::new(Pool::anonymous((BATCHES + 1) * BATCH, 2048)?);
    let (mut batch, mut emitted) = (Batch::new(pool.clone()), Emitted::new(pool));
    let (packets, mut waiting) = (packets(size), Vec::new());
    let (clock, mut shortest) = (Clock::start(), u64::MAX);
    for _ in 0..ROUNDS {
        for packets in packets.chunks(BATCH) {
            let copies = packets.iter().map(|p| (&p[..], p.len() as u32, Nanoseconds(0)));
            assert_eq!(batch.push_copies(copies), BATCH);
            waiting.extend((0..BATCH).filter_map(|lane| batch.take(lane)));
        }
        let mut spent = 0;
        while !waiting.is_empty() {
            for packet in waiting.drain(..BATCH) {
                batch.push(packet).map_err(|_| "the batch is full")?;
            }
            // A look at the time is some per cent of a batch; one at the cycle counter is not.
            let start = cycles::now();
            batch.parse(Lanes::ALL, Decapsulate::No);
            let mut context = Context::new(Nanoseconds(0), &mut emitted, None);
            nf.process(&mut batch, Lanes::ALL, &mut context);
            spent += cycles::now() - start;
            assert!(context.dropped().is_empty());
            batch.release(Lanes::ALL);
        }
        shortest = shortest.min(spent);
    }
    Ok(shortest as f64 * clock.nanoseconds_per_cycle() / (BATCHES * BATCH) as f64)
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [suite, sizes @ ..] = &arguments[..] else { return Err("SUITE SIZE...".into()) };
    let mut nf = gateway(suite)?;
    for size in sizes {
        let size: usize = size.parse()?;
        if size < HEADERS {
            return Err(format!("a packet has {HEADERS} bytes at least").into());
        }
        println!("{}", json!({"who": "ours", "size": size, "ns": measure(&mut *nf, size)?}));
        #[cfg(feature = "aws-lc")]
        if suite == aws_lc::SUITE {
            println!("{}", json!({"who": "aws-lc-rs", "size": size, "ns": aws_lc::measure(size)?}));
        }
    }
    Ok(())
}
