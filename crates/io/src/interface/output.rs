//! A network interface as an output.

use std::io;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use thalweg_packet::wire::header_len;
use thalweg_packet::{BATCH, Batch, DropCounts, DropReason, Lanes};

use super::socket::PacketSocket;
use super::{bind, failed, open, removed, set_buffer};
use crate::port::{IoError, Lost, Output, OutputFailure, Shortfall};

/// The longest wait for room in the interface's queue.
const PATIENCE: Duration = Duration::from_secs(1);
/// Send buffer of the socket, in bytes.
const QUEUE: libc::c_int = 8 << 20;

/// Sends packets by a network interface.
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
        bind(&socket, name, index, false)?;
        Ok(Self { name: name.to_owned(), socket, stuck: false, longest: 0, told: false })
    }

    /// How packets are sent, in a few words.
    #[expect(clippy::unused_self, reason = "the mode is that of an open output")]
    pub(crate) fn mode(&self) -> String {
        "packet socket, sendmmsg".into()
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
        let there = lanes.and(batch.lanes());
        let whole =
            there.into_iter().filter(|lane| batch.packet_len(*lane) >= header_len::ETHERNET);
        let lanes: ArrayVec<usize, BATCH> = whole.collect();
        drops.add(DropReason::Malformed, (there.count() - lanes.len()) as u64);
        let packets: ArrayVec<&[u8], BATCH> = lanes.iter().map(|lane| batch.bytes(*lane)).collect();
        let (mut sent, mut next, mut since) = (Lanes::NONE, 0, None);
        while next < packets.len() {
            match self.socket.send(&packets[next..]) {
                Ok(count) => {
                    lanes[next..].iter().take(count).for_each(|lane| sent.insert(*lane));
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
                                self.longest = self.longest.max(packets[next].len());
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

    fn flush(&mut self) -> Result<(), OutputFailure> {
        Ok(())
    }

    fn shortfall(&self) -> Shortfall {
        Shortfall { longest: self.longest, ..Shortfall::default() }
    }

    fn check(&mut self) -> Result<(), IoError> {
        if self.socket.has_interface() { Ok(()) } else { Err(removed(&self.name)) }
    }
}
