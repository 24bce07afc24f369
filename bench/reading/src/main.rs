//! What reading a capture costs by itself, in cycles a packet: received as by one worker, and claimed
//! as by several, where only the first part is done by one worker at a time; and with `zero_copy`, where the kernel puts
//! packets into their frames.
//!
//! Arguments: a capture and a number of rounds. Prints one JSON object a line:
//! `{"way", "packets", "input", "copy", "read"}`. `bench/reading.py` runs it.
//!
//! Each round takes the same bursts. The cost of each is the least over all rounds, so that other load
//! on the machine, which interrupts some bursts of any round, does not count.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use thalweg_cpu::cycles;
use thalweg_io::{CaptureInput, Claims, DirectInput, Input, IoError, ReadAhead, TimeRange};
use thalweg_packet::{BATCH, Batch, DropCounts, Lanes, Pool};

/// The batches that a worker receives at once.
const BATCHES: usize = 4;

/// The cycles of a burst: in the input, to copy claimed packets into their frames, and to read blocks
/// of the file ahead.
type Costs = [u64; 3];

/// Takes `start` forward to now; returns the cycles between.
fn lap(start: &mut u64) -> u64 {
    let now = cycles::now();
    now.wrapping_sub(std::mem::replace(start, now))
}

/// The ways to read a capture.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Receive,
    Claim,
    Direct,
}

/// Reads the whole capture; returns the number of its packets, and the costs of each burst.
fn read(capture: &Path, way: Way) -> Result<(usize, Vec<Costs>), IoError> {
    let pool = Arc::new(Pool::anonymous(1024, 2048).expect("there is memory for a pool"));
    let mut input: Box<dyn Input> = match way {
        Way::Direct => Box::new(DirectInput::open(capture, TimeRange::default(), 1)?),
        Way::Receive | Way::Claim => Box::new(CaptureInput::open(capture, 1)?),
    };
    let mut burst: Vec<_> =
        (0..BATCHES).map(|_| (Batch::new(pool.clone()), Claims::default())).collect();
    burst.iter_mut().for_each(|(batch, _)| batch.recycle());
    let (mut costs, mut packets, mut reads) = (Vec::new(), 0, Vec::new());
    let (mut drops, mut ended) = (DropCounts::default(), false);
    while !ended {
        let mut start = cycles::now();
        for (batch, later) in &mut burst {
            batch.reserve(BATCH);
            let received = if way == Way::Claim {
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
fn measure(capture: &Path, way: Way, rounds: usize) -> Result<(usize, [f64; 3]), Box<dyn Error>> {
    let (packets, mut least) = read(capture, way)?;
    for _ in 1..rounds {
        let (again, costs) = read(capture, way)?;
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

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().collect();
    let [_, capture, rounds] = &arguments[..] else { return Err("expected CAPTURE ROUNDS".into()) };
    for (name, way) in
        [("receive", Way::Receive), ("claim", Way::Claim), ("zero_copy", Way::Direct)]
    {
        let (packets, [input, copy, read]) = measure(Path::new(capture), way, rounds.parse()?)?;
        let line =
            json!({"way": name, "packets": packets, "input": input, "copy": copy, "read": read});
        println!("{line}");
    }
    Ok(())
}
