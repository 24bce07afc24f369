//! A network interface as an input.

use std::os::fd::{AsFd, BorrowedFd};

use thalweg_packet::{Batch, DropCounts, DropReason};

use super::arrivals::{Arrivals, LONG, Sink};
use super::ring::Ring;
use super::socket::{self, PacketSocket};
use super::{bind, failed, gone, open};
use crate::intake::Taken;
use crate::port::{Input, IoError, Received};

/// Bytes of packets too long for the ring that the socket keeps.
const KEPT: usize = 256 * LONG;

/// Receives all packets of a network interface, but those that the host itself sends.
///
/// Packets wait in a ring of 16 MiB that the kernel fills (slots of 2 KiB for an MTU of up to
/// some 1800 bytes). What finds no room is lost, as
/// [`ReceiveRingFull`](DropReason::ReceiveRingFull). The outermost VLAN tag is put back where the
/// kernel took it off, and what the sender's kernel left to hardware is done: see
/// [`offload`](crate::offload). Each packet has the time at which the kernel saw it.
pub struct InterfaceInput {
    name: String,
    index: i32,
    socket: PacketSocket,
    ring: Ring,
    arrivals: Arrivals,
    /// Whether packets came since the kernel was asked how many it lost.
    unasked: bool,
    /// Whether it went down, and no packets came since.
    down: bool,
    ended: bool,
}

impl InterfaceInput {
    /// Opens the interface `name`; if `promiscuous`, for packets to any MAC address.
    ///
    /// # Errors
    /// [`IoError::Interface`] when there is none of that name, it is not of Ethernet, or the
    /// system does not allow it.
    pub fn open(name: &str, promiscuous: bool) -> Result<Self, IoError> {
        let (socket, index) = open(name)?;
        let set = |level, option, value: usize| socket.set(level, option, value as libc::c_int);
        let failed = |what, e: std::io::Error| failed(name, what, &e);
        set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)
            .map_err(|e| failed("it does not tell of offloads", e))?;
        set(libc::SOL_PACKET, libc::PACKET_COPY_THRESH, 1)
            .map_err(|e| failed("it does not keep long packets", e))?;
        // Without the right to so much it is as much as everybody gets.
        let _ = set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, KEPT);
        // Since Linux 4.20. Before, each comes here and is left out.
        let _ = set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1);
        let mtu = socket::mtu(&socket, name).map_err(|e| failed("it tells no MTU", e))?;
        let ring = Ring::new(&socket, mtu).map_err(|e| failed("there is no ring for it", e))?;
        bind(&socket, name, index, true)?;
        if promiscuous {
            socket.hear_all(index).map_err(|e| failed("it does not become promiscuous", e))?;
        }
        Ok(Self {
            name: name.to_owned(),
            index,
            socket,
            ring,
            arrivals: Arrivals::default(),
            unasked: false,
            down: false,
            ended: false,
        })
    }

    /// Counts what the kernel had no room for.
    fn count_missed(&mut self, drops: &mut DropCounts, received: &mut Received) {
        let missed = self.socket.missed();
        drops.add(DropReason::ReceiveRingFull, missed);
        received.packets += missed as usize;
        self.unasked = false;
    }

    /// Looks after an interface without packets: one that is down may come up again, one that is
    /// gone will not. It goes down before it is gone, and the kernel tells only the first.
    fn check(&mut self) -> Result<(), IoError> {
        let error = self.socket.take_error();
        self.down |= error.is_some();
        if self.down && !socket::exists(self.index) {
            self.ended = true;
            return Err(gone(&self.name));
        }
        if let Some(error) = error {
            log::warn!("interface {}: {error}", self.name);
        }
        Ok(())
    }
}

impl Input for InterfaceInput {
    fn receive(
        &mut self,
        batch: &mut Batch,
        most: usize,
        drops: &mut DropCounts,
    ) -> Result<Received, IoError> {
        let mut received = Received { packets: 0, bytes: 0, ended: self.ended };
        let (mut losing, mut empty) = (false, false);
        while received.packets < most && !batch.is_full() && !empty {
            let sink = &mut Sink { batch, drops, received: &mut received };
            if self.arrivals.is_cutting() {
                if self.arrivals.take_cut(sink) == Taken::Later {
                    break;
                }
            } else if let Some(slot) = self.ring.front() {
                losing |= slot.losing;
                if self.arrivals.take(&self.socket, slot, sink) == Taken::Later {
                    break;
                }
                self.ring.pop();
                (self.unasked, self.down) = (true, false);
            } else {
                empty = true;
            }
        }
        if losing || empty && self.unasked {
            self.count_missed(drops, &mut received);
        }
        if received.packets == 0 && empty && !self.ended {
            self.check()?;
        }
        Ok(received)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}
