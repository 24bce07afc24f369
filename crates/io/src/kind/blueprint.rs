//! Ports as their sections describe them: checked, and not open yet.

use std::any::Any;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use thalweg_packet::Pool;
use thalweg_source::Stop;

use super::link::Link;
use super::refusal::{MemoryAtHand, Refusal};
use crate::filter::Filter;
use crate::links::LinkEvents;
use crate::paced::Pace;
use crate::port::{Input, IoError, Output};
use crate::selection::TimeRange;

/// What a run requests of its inputs in place of what their sections say.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// Passes over what can be read several times; 0 means without end.
    pub passes: Option<u64>,
    /// The range of captured times, whose ends replace those of the section.
    pub times: TimeRange,
    /// The filter that received packets match.
    pub filter: Option<Filter>,
}

/// What an input is opened with.
#[derive(Clone, Copy, Debug)]
pub struct InputOpening<'a> {
    /// The packet memory of the run, into whose frames packets are received.
    pub pool: &'a Arc<Pool>,
    /// The most queues that the run serves at the same time; at least 1. An input that has more, because
    /// it cannot choose their number, returns all: a worker then serves several in turn.
    pub queues: usize,
    /// What the run requests in place of the section.
    pub overrides: &'a Overrides,
    /// Ends the wait for the other end of a connection.
    pub stop: &'a Stop,
}

/// What an output is opened with.
#[derive(Clone, Copy, Debug)]
pub struct OutputOpening<'a> {
    /// The packet memory of the run, from whose frames packets are sent.
    pub pool: &'a Arc<Pool>,
    /// The most queues that the run serves; at least 1.
    pub queues: usize,
    /// Ends the wait for the reader of a pipe, or for the other end of a connection.
    pub stop: &'a Stop,
}

/// A port that was opened.
pub struct Opened<P: ?Sized> {
    /// Its queues: at least one, and of an output no more than were requested.
    pub queues: Vec<Box<P>>,
    /// How packets pass, as it was really obtained, in a few words: `TPACKET_V2 ring, promiscuous`.
    pub mode: Option<String>,
    /// What happens to its network interface, if it has one that is followed.
    pub events: Option<LinkEvents>,
}

impl<P: ?Sized> Opened<P> {
    /// A port with one queue.
    pub fn single(queue: Box<P>, mode: impl Into<Option<String>>) -> Self {
        Self::of(vec![queue], mode)
    }

    /// A port with these queues.
    pub fn of(queues: Vec<Box<P>>, mode: impl Into<Option<String>>) -> Self {
        Self { queues, mode: mode.into(), events: None }
    }
}

impl<P: ?Sized> fmt::Debug for Opened<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { queues, mode, .. } = self;
        f.debug_struct("Opened")
            .field("queues", &queues.len())
            .field("mode", mode)
            .finish_non_exhaustive()
    }
}

/// What a port can do, whatever it obtains when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Capabilities {
    /// The most queues that it can have.
    pub queues: usize,
    /// Whether it can receive into packet memory, or send from it, without copying packets.
    pub zero_copy: bool,
    /// The work on packets that it does in place of the hardware to which a sender left it.
    pub offloads: &'static [&'static str],
    /// Whether super-packets pass whole.
    pub super_packets: bool,
}

impl Default for Capabilities {
    /// One queue, with copies.
    fn default() -> Self {
        Self { queues: 1, zero_copy: false, offloads: &[], super_packets: false }
    }
}

/// A port as its section describes it.
pub trait PortBlueprint: Any + Send + Sync {
    /// What it is, in a few words, next to the name of its kind.
    fn describe(&self) -> String;

    /// What it is, in a few words, where nothing else names its kind.
    fn title(&self) -> String {
        self.describe()
    }

    /// Whether this port and `other`, of a running chain and in the same direction, are the same: a
    /// reload keeps that one as it is. Inputs are compared only if they have the same name.
    fn is_same(&self, other: &dyn PortBlueprint) -> bool;

    /// What it can do.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// How packets pass, as far as that is known without opening it.
    fn mode(&self) -> Option<String> {
        None
    }

    /// The state of its link now, if it has one.
    fn link(&self) -> Option<Link> {
        None
    }

