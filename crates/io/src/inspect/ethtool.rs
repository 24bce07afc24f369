//! What drivers report by the requests of ethtool(8) (`linux/ethtool.h`).
//!
//! `unsafe` here: system calls that take pointers.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::interface::request_for;

/// `ETHTOOL_GRINGPARAM`.
const RINGS: u32 = 0x10;
/// `ETHTOOL_GFLAGS`.
const FLAGS: u32 = 0x25;
/// `ETHTOOL_GGRO`.
const GRO: u32 = 0x2b;
/// `ETHTOOL_GCHANNELS`.
const CHANNELS: u32 = 0x3c;
/// `ETH_FLAG_RXVLAN` and `ETH_FLAG_LRO`.
const FLAG_VLAN: u32 = 1 << 8;
const FLAG_LRO: u32 = 1 << 15;

/// A number that is set, and the most that it can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The present value.
    pub now: u32,
    /// The largest one.
    pub most: u32,
}

/// Work on received packets that the driver or the kernel does before others see them; `None` where it is
/// unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// Merges packets, so that they cannot be forwarded as they were.
    pub lro: Option<bool>,
    /// Merges packets so that they can be segmented again.
    pub gro: Option<bool>,
    /// Strips VLAN tags.
    pub vlan: Option<bool>,
}

/// Sends a request whose answer is the `N` numbers of 32 bits of its structure, the command first.
fn request<const N: usize>(socket: impl AsFd, name: &str, command: u32) -> io::Result<[u32; N]> {
    let mut numbers = [0; N];
    numbers[0] = command;
    let mut request = request_for(name);
    request.ifr_ifru.ifru_data = (&raw mut numbers).cast();
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the request points to a structure of the length that this command writes.
    let result = unsafe { libc::ioctl(socket, libc::SIOCETHTOOL as _, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(numbers) }
}

/// The pairs of queues of an interface; `None` if its driver reports none.
pub(super) fn channels(socket: impl AsFd, name: &str) -> Option<Setting> {
    // struct ethtool_channels: most and present ones, each of rx, tx, other, combined.
    let [_, most_rx, _, _, most, rx, _, _, combined] = request(socket, name, CHANNELS).ok()?;
    if most > 0 {
        return Some(Setting { now: combined, most });
    }
    (most_rx > 0).then_some(Setting { now: rx, most: most_rx })
}

/// The slots of a receive ring; `None` if its driver reports none.
pub(super) fn receive_ring(socket: impl AsFd, name: &str) -> Option<Setting> {
    // struct ethtool_ringparam: most and present ones, each of rx, mini, jumbo, tx.
    let [_, most, _, _, _, now, ..] = request::<9>(socket, name, RINGS).ok()?;
    (most > 0).then_some(Setting { now, most })
}

pub(super) fn offloads(socket: impl AsFd, name: &str) -> Offloads {
    let value = |command| request::<2>(&socket, name, command).ok().map(|[_, value]| value);
    let flags = value(FLAGS);
    let flag = |flag| flags.map(|flags| flags & flag != 0);
    Offloads { lro: flag(FLAG_LRO), gro: value(GRO).map(|value| value != 0), vlan: flag(FLAG_VLAN) }
}
