//! Devices that report where the bytes are on which they work.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use thalweg_accel::Installed;
use thalweg_ipsec::device::ESP;
use thalweg_nf::device::{
    DeviceCounts, DeviceFacts, DeviceFault, DeviceFunction, DeviceJob, DeviceLine, DeviceReturn,
    DeviceShare, Devices, Named, Unusable,
};
use thalweg_nids::device::LITERALS;
use thalweg_packet::{Batch, MemoryKind, PacketMemory, Pool};

/// The devices of this machine, which work on packets as ever, and remember where they found them.
#[derive(Debug, Default)]
pub struct Watched {
    devices: Installed,
    seen: Arc<Mutex<Seen>>,
}

/// What devices have worked on.
#[derive(Debug, Default)]
pub struct Seen {
    /// The addresses of packet memory, and what it is.
    pub memory: Option<(Range<usize>, MemoryKind)>,
    /// Each piece of work that is done.
    pub works: Vec<Work>,
}

/// A piece of work.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    pub function: &'static str,
    /// The address of the bytes in this program, when the device was given them.
    pub address: usize,
    /// Where they begin in the frame.
    pub place: usize,
    /// The lower half of the address at which the device found them, by its own account.
    pub found: u32,
}

impl Watched {
    /// What was worked on since the last call.
    pub fn take(&self) -> Seen {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

impl Devices for Watched {
    fn find(&self, device: Named<'_>) -> Result<DeviceFacts, Unusable> {
        self.devices.find(device)
    }

    fn allocate(&self, device: Named<'_>, len: usize) -> Result<PacketMemory, String> {
        self.devices.allocate(device, len)
    }

    fn adopt(&self, device: Named<'_>, memory: PacketMemory) -> Result<PacketMemory, String> {
        self.devices.adopt(device, memory)
    }

    fn start(
        &self,
        device: Named<'_>,
        mut shares: Vec<DeviceShare>,
        pool: &Arc<Pool>,
    ) -> Result<Vec<Vec<Box<dyn DeviceLine>>>, String> {
        let (base, len) = (pool.memory().base().as_ptr() as usize, pool.memory().len());
        self.seen.lock().unwrap().memory = Some((base..base + len, pool.memory().kind()));
        let mut known = Vec::new();
        for share in &mut shares {
            let work = &mut share.work;
            known.push((work.function.name, Second::of(work.function, &work.table)));
            // One function, whole packets: each report is about one.
            (work.function, work.alternatives) = (reporting(work.function), None);
        }
        let lines = self.devices.start(device, shares, pool)?;
        let watch = |(lines, (function, second)): (Vec<Box<dyn DeviceLine>>, _)| {
            let watch = |line| -> Box<dyn DeviceLine> {
                Box::new(Line {
                    line,
                    pool: pool.clone(),
                    function,
                    second,
                    under_way: HashMap::new(),
                    seen: self.seen.clone(),
                })
            };
            lines.into_iter().map(watch).collect()
        };
        Ok(lines.into_iter().zip(known).map(watch).collect())
    }
}

/// The second word of a function's result, which is known before.
#[derive(Clone, Copy)]
enum Second {
    OfArgument,
    Always(u32),
}

impl Second {
    fn of(function: DeviceFunction, table: &[u8]) -> Self {
        match function.name {
            "esp" => Self::OfArgument,
            "literals" => Self::Always(u32::from_ne_bytes(*table.first_chunk().unwrap())),
            other => panic!("nothing is known of '{other}'"),
        }
    }
}

/// A function that combines the second word of its result with the lower half of the address of its bytes.
fn reporting(function: DeviceFunction) -> DeviceFunction {
    let name = function.name;
    let reporting = match name {
        "esp" => "esp_reporting",
        _ => "literals_reporting",
    };
    let (parameter, near) =
        if function.near > 0 { (", local const uchar *near", ", near") } else { ("", "") };
    let source = format!(
        "{}\nuint2 {reporting}(global uchar *bytes, uint len, uint2 argument, global const uchar *table\
         {parameter})\n{{\n    uint2 result = {name}(bytes, len, argument, table{near});\n\
         \x20   result.y ^= (uint)(ulong)bytes;\n    return result;\n}}\n",
        function.source
    );
    let scalar = match name {
        "esp" => |bytes: &mut [u8], argument, table: &[u8]| report(ESP, bytes, argument, table),
        _ => |bytes: &mut [u8], argument, table: &[u8]| report(LITERALS, bytes, argument, table),
    };
    let source = Box::leak(source.into_boxed_str());
    DeviceFunction { name: reporting, source, split: None, scalar, ..function }
}

fn report(
    function: DeviceFunction,
    bytes: &mut [u8],
    argument: [u32; 2],
    table: &[u8],
) -> [u32; 2] {
    let address = bytes.as_ptr() as usize as u32;
    let [first, second] = (function.scalar)(bytes, argument, table);
    [first, second ^ address]
}

struct Line {
    line: Box<dyn DeviceLine>,
    pool: Arc<Pool>,
    function: &'static str,
    second: Second,
    /// By visit and lane: the address of the bytes, and the second word of the result.
    under_way: HashMap<(usize, usize), (usize, u32)>,
    seen: Arc<Mutex<Seen>>,
}

impl DeviceLine for Line {
    fn capacity(&self) -> usize {
        self.line.capacity()
    }

    fn counts(&self) -> DeviceCounts {
        self.line.counts()
    }

    fn submit(&mut self, batch: &mut Batch, visit: usize, jobs: &[DeviceJob]) -> usize {
        for job in jobs {
            let address = batch.bytes(job.lane)[job.start..].as_ptr() as usize;
            let second = match self.second {
                Second::OfArgument => job.argument[1],
                Second::Always(second) => second,
            };
            self.under_way.insert((visit, job.lane), (address, second));
        }
        self.line.submit(batch, visit, jobs)
    }

    fn poll(&mut self, back: &mut Vec<DeviceReturn>) -> Result<(), DeviceFault> {
        let before = back.len();
        let polled = self.line.poll(back);
        let base = self.pool.memory().base().as_ptr() as usize;
        for DeviceReturn { visit, lane, result, .. } in &mut back[before..] {
            let (address, second) = self.under_way.remove(&(*visit, *lane)).expect("submitted");
            let Some(result) = result else { continue };
            let found = std::mem::replace(&mut result[1], second) ^ second;
            let (_, place) = self.pool.locate(address - base).expect("in a frame");
            let work = Work { function: self.function, address, place, found };
            self.seen.lock().unwrap().works.push(work);
        }
        polled
    }
}
