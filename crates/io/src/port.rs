//! The two traits of a port.

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use thalweg_packet::{Batch, DropCounts, Lanes, Nanoseconds};
use thalweg_source::SourceError;

use crate::claims::Claims;
use crate::kind::Refusal;
use crate::selection::PassedOver;

/// The longest time for which a live output waits for room in its queue.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// The time that no packet is later than.
pub(crate) const FOREVER: Nanoseconds = Nanoseconds(u64::MAX);

/// What is wrong with an interface that was removed.
const REMOVED: &str = "it was removed";

/// An error of a port.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IoError {
    /// A capture is damaged from `offset` on. Everything before it was received.
    #[error("{path}: at byte {offset}: {what}")]
    Damaged {
        /// The capture.
        path: PathBuf,
        /// The start of the damage, in bytes from the start of the
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
        /// The system's error.
        source: std::io::Error,
    },
    /// The format of a file is unknown.
    #[error("{path}: {what}")]
    Format {
        /// The file.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// The specification of a generator is invalid.
    #[error("generated traffic: {0}")]
    Generate(#[from] crate::generate::SpecError),
    /// A network interface cannot be used.
    #[error("interface {name}: {what}")]
    Interface {
        /// The interface.
        name: String,
        /// The reason.
        what: String,
    },
    /// A network interface was removed.
    #[error("interface {0}: {REMOVED}")]
    Removed(String),
    /// What an option of the chain file names cannot be used at this time.
    #[error("{0}")]
    Option(Box<SourceError>),
    /// A port cannot be opened as the chain file describes it.
    #[error("{port}: {refusal}")]
    Refused {
        /// The port, as messages name it: `interface eth1`.
        port: String,
        /// What is in the way.
        refusal: Box<Refusal>,
    },
    /// A port of another kind cannot be used.
    #[error("{port}: {what}")]
    Port {
        /// The port, as messages name it: `UDP port 4789`.
        port: String,
        /// The reason.
        what: String,
    },
}

impl IoError {
    /// The file, if it is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Damaged { path, .. } | Self::File { path, .. } | Self::Format { path, .. } => {
                Some(path)
            }
            Self::Generate(_)
            | Self::Interface { .. }
            | Self::Removed(_)
            | Self::Option(_)
            | Self::Refused { .. }
            | Self::Port { .. } => None,
        }
    }

    /// What is wrong, without the name of the file or port.
    pub fn what(&self) -> String {
        match self {
            Self::Damaged { offset, what, .. } => format!("at byte {offset}: {what}"),
            Self::File { source, .. } => source.to_string(),
            Self::Format { what, .. } | Self::Interface { what, .. } | Self::Port { what, .. } => {
                what.clone()
            }
            Self::Removed(_) => REMOVED.into(),
            Self::Generate(error) => error.to_string(),
            Self::Option(error) => error.message().to_owned(),
            Self::Refused { refusal, .. } => refusal.message.clone(),
        }
    }

    /// The error as a mistake of the chain file: the keys that it is about, what is wrong, and what was
    /// expected there.
    pub fn refusal(&self) -> Refusal {
        match self {
            Self::Refused { port, refusal } => {
                let message = format!("{port}: {}", refusal.message);
                Refusal { message, ..Refusal::clone(refusal) }
            }
            Self::Option(error) => Refusal::new(&[], error.message(), error.expected()),
            Self::Damaged { .. } | Self::Format { .. } => {
                Refusal::new(&[], self.to_string(), "a whole capture file")
            }
            Self::File { .. } => Refusal::new(&[], self.to_string(), "a file that can be opened"),
            Self::Generate(_) => Refusal::new(&[], self.to_string(), "another specification"),
            Self::Interface { .. } | Self::Removed(_) => {
                Refusal::new(&[], self.to_string(), "an interface that can be opened")
            }
            Self::Port { .. } => Refusal::new(&[], self.to_string(), "a port that can be opened"),
        }
    }
}

/// The result of one [`Input::receive`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Packets that arrived: those put into the batch and those dropped.
    pub packets: usize,
    /// Bytes of those packets on the wire.
    pub bytes: u64,
    /// Packets that were not received, since the input does not select them.
    pub passed_over: PassedOver,
    /// No more packets will arrive.
    pub ended: bool,
}

impl Received {
    /// Adds what `later` received after it.
    pub(crate) fn merge(&mut self, later: &Self) {
        self.packets += later.packets;
        self.bytes += later.bytes;
        self.passed_over.merge(&later.passed_over);
        self.ended |= later.ended;
    }
}

/// What kept an input or output from handling packets whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shortfall {
    /// The length in bytes of the longest packet that was dropped because it was too long; 0 if
    /// there was none.
    pub longest: usize,
    /// Packets received of which the capture holds fewer bytes than were on the wire.
    pub truncated: u64,
}

impl Shortfall {
    /// That of this and another time.
    pub(crate) fn with(self, other: Self) -> Self {
        Self {
            longest: self.longest.max(other.longest),
            truncated: self.truncated + other.truncated,
        }
    }
}

/// The packets that several ports have copied, as far as they count.
pub(crate) fn copied_by(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.zip(other).map_or(one.or(other), |(one, other)| Some(one + other))
}

/// A source of packets.
pub trait Input: Send {
    /// Receives up to `most` packets that are available into the empty lanes of
    /// `batch` (with metadata: timestamp, wire length; the caller sets the port).
    /// A packet that cannot be taken in is counted in `drops`. With `most` 0, the source only
    /// looks for the [`upcoming`](Self::upcoming) packet, and whether it has ended.
    ///
    /// # Errors
    /// If the source is damaged. Packets received before the damage are in the batch; later calls
    /// return the packets of its other files, if it has several, or `ended`.
    fn receive(
        &mut self,
        batch: &mut Batch,
        most: usize,
        drops: &mut DropCounts,
    ) -> Result<Received, IoError>;

