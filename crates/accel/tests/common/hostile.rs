//! Hostile devices: threads that know nothing but the words of shared memory. They serve some rows as a
//! kernel does, and then do harm.
//!
//! `unsafe` here: shared memory is reached by addresses, as a device does it.
#![allow(unsafe_code, dead_code)] // each test uses a part

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use thalweg_accel::{AccelError, Backend, Launch, Resident, Shape};
use thalweg_packet::PacketMemory;

/// Words of a line, and of a slot (`thalweg_accel::region`).
const LINE: usize = 32;
const SLOT: usize = 8;

/// What a work-group does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// It counts rows that it was not given.
    CountsAhead,
    /// It counts rows again that were collected.
    CountsBack,
    /// It writes other offsets, lengths and results into all of its slots, and other numbers ahead of them
    /// and into tables; it counts rows as it should, but works on none.
    Scribbles,
    /// It ends.
    Ends,
    /// It does not move on, and does not end when it should.
    Stalls,
    /// Its driver reports an error.
    Fails,
    /// Its driver reports an error before it runs.
    FailsAtStart,
    /// It does not run.
    Absent,
}

/// What the driver of [`Harm::Fails`] reports.
pub const ERROR: &str = "CL_OUT_OF_RESOURCES";

/// A device whose work-groups do some harm each after this number of rows.
#[derive(Debug)]
pub struct Hostile {
    harm: Harm,
    after: u32,
    /// Where the memory begins that was allocated last: at the start, that of the queues.
    last: Mutex<usize>,
}

impl Hostile {
    pub fn new(harm: Harm, after: u32) -> Self {
        Self { harm, after, last: Mutex::new(0) }
    }
}

impl Backend for Hostile {
    fn name(&self) -> String {
        "hostile".into()
    }

    fn allocate(&self, len: usize) -> Result<PacketMemory, AccelError> {
        let memory = PacketMemory::anonymous(len).unwrap();
        *self.last.lock().unwrap() = memory.base().as_ptr().expose_provenance();
        Ok(memory)
    }

    fn compiles(&self) -> bool {
        false
    }

    fn start(&self, launch: Launch) -> Result<Box<dyn Resident>, AccelError> {
        let (launch, failed) = (Arc::new(launch), Arc::new(AtomicBool::new(false)));
        let start = *self.last.lock().unwrap();
        let (harm, after) = (self.harm, self.after);
        failed.store(harm == Harm::FailsAtStart, Ordering::Relaxed);
        let starts = !matches!(harm, Harm::FailsAtStart | Harm::Absent);
        let groups = 0..if starts { launch.region.shape().work_groups } else { 0 };
        let thread = |group| {
            let (launch, failed) = (launch.clone(), failed.clone());
            let group = WorkGroup { launch, start, group, failed };
            thread::spawn(move || group.run(harm, after))
        };
        Ok(Box::new(Threads { threads: groups.map(thread).collect(), failed }))
    }
}

struct Threads {
    threads: Vec<JoinHandle<()>>,
    failed: Arc<AtomicBool>,
}

impl Resident for Threads {
    fn stop(&mut self, within: Duration) -> bool {
        let until = Instant::now() + within;
        let runs = |threads: &[JoinHandle<()>]| threads.iter().any(|thread| !thread.is_finished());
        while runs(&self.threads) && Instant::now() < until {
            thread::sleep(Duration::from_micros(100));
        }
        !runs(&self.threads)
    }

    fn failure(&self) -> Option<String> {
        self.failed.load(Ordering::Relaxed).then(|| ERROR.into())
    }
}

struct WorkGroup {
    launch: Arc<Launch>,
    /// Where queues and tables begin.
    start: usize,
    group: usize,
    failed: Arc<AtomicBool>,
}

impl WorkGroup {
    fn word(&self, at: usize) -> &AtomicU32 {
        let words = std::ptr::with_exposed_provenance::<AtomicU32>(self.start);
        // SAFETY: callers name words of the region, which `launch` keeps.
        let word = unsafe { words.add(at) };
        // SAFETY: as above; they are aligned, and all access to them is atomic.
        unsafe { &*word }
    }

    /// A word of the line that the processor writes.
    fn of_host(&self, at: usize) -> &AtomicU32 {
        self.word(LINE * (1 + 2 * self.group) + at)
    }

