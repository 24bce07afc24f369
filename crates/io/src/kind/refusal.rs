//! Why a port cannot be opened as its section says.

use thalweg_packet::Pool;

use crate::port::IoError;

/// Why a port cannot be opened as the chain file describes it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}; expected {expected}")]
pub struct Refusal {
    /// The keys that it is about, of which the first that the file has is shown: those of the port's
    /// section, `link.queue` in a table there, or `memory.frames` in `[memory]`. If the file has none of
    /// them, the key is shown that chooses the kind of the port.
    pub keys: &'static [&'static str],
    /// What is wrong.
    pub message: String,
    /// What was expected: it follows the word *expected*.
    pub expected: String,
}

impl Refusal {
    /// A refusal for what these keys, or the system, have.
    pub fn new(
        keys: &'static [&'static str],
        message: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        Self { keys, message: message.into(), expected: expected.into() }
    }

    /// The refusal of a port beside the one that messages name `named`, which has its `what`, shown at `keys`:
    /// one input and one output may have it.
    pub(crate) fn taken(keys: &'static [&'static str], named: &str, what: &str) -> Self {
        Self::new(
            keys,
            format!("{named} has it"),
            format!("one input and one output for each {what}"),
        )
    }

    /// Checks that the options of a port are those of the one that messages name `named`, which has the same
    /// `what`: whether each is the same, and its key.
    ///
    /// # Errors
    /// The first one that is not.
    pub(crate) fn unless_same(
        options: &[(bool, &'static [&'static str])],
        named: &str,
        what: &str,
    ) -> Result<(), Self> {
        let Some((_, keys)) = options.iter().find(|(is_same, _)| !is_same) else { return Ok(()) };
        let key = keys.join(", ");
        let message = format!("'{key}' is not that of {named}, which has the same {what}");
        Err(Self::new(keys, message, format!("the same '{key}' in both")))
    }

    /// The error of the port that messages name `port`: `interface eth1`.
    pub fn of(self, port: impl Into<String>) -> IoError {
        IoError::Refused { port: port.into(), refusal: Box::new(self) }
    }
}

/// Whether packet memory was to have huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// The chain file does not request them.
    NotRequested,
    /// The chain file requests them; the system may have none.
    Requested,
    /// They are requested of another machine, which may have some.
    Elsewhere,
}

/// Packet memory, against which ports are checked before one is opened.
#[derive(Clone, Copy, Debug)]
pub struct MemoryAtHand<'a> {
    /// The packet memory.
    pub pool: &'a Pool,
    /// Whether it was to have huge pages.
    pub huge_pages: HugePages,
}
