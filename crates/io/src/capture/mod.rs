//! Capture files: pcap and pcapng, plain and gzip-compressed.

mod bytes;
mod input;
mod link;
mod order;
mod output;
mod pcap;
mod pcapng;
mod record;
mod stream;

pub use input::CaptureInput;
pub use output::{CaptureOutput, STANDARD_OUTPUT};

pub(crate) use link::{Unfit, to_ethernet};
pub(crate) use record::{Next, Reader};

#[cfg(test)]
mod tests;
