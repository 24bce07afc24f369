//! Packets a second through a function on a device, by the way in which packets reach it; a line of JSON for
//! each measurement. `bench/gpu.py` runs this.
//!
//!     thalweg-bench-gpu DEVICE ROUNDS SECONDS LANES WORK_GROUPS [RULES...]
//!
//! `literals` looks for the contents of the rule files, or for made-up ones.
//! In each round every way is measured once, one after the other.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use thalweg_accel::{
    Accelerator, Backend, Job, OpenCl, Options, Partition, REFLECT, Soft, Transfer,
};
use thalweg_ipsec::device::{DONE, ESP, argument, table};
use thalweg_nf::device::DeviceFunction;
use thalweg_nids::device::{Automaton, LITERALS, Literal};
use thalweg_packet::{Frame, Pool};
use thalweg_router::device::HOP;
use thalweg_router::{NextHop, Prefix, RouteList, RouteTable, RouterPort};

/// Packets that are under way with a resident kernel.
const UNDER_WAY: usize = 1024;
/// Ways with a launch for each batch: how packets reach the device, and how many a batch has.
const LAUNCHES: [(&str, Transfer, usize); 4] = [
    ("shared 32", Transfer::Shared, 32),
    ("copied 32", Transfer::Copied, 32),
    ("shared 1024", Transfer::Shared, 1024),
    ("copied 1024", Transfer::Copied, 1024),
];
/// Where a packet begins in its frame.
const START: usize = 128;
/// The longest packet, in bytes.
const LONGEST: usize = 1600;

/// What is measured: a function, and what it is called with.
struct Work {
    function: DeviceFunction,
    table: Vec<u8>,
    argument: [u32; 2],
    /// The bytes that the function works on for packets of as many bytes on the wire.
    len: fn(usize) -> usize,
    /// Whether a result is right.
    is_right: fn([u32; 2]) -> bool,
}

fn works(rules: &[String]) -> Result<Vec<Work>, Box<dyn Error>> {
    let reflect = Work {
        function: REFLECT,
        table: Vec::new(),
        argument: [0; 2],
        len: |size| size - 4,
        is_right: |_| true,
    };
    let esp = Work {
        function: ESP,
        table: table(&[(&[7; 16], &[9; 20])]),
        argument: argument(0, false, None),
        // In the tunnel, 14 bytes of Ethernet are outside, and 4 of the check sequence nowhere.
        len: |size| 24 + (size - 18 + 2).next_multiple_of(16) + 12,
        is_right: |result| result[0] == DONE,
    };
    let literals = Work {
        function: LITERALS,
        table: if rules.is_empty() { made_up() } else { of_rules(rules)? },
        argument: [1, 0],
        // The payload of UDP in IPv4.
        len: |size| size - 4 - 14 - 20 - 8,
        is_right: |result| result[1] != 0,
    };
    let hop = Work {
        function: HOP,
        table: routes()?,
        argument: [0; 2],
        // A destination of IPv4, however long the packet.
        len: |_| 4,
        is_right: |result| result[1] != 0,
    };
    Ok(vec![reflect, esp, literals, hop])
}

/// The table of 100,000 routes to random prefixes of 16 to 24 bits.
fn routes() -> Result<Vec<u8>, Box<dyn Error>> {
    let (table, mut random) = (RouteTable::new(), Random(3));
    let mut routes = RouteList::default();
    for number in 0..100_000u32 {
        let address = u32::from_be_bytes(std::array::from_fn(|_| random.byte()));
        let prefix = Prefix::holding(address, 16 + (number % 9) as u8);
        routes.push(prefix, NextHop::Direct { port: RouterPort((number % 100) as u16) });
    }
    table.replace(routes)?;
    Ok(table.for_device(thalweg_router::device::MOST_BYTES).0)
}

/// The table for the contents of rule files.
fn of_rules(files: &[String]) -> Result<Vec<u8>, Box<dyn Error>> {
    let built = thalweg_nids::KIND.build_alone(&format!("rules = {files:?}"));
    let work = built.map_err(|e| e.to_string())?.device_work();
    Ok(work.ok_or("the rules have no contents of payloads")?.table)
}

/// The table for 1,000 literals of 4 to 19 random bytes.
fn made_up() -> Vec<u8> {
    let mut random = Random(1);
    let literal = |number: usize| Literal {
        kind: 1,
        groups: 1 << (number % 32),
        bytes: (0..4 + number % 16).map(|_| random.byte().to_ascii_lowercase()).collect(),
    };
    Automaton::new(&(0..1000).map(literal).collect::<Vec<_>>()).table().to_vec()
}

/// Random bytes, the same in each run (xorshift64*).
struct Random(u64);

impl Random {
    fn byte(&mut self) -> u8 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8
    }
}

struct Settings {
    seconds: f64,
    lanes: usize,
    work_groups: usize,
}

