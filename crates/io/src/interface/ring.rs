//! The ring in which the kernel leaves packets (TPACKET_V2 of packet(7)).
//!
//! Version 2 rather than 3: each packet is available as soon as it arrives, while version 3
//! delivers blocks of packets when they are full or after a millisecond or more.
//!
//! `unsafe` here: memory shared with the kernel. The first word of each slot holds whether the
//! slot belongs to the kernel or to us.
#![allow(unsafe_code)]

use std::io;
use std::mem::size_of;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{c_int, sockaddr_ll, tpacket2_hdr};
use memmap2::{MmapOptions, MmapRaw};
use thalweg_packet::Nanoseconds;
use thalweg_packet::wire::ethertype;

use super::socket::PacketSocket;
use crate::offload::HEADER as OFFLOAD;

/// The size of the rings of an interface together, in bytes.
const RINGS: usize = 16 << 20;
/// The size of a ring, at least, in bytes.
const LEAST: usize = 4 << 20;
/// The size of the kernel's allocations, in bytes; much larger ones may fail.
const BLOCK: usize = 1 << 17;
/// The most bytes of a slot before its packet: headers, and twice up to 16 for alignment.
const BEFORE: usize = 160;

/// A ring of packets that the kernel fills.
pub(super) struct Ring {
    map: MmapRaw,
    /// Its size, in bytes.
    size: usize,
    /// Bytes of a slot, a power of two.
    slot: usize,
    /// The offset of the slot of the next packet, in bytes.
    at: usize,
}

/// A packet that was received from the kernel, in the ring or elsewhere.
pub(crate) struct Slot<'a> {
    /// The work that was left to hardware (`struct virtio_net_hdr`).
    pub(crate) offload: [u8; OFFLOAD],
    /// The packet, without its outer VLAN tag; all of it unless it is `long`.
    pub(crate) bytes: &'a mut [u8],
    /// The tag: identifier and control information.
    pub(crate) vlan: Option<(u16, u16)>,
    pub(crate) wire_len: u32,
    pub(crate) timestamp: Nanoseconds,
    /// Whether the host itself sent it.
    pub(crate) outgoing: bool,
    /// Whether it did not fit in the slot.
    pub(crate) long: bool,
    /// Whether the socket holds the whole packet.
    pub(crate) elsewhere: bool,
    /// Whether packets were lost before it.
    pub(crate) losing: bool,
}

impl Ring {
    /// Creates a ring for packets of `packet` bytes, one of `rings` of an interface. The socket must not
    /// be bound yet.
    pub(super) fn new(socket: &PacketSocket, packet: usize, rings: usize) -> io::Result<Self> {
        let size = (RINGS / rings.next_power_of_two()).max(LEAST);
        let slot = (packet + BEFORE).next_power_of_two().clamp(2048, BLOCK);
        socket.set(
            libc::SOL_PACKET,
            libc::PACKET_VERSION,
            libc::tpacket_versions::TPACKET_V2 as c_int,
        )?;
        let request = libc::tpacket_req {
            tp_block_size: BLOCK as u32,
            tp_block_nr: (size / BLOCK) as u32,
            tp_frame_size: slot as u32,
            tp_frame_nr: (size / slot) as u32,
        };
        socket.set(libc::SOL_PACKET, libc::PACKET_RX_RING, request)?;
        let map = MmapOptions::new().len(size).map_raw(socket.raw())?;
        Ok(Self { map, size, slot, at: 0 })
    }

    /// What it is, in a few words.
    pub(super) fn describe(&self) -> String {
        format!("TPACKET_V2 ring with {} slots", self.size / self.slot)
    }

    /// The start of the next packet's slot.
    fn place(&self) -> *mut u8 {
        self.map.as_mut_ptr().wrapping_add(self.at)
    }

    fn status(&self) -> &AtomicU32 {
        // SAFETY: a slot begins with its status, which the kernel and we change as atomic words; it
        // is aligned as slots are, and lives as long as the map.
        unsafe { AtomicU32::from_ptr(self.place().cast()) }
    }

    /// The next packet, if one has arrived; [`pop`](Self::pop) gives its slot back.
    pub(super) fn front(&mut self) -> Option<Slot<'_>> {
        let status = self.status().load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the slot is in the map, and ours until the status is given back, which takes
        // `self` again.
        let slot = unsafe { std::slice::from_raw_parts_mut(self.place(), self.slot) };
        let (head, rest) = slot.split_at_mut(size_of::<tpacket2_hdr>());
        // SAFETY: `head` has the length of the header, for which all bytes are values.
        let header: tpacket2_hdr = unsafe { head.as_ptr().cast::<tpacket2_hdr>().read_unaligned() };
        // SAFETY: likewise (the first is aligned to 16 bytes, and needs no padding for that).
        let address: sockaddr_ll = unsafe { rest.as_ptr().cast::<sockaddr_ll>().read_unaligned() };
        // Bounded by the slot, whatever the kernel wrote.
        let start =
            (usize::from(header.tp_mac).saturating_sub(head.len())).clamp(OFFLOAD, rest.len());
        let (before, bytes) = rest.split_at_mut(start);
        let len = (header.tp_snaplen as usize).min(bytes.len());
        let has = |flag| status & flag != 0;
        let tpid = if has(libc::TP_STATUS_VLAN_TPID_VALID) {
            header.tp_vlan_tpid
        } else {
            ethertype::VLAN
        };
        let mut offload = [0; OFFLOAD];
        offload.copy_from_slice(&before[start - OFFLOAD..]);
        Some(Slot {
            offload,
            bytes: &mut bytes[..len],
            vlan: has(libc::TP_STATUS_VLAN_VALID).then_some((tpid, header.tp_vlan_tci)),
            wire_len: header.tp_len,
            timestamp: Nanoseconds(
                u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec),
            ),
            outgoing: address.sll_pkttype == libc::PACKET_OUTGOING,
            long: header.tp_snaplen < header.tp_len,
            elsewhere: has(libc::TP_STATUS_COPY),
            losing: has(libc::TP_STATUS_LOSING),
        })
    }

    /// Gives the slot of the front packet back to the kernel.
    pub(super) fn pop(&mut self) {
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.at = (self.at + self.slot) % self.size;
    }
}
