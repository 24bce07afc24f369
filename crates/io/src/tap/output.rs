//! A TAP device as an output.

use std::io::{self, IoSlice};
use std::sync::Arc;

use arrayvec::ArrayVec;
use thalweg_packet::{Batch, DropCounts, DropReason, Lanes};

use super::device::{Lease, TapSettings};
use super::queue::Queue;
use crate::interface::removed;
use crate::links::KnownMtu;
use crate::outgoing::Outgoing;
use crate::port::{IoError, Lost, Output, OutputFailure, Shortfall};

/// The MTU of a device of which it is unknown, in bytes.
const MTU: usize = 1500;

/// Sends packets to the host by a TAP device, super-packets whole. It is one queue of several.
///
/// Packets longer than the MTU are dropped as [`TooBig`](DropReason::TooBig), those that the device
/// does not accept, for example because it is down, as [`OutputFailed`](DropReason::OutputFailed), and
/// those that are shorter than an Ethernet header as [`Malformed`](DropReason::Malformed).
pub(super) struct TapOutput {
    lease: Arc<Lease>,
    queue: Arc<Queue>,
    /// The longest packet that the device sends, from the network header on, in bytes.
    mtu: usize,
    /// The MTU of the device as it is followed, by whatever name.
    known: Option<Arc<KnownMtu>>,
    /// The longest packet dropped because of the MTU, in bytes.
    longest: usize,
    /// Whether the warning that the device accepts no packets was logged.
    is_warned: bool,
}

impl TapOutput {
    /// Opens a device, which is made if there is none, with up to `most` queues.
    ///
    /// # Errors
    /// [`IoError::Interface`] if there can be no such device, or the system does not permit it.
    pub(super) fn open(settings: &TapSettings, most: usize) -> Result<Vec<Self>, IoError> {
        let (lease, queues) = Lease::open(settings, most)?;
        let lease = Arc::new(lease);
        let output = |queue| {
            let mtu = lease.mtu().unwrap_or(MTU);
            Self { lease: lease.clone(), queue, mtu, known: None, longest: 0, is_warned: false }
        };
        Ok(queues.into_iter().map(output).collect())
    }

    /// This output with the MTU of its device as it is followed.
    pub(super) fn with_mtu(self, known: Arc<KnownMtu>) -> Self {
        Self { known: Some(known), ..self }
    }

    /// Why a packet that the device did not accept is dropped.
    fn refused(&mut self, error: &io::Error) -> Result<DropReason, IoError> {
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => Ok(DropReason::TransmitQueueFull),
            Some(libc::EMSGSIZE) => Ok(DropReason::TooBig),
            _ if !self.queue.has_device() => Err(removed(self.lease.name())),
            _ => {
                if !std::mem::replace(&mut self.is_warned, true) {
                    log::warn!("TAP device {} accepts no packets: {error}", self.lease.name());
                }
                Ok(DropReason::OutputFailed)
            }
        }
    }

    fn send_one(&self, packet: &Outgoing<'_>) -> io::Result<()> {
        let pieces = packet.pieces();
        let pieces: ArrayVec<_, 4> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        self.queue.send(&pieces)
    }
}

impl Output for TapOutput {
    fn send(
        &mut self,
        batch: &Batch,
        lanes: Lanes,
        drops: &mut DropCounts,
    ) -> Result<Lanes, OutputFailure> {
        let lanes = lanes.and(batch.lanes());
        let (mut sent, mut left) = (Lanes::NONE, lanes);
        for lane in lanes {
            let packet = Outgoing::of(batch, lane, self.mtu).and_then(|packet| {
                if packet.fits(self.mtu) { Ok(packet) } else { Err(DropReason::TooBig) }
            });
            let outcome = packet.map(|packet| self.send_one(&packet));
            left.remove(lane);
            let reason = match outcome {
                Ok(Ok(())) => {
                    sent.insert(lane);
                    continue;
                }
                Ok(Err(error)) => match self.refused(&error) {
                    Ok(reason) => reason,
                    Err(error) => {
                        drops.add(DropReason::OutputFailed, left.count() as u64 + 1);
                        return Err(OutputFailure { error, sent, lost: Lost::default() });
                    }
                },
                Err(reason) => reason,
            };
            drops.add(reason, 1);
            if reason == DropReason::TooBig {
                self.longest = self.longest.max(batch.packet_len(lane));
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
        if !self.queue.has_device() {
            return Err(removed(self.lease.name()));
        }
        let known = self.known.as_ref().and_then(|known| known.get());
        self.mtu = known.or_else(|| self.lease.mtu()).unwrap_or(self.mtu);
        Ok(())
    }
}
