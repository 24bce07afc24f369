//! The records of several capture files, in the order of time.

use thalweg_packet::Nanoseconds;

use super::files::CaptureFiles;
use super::read_ahead::ReadAhead;
use super::record::{Next, Reader, Record};
use super::stream::Upkeep;
use crate::claims::Shared;
use crate::clock::PacketClock;
use crate::merge::{Merge, Oldest};
use crate::port::{FOREVER, IoError};

/// The most files that are decompressed by threads of their own at the same time.
const MOST_FULL: usize = 2;
/// The most files that keep a descriptor and large buffers at the same time.
const MOST_LARGE: usize = 32;

/// Reads several files as one: a file is opened when its first packet is due, and closed at its
/// end, so that of captures that follow each other one or two are open. Those that overlap are
/// merged by time, as several inputs are ([`Merge`]).
///
/// However many overlap, a few descriptors suffice: beyond [`MOST_LARGE`] open files, further ones
/// are opened again for each read.
pub(crate) struct FileSet {
    files: CaptureFiles,
    /// The files that are open, in the places that they have in `files`; all before `lowest` are
    /// closed.
    open: Vec<Option<Box<OpenFile>>>,
    lowest: usize,
    /// How many files were opened, in their order, and how many of them are open.
    opened: usize,
    live: usize,
    /// The bytes of the files that were closed, and of all files.
    read: u64,
    size: u64,
    merge: Merge,
    /// The file whose packets are due, up to a time.
    run: Option<Oldest>,
    /// The length of the blocks in which files are read, if they are.
    block_len: Option<usize>,
}

struct OpenFile {
    reader: Reader,
    clock: PacketClock,
    /// The record that was read last.
    head: Record,
}

impl OpenFile {
    /// Reads the next record; returns the time by which it is due, or `None` at the end.
    fn advance(&mut self) -> Result<Option<Nanoseconds>, IoError> {
        let Next::Record(head) = self.reader.next()? else { return Ok(None) };
        self.head = head;
        let reader = &mut self.reader;
        Ok(Some(self.clock.pass(head.timestamp, || reader.following(&head))))
    }
}

impl FileSet {
    pub(crate) fn new(files: CaptureFiles) -> Self {
        let mut set = Self {
            open: files.files.iter().map(|_| None).collect(),
            lowest: 0,
            opened: 0,
            live: 0,
            read: 0,
            size: files.files.iter().map(|file| file.size).sum(),
            merge: Merge::default(),
            run: None,
            block_len: None,
            files,
        };
        set.await_next();
        set
    }

    pub(crate) fn files(&self) -> &CaptureFiles {
        &self.files
    }

    /// Has the next file to open take its place in the order of time.
    fn await_next(&mut self) {
        if let Some(next) = self.files.files.get(self.opened) {
            self.merge.push(self.opened, next.first);
        }
    }

    /// The next record of all files.
    ///
    /// # Errors
    /// If a file is damaged, or cannot be read; the next call returns a record of another one.
    pub(crate) fn next(&mut self) -> Result<Next, IoError> {
        loop {
            let Some(Oldest { stream, until }) = self.run else {
                let Some(run) = self.merge.pop() else { return Ok(Next::End) };
                if run.stream == self.opened {
                    self.open_next()?;
                } else {
                    self.run = Some(run);
                    if let Some(file) = &self.open[run.stream] {
                        return Ok(Next::Record(file.head));
                    }
                }
                continue;
            };
            let Some(file) = &mut self.open[stream] else {
                self.run = None;
                continue;
            };
            match file.advance() {
                Ok(Some(due)) if due <= until => return Ok(Next::Record(file.head)),
                Ok(Some(due)) => self.merge.push(stream, due),
                Ok(None) => self.close(stream),
                Err(error) => {
                    self.close(stream);
                    self.run = None;
                    return Err(error);
                }
            }
            self.run = None;
        }
    }

    /// Opens the next file, which takes its place in the order of time.
    fn open_next(&mut self) -> Result<(), IoError> {
        let number = self.opened;
        self.opened += 1;
        self.await_next();
        self.live += 1;
        let upkeep = if self.live <= MOST_FULL {
            Upkeep::Full
        } else if self.live <= MOST_LARGE {
            Upkeep::Large
        } else {
            Upkeep::Small
        };
        let opened = Reader::open(&self.files.files[number].path, upkeep).and_then(|mut reader| {
            if let Some(len) = self.block_len {
                reader.share_blocks(len);
            }
            let clock = PacketClock::default();
            let Next::Record(head) = reader.next()? else { return Ok(None) };
            Ok(Some(OpenFile { reader, clock, head }))
        });
        match opened {
            Ok(Some(mut file)) => {
                let head = file.head;
                let due = file.clock.pass(head.timestamp, || None);
                self.open[number] = Some(Box::new(file));
                self.merge.push(number, due);
                Ok(())
            }
            Ok(None) => {
                self.close(number);
                Ok(())
            }
            Err(error) => {
                self.close(number);
                Err(error)
            }
        }
    }

    fn close(&mut self, number: usize) {
        self.open[number] = None;
        self.live -= 1;
        self.read += self.files.files[number].size;
        while self.lowest < self.opened && self.open[self.lowest].is_none() {
            self.lowest += 1;
        }
    }

    /// The captured bytes of the record that was read last.
    pub(crate) fn data(&self, record: &Record) -> &[u8] {
        let file = self.run.and_then(|run| self.open[run.stream].as_ref());
        file.map_or(&[], |file| file.reader.data(record))
    }

    /// The same bytes in a buffer that stays unchanged while it is shared, if they lie in one.
    pub(crate) fn shared(&self, record: &Record) -> Option<Shared<'_>> {
        self.open[self.run?.stream].as_ref()?.reader.shared(record)
    }

    /// Reads files from here on in blocks of `len` bytes, which are shared, where that can be.
    pub(crate) fn share_blocks(&mut self, len: usize) {
        if self.block_len.replace(len).is_none() {
            let open = &mut self.open[self.lowest..self.opened];
            open.iter_mut().flatten().for_each(|file| file.reader.share_blocks(len));
        }
    }

    /// A part of the file whose packets are due that another thread may read.
    pub(crate) fn read_ahead(&mut self) -> Option<ReadAhead> {
        self.open[self.run?.stream].as_mut()?.reader.read_ahead()
    }

    /// The time of the record after the one that was read last.
    pub(crate) fn following(&mut self) -> Option<Nanoseconds> {
        let others = self.merge.peek().map(|(time, _)| time);
        let file = self.run.and_then(|run| self.open[run.stream].as_mut());
        let own = file.and_then(|file| file.reader.following(&file.head));
        Some(own.unwrap_or(FOREVER).min(others.unwrap_or(FOREVER))).filter(|time| *time < FOREVER)
    }

    /// The share of all files that was read.
    pub(crate) fn share(&self) -> Option<f64> {
        let open = self.lowest..self.opened;
        let part = |number: usize| {
            let file = self.open[number].as_ref()?;
            Some(file.reader.share()? * self.files.files[number].size as f64)
        };
        let read = self.read as f64 + open.filter_map(part).sum::<f64>();
        (self.size > 0).then(|| read / self.size as f64)
    }
}
