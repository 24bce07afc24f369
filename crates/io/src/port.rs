//! The two traits of a port.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use thalweg_packet::{Batch, DropCounts, Lanes};

/// What failed at a port.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IoError {
    /// A capture is damaged from `offset` on. Everything before it was received.
    #[error("{path}: at byte {offset}: {what}")]
    Damaged {
        /// The capture.
        path: PathBuf,
        /// Where the damage begins, in bytes from the start of the
        /// (decompressed) file.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// A file could not be opened, read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file is of no format that can be read.
    #[error("{path}: {what}")]
    Format {
        /// The file.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// A network interface cannot be used.
    #[error("interface {name}: {what}")]
    Interface {
        /// The interface.
        name: String,
        /// Why.
        what: String,
    },
}

/// What one [`Input::receive`] brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Packets that arrived: those put into the batch and those dropped.
    pub packets: usize,
    /// Bytes of those packets on the wire.
    pub bytes: u64,
    /// No packet will come any more.
    pub ended: bool,
}

/// Where packets come from.
pub trait Input: Send {
    /// Receives up to `most` packets into the empty lanes of `batch` (with
    /// metadata: timestamp, wire length; the caller sets the port) as far as
    /// packets are there. A packet that cannot be taken in is counted in `drops`.
    ///
    /// # Errors
    /// When the source is damaged. Packets received before the damage are in
    /// the batch; a later call returns `ended`.
    fn receive(
        &mut self,
        batch: &mut Batch,
        most: usize,
        drops: &mut DropCounts,
    ) -> Result<Received, IoError>;

    /// What becomes readable when packets arrive; `None` for a source that need not be waited
    /// for.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Where packets go.
pub trait Output: Send {
    /// Sends the packets of `lanes`; which were sent. One that is not is counted in `drops`. They
    /// stay in the batch; the caller releases them.
    ///
    /// # Errors
    /// When the output takes no more. None of the packets was counted then.
    fn send(
        &mut self,
        batch: &Batch,
        lanes: Lanes,
        drops: &mut DropCounts,
    ) -> Result<Lanes, IoError>;

    /// Makes everything sent so far visible to readers.
    ///
    /// # Errors
    /// When it cannot be written.
    fn flush(&mut self) -> Result<(), IoError>;
}
