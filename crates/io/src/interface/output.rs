//! A network interface as an output.

use std::io;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use thalweg_packet::{BATCH, Batch, DropCounts, DropReason, Lanes};

use super::socket::PacketSocket;
use super::{bind, failed, open};
use crate::port::{IoError, Output};

/// How long packets wait for room in the interface's queue.
const PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of the shortest packet that an interface takes.
const ETHERNET: usize = 14;
/// Bytes of packets that the kernel keeps for the interface.
const QUEUE: libc::c_int = 8 << 20;

/// Sends packets by a network interface.
///
/// While the interface's queue is full the sender waits; when that has taken a second, packets
/// are lost, as [`TransmitQueueFull`](DropReason::TransmitQueueFull), without further waiting
/// until the first gets through again. Packets longer than the MTU are lost as
/// [`TooBig`](DropReason::TooBig), those that the interface takes not at all, because it is down
/// for one, as [`OutputFailed`](DropReason::OutputFailed), and those that are shorter than an
/// Ethernet header as [`Malformed`](DropReason::Malformed).
pub struct InterfaceOutput {
    name: String,
    socket: PacketSocket,
    /// Whether the queue was full for longer than packets wait.
    stuck: bool,
    /// Whether it has been told that the interface takes no packets.
    told: bool,
}

impl InterfaceOutput {
    /// Opens the interface `name`.
    ///
    /// # Errors
    /// As [`InterfaceInput::open`](super::InterfaceInput::open).
    pub fn open(name: &str) -> Result<Self, IoError> {
        let (socket, index) = open(name)?;
        // Without the right to so much it is as much as everybody gets.
        let _ = socket.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, QUEUE);
        bind(&socket, name, index, false)?;
        Ok(Self { name: name.to_owned(), socket, stuck: false, told: false })
    }

    /// Why the interface did not take a packet, which is lost; `None` when it is to be tried
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
                // A queue behind the socket's is not waited for: then this returns at once.
                self.socket.wait_for_room(left);
                std::thread::yield_now();
                Ok(None)
            }
            Some(libc::EMSGSIZE) => Ok(Some(DropReason::TooBig)),
            Some(libc::ENXIO | libc::ENODEV) => Err(failed(&self.name, "cannot send", error)),
            _ => {
                if !std::mem::replace(&mut self.told, true) {
                    log::warn!("interface {} takes no packets: {error}", self.name);
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
    ) -> Result<Lanes, IoError> {
        let there = lanes.and(batch.lanes());
        let whole = there.into_iter().filter(|lane| batch.packet_len(*lane) >= ETHERNET);
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
                            next += 1;
                        }
                        Err(failure) if next == 0 && lanes.len() == there.count() => {
                            return Err(failure);
                        }
                        // The next call tells.
                        Err(_) => {
                            let left = (packets.len() - next) as u64;
                            drops.add(DropReason::OutputFailed, left);
                            return Ok(sent);
                        }
                    }
                }
            }
        }
        Ok(sent)
    }

    fn flush(&mut self) -> Result<(), IoError> {
        Ok(())
    }
}
