//! A queue of an interface as an output.

use std::io;
use std::sync::Arc;

use thalweg_packet::wire::header_len;
use thalweg_packet::{Batch, DropCounts, DropReason, Lanes, Pool};

use super::registry::Sending;
use super::settings::{Obtained, XdpSettings};
use crate::interface::{mtu, removed};
use crate::links::KnownMtu;
use crate::outgoing::{Packets, link_len};
use crate::port::{IoError, Lost, Output, OutputFailure, Shortfall};

/// Sends packets by a queue of an interface by AF_XDP, out of their frames.
///
/// While the ring is full the sender waits; after a second, packets are dropped, as
/// [`TransmitQueueFull`](DropReason::TransmitQueueFull), without further waiting until one is sent
/// again. Packets longer than the MTU are dropped as [`TooBig`](DropReason::TooBig), those for an
/// interface that is down as [`OutputFailed`](DropReason::OutputFailed), and those that are shorter
/// than an Ethernet header as [`Malformed`](DropReason::Malformed).
pub struct XdpOutput {
    queue: Sending,
    /// The longest packet that the interface sends, from the network header on, in bytes.
    mtu: usize,
    /// The MTU of the interface as it is followed, by whatever name.
    known: Option<Arc<KnownMtu>>,
    /// What an interface that was removed had accepted and not sent.
    lost: Lost,
    /// The longest packet that was dropped because of its length, in bytes.
    longest: usize,
    /// Whether the interface was down when it was last looked at; at first that is unknown.
    is_down: bool,
    /// Whether the warning that the interface accepts no packets was logged.
    has_warned: bool,
}

impl XdpOutput {
    /// Opens a queue of an interface, for packets of `pool`.
    ///
    /// # Errors
    /// As [`XdpInput::open`](super::XdpInput::open).
    pub fn open(settings: &XdpSettings, pool: &Arc<Pool>) -> Result<Self, IoError> {
        let queue = Sending::open(settings, pool)?;
        let name = &settings.interface;
        let mtu = mtu(&queue.endpoint().watch, name)
            .map_err(|e| super::failed(name, "cannot read its MTU", &e))?;
        Ok(Self {
            queue,
            mtu,
            known: None,
            lost: Lost::default(),
            longest: 0,
            is_down: true,
            has_warned: false,
        })
    }

    /// This output with the MTU of its interface as it is followed.
    pub(super) fn with_mtu(self, known: Arc<KnownMtu>) -> Self {
        Self { known: Some(known), ..self }
    }

    /// How packets are sent, in a few words.
    pub fn mode(&self) -> String {
        self.obtained().to_string()
    }

    pub(super) fn obtained(&self) -> Obtained {
        self.queue.endpoint().obtained
    }

    /// Sends packets.
    fn transmit(
        &mut self,
        packets: &mut Packets<'_>,
        lanes: Lanes,
        drops: &mut DropCounts,
    ) -> Result<Lanes, OutputFailure> {
        self.queue.half_mut().reap();
        if self.is_down
            && let Err(error) = self.queue.half_mut().kick()
        {
            return self.refuse(&error, lanes, drops);
        }
        self.is_down = false;
        let mut sent = Lanes::NONE;
        for lane in lanes.and(packets.batch().lanes()) {
            match self.put(packets, lane) {
                Ok(()) => sent.insert(lane),
                Err(reason) => drops.add(reason, 1),
            }
        }
        if let Err(error) = self.queue.half_mut().send() {
            self.is_down = true;
            if !self.queue.endpoint().watch.has_interface() {
                return Err(self.fail(Lanes::NONE, sent, drops));
            }
            self.warn(&error);
        }
        Ok(sent)
    }

    /// Puts a packet into the ring.
    #[inline]
    fn put(&mut self, packets: &mut Packets<'_>, lane: usize) -> Result<(), DropReason> {
        let bytes = packets.batch().bytes(lane);
        let len = bytes.len();
        if len < header_len::ETHERNET {
            return Err(DropReason::Malformed);
        }
        let put = if len > self.mtu + link_len(bytes) {
            Err(DropReason::TooBig)
        } else {
            match packets {
                Packets::Kept(batch) => self.queue.half_mut().put_copy(batch.bytes(lane)),
                Packets::Given(batch) => self.queue.half_mut().put_frame(batch, lane),
            }
        };
        if put == Err(DropReason::TooBig) {
            self.longest = self.longest.max(len);
        }
        put
    }

    /// Drops the packets of `lanes`, since the interface accepts none.
    fn refuse(
        &mut self,
        error: &io::Error,
        lanes: Lanes,
        drops: &mut DropCounts,
    ) -> Result<Lanes, OutputFailure> {
        if !self.queue.endpoint().watch.has_interface() {
            return Err(self.fail(lanes, Lanes::NONE, drops));
        }
        self.warn(error);
        drops.add(DropReason::OutputFailed, lanes.count() as u64);
        Ok(Lanes::NONE)
    }

    /// The failure of an output whose interface was removed. What is left in the ring is lost.
    fn fail(&mut self, left: Lanes, sent: Lanes, drops: &mut DropCounts) -> OutputFailure {
        drops.add(DropReason::OutputFailed, left.count() as u64);
        let error = removed(&self.queue.endpoint().settings.interface);
        OutputFailure { error, sent, lost: self.queue.half_mut().give_up() }
    }

    fn warn(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.has_warned, true) {
            let name = &self.queue.endpoint().settings.interface;
            log::warn!("interface {name} accepts no packets: {error}");
        }
    }
}

impl Output for XdpOutput {
    fn send(
        &mut self,
        batch: &Batch,
        lanes: Lanes,
        drops: &mut DropCounts,
    ) -> Result<Lanes, OutputFailure> {
        self.transmit(&mut Packets::Kept(batch), lanes, drops)
    }

    fn send_frames(
        &mut self,
        batch: &mut Batch,
        lanes: Lanes,
        drops: &mut DropCounts,
    ) -> Result<Lanes, OutputFailure> {
        self.transmit(&mut Packets::Given(batch), lanes, drops)
    }

    fn flush(&mut self) -> Result<(), OutputFailure> {
        let half = self.queue.half_mut();
        if half.is_waiting() {
            // What keeps it from sending shows in the next call that sends.
            let _ = half.send();
        }
        half.reap();
        Ok(())
    }

    fn shortfall(&self) -> Shortfall {
        Shortfall { longest: self.longest, ..Shortfall::default() }
    }

    fn copied(&self) -> Option<u64> {
        Some(self.queue.half().copied())
    }

    fn take_lost(&mut self) -> Lost {
        std::mem::take(&mut self.lost)
    }

    fn check(&mut self) -> Result<(), IoError> {
        let endpoint = self.queue.endpoint();
        if !endpoint.watch.has_interface() {
            let error = removed(&endpoint.settings.interface);
            self.lost.add(self.queue.half_mut().give_up());
            return Err(error);
        }
        let known = self.known.as_ref().and_then(|known| known.get());
        // By its name, which another interface may have by now.
        let read = || mtu(&endpoint.watch, &endpoint.settings.interface).ok();
        self.mtu = known.or_else(read).unwrap_or(self.mtu);
        let half = self.queue.half_mut();
        if half.is_waiting() {
            let _ = half.kick();
        }
        half.reap();
        Ok(())
    }
}