/// How many packets went through, and in what time.
type Rate = (u64, f64);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [device, rounds, seconds, lanes, work_groups, rules @ ..] = &arguments[..] else {
        return Err(
            "usage: thalweg-bench-gpu DEVICE ROUNDS SECONDS LANES WORK_GROUPS [RULES...]".into()
        );
    };
    let works = works(rules)?;
    let settings = Settings {
        seconds: seconds.parse()?,
        lanes: lanes.parse()?,
        work_groups: work_groups.parse()?,
    };
    let opencl = match device.strip_prefix("opencl:") {
        Some(number) => Some(OpenCl::open(number.parse()?)?),
        None => None,
    };
    let backend: &dyn Backend = opencl.as_ref().map_or(&Soft, |opencl| opencl);
    let memory = backend.allocate(Pool::region_len(2 * UNDER_WAY, 2048))?;
    let pool = Arc::new(Pool::new(memory, 2048)?);
    for round in 0..rounds.parse::<u32>()? {
        for work in &works {
            for size in [64, 128, 256, 512, 1024, 1518] {
                let mut ways = vec![("resident", resident(backend, &pool, work, size, &settings)?)];
                if let Some(opencl) = &opencl {
                    for (way, transfer, batch) in LAUNCHES {
                        let batches = (transfer, batch);
                        ways.push((way, launched(opencl, &pool, work, size, &settings, batches)?));
                    }
                }
                ways.push(("scalar", scalar(&pool, work, size, &settings)));
                for (way, (packets, seconds)) in ways {
                    let line = json!({
                        "device": backend.name(), "function": work.function.name, "size": size, "way": way,
                        "round": round, "packets": packets, "seconds": seconds,
                    });
                    println!("{line}");
                }
            }
        }
    }
    Ok(())
}

/// Frames with packets in them.
fn frames(pool: &Pool, number: usize) -> Vec<Frame> {
    let mut frames = Vec::new();
    pool.take_many(number, |frame| frames.push(frame));
    let mut random = Random(2);
    for frame in &mut frames {
        let bytes = &mut pool.bytes_mut(frame)[START..START + LONGEST];
        bytes.iter_mut().for_each(|byte| *byte = random.byte());
    }
    frames
}

fn job(frame: Frame, work: &Work, size: usize) -> Job<()> {
    Job { frame, bytes: START..START + (work.len)(size), argument: work.argument, tag: () }
}

fn check(work: &Work, result: [u32; 2]) {
    assert!((work.is_right)(result), "{} is done", work.function.name);
}

/// Through a kernel that stays.
fn resident(
    backend: &dyn Backend,
    pool: &Arc<Pool>,
    work: &Work,
    size: usize,
    settings: &Settings,
) -> Result<Rate, Box<dyn Error>> {
    let Settings { seconds, lanes, work_groups } = *settings;
    let (function, table) = (work.function, work.table.clone());
    let partition = Partition { function, table: table.into(), work_groups };
    let options = Options { lanes, rows: 64, ..Options::default() };
    let mut accelerator = Accelerator::start(backend, vec![partition], options, pool.clone())?;
    let mut syncer = accelerator.syncers(1)?.remove(0);
    let mut frames = frames(pool, UNDER_WAY);
    let (mut packets, start) = (0, Instant::now());
    let until = Duration::from_secs_f64(seconds);
    while start.elapsed() < until {
        while let Some(frame) = frames.pop() {
            if let Err(job) = syncer.submit(0, job(frame, work, size)) {
                frames.push(job.frame);
                break;
            }
        }
        let back = syncer.poll(|done| {
            check(work, done.result);
            frames.push(done.frame);
        })?;
        packets += back as u64;
        if back == 0 {
            std::thread::yield_now();
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    while syncer.under_way() > 0 {
        syncer.poll(|done| frames.push(done.frame))?;
        std::thread::yield_now();
    }
    pool.give_back(frames);
    Ok((packets, seconds))
}

/// Through a launch for each batch.
fn launched(
    opencl: &OpenCl,
    pool: &Arc<Pool>,
    work: &Work,
    size: usize,
    settings: &Settings,
    (transfer, batch): (Transfer, usize),
) -> Result<Rate, Box<dyn Error>> {
    let limits = (batch, (work.len)(size));
    let mut batches = opencl.batches(work.function, &work.table, pool.clone(), transfer, limits)?;
    let mut frames = frames(pool, batch);
    let mut batch = |frames: &mut Vec<Frame>| {
        let jobs = frames.drain(..).map(|frame| job(frame, work, size)).collect();
        batches.run(jobs, |done| {
            check(work, done.result);
            frames.push(done.frame);
        })
    };
    // The first launch compiles.
    batch(&mut frames)?;
    let (mut packets, start) = (0, Instant::now());
    while start.elapsed().as_secs_f64() < settings.seconds {
        batch(&mut frames)?;
        packets += frames.len() as u64;
    }
    let seconds = start.elapsed().as_secs_f64();
    pool.give_back(frames);
    Ok((packets, seconds))
}

/// On this thread, by the function's reference.
fn scalar(pool: &Pool, work: &Work, size: usize, settings: &Settings) -> Rate {
    let mut frames = frames(pool, UNDER_WAY);
    let (mut packets, start) = (0, Instant::now());
    while start.elapsed().as_secs_f64() < settings.seconds {
        for frame in &mut frames {
            let bytes = &mut pool.bytes_mut(frame)[START..START + (work.len)(size)];
            check(work, (work.function.scalar)(bytes, work.argument, &work.table));
        }
        packets += frames.len() as u64;
    }
    let seconds = start.elapsed().as_secs_f64();
    pool.give_back(frames);
    (packets, seconds)
}
