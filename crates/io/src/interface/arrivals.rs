//! Turns the kernel's packets into packets as they would be on a wire.

use thalweg_packet::wire::ip_proto::{GRE, UDP};
use thalweg_packet::{
    Batch, Decapsulate, DropCounts, DropReason, Lanes, Nanoseconds, PortIndex, Segments, parse,
};

use super::ring::Slot;
use super::socket::PacketSocket;
use crate::intake::{Arrival, Intake, Taken, count};
use crate::offload::{HEADER as OFFLOAD, Offload};
use crate::port::{Received, Shortfall};

/// The longest packet that is read from the socket, in bytes.
pub(super) const LONG: usize = 1 << 17;
/// The length of both MAC addresses, in bytes.
const ADDRESSES: usize = 12;
/// The length of a VLAN tag, in bytes.
const TAG: usize = 4;

/// The destination of packets that are taken in.
pub(crate) struct Sink<'a> {
    /// The batch, which has an empty lane.
    pub(crate) batch: &'a mut Batch,
    pub(crate) drops: &'a mut DropCounts,
    pub(crate) received: &'a mut Received,
}

impl Sink<'_> {
    pub(crate) fn lose(&mut self, reason: DropReason, wire_len: u32) {
        self.drops.add(reason, 1);
        count(self.received, wire_len);
    }
}

/// Takes in packets of the ring, of the socket, and long ones.
#[derive(Default)]
pub(crate) struct Arrivals {
    intake: Intake,
    /// Super-packets that were copied out of the ring.
    supers: u64,
    /// A packet that becomes several, or does not fit in the ring.
    long: Option<Long>,
}

/// A packet, and the segments that follow from the same long one.
struct Long {
    packet: Vec<u8>,
    more: Option<Uncut>,
    vlan: Option<Tag>,
    timestamp: Nanoseconds,
}

/// A long packet that is being segmented.
struct Uncut {
    bytes: Vec<u8>,
    segments: Segments,
}

/// A VLAN tag's identifier and control information.
type Tag = (u16, u16);

impl Arrivals {
    /// What kept packets from being taken in.
    pub(crate) fn shortfall(&self) -> Shortfall {
        self.intake.shortfall()
    }

    /// The packets that were copied into packet memory.
    pub(crate) fn copied(&self) -> u64 {
        self.intake.taken() + self.supers
    }

    /// Whether segments are left for [`take_cut`](Self::take_cut), which come first.
    pub(crate) fn is_cutting(&self) -> bool {
        self.long.is_some()
    }

    /// Takes in a packet of the ring of `socket`, or of another place that holds it whole.
    pub(crate) fn take(
        &mut self,
        socket: Option<&PacketSocket>,
        slot: Slot<'_>,
        sink: &mut Sink<'_>,
    ) -> Taken {
        if slot.outgoing {
            return Taken::Settled;
        }
        let offload = Offload::read(slot.offload);
        if !slot.long && !offload.cuts() {
            offload.complete(slot.bytes);
            let arrival = Arrival {
                header: &[],
                rest: slot.bytes,
                wire_len: slot.wire_len,
                timestamp: slot.timestamp,
            };
            return self.intake.take_tagged(arrival, slot.vlan, sink);
        }
        if offload.cuts() && take_whole(socket, &slot, offload, sink) {
            self.supers += u64::from(!slot.elsewhere);
            return Taken::Settled;
        }
        let whole = if slot.elsewhere {
            socket.and_then(receive)
        } else {
            (!slot.long).then(|| slot.bytes.to_vec())
        };
        if let Some(bytes) = whole {
            self.long = Long::new(bytes, offload, slot.vlan, slot.timestamp);
            if self.long.is_none() {
                sink.lose(DropReason::FrameTooSmall, slot.wire_len);
            }
        } else {
            sink.lose(DropReason::ReceiveRingFull, slot.wire_len);
        }
        Taken::Settled
    }

    /// Takes in the next segment of a long packet.
    pub(crate) fn take_cut(&mut self, sink: &mut Sink<'_>) -> Taken {
        let Some(long) = &mut self.long else { return Taken::Settled };
        let arrival = Arrival {
            header: &[],
            rest: &long.packet,
            wire_len: long.packet.len() as u32,
            timestamp: long.timestamp,
        };
        let taken = self.intake.take_tagged(arrival, long.vlan, sink);
        if taken == Taken::Settled {
            let more = long.more.as_mut().is_some_and(|more| more.next(&mut long.packet));
            self.long.take_if(|_| !more);
        }
        taken
    }
}

impl Long {
    /// Returns `None` if the packet needs segmentation and cannot be segmented.
    fn new(
        mut bytes: Vec<u8>,
        offload: Offload,
        vlan: Option<Tag>,
        timestamp: Nanoseconds,
    ) -> Option<Self> {
        if !offload.cuts() {
            offload.complete(&mut bytes);
            return Some(Self { packet: bytes, more: None, vlan, timestamp });
        }
        let segments = offload.segments(&bytes)?;
        let (mut packet, mut more) = (Vec::new(), Uncut { bytes, segments });
        more.next(&mut packet).then_some(Self { packet, more: Some(more), vlan, timestamp })
    }
}

