//! Turns the kernel's packets into packets as they would be on a wire.

use thalweg_packet::{Batch, DropCounts, DropReason, Nanoseconds};

use super::ring::{OFFLOAD, Slot};
use super::socket::PacketSocket;
use crate::intake::{Arrival, Intake, Taken, count};
use crate::offload::{Offload, Segments};
use crate::port::{Received, Shortfall};

/// The longest packet that is read from the socket, in bytes.
pub(super) const LONG: usize = 1 << 17;

/// The destination of packets that are taken in.
pub(super) struct Sink<'a> {
    /// The batch, which has an empty lane.
    pub(super) batch: &'a mut Batch,
    pub(super) drops: &'a mut DropCounts,
    pub(super) received: &'a mut Received,
}

impl Sink<'_> {
    fn lose(&mut self, reason: DropReason, wire_len: u32) {
        self.drops.add(reason, 1);
        count(self.received, wire_len);
    }
}

/// Takes in packets of the ring, of the socket, and long ones.
#[derive(Default)]
pub(super) struct Arrivals {
    intake: Intake,
    /// A packet that becomes several, or does not fit in the ring.
    long: Option<Long>,
}

/// A packet, and the segments that follow from the same long one.
struct Long {
    packet: Vec<u8>,
    more: Option<Segments>,
    vlan: Option<Tag>,
    timestamp: Nanoseconds,
}

/// A VLAN tag's identifier and control information.
type Tag = (u16, u16);

impl Arrivals {
    /// What kept packets from being taken in.
    pub(super) fn shortfall(&self) -> Shortfall {
        self.intake.shortfall()
    }

    /// Whether segments are left for [`take_cut`](Self::take_cut), which come first.
    pub(super) fn is_cutting(&self) -> bool {
        self.long.is_some()
    }

    /// Takes in a packet of the ring.
    pub(super) fn take(
        &mut self,
        socket: &PacketSocket,
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
        let whole = if slot.elsewhere {
            receive(socket)
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
    pub(super) fn take_cut(&mut self, sink: &mut Sink<'_>) -> Taken {
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
        let mut more = offload.segments(bytes)?;
        let mut packet = Vec::new();
        more.next(&mut packet).then_some(Self { packet, more: Some(more), vlan, timestamp })
    }
}

/// Reads the packet that waits in the socket; the ring had its offload header.
fn receive(socket: &PacketSocket) -> Option<Vec<u8>> {
    let mut bytes = vec![0; OFFLOAD + LONG];
    let len = socket.receive(&mut bytes).ok()?;
    bytes.truncate(len);
    bytes.drain(..OFFLOAD.min(len));
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
        const ADDRESSES: usize = 12;
        let mut header = [0; ADDRESSES + 4];
        let tagged = match (vlan, arrival.rest.split_first_chunk::<ADDRESSES>()) {
            (Some((identifier, control)), Some((addresses, rest))) => {
                header[..ADDRESSES].copy_from_slice(addresses);
                header[ADDRESSES..][..2].copy_from_slice(&identifier.to_be_bytes());
                header[ADDRESSES + 2..].copy_from_slice(&control.to_be_bytes());
                Arrival { header: &header, rest, wire_len: arrival.wire_len + 4, ..arrival }
            }
            _ => arrival,
        };
        self.take(tagged, sink.batch, sink.drops, sink.received)
    }
}
