//! memif: packets through shared memory, between this program and another one on the same machine.
//!
//! Protocol 2.0, as libmemif of FD.io VPP and `net_memif` of DPDK speak it. A *client* (there:
//! slave) makes the memory, a *server* (there: master) maps it. They agree on it over a unix socket
//! ([`message`], [`handshake`]), which then only shows whether the peer lives. Packets pass through
//! rings of descriptors in that memory ([`ring`], [`receiver`], [`sender`]).
//!
//! | ring | client | server |
//! | --- | --- | --- |
//! | client to server | fills buffers, advances `head` | reads them, advances `tail` |
//! | server to client | offers empty buffers by `head`, reads full ones up to `tail` | fills them, advances `tail` |
//!
//! **The memory is hostile**: the peer may write anything there at any time. Each field is read once,
//! into a local variable, and checked against what is mapped; our own positions are never read back;
//! a region whose peer could shrink it is refused. A peer that breaks the rules is disconnected.
//!
//! One thread for each socket agrees with peers ([`hub`]). Ports look at a number once for each batch,
//! which changes when a peer comes or goes ([`endpoint`]).

mod address;
mod endpoint;
mod frames;
mod handshake;
mod hub;
mod input;
mod kind;
mod loans;
mod message;
mod output;
mod receiver;
mod region;
mod registry;
#[cfg(any(test, fuzzing))]
mod replay;
mod ring;
mod sender;
mod session;
mod settings;
mod shared;
mod socket;

pub use input::MemifInput;
pub use kind::KIND;
pub use output::MemifOutput;
#[cfg(fuzzing)]
pub use replay::replay;
pub use settings::{MemifSettings, Role};

#[cfg(test)]
mod tests;

/// A peer broke the rules of the protocol, or cannot be served.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fault(std::borrow::Cow<'static, str>);

impl Fault {
    fn new(what: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        Self(what.into())
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
