//! A network interface as an output.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use arrayvec::ArrayVec;
use thalweg_packet::{BATCH, Batch, DropCounts, DropReason, Lanes};

use super::socket::{self, PacketSocket};
use super::{bind, failed, open, removed, set_buffer};
use crate::links::KnownMtu;
use crate::outgoing::Outgoing;
use crate::port::{IoError, Lost, Output, OutputFailure, PATIENCE, Shortfall};

/// Send buffer of the socket, in bytes.
const QUEUE: libc::c_int = 8 << 20;

/// Sends packets by a network interface; super-packets whole, for the interface or whoever receives
/// them to segment.
///
/// While the interface's queue is full the sender waits; after a second, packets are dropped, as
/// [`TransmitQueueFull`](DropReason::TransmitQueueFull), without further waiting until one is sent
/// again. Packets longer than the MTU are dropped as [`TooBig`](DropReason::TooBig), those that
/// the interface does not accept, for example because it is down, as
/// [`OutputFailed`](DropReason::OutputFailed), and those that are shorter than an Ethernet header
/// as [`Malformed`](DropReason::Malformed).
pub struct InterfaceOutput {
    name: String,
    socket: PacketSocket,
    /// The longest packet that the interface sends, from the network header on, in bytes.
    mtu: usize,
    /// The MTU of the interface as it is followed, by whatever name.
    known: Option<Arc<KnownMtu>>,
    /// Whether the queue was full for longer than packets wait.
    stuck: bool,
    /// The longest packet dropped because of the MTU, in bytes.
    longest: usize,
    /// Whether the warning that the interface accepts no packets was logged.
    told: bool,
}

impl InterfaceOutput {
    /// Opens the interface `name`.
    ///
    /// # Errors
    /// As [`InterfaceInput::open`](super::InterfaceInput::open).
    pub fn open(name: &str) -> Result<Self, IoError> {
        let (socket, index) = open(name)?;
        set_buffer(&socket, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, QUEUE);
        socket
            .set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1 as libc::c_int)
            .map_err(|e| failed(name, "cannot enable offload headers", &e))?;
        let mtu =
            socket::mtu(&socket, name).map_err(|e| failed(name, "cannot read its MTU", &e))?;
        bind(&socket, name, index, false)?;
        Ok(Self {
            name: name.to_owned(),
            socket,
            mtu,
            known: None,
            stuck: false,
            longest: 0,
            told: false,
        })
    }

    /// This output with the MTU of its interface as it is followed.
    pub(super) fn with_mtu(self, known: Arc<KnownMtu>) -> Self {
        Self { known: Some(known), ..self }
    }

    /// As [`open`](Self::open), but with this many queues: the packets of each are sent by a socket of its
    /// own.
    ///
    /// # Errors
    /// As `open`.
    pub fn open_queues(name: &str, queues: usize) -> Result<Vec<Self>, IoError> {
        (0..queues.max(1)).map(|_| Self::open(name)).collect()
    }

    /// How packets are sent by these queues, in a few words.
    pub(crate) fn mode(queues: &[Self]) -> String {
        match queues.len() {
            1 => "packet socket, sendmmsg".into(),
            queues => format!("{queues} packet sockets, sendmmsg"),
        }
    }

    /// Returns the reason for dropping a packet that the interface did not accept; `None` to try
    /// again.
    fn refused(
        &mut self,
        error: &io::Error,
        since: Instant,
    ) -> Result<Option<DropReason>, IoError> {
        match error.raw_os_error() {
            Some(libc::EINTR) => Ok(None),
            Some(libc::EAGAIN | libc::ENOBUFS) => {
                let left = PATIENCE.saturating_sub(since.elapsed());
                self.stuck |= left.is_zero();
                if self.stuck {
                    return Ok(Some(DropReason::TransmitQueueFull));
                }
                // If a queue after the socket's is full, this returns at once.
                self.socket.wait_for_room(left);
                std::thread::yield_now();
                Ok(None)
            }
            Some(libc::EMSGSIZE) => Ok(Some(DropReason::TooBig)),
            Some(libc::ENXIO | libc::ENODEV) if !self.socket.has_interface() => {
                Err(removed(&self.name))
            }
            Some(libc::ENXIO | libc::ENODEV) => Err(failed(&self.name, "cannot send", error)),
            _ => {
                if !std::mem::replace(&mut self.told, true) {
                    log::warn!("interface {} accepts no packets: {error}", self.name);
                }
                Ok(Some(DropReason::OutputFailed))
            }
        }
    }
}

impl Output for InterfaceOutput {
    fn send(
        &mut self,
        batch: &Batch,
        lanes: Lanes,
        drops: &mut DropCounts,
    ) -> Result<Lanes, OutputFailure> {
        let mut packets = ArrayVec::<Outgoing<'_>, BATCH>::new();
        for lane in lanes.and(batch.lanes()) {
            match Outgoing::of(batch, lane, self.mtu) {
                Ok(packet) => packets.push(packet),
                Err(reason) => drops.add(reason, 1),
            }
        }
        let (mut sent, mut next, mut since) = (Lanes::NONE, 0, None);
        while next < packets.len() {
            match self.socket.send(packets[next..].iter().map(Outgoing::pieces)) {
                Ok(count) => {
                    packets[next..].iter().take(count).for_each(|packet| sent.insert(packet.lane));
                    next += count;
                    (self.stuck, since) = (false, None);
                }
                Err(error) => {
                    let since = *since.get_or_insert_with(Instant::now);
                    match self.refused(&error, since) {
                        Ok(None) => {}
                        Ok(Some(reason)) => {
                            drops.add(reason, 1);
                            if reason == DropReason::TooBig {
                                self.longest = self.longest.max(packets[next].bytes.len());
                            }
                            next += 1;
                        }
                        Err(error) => {
                            let left = (packets.len() - next) as u64;
                            drops.add(DropReason::OutputFailed, left);
                            return Err(OutputFailure { error, sent, lost: Lost::default() });
                        }
                    }
                }
            }
        }
        Ok(sent)
    }

    fn takes_supers(&self) -> bool {
        true
    }

    fn flush(&mut self) -> Result<(), OutputFailure> {
        Ok(())
    }

    fn shortfall(&self) -> Shortfall {
        Shortfall { longest: self.longest, ..Shortfall::default() }
    }

    fn copied(&self) -> Option<u64> {
        Some(0)
    }

    fn check(&mut self) -> Result<(), IoError> {
        if !self.socket.has_interface() {
            return Err(removed(&self.name));
        }
        let known = self.known.as_ref().and_then(|known| known.get());
        // By its name, which another interface may have by now.
        let read = || socket::mtu(&self.socket, &self.name).ok();
        self.mtu = known.or_else(read).unwrap_or(self.mtu);
        Ok(())
    }
}
