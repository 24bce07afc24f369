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
/// `ETHTOOL_GSTRINGS`, `ETHTOOL_GSSET_INFO`, `ETHTOOL_GFEATURES`, and the set of features' names
/// (`ETH_SS_FEATURES`).
const STRINGS: u32 = 0x1b;
const SET_SIZE: u32 = 0x37;
const FEATURES: u32 = 0x3a;
const SET: u32 = 4;
/// The length of a feature's name, in bytes (`ETH_GSTRING_LEN`).
const NAME: usize = 32;
/// The most features that are looked at.
const MOST_FEATURES: u32 = 1024;
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// Merges packets, so that they cannot be forwarded as they were.
    pub lro: Option<bool>,
    /// Merges packets so that they can be segmented again.
    pub gro: Option<bool>,
    /// Strips VLAN tags.
    pub vlan: Option<bool>,
    /// Work on packets that is off, although it can be on: the names by which `ethtool -K` knows it.
    pub idle: Vec<&'static str>,
}

/// Work on packets that can be left to the driver or the kernel: the first words of the features' names
/// (`net/ethtool/common.c`), and the name by which `ethtool -K` knows them.
const WORK: [(&str, &str); 4] = [
    ("tx-checksum-", "tx"),
    ("rx-checksum", "rx"),
    ("tx-tcp-segmentation", "tso"),
    ("tx-generic-segmentation", "gso"),
];

/// Sends a request whose answer is the `N` numbers of 32 bits of its structure, the command first.
fn request<const N: usize>(socket: impl AsFd, name: &str, command: u32) -> io::Result<[u32; N]> {
    let mut numbers = [0; N];
    numbers[0] = command;
    // SAFETY: the structure of each command that this is called with has `N` numbers.
    unsafe { request_in(socket, name, &mut numbers) }.map(|()| numbers)
}

/// Sends the request in `numbers`, in whose place the kernel writes the answer.
///
/// # Safety
/// The answer must be no longer than `numbers`.
unsafe fn request_in(socket: impl AsFd, name: &str, numbers: &mut [u32]) -> io::Result<()> {
    let mut request = request_for(name);
    request.ifr_ifru.ifru_data = numbers.as_mut_ptr().cast();
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the request points to memory of the length that the caller answers for.
    let result = unsafe { libc::ioctl(socket, libc::SIOCETHTOOL as _, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The names of features, in the order of their bits.
fn feature_names(socket: impl AsFd, name: &str) -> io::Result<Vec<String>> {
    // struct ethtool_sset_info: command, reserved, mask of sets in two words, their sizes.
    let [a, b, c, d, e, f, g, h] = (1u64 << SET).to_ne_bytes();
    let mask = [[a, b, c, d], [e, f, g, h]].map(u32::from_ne_bytes);
    let mut info = [SET_SIZE, 0, mask[0], mask[1], 0];
    // SAFETY: the answer has the size of one set, since the mask names one.
    unsafe { request_in(&socket, name, &mut info) }?;
    let count = info[4];
    if !(1..=MOST_FEATURES).contains(&count) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // struct ethtool_gstrings: command, set, length, names.
    let mut words = vec![0; 3 + count as usize * NAME / size_of::<u32>()];
    words[..3].copy_from_slice(&[STRINGS, SET, count]);
    // SAFETY: the kernel writes the names of all features, whose number is a constant of the kernel.
    unsafe { request_in(&socket, name, &mut words) }?;
    let bytes: Vec<u8> = words[3..].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let text = |name: &[u8]| {
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    };
    Ok(bytes.chunks(NAME).map(text).collect())
}

/// The work that is off, although it can be on.
fn idle(socket: impl AsFd, name: &str) -> io::Result<Vec<&'static str>> {
    let names = feature_names(&socket, name)?;
    let blocks = names.len().div_ceil(32);
    // struct ethtool_gfeatures: command, number of blocks; of each block the bits that are available,
    // requested, active, and never changed.
    let mut words = vec![0; 2 + 4 * blocks];
    words[..2].copy_from_slice(&[FEATURES, blocks as u32]);
    // SAFETY: the kernel writes as many blocks as are requested, or fewer.
    unsafe { request_in(&socket, name, &mut words) }?;
    Ok(idle_of(&names, &words[2..]))
}

/// The same of the names of features and their blocks of bits. Work of several features, such as checksums
/// by protocol, is idle if none of them is active.
fn idle_of(names: &[String], blocks: &[u32]) -> Vec<&'static str> {
    let blocks = blocks.as_chunks::<4>().0;
    let bits = |bit: usize| {
        let [available, _, active, never] = *blocks.get(bit / 32)?;
        let has = |word: u32| word >> (bit % 32) & 1 != 0;
        Some((has(available) && !has(never), has(active)))
    };
    let is_idle = |start: &str| {
        let of = names.iter().enumerate().filter(|(_, name)| name.starts_with(start));
        let states: Vec<_> = of.filter_map(|(bit, _)| bits(bit)).collect();
        states.iter().any(|(can, _)| *can) && states.iter().all(|(_, active)| !active)
    };
    WORK.into_iter().filter(|(start, _)| is_idle(start)).map(|(_, name)| name).collect()
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
    let (lro, gro, vlan) = (flag(FLAG_LRO), value(GRO).map(|value| value != 0), flag(FLAG_VLAN));
    Offloads { lro, gro, vlan, idle: idle(&socket, name).unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketType};

    use super::*;

    #[test]
    fn work_is_idle_if_it_can_be_on_and_is_off() {
        let names = ["tx-checksum-ipv4", "tx-checksum-ip-generic", "rx-checksum", "highdma"];
        let mut names = names.map(str::to_owned).to_vec();
        names.resize(32, String::new());
        names.extend(["tx-tcp-segmentation".into(), "tx-generic-segmentation".into()]);
        // Available, requested, active, never changed.
        let blocks = |first: [u32; 4], second: [u32; 4]| [first, second].concat();
        let found = idle_of(&names, &blocks([0b111, 0, 0b010, 0], [0b11, 0, 0, 0b10]));
        assert_eq!(found, ["rx", "tso"]);
        assert_eq!(idle_of(&names, &blocks([0b111, 0, 0, 0], [0b11, 0, 0b11, 0])), ["tx", "rx"]);
        assert_eq!(idle_of(&names, &[0b111]), [""; 0]);
    }

    #[test]
    fn the_kernel_names_its_features() {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        let names = feature_names(&socket, "lo").unwrap();
        assert!(names.iter().any(|name| name == "tx-tcp-segmentation"), "{names:?}");
        let _ = idle(&socket, "lo").unwrap();
        assert!(feature_names(&socket, "nowhere0").is_err());
    }
}