    /// The path of a socket that it creates and removes.
    fn socket(&self) -> Option<&Path> {
        None
    }

    /// The frames of packet memory that it keeps for packets to come, in its rings. Where the chain file has no
    /// number of frames, there are four times as many as one port keeps, and twice as many as all inputs do.
    fn kept_frames(&self) -> usize {
        0
    }

    /// Whether opening it loads a program into the kernel, and locks packet memory, which the kernel
    /// then writes to.
    fn loads_program(&self) -> bool {
        false
    }

    /// Whether it loads a program that chooses the queues of packets, which needs less.
    fn steers_queues(&self) -> bool {
        false
    }

    /// Whether a driver in this process uses hardware: it opens devices of the system, and locks packet
    /// memory, which the hardware then writes to.
    fn drives_hardware(&self) -> bool {
        false
    }

    /// Whether another process maps packet memory by it, so that the memory must be
    /// [shared](thalweg_packet::PacketMemory::shared).
    fn shares_memory(&self) -> bool {
        false
    }

    /// The system's network interface that it stands for.
    fn interface(&self) -> Option<&str> {
        None
    }

    /// What it has together with other ports, by a name among those of its kind: an interface, a socket.
    /// Ports with one name are checked [with each other](Self::check_with).
    fn shared(&self) -> Option<String> {
        None
    }

    /// Checks that it can be opened together with `other`, of the same kind, with which it
    /// [shares](Self::shared) something.
    ///
    /// # Errors
    /// What is in the way.
    fn check_with(&self, other: &Neighbour<'_>) -> Result<(), Refusal> {
        let _ = other;
        Ok(())
    }

    /// Checks that it can be opened with this packet memory.
    ///
    /// # Errors
    /// What is in the way.
    fn check_memory(&self, memory: MemoryAtHand<'_>) -> Result<(), Refusal> {
        let _ = memory;
        Ok(())
    }
}

/// A port that is there before another one.
#[derive(Clone, Copy)]
pub struct Neighbour<'a> {
    /// The port.
    pub blueprint: &'a dyn PortBlueprint,
    /// What messages name it: `input 'a' in line 3`.
    pub name: &'a str,
    /// Whether both are inputs, or both outputs.
    pub same_direction: bool,
}

impl fmt::Debug for Neighbour<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, same_direction, .. } = self;
        f.debug_struct("Neighbour")
            .field("name", name)
            .field("same_direction", same_direction)
            .finish_non_exhaustive()
    }
}

/// An input as its section describes it.
pub trait InputBlueprint: PortBlueprint {
    /// Opens it. Until then the system is not changed, and no packet is received.
    ///
    /// # Errors
    /// Why it cannot be opened.
    fn open(&self, opening: &InputOpening<'_>) -> Result<Opened<dyn Input>, IoError>;

    /// Whether packets arrive when others send them, and not as fast as they are received. Their
    /// times are those of the system's clock at their arrival, so that one that has waited for long
    /// is late.
    fn is_live(&self) -> bool {
        self.interface().is_some()
    }

    /// The range of captured times that it receives; `None` if its packets have no captured times.
    /// Inputs that have some are merged by time.
    fn times(&self) -> Option<TimeRange> {
        None
    }

    /// The pace at which the run hands its packets out; `None`: as fast as they are received. An
    /// input that has one can be a [`PacedInput`](crate::PacedInput).
    fn pace(&self) -> Option<Pace> {
        None
    }

    /// Whether it can receive only the packets that match a filter.
    fn can_filter(&self) -> bool {
        false
    }

    /// Whether it can be read `passes` times (0: without end).
    fn can_repeat(&self, passes: u64) -> bool {
        let _ = passes;
        false
    }
}

/// An output as its section describes it.
pub trait OutputBlueprint: PortBlueprint {
    /// Opens it. Files are locked, and not emptied before the first flush: so a run that cannot
    /// start leaves them as they are.
    ///
    /// # Errors
    /// Why it cannot be opened.
    fn open(&self, opening: &OutputOpening<'_>) -> Result<Opened<dyn Output>, IoError>;
}

impl dyn PortBlueprint {
    /// This port as one of type `B`, if it is.
    pub fn downcast<B: PortBlueprint>(&self) -> Option<&B> {
        (self as &dyn Any).downcast_ref()
    }
}
