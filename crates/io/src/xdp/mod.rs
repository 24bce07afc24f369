//! AF_XDP: packets of an interface's queue, received into packet memory and sent out of it.
//!
//! A program of ours at the interface ([`program`], [`interface`]) sends the packets of a queue to a
//! socket ([`socket`], [`endpoint`]), but for those that the host needs to stay reachable. Packet
//! memory is registered with the socket as a whole, and its frames are what the kernel, or a driver
//! with zero copy, receives into. Four rings pass the frames to and fro ([`ring`]):
//!
//! | ring | we put | the kernel puts |
//! | --- | --- | --- |
//! | fill | empty frames | |
//! | receive | | frames with packets |
//! | transmit | frames with packets | |
//! | completion | | frames that were sent |
//!
//! A frame that the kernel has is lent ([`lent`]), and nothing else refers to it. What a descriptor of
//! the kernel names is checked against what was lent. The input has the first two rings
//! ([`receiver`]), the output the others ([`sender`]); both share the socket ([`registry`]).

mod endpoint;
mod input;
mod interface;
mod kind;
mod lent;
mod output;
mod program;
mod receiver;
mod registry;
#[cfg(any(test, fuzzing))]
mod replay;
mod ring;
mod sender;
mod settings;
mod socket;

pub use input::XdpInput;
pub use kind::KIND;
pub use output::XdpOutput;
#[cfg(fuzzing)]
pub use replay::replay;
pub use settings::{XdpMode, XdpSettings};

#[cfg(test)]
mod tests;

use std::io;

use crate::kind::Refusal;
use crate::port::IoError;

fn failed(name: &str, what: &str, error: &io::Error) -> IoError {
    let what = format!("{what}: {error}");
    if error.kind() != io::ErrorKind::PermissionDenied {
        return IoError::Interface { name: name.to_owned(), what };
    }
    let expected = "to run as root or with the capabilities CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and \
                    CAP_PERFMON";
    refused(name, Refusal::new(&[], what, expected))
}

fn refused(name: &str, refusal: Refusal) -> IoError {
    refusal.of(format!("interface {name}"))
}
