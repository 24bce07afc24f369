//! Captures in pcap and pcapng, plain and gzip-compressed: files, pipes, standard input and output,
//! and connections.

mod ahead;
mod blocks;
mod bytes;
mod commented;
mod cursor;
mod direct;
mod files;
mod find;
mod input;
mod kind;
mod link;
mod order;
mod output;
mod pcap;
mod pcapng;
mod peer;
mod read_ahead;
mod record;
mod records;
mod selector;
mod set;
mod standard;
mod stream;

pub use commented::{CommentedCapture, CommentedPacket};
pub use direct::DirectInput;
pub use files::CaptureFiles;
pub use input::CaptureInput;
pub use kind::KIND;
pub use output::CaptureOutput;
pub use read_ahead::ReadAhead;
pub use standard::{STANDARD_INPUT, STANDARD_OUTPUT};

pub(crate) use link::{Unfit, to_ethernet};
pub(crate) use record::Next;
pub(crate) use records::Records;
pub(crate) use selector::Selector;

#[cfg(test)]
mod tests;