    /// A word of the line that the device writes.
    fn own(&self, at: usize) -> &AtomicU32 {
        self.word(LINE * (2 + 2 * self.group) + at)
    }

    /// A word of a slot.
    fn slot(&self, row: u32, lane: usize, at: usize) -> &AtomicU32 {
        let Shape { work_groups, lanes, rows } = self.launch.region.shape();
        let number = (self.group * rows + row as usize % rows) * lanes + lane;
        self.word(LINE * (1 + 2 * work_groups) + number * SLOT + at)
    }

    fn run(&self, harm: Harm, after: u32) {
        let rows = self.launch.region.shape().rows as u32;
        self.own(1).store(1, Ordering::Release);
        let mut done = 0u32;
        loop {
            let ends = self.word(0).load(Ordering::Acquire) != 0;
            let sealed = self.of_host(0).load(Ordering::Acquire);
            if done == sealed {
                if ends {
                    break;
                }
                thread::yield_now();
                continue;
            }
            if done < after {
                self.work(done);
            } else {
                match harm {
                    Harm::CountsAhead => return self.count(sealed.wrapping_add(1 + rows)),
                    Harm::CountsBack => return self.count(done.wrapping_sub(1 + rows)),
                    Harm::Scribbles => self.scribble(),
                    Harm::Ends => break,
                    Harm::Fails => return self.failed.store(true, Ordering::Relaxed),
                    Harm::Stalls | Harm::FailsAtStart | Harm::Absent => loop {
                        thread::sleep(Duration::from_millis(100));
                    },
                }
            }
            done = done.wrapping_add(1);
            self.own(0).store(done, Ordering::Release);
        }
        self.own(1).store(2, Ordering::Release);
    }

    /// Counts this number of rows, and waits for the end.
    fn count(&self, done: u32) {
        self.own(0).store(done, Ordering::Release);
        while self.word(0).load(Ordering::Acquire) == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        self.own(1).store(2, Ordering::Release);
    }

    /// Works on a row as a kernel does.
    fn work(&self, row: u32) {
        let [number, table_at, table_len] =
            [1, 2, 3].map(|at| self.of_host(at).load(Ordering::Relaxed) as usize);
        let first = std::ptr::from_ref(self.word(table_at)).cast::<u8>();
        // SAFETY: the table is there, and nothing writes it while packets are worked on.
        let table = unsafe { std::slice::from_raw_parts(first, table_len) };
        let memory = self.launch.pool.memory();
        for lane in 0..self.launch.region.shape().lanes {
            let word = |at| self.slot(row, lane, at).load(Ordering::Relaxed);
            if word(3) == 0 {
                continue;
            }
            let (offset, len) = (u64::from(word(1)) << 32 | u64::from(word(0)), word(2) as usize);
            assert!(offset as usize + len <= memory.len());
            // SAFETY: inside the packet memory, as was just checked.
            let first = unsafe { memory.base().as_ptr().add(offset as usize) };
            // SAFETY: as above; the frame is the device's while it has the row.
            let bytes = unsafe { std::slice::from_raw_parts_mut(first, len) };
            let result = (self.launch.functions[number].scalar)(bytes, [word(4), word(5)], table);
            self.slot(row, lane, 6).store(result[0], Ordering::Relaxed);
            self.slot(row, lane, 7).store(result[1], Ordering::Relaxed);
        }
    }

    /// Writes numbers over all slots of its queue and what else the processor has written for it, but for
    /// the index of sealed rows, which it has to read.
    fn scribble(&self) {
        let Shape { lanes, rows, .. } = self.launch.region.shape();
        let mut random = self.own(0).load(Ordering::Relaxed).wrapping_add(7);
        let mut next = || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            random
        };
        for row in 0..rows as u32 {
            for lane in 0..lanes {
                (0..SLOT).for_each(|at| self.slot(row, lane, at).store(next(), Ordering::Relaxed));
            }
        }
        let [at, len] = [2, 3].map(|at| self.of_host(at).load(Ordering::Relaxed) as usize);
        if self.group == 0 && at != 0 {
            (at..at + len / 4).for_each(|at| self.word(at).store(next(), Ordering::Relaxed));
        }
        self.of_host(2).store(0, Ordering::Relaxed);
        (4..LINE).for_each(|at| self.of_host(at).store(next(), Ordering::Relaxed));
        (1..LINE).for_each(|at| self.word(at).store(next(), Ordering::Relaxed));
    }
}
