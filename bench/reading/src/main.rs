//! What reading a capture costs by itself, in cycles a packet: received as by one worker, and claimed
//! as by several, where only the first part is done by one worker at a time; and by calls that have the kernel
//! put each packet into its frame, without a copy of ours, when its place and length are known.
//!
//! Arguments: a capture and a number of rounds. Prints one JSON object a line:
//! `{"way", "packets", "input", "copy", "read"}`. `bench/reading.py` runs it.
//!
//! Each round takes the same bursts. The cost of each is the least over all rounds, so that other load
//! on the machine, which interrupts some bursts of any round, does not count.

use std::error::Error;
use std::fs::{self, File};
use std::io::IoSliceMut;
use std::path::Path;
use std::sync::Arc;

use rustix::io::preadv;
use serde_json::json;
use thalweg_cpu::cycles;
use thalweg_io::{CaptureInput, Claims, Input, IoError, ReadAhead};
use thalweg_packet::{BATCH, Batch, DropCounts, Lanes, Pool};

/// The batches that a worker receives at once.
const BATCHES: usize = 4;
/// Their packets.
const BURST: usize = BATCHES * BATCH;
/// Bytes of a frame, with what is between frames.
const FRAME: usize = 2112;

/// The cycles of a burst: in the input, to copy claimed packets into their frames, and to read blocks
/// of the file ahead.
type Costs = [u64; 3];

/// Takes `start` forward to now; returns the cycles between.
fn lap(start: &mut u64) -> u64 {
    let now = cycles::now();
    now.wrapping_sub(std::mem::replace(start, now))
}

/// Reads the whole capture; returns the number of its packets, and the costs of each burst.
fn read(capture: &Path, claims: bool) -> Result<(usize, Vec<Costs>), IoError> {
    let pool = Arc::new(Pool::anonymous(1024, 2048).expect("there is memory for a pool"));
    let mut input = CaptureInput::open(capture, 1)?;
    let mut burst: Vec<_> =
        (0..BATCHES).map(|_| (Batch::new(pool.clone()), Claims::default())).collect();
    burst.iter_mut().for_each(|(batch, _)| batch.recycle());
    let (mut costs, mut packets, mut reads) = (Vec::new(), 0, Vec::new());
    let (mut drops, mut ended) = (DropCounts::default(), false);
    while !ended {
        let mut start = cycles::now();
        for (batch, later) in &mut burst {
            batch.reserve(BATCH);
            let received = if claims {
                input.claim(batch, BATCH, None, &mut drops, later)?
            } else {
                input.receive(batch, BATCH, &mut drops)?
            };
            packets += received.packets;
            ended = received.ended;
            if ended {
                break;
            }
        }
        let in_input = lap(&mut start);
        burst.iter_mut().for_each(|(batch, later)| later.copy(batch));
        let copy = lap(&mut start);
        burst.iter_mut().for_each(|(_, later)| later.take_reads(&mut reads));
        reads.drain(..).for_each(ReadAhead::run);
        costs.push([in_input, copy, lap(&mut start)]);
        burst.iter_mut().for_each(|(batch, _)| batch.release(Lanes::ALL));
    }
    Ok((packets, costs))
}

/// The cycles a packet of each part, with the least costs of each burst over `rounds`.
fn measure(
    capture: &Path,
    claims: bool,
    rounds: usize,
) -> Result<(usize, [f64; 3]), Box<dyn Error>> {
    let (packets, mut least) = read(capture, claims)?;
    for _ in 1..rounds {
        let (again, costs) = read(capture, claims)?;
        if (again, costs.len()) != (packets, least.len()) {
            return Err("the capture has changed".into());
        }
        let sum = |costs: &Costs| costs.iter().sum::<u64>();
        for (least, costs) in least.iter_mut().zip(costs).filter(|(l, c)| sum(c) < sum(l)) {
            *least = costs;
        }
    }
    let a_packet = |part: usize| {
        least.iter().map(|costs| costs[part]).sum::<u64>() as f64 / packets.max(1) as f64
    };
    Ok((packets, [0, 1, 2].map(a_packet)))
}

/// The place and the length of each packet of a capture of the classic format, of this byte order.
fn records(capture: &[u8]) -> Vec<(u64, usize)> {
    let (mut records, mut at) = (Vec::new(), 24);
    while let Some(head) = capture.get(at..at + 16) {
        let len = u32::from_ne_bytes(head[8..12].try_into().expect("four bytes")) as usize;
        records.push((at as u64 + 16, len));
        at += 16 + len;
    }
    records
}

/// The cycles a packet of calls that read a burst of packets into frames, past their records' heads; the least
/// of each burst over `rounds`.
fn scatter(capture: &Path, rounds: usize) -> Result<(usize, f64), Box<dyn Error>> {
    let records = records(&fs::read(capture)?);
    let file = File::open(capture)?;
    let mut frames = vec![0u8; 1024 * FRAME];
    let mut least = vec![u64::MAX; records.len().div_ceil(BURST)];
    for _ in 0..rounds {
        for (number, burst) in records.chunks(BURST).enumerate() {
            let mut start = cycles::now();
            let mut heads = [[0u8; 16]; BURST];
            let mut parts = Vec::with_capacity(2 * BURST);
            let first = number * BURST % 1024 * FRAME;
            let of_burst = frames[first..].chunks_mut(FRAME);
            for ((head, frame), (_, len)) in heads.iter_mut().zip(of_burst).zip(burst) {
                let packet =
                    frame.get_mut(130..130 + len).ok_or("a packet is longer than a frame")?;
                parts.push(IoSliceMut::new(packet));
                // The head of the next one.
                parts.push(IoSliceMut::new(head));
            }
            preadv(&file, &mut parts, burst[0].0)?;
            drop(parts);
            least[number] = least[number].min(lap(&mut start));
        }
    }
    Ok((records.len(), least.iter().sum::<u64>() as f64 / records.len().max(1) as f64))
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().collect();
    let [_, capture, rounds] = &arguments[..] else { return Err("expected CAPTURE ROUNDS".into()) };
    for (way, claims) in [("receive", false), ("claim", true)] {
        let (packets, [input, copy, read]) = measure(Path::new(capture), claims, rounds.parse()?)?;
        let line =
            json!({"way": way, "packets": packets, "input": input, "copy": copy, "read": read});
        println!("{line}");
    }
    let (packets, input) = scatter(Path::new(capture), rounds.parse()?)?;
    let (copy, read) = (0, 0);
    println!(
        "{}",
        json!({"way": "scatter", "packets": packets, "input": input, "copy": copy, "read": read})
    );
    Ok(())
}
