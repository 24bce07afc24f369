//! Capture files: pcap and pcapng, plain or compressed with gzip.
//!
//! The formats are read here and not by a library: the ones there are allocate
//! for each packet, do not tell the offset of damage, or leave out the older
//! pcapng packet block and sections of changing byte order.

mod input;
mod link;
mod output;
mod pcap;
mod pcapng;
mod reader;
mod stream;

pub use input::CaptureInput;
pub(crate) use input::{LoopClock as Clock, push};
pub use output::CaptureOutput;

#[cfg(test)]
mod tests;
