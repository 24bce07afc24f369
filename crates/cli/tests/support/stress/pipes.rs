//! Captures through pipes: packets into a run and out of it; and what the threads of a round share.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::ledger::Ledger;
use super::random::Random;
use super::waited::Waited;

/// Of Linux.
const O_NONBLOCK: i32 = 0o4000;
/// How long a run may have packets and not move on.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between looks at a pipe.
pub const LOOK: Duration = Duration::from_micros(300);

/// The header of a capture of Ethernet with microseconds.
const HEADER: [u32; 6] = [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 65_535, 1];

/// What the threads of a round share.
pub struct Shared {
    ledger: Mutex<Ledger>,
    /// The run has ended.
    pub over: AtomicBool,
    /// How long the reader pauses next, in milliseconds.
    pub pause: AtomicU32,
    /// The process of the run.
    pub process: AtomicU32,
    /// How long a run may have packets and not move on.
    pub patience: Duration,
}

impl Shared {
    pub fn new(ledger: Ledger) -> Self {
        let (over, pause) = (AtomicBool::new(false), AtomicU32::new(0));
        let (ledger, process) = (Mutex::new(ledger), AtomicU32::new(0));
        Self { ledger, over, pause, process, patience: PATIENCE }
    }

    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Whether the wait for the run has lasted too long.
    pub fn is_out_of_patience(&self, waited: &mut Waited) -> bool {
        waited.for_any(&[self.process.load(Ordering::Relaxed)]) > self.patience
    }
}

impl Shared {
    /// Waits until the last packet of each flow has arrived, or one that is wrong; calls `look` again and
    /// again meanwhile.
    ///
    /// # Errors
    /// If nothing arrives for long, or as `look`.
    pub fn await_all(&self, mut look: impl FnMut() -> Result<(), String>) -> Result<(), String> {
        let (mut arrived, mut waited) = (0, Waited::new());
        loop {
            let ledger = self.ledger();
            if ledger.has_all() || ledger.failure.is_some() {
                return Ok(());
            }
            if ledger.arrived > arrived {
                (arrived, waited) = (ledger.arrived, Waited::new());
            }
            let sent = ledger.sent();
            drop(ledger);
            look()?;
            if self.is_out_of_patience(&mut waited) {
                let patience = self.patience;
                return Err(format!("stands for {patience:?}: {arrived} of {sent} have arrived"));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The writer's side of an input.
pub struct Pipe {
    file: File,
    /// The run reads no more.
    pub is_closed: bool,
}

impl Pipe {
    /// Opens a pipe that a run reads, when it does, and writes the header of a capture.
    ///
    /// # Errors
    /// When it does not.
    pub fn open(path: &Path, shared: &Shared) -> Result<Self, String> {
        let mut waited = Waited::new();
        let file = loop {
            let opened = OpenOptions::new().write(true).custom_flags(O_NONBLOCK).open(path);
            match opened {
                Ok(file) => break file,
                Err(e) if shared.is_over() || shared.is_out_of_patience(&mut waited) => {
                    return Err(format!("nothing reads {}: {e}", path.display()));
                }
                Err(_) => thread::sleep(Duration::from_millis(2)),
            }
        };
        let mut feed = Self { file, is_closed: false };
        feed.write(&HEADER.map(u32::to_le_bytes).concat(), shared)?;
        Ok(feed)
    }

    /// Sends packets, of which one may arrive in parts.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn send(
        &mut self,
        packets: &[Vec<u8>],
        random: &mut Random,
        shared: &Shared,
    ) -> Result<(), String> {
        let records: Vec<_> = packets.iter().flat_map(|packet| record(packet)).collect();
        let part = random.below(records.len() + 1);
        self.write(&records[..part], shared)?;
        self.write(&records[part..], shared)
    }

    /// Writes bytes as the run reads them; less if the run ends.
    ///
    /// # Errors
    /// When the run reads none for long.
    fn write(&mut self, mut bytes: &[u8], shared: &Shared) -> Result<(), String> {
        let mut waited = Waited::new();
        while !bytes.is_empty() && !self.is_closed && !shared.is_over() {
            match self.file.write(bytes) {
                Ok(written) => (bytes, waited) = (&bytes[written..], Waited::new()),
                Err(e) if e.kind() == ErrorKind::WouldBlock => thread::sleep(LOOK),
                Err(e) if e.kind() == ErrorKind::BrokenPipe => self.is_closed = true,
                Err(e) => return Err(format!("writing to a pipe: {e}")),
            }
            if shared.is_out_of_patience(&mut waited) {
                return Err(format!("no packet was received for {:?}", shared.patience));
            }
        }
        Ok(())
    }
}

/// The record of a packet.
fn record(packet: &[u8]) -> Vec<u8> {
    let len = packet.len() as u32;
    let mut record = [0, 0, len, len].map(u32::to_le_bytes).concat();
    record.extend(packet);
    record
}

/// Opens a pipe for [`read`].
pub fn open(path: &Path) -> File {
    OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path).expect("a pipe")
}

/// Reads the packets that leave a run, until it is over; the first that is wrong is the ledger's failure.
pub fn read(mut pipe: File, shared: &Shared) {
    let (mut bytes, mut start) = (Vec::new(), 24);
    let mut chunk = vec![0; 1 << 16];
    loop {
        let pause = shared.pause.swap(0, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(pause.into()));
        let was_over = shared.is_over();
        match pipe.read(&mut chunk) {
            Ok(0) if was_over => return,
            // There is no writer yet, or no more.
            Ok(0) => thread::sleep(LOOK),
            Ok(len) => bytes.extend_from_slice(&chunk[..len]),
            Err(e) if e.kind() == ErrorKind::WouldBlock => thread::sleep(LOOK),
            Err(e) => panic!("reading from a pipe: {e}"),
        }
        let mut ledger = shared.ledger();
        while let Some(packet) = next(&bytes, &mut start) {
            if ledger.failure.is_none() {
                ledger.failure = ledger.arrive(packet).err();
            }
        }
        drop(ledger);
        // The header of the capture may not have arrived whole.
        let done = start.min(bytes.len());
        bytes.drain(..done);
        start -= done;
    }
}

/// The packet of the record at `start`, which is moved to the next one.
fn next<'a>(bytes: &'a [u8], start: &mut usize) -> Option<&'a [u8]> {
    let head = bytes.get(*start..*start + 16)?;
    let len = u32::from_le_bytes(head[8..12].try_into().ok()?) as usize;
    let packet = bytes.get(*start + 16..*start + 16 + len)?;
    *start += 16 + len;
    Some(packet)
}
