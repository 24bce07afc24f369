//! A network interface as an input.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use thalweg_packet::{Batch, DropCounts, DropReason};

use super::arrivals::{Arrivals, LONG, Sink};
use super::ring::Ring;
use super::socket::{self, PacketSocket};
use super::{bind, failed, open, removed, set_buffer};
use crate::filter::Filter;
use crate::intake::Taken;
use crate::links::KnownMtu;
use crate::port::{Input, IoError, Received, Shortfall};
use crate::steer::{self, Sight};

/// Receive buffer of the socket, for packets too long for the ring, in bytes.
const KEPT: usize = 256 * LONG;

/// Bytes after which no more packets are received at once: a few super-packets fill the cache.
const MOST: u64 = 512 << 10;

/// Receives all packets of a network interface, except those that the host itself sends.
///
/// Packets wait in a ring of 16 MiB that the kernel fills (slots of 2 KiB for an MTU of up to
/// about 1800 bytes); those of several queues share that size, but have at least 4 MiB each. Packets that find no room are lost, as
/// [`ReceiveRingFull`](DropReason::ReceiveRingFull). The outermost VLAN tag is restored if the
/// kernel stripped it, and the work that the sender's kernel left to hardware is done: see
/// [`offload`](crate::offload). A packet that it left to be segmented stays whole, as a
/// super-packet, if packet memory has large frames. Each packet has the time at which the kernel received it.
pub struct InterfaceInput {
    name: String,
    promiscuous: bool,
    /// The queues of the interface, of which this is one.
    queues: usize,
    socket: PacketSocket,
    ring: Ring,
    arrivals: Arrivals,
    /// The MTU of the interface while it is followed, and what happens to it is logged elsewhere.
    known: Option<Arc<KnownMtu>>,
    /// Whether packets arrived since the kernel's loss counter was last read.
    unasked: bool,
    /// Looks at the empty ring since the last packet.
    vain: u32,
    /// Whether the interface went down, and no packets arrived since.
    down: bool,
    ended: bool,
}

impl InterfaceInput {
    /// Opens the interface `name`; in promiscuous mode if `promiscuous`. Packets that do not match
    /// `filter` are left out by the kernel, which does not count them.
    ///
    /// # Errors
    /// [`IoError::Interface`] if there is no such interface, it is not Ethernet, the system does
    /// not permit it, or the kernel does not accept the filter.
    pub fn open(name: &str, promiscuous: bool, filter: Option<&Filter>) -> Result<Self, IoError> {
        let (socket, index) = open(name)?;
        // Before the socket is bound, so that no other packet arrives.
        if let Some(filter) = filter {
            attach(&socket, name, filter)?;
        }
        Self::of(socket, index, name, promiscuous, 1)
    }

    /// As [`open`](Self::open), but with this many queues. All packets of a flow, in both directions,
    /// arrive at the same one: a flow has the same addresses, and the same ports of TCP, UDP and SCTP.
    /// Fragments are spread by addresses alone; packets other than IP arrive at the first queue.
    ///
    /// # Errors
    /// As `open`.
    pub fn open_queues(
        name: &str,
        promiscuous: bool,
        filter: Option<&Filter>,
        queues: usize,
    ) -> Result<Vec<Self>, IoError> {
        if queues <= 1 {
            return Ok(vec![Self::open(name, promiscuous, filter)?]);
        }
        // Until all are in the group, each would receive all packets.
        let open = |_| Self::open_shut(name, promiscuous, queues);
        let inputs = (0..queues).map(open).collect::<Result<Vec<_>, _>>()?;
        let failed = |e| failed(name, "cannot spread packets over several queues", &e);
        let group =
            inputs[0].socket.found_group(&steer::program(Sight::Network)).map_err(failed)?;
        for input in &inputs[1..] {
            input.socket.join_group(group).map_err(failed)?;
        }
        for input in &inputs {
            match filter {
                Some(filter) => attach(&input.socket, name, filter)?,
                None => input.socket.detach().map_err(failed)?,
            }
        }
        Ok(inputs)
    }

    /// Opens one of `queues` sockets, which receives no packets until its filter is replaced.
    fn open_shut(name: &str, promiscuous: bool, queues: usize) -> Result<Self, IoError> {
        let (socket, index) = open(name)?;
        let nothing =
            libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
        let shut = socket.attach(&[nothing]);
        shut.map_err(|e| failed(name, "cannot attach a filter", &e))?;
        Self::of(socket, index, name, promiscuous, queues)
    }

