//! Decompression on a thread of its own, a few blocks ahead of the reader.

use std::io::{self, Read};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use thalweg_source::outside;

use super::stream::Stream;

/// The bytes of a block. Handing one over costs about a microsecond, and decompressing it some
/// hundred.
const BLOCK: usize = 128 * 1024;
/// The blocks that are under way.
const BLOCKS: usize = 4;

/// A source that is read by a thread, which has ended when this is dropped.
pub(super) struct Ahead {
    /// `None` only while it is dropped.
    channels: Option<Channels>,
    thread: Option<JoinHandle<()>>,
    /// The block that is being read, and how many bytes of it were.
    block: Block,
    taken: usize,
}

struct Channels {
    filled: Receiver<Block>,
    used: Sender<Block>,
}

#[derive(Default)]
struct Block {
    bytes: Vec<u8>,
    /// How far the file was read when the block was filled.
    position: Option<(u64, u64)>,
    /// What follows the block instead of another one.
    end: Option<io::Result<()>>,
}

impl Ahead {
    /// Has `source`, which decompresses `file`, read by a new thread.
    ///
    /// # Errors
    /// The source, if the system refuses to start a thread.
    pub(super) fn start(
        source: Box<dyn Read + Send>,
        file: &Stream,
    ) -> Result<Self, Box<dyn Read + Send>> {
        let (to_reader, filled) = mpsc::channel();
        let (used, to_thread) = mpsc::channel();
        let (hand_over, handed_over) = mpsc::sync_channel::<Box<dyn Read + Send>>(1);
        let position = file.clone();
        let work = move || {
            // A worker that is kept on a core may start this thread.
            thalweg_cpu::cores::release();
            if let Ok(source) = handed_over.recv() {
                fill(source, &position, &to_thread, &to_reader);
            }
        };
        // The source follows when the thread has started, so that it is not lost if it does not.
        let Ok(thread) = outside::spawn("decompress", work) else {
            return Err(source);
        };
        hand_over.send(source).map_err(|refused| refused.0)?;
        for _ in 0..BLOCKS {
            // It fails if the thread has ended, which the reader finds out.
            let _ = used.send(Block::default());
        }
        let channels = Some(Channels { filled, used });
        let block = Block { position: file.position(), ..Block::default() };
        Ok(Self { channels, thread: Some(thread), block, taken: 0 })
    }

    /// How far the file was read for the bytes that were taken, and its size.
    pub(super) fn position(&self) -> Option<(u64, u64)> {
        self.block.position
    }

    /// Exchanges a block that was read for the next one.
    fn next_block(&mut self) -> io::Result<()> {
        let ended = || io::Error::other("the thread that decompresses has ended");
        let channels = self.channels.as_ref().ok_or_else(ended)?;
        let used = std::mem::take(&mut self.block);
        self.block.position = used.position;
        if used.bytes.capacity() > 0 {
            let _ = channels.used.send(used);
        }
        self.block = channels.filled.recv().map_err(|_| ended())?;
        self.taken = 0;
        Ok(())
    }
}

impl Read for Ahead {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.block.bytes.len() {
            match self.block.end.take() {
                None => self.next_block()?,
                Some(Ok(())) => {
                    self.block.end = Some(Ok(()));
                    return Ok(0);
                }
                Some(Err(error)) => {
                    // As a source at its end, once the error was returned.
                    self.block.end = Some(Ok(()));
                    return Err(error);
                }
            }
        }
        let rest = &self.block.bytes[self.taken..];
        let count = rest.len().min(bytes.len());
        bytes[..count].copy_from_slice(&rest[..count]);
        self.taken += count;
        Ok(count)
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // The thread ends when it finds the channels closed, after a block at most.
        self.channels = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Fills blocks until the end of the source, or of the reader.
fn fill(
    mut source: Box<dyn Read + Send>,
    file: &Stream,
    used: &Receiver<Block>,
    filled: &Sender<Block>,
) {
    while let Ok(Block { mut bytes, .. }) = used.recv() {
        bytes.resize(BLOCK, 0);
        let mut len = 0;
        let end = loop {
            match source.read(&mut bytes[len..]) {
                Ok(0) => break Some(Ok(())),
                Ok(count) => len += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Some(Err(error)),
            }
            if len == BLOCK {
                break None;
            }
        };
        bytes.truncate(len);
        let is_last = end.is_some();
        let block = Block { bytes, position: file.position(), end };
        if filled.send(block).is_err() || is_last {
            return;
        }
    }
}