impl Uncut {
    /// Writes the next segment to `packet`, replacing its content; returns whether there is one.
    fn next(&mut self, packet: &mut Vec<u8>) -> bool {
        let Some(len) = self.segments.next_len() else { return false };
        packet.resize(len, 0);
        self.segments.write_next(&self.bytes, packet);
        true
    }
}

/// Takes in a packet that needs segmentation as a super-packet, or drops one that cannot be segmented.
/// Returns `false` if it has to be segmented here: without a large frame that is free and large enough,
/// or if routers may fragment its segments.
fn take_whole(
    socket: Option<&PacketSocket>,
    slot: &Slot<'_>,
    offload: Offload,
    sink: &mut Sink<'_>,
) -> bool {
    let Sink { batch, drops, received } = sink;
    let (len, tag) = (slot.wire_len as usize, slot.vlan.map_or(0, |_| TAG));
    let is_there = slot.elsewhere || !slot.long;
    if batch.pool().large_frames() == 0 || !is_there || may_be_fragmented(slot.bytes, offload) {
        return false;
    }
    let Some(lane) = batch.push_super(len + tag, 1) else { return false };
    let place = &mut batch.bytes_mut(lane)[tag..];
    let there = if slot.elsewhere {
        socket.is_some_and(|socket| {
            socket.receive(&mut [0; OFFLOAD], place).is_ok_and(|there| there == len)
        })
    } else {
        place.copy_from_slice(slot.bytes);
        true
    };
    let form = if there { offload.division(place) } else { None };
    // Without its segment size it cannot be sent by anyone.
    let Some(form) = form else {
        batch.release(Lanes::one(lane));
        drops.add(DropReason::FrameTooSmall, 1);
        count(received, slot.wire_len);
        return true;
    };
    if let Some(vlan) = slot.vlan {
        put_tag(batch.bytes_mut(lane), vlan);
    }
    form.set(&mut batch.meta, lane);
    batch.meta.timestamp[lane] = slot.timestamp;
    count(received, (len + tag) as u32);
    true
}

/// Whether a packet, of which the first bytes are here, is UDP that routers may fragment, alone or in a
/// tunnel: only its segments can be. Segments of TCP can be smaller instead.
pub(crate) fn may_be_fragmented(bytes: &[u8], offload: Offload) -> bool {
    const DONT_FRAGMENT: u8 = 0x40;
    if offload.is_tcp() {
        return false;
    }
    let (_, headers) = parse(bytes, PortIndex::NONE, Decapsulate::No);
    let flags = bytes.get(usize::from(headers.l3) + 6).copied().unwrap_or_default();
    let is_datagram = matches!(headers.ip_proto, UDP | GRE);
    headers.is_ipv4() && is_datagram && flags & DONT_FRAGMENT == 0
}

/// Moves the addresses before the room that was left for a VLAN tag, and writes the tag.
fn put_tag(packet: &mut [u8], (identifier, control): Tag) {
    if packet.len() >= ADDRESSES + TAG {
        packet.copy_within(TAG..TAG + ADDRESSES, 0);
        packet[ADDRESSES..][..2].copy_from_slice(&identifier.to_be_bytes());
        packet[ADDRESSES + 2..][..2].copy_from_slice(&control.to_be_bytes());
    }
}

/// Reads the packet that waits in the socket; the ring had its offload header.
fn receive(socket: &PacketSocket) -> Option<Vec<u8>> {
    let mut bytes = vec![0; LONG];
    let len = socket.receive(&mut [0; OFFLOAD], &mut bytes).ok()?;
    bytes.truncate(len);
    Some(bytes)
}

impl Intake {
    /// Takes in an arrival without header, with its VLAN tag restored.
    fn take_tagged(
        &mut self,
        arrival: Arrival<'_>,
        vlan: Option<Tag>,
        sink: &mut Sink<'_>,
    ) -> Taken {
        let mut header = [0; ADDRESSES + TAG];
        let tagged = match (vlan, arrival.rest.split_first_chunk::<ADDRESSES>()) {
            (Some((identifier, control)), Some((addresses, rest))) => {
                header[..ADDRESSES].copy_from_slice(addresses);
                header[ADDRESSES..][..2].copy_from_slice(&identifier.to_be_bytes());
                header[ADDRESSES + 2..].copy_from_slice(&control.to_be_bytes());
                Arrival {
                    header: &header,
                    rest,
                    wire_len: arrival.wire_len + TAG as u32,
                    ..arrival
                }
            }
            _ => arrival,
        };
        self.take(tagged, sink.batch, sink.drops, sink.received)
    }
}