    /// Binds a socket, one of `queues`, to the interface.
    fn of(
        socket: PacketSocket,
        index: i32,
        name: &str,
        promiscuous: bool,
        queues: usize,
    ) -> Result<Self, IoError> {
        let set = |level, option, value: usize| socket.set(level, option, value as libc::c_int);
        let failed = |what, e: std::io::Error| failed(name, what, &e);
        set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)
            .map_err(|e| failed("cannot enable offload headers", e))?;
        set(libc::SOL_PACKET, libc::PACKET_COPY_THRESH, 1)
            .map_err(|e| failed("cannot enable copies of long packets", e))?;
        set_buffer(&socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, KEPT as libc::c_int);
        // Since Linux 4.20. Earlier kernels deliver them, and they are skipped here.
        let _ = set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1);
        let mtu = socket::mtu(&socket, name).map_err(|e| failed("cannot read its MTU", e))?;
        let ring = Ring::new(&socket, mtu, queues)
            .map_err(|e| failed("cannot create a receive ring", e))?;
        bind(&socket, name, index, true)?;
        if promiscuous {
            socket.hear_all(index).map_err(|e| failed("cannot enable promiscuous mode", e))?;
        }
        Ok(Self {
            name: name.to_owned(),
            promiscuous,
            queues,
            socket,
            ring,
            arrivals: Arrivals::default(),
            known: None,
            unasked: false,
            vain: 0,
            down: false,
            ended: false,
        })
    }

    /// This input of an interface that is followed.
    pub(super) fn with_mtu(self, known: Arc<KnownMtu>) -> Self {
        Self { known: Some(known), ..self }
    }

    /// How packets are received, in a few words.
    pub(crate) fn mode(&self) -> String {
        let addresses = if self.promiscuous { "promiscuous" } else { "own addresses" };
        let ring = self.ring.describe();
        match self.queues {
            1 => format!("packet socket, {ring}, {addresses}"),
            queues => format!("{queues} packet sockets by flow, each a {ring}, {addresses}"),
        }
    }

    /// Whether no packets have come for a while: then there is time for calls to the kernel.
    fn is_quiet(&mut self, is_vain: bool) -> bool {
        const WHILE: u32 = 64;
        self.vain = if is_vain { (self.vain + 1).min(WHILE) } else { 0 };
        self.vain == WHILE
    }

    /// Counts the packets that the kernel had no room for.
    fn count_missed(&mut self, drops: &mut DropCounts, received: &mut Received) {
        let missed = self.socket.missed();
        drops.add(DropReason::ReceiveRingFull, missed);
        received.packets += missed as usize;
        self.unasked = false;
    }

    /// Checks an interface without packets: one that is down may come up again, one that was
    /// removed will not. It goes down before its removal, and the kernel reports only the former.
    fn check(&mut self) -> Result<(), IoError> {
        let error = self.socket.take_error();
        self.down |= error.is_some();
        if self.down && !self.socket.has_interface() {
            self.ended = true;
            return Err(removed(&self.name));
        }
        let is_known = |error: &io::Error| {
            error.raw_os_error() == Some(libc::ENETDOWN)
                && self.known.as_ref().is_some_and(|known| known.get().is_some())
        };
        if let Some(error) = error.filter(|error| !is_known(error)) {
            log::warn!("interface {}: {error}", self.name);
        }
        Ok(())
    }
}

/// Has the kernel leave out the packets that do not match.
fn attach(socket: &PacketSocket, name: &str, filter: &Filter) -> Result<(), IoError> {
    let program = filter.for_interface(name).map_err(|what| {
        let what = format!("cannot filter by '{}': {what}", filter.text());
        IoError::Interface { name: name.to_owned(), what }
    })?;
    let attached = socket.attach(program.instructions());
    attached.map_err(|e| failed(name, "cannot attach the filter", &e))
}

impl Input for InterfaceInput {
    fn receive(
        &mut self,
        batch: &mut Batch,
        most: usize,
        drops: &mut DropCounts,
    ) -> Result<Received, IoError> {
        let mut received = Received { ended: self.ended, ..Received::default() };
        let (mut losing, mut empty) = (false, false);
        while received.packets < most && received.bytes < MOST && !batch.is_full() && !empty {
            let sink = &mut Sink { batch, drops, received: &mut received };
            if self.arrivals.is_cutting() {
                if self.arrivals.take_cut(sink) == Taken::Later {
                    break;
                }
            } else if let Some(slot) = self.ring.front() {
                losing |= slot.losing;
                if self.arrivals.take(Some(&self.socket), slot, sink) == Taken::Later {
                    break;
                }
                self.ring.pop();
                (self.unasked, self.down) = (true, false);
            } else {
                empty = true;
            }
        }
        let is_quiet = self.is_quiet(empty && received.packets == 0);
        if losing || is_quiet && self.unasked {
            self.count_missed(drops, &mut received);
        }
        if received.packets == 0 && is_quiet && !self.ended {
            self.check()?;
        }
        Ok(received)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn shortfall(&self) -> Shortfall {
        self.arrivals.shortfall()
    }

    fn copied(&self) -> Option<u64> {
        Some(self.arrivals.copied())
    }
}