    /// As [`receive`](Self::receive), but after the first packet only those of a time up to `last`.
    ///
    /// # Errors
    /// As `receive`.
    fn receive_until(
        &mut self,
        batch: &mut Batch,
        most: usize,
        last: Nanoseconds,
        drops: &mut DropCounts,
    ) -> Result<Received, IoError> {
        let _ = last;
        self.receive(batch, most.min(1), drops)
    }

    /// As [`receive`](Self::receive), or with a `last` time as [`receive_until`](Self::receive_until),
    /// but the source may leave the bytes of packets to be copied later: until
    /// [`Claims::copy`] is called, they are unspecified. So several threads that use the source one
    /// after the other copy at the same time. The packets, their order and their metadata are those
    /// that the other calls would have received.
    ///
    /// # Errors
    /// As `receive`.
    fn claim(
        &mut self,
        batch: &mut Batch,
        most: usize,
        last: Option<Nanoseconds>,
        drops: &mut DropCounts,
        claims: &mut Claims,
    ) -> Result<Received, IoError> {
        let _ = claims;
        match last {
            None => self.receive(batch, most, drops),
            Some(last) => self.receive_until(batch, most, last, drops),
        }
    }

    /// The time of the packet after those received so far, as far as it is known.
    fn upcoming(&self) -> Option<Nanoseconds> {
        None
    }

    /// The time of the packet after the [`upcoming`](Self::upcoming) one, as far as it is known.
    /// Reads ahead for it, so that it takes longer.
    fn following(&mut self) -> Option<Nanoseconds> {
        None
    }

    /// The share of the packets that was received, from 0 to 1; `None` if their number is unknown.
    /// For a file, how far it was read, so that a few packets may still be to come at 1.
    fn share(&self) -> Option<f64> {
        None
    }

    /// What kept packets from being received whole, for the advice at the end of a run.
    fn shortfall(&self) -> Shortfall {
        Shortfall::default()
    }

    /// The packets whose bytes this port has copied into packet memory so far. What the kernel, a driver
    /// or a peer copies is not counted. `None` if it does not count.
    fn copied(&self) -> Option<u64> {
        None
    }

    /// The descriptor that becomes readable when packets arrive; `None` for a source that always
    /// has packets. It is asked for before each wait, so that the source may prepare for it.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// When the next packet is due, if the last call found it too early. None is received before then,
    /// even if the [`descriptor`](Self::descriptor) is readable.
    fn due(&self) -> Option<Instant> {
        None
    }
}

/// The failure of an output, which accepts no more packets.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct OutputFailure {
    /// The reason.
    pub error: IoError,
    /// The packets of the call that were sent.
    pub sent: Lanes,
    /// The packets that were reported as sent, by this call or earlier ones, and were lost.
    pub lost: Lost,
}

/// Packets that an output lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Lost {
    /// Adds what was lost beside it.
    pub(crate) fn add(&mut self, more: Self) {
        self.packets += more.packets;
        self.bytes += more.bytes;
    }
}

impl From<IoError> for OutputFailure {
    fn from(error: IoError) -> Self {
        Self { error, sent: Lanes::NONE, lost: Lost::default() }
    }
}

/// A target of packets.
pub trait Output: Send {
    /// Sends the packets of `lanes`; returns those that were sent. Others are counted in `drops`.
    /// All stay in the batch; the caller releases them.
    ///
    /// # Errors
    /// Once, if the output accepts no more packets. Those of `lanes` that it did not send are counted in
    /// `drops` then too, as [`OutputFailed`](thalweg_packet::DropReason::OutputFailed).
    fn send(
        &mut self,
        batch: &Batch,
        lanes: Lanes,
        drops: &mut DropCounts,
    ) -> Result<Lanes, OutputFailure>;

    /// As [`send`](Self::send), but the output may take the frames of packets that it sends out of
    /// the batch, so that it need not copy them. Their lanes are empty then, with their lengths and
    /// metadata unchanged, and the output gives the frames back to the pool once they are sent.
    ///
    /// # Errors
    /// As `send`.
    fn send_frames(
        &mut self,
        batch: &mut Batch,
        lanes: Lanes,
        drops: &mut DropCounts,
    ) -> Result<Lanes, OutputFailure> {
        self.send(batch, lanes, drops)
    }

    /// Whether it sends super-packets. Others get their segments instead.
    fn takes_supers(&self) -> bool {
        false
    }

    /// Whether it sends super-packets in tunnels too, of those that send super-packets: the virtio header
    /// of a packet socket or TAP device cannot describe them. Others get their segments instead.
    fn takes_tunnelled_supers(&self) -> bool {
        false
    }

    /// Makes everything sent so far visible to readers.
    ///
    /// # Errors
    /// If it cannot be written.
    fn flush(&mut self) -> Result<(), OutputFailure>;

    /// What kept packets from being sent, for the advice at the end of a run.
    fn shortfall(&self) -> Shortfall {
        Shortfall::default()
    }

    /// The packets whose bytes this port has copied so far, before the kernel, a driver or a peer had
    /// them. What those copy is not counted. `None` if it does not count.
    fn copied(&self) -> Option<u64> {
        None
    }

    /// Takes the packets that were reported as sent and were lost since, of an output that goes on.
    /// Called after each [`check`](Self::check).
    fn take_lost(&mut self) -> Lost {
        Lost::default()
    }

    /// Checks that the target still exists; cheap enough for every few milliseconds.
    ///
    /// # Errors
    /// If it does not, so that a run without packets for it can end.
    fn check(&mut self) -> Result<(), IoError> {
        Ok(())
    }
}
