//! Ports: where packets come from and go to.
//!
//! An [`Input`] fills batches, an [`Output`] takes them. Everything inside is
//! Ethernet: an input of another link type gives its packets an Ethernet
//! header, and counts those it cannot convert.

mod capture;
mod discard;
pub mod generate;
mod memory;
mod port;

pub use capture::{CaptureInput, CaptureOutput};
pub use discard::DiscardOutput;
pub use memory::MemoryInput;
pub use port::{Input, IoError, Output, Received};
