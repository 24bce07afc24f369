//! Writes the blocks of a pcapng file
//! (<https://www.ietf.org/archive/id/draft-ietf-opsawg-pcapng-03.html>).

use thalweg_packet::Nanoseconds;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

const LINK_ETHERNET: u32 = 1;

const END_OF_OPTIONS: u16 = 0;
const COMMENT: u16 = 1;
const USER_APPLICATION: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const TIME_RESOLUTION: u16 = 9;
const PACKETS_DROPPED_BEFORE: u16 = 4;
const DROPPED_BY_SYSTEM: u16 = 7;

/// The most bytes of an option; a longer comment is truncated.
const MAX_OPTION: usize = u16::MAX as usize;

/// A section header that names the writing application.
pub(super) fn section(out: &mut Vec<u8>) {
    block(out, SECTION_HEADER, |out| {
        words(out, &[0x1a2b_3c4d]);
        out.extend_from_slice(&[1, 0, 0, 0]); // version 1.0
        out.extend_from_slice(&[0xff; 8]); // of unknown length
        option(out, USER_APPLICATION, b"thalweg");
        option(out, END_OF_OPTIONS, &[]);
    });
}

/// An Ethernet interface that counts nanoseconds, with a name if it has one.
pub(super) fn interface(out: &mut Vec<u8>, name: Option<&str>) {
    block(out, INTERFACE_DESCRIPTION, |out| {
        words(out, &[LINK_ETHERNET, 0]); // no snap length
        if let Some(name) = name {
            option(out, INTERFACE_NAME, name.as_bytes());
        }
        option(out, TIME_RESOLUTION, &[9]);
        option(out, END_OF_OPTIONS, &[]);
    });
}

/// A packet of an interface, and what is written with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet<'a> {
    pub(super) interface: u32,
    pub(super) time: Nanoseconds,
    pub(super) bytes: &'a [u8],
    pub(super) wire_len: u32,
    /// Empty for none.
    pub(super) comment: &'a str,
    /// Packets before it that are not in the file.
    pub(super) missing: u64,
}

pub(super) fn packet(out: &mut Vec<u8>, packet: Packet<'_>) {
    let Packet { interface, time, bytes, wire_len, comment, missing } = packet;
    block(out, ENHANCED_PACKET, |out| {
        let [high, low] = halves(time);
        words(out, &[interface, high, low, bytes.len() as u32, wire_len]);
        padded(out, bytes);
        if !comment.is_empty() {
            option(out, COMMENT, comment.as_bytes());
        }
        if missing > 0 {
            option(out, PACKETS_DROPPED_BEFORE, &missing.to_le_bytes());
        }
        if !comment.is_empty() || missing > 0 {
            option(out, END_OF_OPTIONS, &[]);
        }
    });
}

/// The bytes of a packet's block before those of the packet, which has `len` and no more than itself in the block.
pub(super) fn before_packet(out: &mut Vec<u8>, time: Nanoseconds, len: usize, wire_len: u32) {
    let [high, low] = halves(time);
    words(out, &[ENHANCED_PACKET, whole(len), 0, high, low, len as u32, wire_len]);
}

/// The bytes of that block after it.
pub(super) fn after_packet(out: &mut Vec<u8>, len: usize) {
    out.extend_from_slice(&[0; 3][..len.next_multiple_of(4) - len]);
    words(out, &[whole(len)]);
}

/// The bytes of that block.
fn whole(len: usize) -> u32 {
    32 + len.next_multiple_of(4) as u32
}

/// How many packets are not in the file, with a comment.
pub(super) fn statistics(
    out: &mut Vec<u8>,
    interface: u32,
    time: Nanoseconds,
    missing: u64,
    comment: &str,
) {
    block(out, INTERFACE_STATISTICS, |out| {
        let [high, low] = halves(time);
        words(out, &[interface, high, low]);
        option(out, COMMENT, comment.as_bytes());
        option(out, DROPPED_BY_SYSTEM, &missing.to_le_bytes());
        option(out, END_OF_OPTIONS, &[]);
    });
}

fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    words(out, &[kind, 0]);
    body(out);
    let total = (out.len() - start + 4) as u32;
    words(out, &[total]);
    out[start + 4..start + 8].copy_from_slice(&total.to_le_bytes());
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(MAX_OPTION)];
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    padded(out, value);
}

/// Writes bytes, and zeros up to a multiple of four.
fn padded(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
    let padding = bytes.len().next_multiple_of(4) - bytes.len();
    out.extend_from_slice(&[0; 3][..padding]);
}

fn words(out: &mut Vec<u8>, words: &[u32]) {
    words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
}

fn halves(time: Nanoseconds) -> [u32; 2] {
    [(time.0 >> 32) as u32, time.0 as u32]
}
