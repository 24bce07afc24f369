//! What a port is configured with, and what it obtained.

use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;

use super::program::Pass;
use crate::kind::Refusal;

/// How packets pass between the interface and packet memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum XdpMode {
    /// The first that the interface has, of zero-copy, copy and generic.
    #[default]
    Auto,
    /// The driver receives into packet memory, and sends from it. Nothing less is accepted.
    ZeroCopy,
    /// The driver runs the program, and the kernel copies packets.
    Copy,
    /// The kernel's network stack runs the program, and copies packets: with any driver.
    Generic,
}

impl XdpMode {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::ZeroCopy => "zero-copy",
            Self::Copy => "copy",
            Self::Generic => "generic",
        }
    }
}

/// One queue of an interface: which, and how.
///
/// An input and an output of one program with the same interface and queue share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpSettings {
    pub(super) interface: String,
    pub(super) queue: u32,
    pub(super) mode: XdpMode,
    /// Descriptors of each ring, a power of two.
    pub(super) ring_size: u32,
    /// For how long to poll the driver, in microseconds; 0: not at all.
    pub(super) busy_poll_us: u32,
    pub(super) promiscuous: bool,
    /// Whether to take an interface by which the host is reached.
    pub(super) force: bool,
    /// Whether to complete checksums that a sender has left to hardware; `None`: of a veth.
    pub(super) complete_checksums: Option<bool>,
    /// What the kernel keeps, sorted.
    pub(super) pass: Vec<Pass>,
}

impl XdpSettings {
    /// Queue 0 of an interface, with the defaults of the chain file.
    pub fn new(interface: &str) -> Self {
        let mut pass: Vec<_> =
            DEFAULT_PASS.iter().filter_map(|word| Pass::parse(word)).flatten().collect();
        pass.sort_unstable();
        Self {
            interface: interface.to_owned(),
            queue: 0,
            mode: XdpMode::Auto,
            ring_size: RING_SIZE,
            busy_poll_us: 0,
            promiscuous: true,
            force: false,
            complete_checksums: None,
            pass,
        }
    }

    /// The same with another mode.
    #[must_use]
    pub fn with_mode(mut self, mode: XdpMode) -> Self {
        self.mode = mode;
        self
    }

    /// The same with rings of another size.
    ///
    /// # Errors
    /// Hands the settings back if it is no power of two from 64 to 32768.
    pub fn with_ring_size(mut self, size: u32) -> Result<Self, Self> {
        if !size.is_power_of_two() || !RING_SIZES.contains(&size) {
            return Err(self);
        }
        self.ring_size = size;
        Ok(self)
    }

    /// Checks that it can have the queue of `other` together with that, which messages name `named` and
    /// whose direction is the same or not.
    pub(super) fn check_queue(
        &self,
        other: &Self,
        named: &str,
        same_direction: bool,
    ) -> Result<(), Refusal> {
        if same_direction {
            return Err(Refusal::taken(&["queue", "queues"], named, "queue"));
        }
        let options: [(_, &[_]); 7] = [
            (self.mode == other.mode, &["mode"]),
            (self.ring_size == other.ring_size, &["ring_size"]),
            (self.busy_poll_us == other.busy_poll_us, &["busy_poll_us"]),
            (self.promiscuous == other.promiscuous, &["promiscuous"]),
            (self.pass == other.pass, &["pass"]),
            (self.force == other.force, &["force"]),
            (self.complete_checksums == other.complete_checksums, &["complete_checksums"]),
        ];
        Refusal::unless_same(&options, named, "queue")
    }

    /// Checks that its queue can share the interface's program with that of `other`, which messages name
    /// `named`.
    pub(super) fn check_program(&self, other: &Self, named: &str) -> Result<(), Refusal> {
        let is_generic = |settings: &Self| settings.mode == XdpMode::Generic;
        let options: [(_, &[_]); 2] = [
            (self.pass == other.pass, &["pass"]),
            (is_generic(self) == is_generic(other), &["mode"]),
        ];
        Refusal::unless_same(&options, named, "interface")
    }

    /// What `queues` queues from it on are, for messages: `XDP eth1, queue 0`.
    pub(super) fn title(&self, queues: usize) -> String {
        format!("XDP {}, {}", self.interface, named(self.queue, queues))
    }
}

/// `queue 0`, or `queues 0 to 3`: that many from the `first` on.
pub(super) fn named(first: u32, queues: usize) -> String {
    match queues {
        1 => format!("queue {first}"),
        _ => format!("queues {first} to {}", first as usize + queues - 1),
    }
}

/// What a queue has obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Obtained {
    pub(super) mode: XdpMode,
    /// Whether a packet may have several buffers.
    pub(super) multi_buffer: bool,
    /// Whether packet memory was registered for another queue.
    pub(super) shares_memory: bool,
    pub(super) ring_size: u32,
    pub(super) busy_poll_us: u32,
    /// Whether checksums that a sender has left to hardware are completed.
    pub(super) completes_checksums: bool,
    /// Its number.
    pub(super) queue: u32,
    /// How many receive queues the interface has, if that is known.
    pub(super) available: Option<u32>,
}

impl Obtained {
    /// What all queues of a port have obtained, in a few words.
    pub(super) fn describe(all: &[Self]) -> Option<String> {
        let (first, others) = all.split_first()?;
        // The first one registers packet memory, and the others share it.
        let shares_memory = others.last().unwrap_or(first).shares_memory;
        let is_alike = |other: &Self| {
            *other == Self { queue: other.queue, shares_memory: other.shares_memory, ..*first }
        };
        if !others.iter().all(is_alike) {
            return Some(all.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "));
        }
        let mut text = String::new();
        let of_all = Self { shares_memory, ..*first };
        of_all.write(&mut text, all.len()).expect("a string takes all");
        Some(text)
    }

    /// Writes what `queues` queues from this one on have obtained.
    fn write(&self, f: &mut impl fmt::Write, queues: usize) -> fmt::Result {
        let Self { mode, multi_buffer, shares_memory, ring_size, busy_poll_us, .. } = *self;
        write!(f, "AF_XDP, {}, rings with {ring_size} slots", mode.name())?;
        let available = self.available.filter(|available| *available > 1);
        if queues > 1 || available.is_some() {
            write!(f, ", {}", named(self.queue, queues))?;
        }
        if let Some(available) = available {
            write!(f, " of {available}")?;
        }
        if self.completes_checksums {
            write!(f, ", checksums completed")?;
        }
        if multi_buffer {
            write!(f, ", multi-buffer")?;
        }
        if shares_memory {
            write!(f, ", shared memory registration")?;
        }
        if busy_poll_us > 0 {
            write!(f, ", busy poll {busy_poll_us} us")?;
        }
        Ok(())
    }
}

impl fmt::Display for Obtained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 1)
    }
}

/// The descriptors of a ring unless the chain file has others.
pub(super) const RING_SIZE: u32 = 2048;
/// The sizes of rings.
pub(super) const RING_SIZES: std::ops::RangeInclusive<u32> = 64..=32_768;
/// The queues that can be named.
pub(super) const MOST_QUEUES: u32 = 1024;
/// What the kernel keeps unless the chain file names something else.
pub(super) const DEFAULT_PASS: [&str; 2] = ["arp", "ssh"];
