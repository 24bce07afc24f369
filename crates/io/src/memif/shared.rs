//! What the two ends of a connection share: rings, buffers, and eventfds to wake each other.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use thalweg_source::poll::wait_writable;

use super::Fault;
use super::region::Region;
use super::ring::{Descriptor, Ring};

/// The channels of a connection, those that this end receives from and those it sends by.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) receive: Vec<Channel>,
    pub(super) transmit: Vec<Channel>,
}

/// A ring with its buffers.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) ring: Ring,
    pub(super) bell: Arc<Bell>,
    regions: Arc<[Arc<Region>]>,
    /// The buffers, if this end made the memory.
    own: Option<OwnBuffers>,
    /// Up to where this end has come. It stays when a port is closed and another one goes on with the
    /// connection.
    position: AtomicU16,
}

/// Buffers of a client in its only region, one for each descriptor. Where they are is not read from
/// the shared memory.
#[derive(Clone, Copy, Debug)]
struct OwnBuffers {
    offset: usize,
    size: u32,
}

/// A buffer, or the part of one that a packet has; in its region.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    region: usize,
    offset: usize,
    pub(super) len: usize,
    pub(super) continues: bool,
}

impl Part {
    /// The first `len` bytes of an empty buffer, which a packet has.
    pub(super) fn filled(self, len: usize, continues: bool) -> Self {
        Self { len, continues, ..self }
    }
}

/// The measures of a client's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measures {
    /// Rings from this end, and to it.
    pub(super) transmit: u16,
    pub(super) receive: u16,
    /// The binary logarithm of the descriptors of each.
    pub(super) ring_size: u8,
    pub(super) buffer_size: u32,
}

impl Measures {
    /// The bytes of the region: all rings, then all buffers.
    pub(super) fn len(self) -> u64 {
        let rings = u64::from(self.transmit) + u64::from(self.receive);
        let buffers = u64::from(self.buffer_size) << self.ring_size;
        rings * (Ring::len(self.ring_size) as u64 + buffers)
    }
}

/// Which rings of a connection a queue has: those from the `first` on, each `step`th.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    first: usize,
    step: usize,
}

impl Share {
    /// The shares of `queues` queues.
    pub(super) fn each(queues: usize) -> impl Iterator<Item = Self> {
        (0..queues).map(move |first| Self { first, step: queues })
    }

    /// Its part of all `channels`.
    pub(super) fn of(self, channels: &[Channel]) -> impl Iterator<Item = &Channel> {
        channels.iter().skip(self.first).step_by(self.step)
    }

    /// The one at `index` of its part.
    #[inline]
    pub(super) fn get(self, channels: &[Channel], index: usize) -> &Channel {
        &channels[self.first + index * self.step]
    }
}

impl Shared {
    /// Makes the memory of a client, with its region.
    pub(super) fn create(measures: Measures) -> std::io::Result<(Self, Arc<Region>)> {
        let Measures { transmit, receive, ring_size, buffer_size } = measures;
        let region = Arc::new(Region::new(measures.len() as usize)?);
        let regions: Arc<[_]> = [region.clone()].into();
        let rings = usize::from(transmit) + usize::from(receive);
        let buffers = rings * Ring::len(ring_size);
        let channel = |at: usize| {
            let ring = Ring::create(region.clone(), at * Ring::len(ring_size), ring_size);
            let offset = buffers + at * ((buffer_size as usize) << ring_size);
            let own = OwnBuffers { offset, size: buffer_size };
            let (bell, position) = (Arc::new(Bell::new()?), AtomicU16::new(0));
            let channel =
                Channel { ring, bell, regions: regions.clone(), own: Some(own), position };
            (0..channel.ring.slots()).for_each(|position| channel.empty(position));
            Ok(channel)
        };
        let mut transmit: Vec<_> = (0..rings).map(channel).collect::<std::io::Result<_>>()?;
        let receive = transmit.split_off(usize::from(measures.transmit));
        Ok((Self { receive, transmit }, region))
    }
}

impl Channel {
    /// A ring of a peer, whose buffers are in `regions`.
    pub(super) fn of_peer(ring: Ring, bell: Bell, regions: Arc<[Arc<Region>]>) -> Self {
        let position = AtomicU16::new(0);
        Self { ring, bell: Arc::new(bell), regions, own: None, position }
    }

