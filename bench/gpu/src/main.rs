//! Packets a second through a function on a device, by the way in which packets reach it; a line of JSON for
//! each measurement. `bench/gpu.py` runs this.
//!
//!     thalweg-bench-gpu DEVICE ROUNDS SECONDS LANES WORK_GROUPS FUNCTIONS [RULES...]
//!
//! FUNCTIONS are names with commas between them, or `all`. `literals` looks for the contents of the rule files, or for made-up ones.
//! In each round every way is measured once, one after the other.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use thalweg_accel::{
    Accelerator, Backend, Job, OpenCl, Options, Partition, REFLECT, Soft, Transfer,
};
use thalweg_ipsec::device::{DONE, ESP, ESP_SLICED, argument, table};
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
    name: &'static str,
    function: DeviceFunction,
    table: Vec<u8>,
    argument: [u32; 2],
    /// The bytes that the function works on for packets of as many bytes on the wire.
    len: fn(usize) -> usize,
    /// Whether a result is right.
    is_right: fn([u32; 2]) -> bool,
    /// What each packet is before the function changes it, if that matters; as long as the longest.
    before: Option<fn(&Work, usize) -> Vec<u8>>,
}

/// A packet of ESP that is authentic, of the bytes for packets of this size on the wire.
fn sealed(work: &Work, size: usize) -> Vec<u8> {
    let mut bytes = vec![0x55; (work.len)(size)];
    (ESP.scalar)(&mut bytes, argument(0, false, None), &work.table);
    bytes
}

fn works(rules: &[String]) -> Result<Vec<Work>, Box<dyn Error>> {
    let contents = if rules.is_empty() { made_up() } else { of_rules(rules)? };
    let reflect = Work {
        name: REFLECT.name,
        function: REFLECT,
        table: Vec::new(),
        argument: [0; 2],
        len: |size| size - 4,
        is_right: |_| true,
        before: None,
    };
    let esp = |name, function, opens| Work {
        name,
        function,
        table: table(&[(&[7; 16], &[9; 20])]),
        argument: argument(0, opens, None),
        // In the tunnel, 14 bytes of Ethernet are outside, and 4 of the check sequence nowhere.
        len: |size| 24 + (size - 18 + 2).next_multiple_of(16) + 12,
        is_right: |result| result[0] == DONE,
        before: opens.then_some(sealed),
    };
    let literals = |name, function| Work {
        name,
        function,
        table: contents.clone(),
        argument: [1, 0],
        // The payload of UDP in IPv4.
        len: |size| size - 4 - 14 - 20 - 8,
        is_right: |result| result[1] != 0,
        before: None,
    };
    let hop = Work {
        name: HOP.name,
        function: HOP,
        table: routes()?,
        argument: [0; 2],
        // A destination of IPv4, however long the packet.
        len: |_| 4,
        is_right: |result| result[1] != 0,
        before: None,
    };
    let whole = DeviceFunction { split: None, ..LITERALS };
    Ok(vec![
        reflect,
        esp("esp", ESP, false),
        esp("esp opens", ESP, true),
        esp("esp_sliced", ESP_SLICED, false),
        esp("esp_sliced opens", ESP_SLICED, true),
        literals("literals", LITERALS),
        literals("literals whole", whole),
        hop,
    ])
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

/// How many packets went through, in what time, and with how much time of processors.
type Rate = (u64, f64, f64);

/// A measurement that goes on.
struct Clock {
    start: Instant,
    cpu: f64,
}

impl Clock {
    fn start() -> Self {
        Self { start: Instant::now(), cpu: cpu_seconds() }
    }

    fn elapsed(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    fn rate(&self, packets: u64) -> Rate {
        (packets, self.elapsed(), cpu_seconds() - self.cpu)
    }
}

/// The time that all threads of this process have had of processors.
fn cpu_seconds() -> f64 {
    let of_thread = |task: std::io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    };
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    tasks.filter_map(of_thread).sum::<f64>() / 1e9
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [device, rounds, seconds, lanes, work_groups, functions, rules @ ..] = &arguments[..]
    else {
        return Err(
            "usage: thalweg-bench-gpu DEVICE ROUNDS SECONDS LANES WORK_GROUPS FUNCTIONS [RULES...]"
                .into(),
        );
    };
    let mut works = works(rules)?;
    works.retain(|work| functions == "all" || functions.split(',').any(|name| name == work.name));
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
                for (way, (packets, seconds, cpu)) in ways {
                    let line = json!({
                        "device": backend.name(), "function": work.name, "size": size, "way": way,
                        "round": round, "packets": packets, "seconds": seconds,
                        "cpu_seconds": cpu,
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

/// A job for a packet, which is `before` if it is given.
fn job(pool: &Pool, mut frame: Frame, work: &Work, size: usize, before: Option<&[u8]>) -> Job<()> {
    if let Some(before) = before {
        pool.bytes_mut(&mut frame)[START..START + before.len()].copy_from_slice(before);
    }
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
    let partition = Partition { function, table, work_groups };
    // A machine that others use may stand still for a while.
    let patience = Duration::from_secs(60);
    let options = Options { lanes, rows: 64, patience, ..Options::default() };
    let mut accelerator = Accelerator::start(backend, vec![partition], options, pool.clone())?;
    let mut syncer = accelerator.syncers(1)?.remove(0);
    let mut frames = frames(pool, UNDER_WAY);
    let before = work.before.map(|before| before(work, size));
    let (mut packets, clock) = (0, Clock::start());
    while clock.elapsed() < seconds {
        while let Some(frame) = frames.pop() {
            if let Err(job) = syncer.submit(0, job(pool, frame, work, size, before.as_deref())) {
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
    let rate = clock.rate(packets);
    while syncer.under_way() > 0 {
        syncer.poll(|done| frames.push(done.frame))?;
        std::thread::yield_now();
    }
    pool.give_back(frames);
    Ok(rate)
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
    let before = work.before.map(|before| before(work, size));
    let mut batch = |frames: &mut Vec<Frame>| {
        let job = |frame| job(pool, frame, work, size, before.as_deref());
        let jobs = frames.drain(..).map(job).collect();
        batches.run(jobs, |done| {
            check(work, done.result);
            frames.push(done.frame);
        })
    };
    // The first launch compiles.
    batch(&mut frames)?;
    let (mut packets, clock) = (0, Clock::start());
    while clock.elapsed() < settings.seconds {
        batch(&mut frames)?;
        packets += frames.len() as u64;
    }
    let rate = clock.rate(packets);
    pool.give_back(frames);
    Ok(rate)
}

/// On this thread, by the function's reference.
fn scalar(pool: &Pool, work: &Work, size: usize, settings: &Settings) -> Rate {
    let mut frames = frames(pool, UNDER_WAY);
    let before = work.before.map(|before| before(work, size));
    let (mut packets, clock) = (0, Clock::start());
    while clock.elapsed() < settings.seconds {
        for frame in &mut frames {
            let bytes = &mut pool.bytes_mut(frame)[START..START + (work.len)(size)];
            if let Some(before) = &before {
                bytes.copy_from_slice(before);
            }
            check(work, (work.function.scalar)(bytes, work.argument, &work.table));
        }
        packets += frames.len() as u64;
    }
    let rate = clock.rate(packets);
    pool.give_back(frames);
    rate
}
