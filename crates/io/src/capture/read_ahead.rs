//! A file in blocks that several threads read: the one that uses them, and others ahead of it.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::stream::Stream;

/// The bytes of a block.
pub(super) const BLOCK: usize = 128 * 1024;
/// The most blocks after the one in use that are read, or left to be read.
const AHEAD: usize = 6;

/// The rest of a regular file, block by block. No block changes while it is shared.
///
/// A block that no other thread has begun to read when it is needed is read there and then: whether
/// and when others read changes nothing but the speed.
#[derive(Debug)]
pub(super) struct Blocks {
    file: Stream,
    /// The bytes of the file when it was opened.
    size: u64,
    len: usize,
    /// The start of the first block in the file. Blocks end at multiples of their length.
    base: u64,
    shelf: Arc<Shelf>,
    /// The number of the block after the one in use, and of the first that was not left to others.
    next: u64,
    unread: u64,
    current: Arc<Vec<u8>>,
    /// The bytes of the block in use that were taken.
    taken: usize,
    /// What follows the block in use instead of another one.
    end: Option<io::Result<()>>,
    /// Blocks that were used; packets in them may still have to be copied.
    used: Vec<Arc<Vec<u8>>>,
}

/// Where blocks are until they are used: block `n` in the place `n` modulo their number.
#[derive(Debug, Default)]
struct Shelf {
    places: Mutex<[Place; AHEAD]>,
    filled: Condvar,
}

#[derive(Debug, Default)]
enum Place {
    #[default]
    Empty,
    /// The memory of the block with this number, which no thread has begun to read.
    Unread(u64, Arc<Vec<u8>>),
    /// A thread reads it at this moment.
    Reading,
    Filled(Block),
}

#[derive(Debug)]
struct Block {
    bytes: Arc<Vec<u8>>,
    /// What follows it instead of another one.
    end: Option<io::Result<()>>,
}

/// A part of a file that is left to be read, by any thread, before it is needed.
///
/// Dropping it leaves the part to the thread that needs it.
#[derive(Debug)]
pub struct ReadAhead {
    file: Stream,
    shelf: Arc<Shelf>,
    number: u64,
    range: Range<u64>,
}

impl ReadAhead {
    /// Reads the part, unless it has been needed before. Waits for the disk if the system does not
    /// have the part in memory.
    pub fn run(self) {
        if let Some(memory) = self.shelf.begin(self.number) {
            self.shelf.fill(self.number, read(&self.file, memory, &self.range));
        }
    }
}

impl Blocks {
    /// The file from `base` on in blocks of `len` bytes.
    pub(super) fn new(file: Stream, base: u64, len: usize) -> Self {
        let size = file.position().map_or(0, |(_, size)| size);
        Self {
            file,
            size,
            len,
            base,
            shelf: Arc::default(),
            next: 0,
            unread: 0,
            current: Arc::default(),
            taken: 0,
            end: None,
            used: Vec::new(),
        }
    }

    /// The block in use, and how many bytes of it were taken.
    pub(super) fn current(&self) -> (&Arc<Vec<u8>>, usize) {
        (&self.current, self.taken)
    }

    /// Takes up to `most` bytes of the block in use.
    pub(super) fn take(&mut self, most: usize) -> &[u8] {
        let start = self.taken;
        self.taken += most.min(self.current.len() - start);
        &self.current[start..self.taken]
    }

    /// Uses the next block if all bytes of the one in use were taken; returns whether there are
    /// bytes to be taken, which there are not at the end of the file.
    ///
    /// # Errors
    /// If the next bytes cannot be read. An error is returned once, and then the end.
    pub(super) fn advance(&mut self) -> io::Result<bool> {
        while self.taken == self.current.len() {
            match self.end.replace(Ok(())) {
                Some(Ok(())) => return Ok(false),
                Some(Err(error)) => return Err(error),
                None => {}
            }
            let number = self.next;
            self.next += 1;
            self.unread = self.unread.max(self.next);
            let block = self.shelf.take(number).unwrap_or_else(|memory| {
                let memory = memory.unwrap_or_else(|| self.memory());
                read(&self.file, memory, &self.range(number))
            });
            self.used.push(std::mem::replace(&mut self.current, block.bytes));
            (self.taken, self.end) = (0, block.end);
        }
        Ok(true)
    }

    /// The next part that another thread may read; `None` if enough are left to others.
    pub(super) fn read_ahead(&mut self) -> Option<ReadAhead> {
        let (number, range) = (self.unread, self.range(self.unread));
        if self.end.is_some() || number >= self.next + AHEAD as u64 || range.start >= self.size {
            return None;
        }
        self.unread += 1;
        let memory = self.memory();
        self.shelf.leave(number, memory);
        let (file, shelf) = (self.file.clone(), self.shelf.clone());
        Some(ReadAhead { file, shelf, number, range })
    }

    /// The place of a block in the file.
    fn range(&self, number: u64) -> Range<u64> {
        let len = self.len as u64;
        let start = self.base / len * len + number * len;
        start.max(self.base)..start + len
    }

    /// Memory for a block: that of the last used one in which no packets have to be copied, which is
    /// most likely in a cache.
    fn memory(&mut self) -> Arc<Vec<u8>> {
        let free = self.used.iter_mut().rposition(|used| Arc::get_mut(used).is_some());
        free.map_or_else(Arc::default, |at| self.used.swap_remove(at))
    }
}

impl Shelf {
    // A panic while the lock is held cannot leave a place half changed.
    fn places(&self) -> MutexGuard<'_, [Place; AHEAD]> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a block to be read into `memory`.
    fn leave(&self, number: u64, memory: Arc<Vec<u8>>) {
        self.places()[place(number)] = Place::Unread(number, memory);
    }

    /// The memory of a block that is read now; `None` if another thread was faster.
    fn begin(&self, number: u64) -> Option<Arc<Vec<u8>>> {
        let place = &mut self.places()[place(number)];
        if !matches!(place, Place::Unread(unread, _) if *unread == number) {
            return None;
        }
        match std::mem::replace(place, Place::Reading) {
            Place::Unread(_, memory) => Some(memory),
            _ => None,
        }
    }

    fn fill(&self, number: u64, block: Block) {
        self.places()[place(number)] = Place::Filled(block);
        self.filled.notify_all();
    }

    /// Takes a block, the next one to be used; waits for a thread that reads it.
    ///
    /// # Errors
    /// If no thread has begun to read it: the memory that it was left with.
    fn take(&self, number: u64) -> Result<Block, Option<Arc<Vec<u8>>>> {
        let mut places = self.places();
        loop {
            let place = &mut places[place(number)];
            match std::mem::take(place) {
                Place::Filled(block) => return Ok(block),
                Place::Unread(_, memory) => return Err(Some(memory)),
                Place::Empty => return Err(None),
                Place::Reading => *place = Place::Reading,
            }
            places = self.filled.wait(places).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn place(number: u64) -> usize {
    (number % AHEAD as u64) as usize
}

/// Reads a part of `file` into `memory`, which is not shared.
fn read(file: &Stream, mut memory: Arc<Vec<u8>>, range: &Range<u64>) -> Block {
    let bytes = Arc::make_mut(&mut memory);
    bytes.resize((range.end - range.start) as usize, 0);
    let mut len = 0;
    let end = loop {
        if len == bytes.len() {
            break None;
        }
        match file.read_at(&mut bytes[len..], range.start + len as u64) {
            Ok(0) => break Some(Ok(())),
            Ok(count) => len += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break Some(Err(error)),
        }
    };
    bytes.truncate(len);
    Block { bytes: memory, end }
}