    /// Whether this end made the memory, as the client.
    pub(super) fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Up to where this end has come.
    pub(super) fn position(&self) -> u16 {
        self.position.load(Ordering::Acquire)
    }

    /// This end has come further.
    pub(super) fn set_position(&self, position: u16) {
        self.position.store(position, Ordering::Release);
    }

    /// As a client that receives: offers all buffers. The server is connected, and has set the
    /// positions to 0 for the last time.
    pub(super) fn offer_all(&self) {
        self.ring.set_head(self.ring.slots());
    }

    /// The part of a packet at a position. The descriptor is read once.
    #[inline]
    pub(super) fn part(&self, position: u16) -> Result<Part, Fault> {
        let Descriptor { region, offset, len, continues } = self.ring.descriptor(position);
        if let Some(own) = self.own {
            if len > own.size {
                let what = format!("{len} bytes in a buffer of {}", own.size);
                return Err(Fault::new(what));
            }
            return Ok(Part { len: len as usize, continues, ..self.own_buffer(own, position) });
        }
        let (region, offset, len) = (usize::from(region), offset as usize, len as usize);
        if !self.regions.get(region).is_some_and(|region| region.has(offset, len)) {
            let what = format!("a buffer of {len} bytes at byte {offset} of region {region}");
            return Err(Fault::new(format!("{what}, which is not there")));
        }
        Ok(Part { region, offset, len, continues })
    }

    /// The empty buffer at a position.
    #[inline]
    pub(super) fn room(&self, position: u16) -> Result<Part, Fault> {
        if let Some(own) = self.own {
            return Ok(self.own_buffer(own, position));
        }
        let part = self.part(position)?;
        if part.len == 0 { Err(Fault::new("an empty buffer of 0 bytes")) } else { Ok(part) }
    }

    fn own_buffer(&self, own: OwnBuffers, position: u16) -> Part {
        let len = own.size as usize;
        let offset = own.offset + self.ring.slot(position) * len;
        Part { region: 0, offset, len, continues: false }
    }

    /// Offers the buffer at a position to the peer, if it is ours.
    pub(super) fn empty(&self, position: u16) {
        if let Some(own) = self.own {
            self.describe(position, self.own_buffer(own, position));
        }
    }

    /// Describes a part to the peer.
    pub(super) fn describe(&self, position: u16, part: Part) {
        let (len, continues) = (part.len as u32, part.continues);
        if self.is_own() {
            let offset = part.offset as u32;
            self.ring.describe(position, Descriptor { region: 0, offset, len, continues });
        } else {
            // Where the buffer is was for the peer to say.
            self.ring.describe_length(position, len, continues);
        }
    }

    /// Copies a part out.
    #[inline]
    pub(super) fn read(&self, part: Part, to: &mut [u8]) {
        self.regions[part.region].read(part.offset, to);
    }

    /// Copies bytes into a part.
    #[inline]
    pub(super) fn write(&self, part: Part, from: &[u8]) {
        self.regions[part.region].write(part.offset, from);
    }
}

/// An eventfd, by which the sender wakes the receiver of a ring.
#[derive(Debug)]
pub(super) struct Bell(OwnedFd);

impl Bell {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Takes a peer's. It must be an eventfd: what else can be waited for might make this program wait
    /// in other calls.
    pub(super) fn of_peer(descriptor: OwnedFd) -> Result<Self, Fault> {
        let link = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
        let what = rustix::fs::readlink(link, Vec::new());
        if what.is_ok_and(|what| what.as_bytes() == b"anon_inode:[eventfd]") {
            Ok(Self(descriptor))
        } else {
            Err(Fault::new("an interrupt that is not an eventfd"))
        }
    }

    /// Wakes who waits for it. It may be shared with a peer that has filled it, and then made writes
    /// wait, so it is not written to while it is full: the receiver is awake then.
    pub(super) fn ring(&self) {
        if wait_writable(self, Duration::ZERO) {
            let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
        }
    }

    /// Forgets that it was rung. Only for one that no peer has, since the call might wait.
    pub(super) fn quieten(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
