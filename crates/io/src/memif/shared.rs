//! What the two ends of a connection share: rings, buffers, and eventfds to wake each other.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use thalweg_packet::Pool;
use thalweg_source::poll::wait_writable;

use super::Fault;
use super::loans::Loans;
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
    buffers: Buffers,
    /// Up to where this end has come. It stays when a port is closed and another one goes on with the
    /// connection.
    position: AtomicU16,
}

/// Where the buffers of a ring are.
#[derive(Debug)]
enum Buffers {
    /// Where the descriptors of the peer, which made the memory, name them.
    OfPeer(Arc<[Arc<Region>]>),
    /// In our region.
    Own(OwnBuffers),
    /// They are frames of the pool.
    Frames(Loans),
}

/// Buffers of a client in its only region, one for each descriptor. Where they are is not read from
/// the shared memory.
#[derive(Debug)]
struct OwnBuffers {
    region: Arc<Region>,
    offset: usize,
    /// Bytes of a buffer, and from one to the next.
    size: u32,
    stride: usize,
}

impl OwnBuffers {
    #[inline]
    fn buffer(&self, slot: usize) -> Part {
        let offset = self.offset + slot * self.stride;
        Part { region: 0, offset, len: self.size as usize, continues: false }
    }
}

/// The region of a client that has the pool: after that of the rings.
pub(super) const POOL_REGION: u16 = 1;

/// A buffer, or the part of one that a packet has; in its region.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) region: usize,
    pub(super) offset: usize,
    pub(super) len: usize,
    pub(super) continues: bool,
}

impl Part {
    /// The bytes of a frame, from the first of the pool's memory.
    pub(super) fn of_frame(offset: usize, len: usize) -> Self {
        Self { region: POOL_REGION.into(), offset, len, continues: false }
    }

    /// The first `len` bytes of an empty buffer, which a packet has.
    #[inline]
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
    /// Bytes of a buffer; 0 if the buffers are frames of the pool.
    pub(super) buffer_size: u32,
}

impl Measures {
    /// The bytes of the region: all rings, then all buffers.
    pub(super) fn len(self) -> u64 {
        let rings = u64::from(self.transmit) + u64::from(self.receive);
        let buffers = (self.stride() as u64) << self.ring_size;
        self.buffers() as u64 + rings * buffers
    }

    /// Where the buffers begin: at a multiple of a cache line.
    fn buffers(self) -> usize {
        let rings = usize::from(self.transmit) + usize::from(self.receive);
        (rings * Ring::len(self.ring_size)).next_multiple_of(LINE)
    }

    /// Bytes from one buffer to the next: an odd number of cache lines, so that the first bytes of all
    /// buffers do not share a few sets of the cache.
    fn stride(self) -> usize {
        match self.buffer_size {
            0 => 0,
            size => ((size as usize).div_ceil(LINE) | 1) * LINE,
        }
    }
}

/// Bytes of a cache line.
const LINE: usize = 64;

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
    /// Makes the memory of a client, with its region. The buffers are frames of `pool`, if there is
    /// one.
    pub(super) fn create(
        measures: Measures,
        pool: Option<&Arc<Pool>>,
    ) -> std::io::Result<(Self, Arc<Region>)> {
        let Measures { transmit, receive, ring_size, buffer_size } = measures;
        let region = Arc::new(Region::new(measures.len() as usize)?);
        let rings = usize::from(transmit) + usize::from(receive);
        let stride = measures.stride();
        let channel = |at: usize| {
            let ring = Ring::create(region.clone(), at * Ring::len(ring_size), ring_size);
            let offset = measures.buffers() + at * (stride << ring_size);
            let own = || OwnBuffers { region: region.clone(), offset, size: buffer_size, stride };
            let lent = |pool: &Arc<Pool>| Loans::new(pool.clone(), ring.slots());
            let buffers =
                pool.map_or_else(|| Buffers::Own(own()), |pool| Buffers::Frames(lent(pool)));
            let (bell, position) = (Arc::new(Bell::new()?), AtomicU16::new(0));
            let channel = Channel { ring, bell, buffers, position };
            (0..channel.ring.slots()).for_each(|position| channel.empty(position));
            Ok(channel)
        };
        let mut transmit: Vec<_> = (0..rings).map(channel).collect::<std::io::Result<_>>()?;
        let receive = transmit.split_off(usize::from(measures.transmit));
        Ok((Self { receive, transmit }, region))
    }

    /// Whether frames of the pool may be with the peer.
    pub(super) fn lends(&self) -> bool {
        self.receive.iter().chain(&self.transmit).any(|channel| channel.loans().is_some())
    }
}

impl Channel {
    /// A ring of a peer, whose buffers are in `regions`.
    pub(super) fn of_peer(ring: Ring, bell: Bell, regions: Arc<[Arc<Region>]>) -> Self {
        let (buffers, position) = (Buffers::OfPeer(regions), AtomicU16::new(0));
        Self { ring, bell: Arc::new(bell), buffers, position }
    }

    /// Whether this end made the memory, as the client.
    #[inline]
    pub(super) fn is_own(&self) -> bool {
        !matches!(self.buffers, Buffers::OfPeer(_))
    }

    /// The frames in its slots, if its buffers are frames.
    #[inline]
    pub(super) fn loans(&self) -> Option<&Loans> {
        match &self.buffers {
            Buffers::Frames(loans) => Some(loans),
            Buffers::OfPeer(_) | Buffers::Own(_) => None,
        }
    }

    /// Up to where this end has come.
    pub(super) fn position(&self) -> u16 {
        self.position.load(Ordering::Acquire)
    }

    /// This end has come further.
    pub(super) fn set_position(&self, position: u16) {
        self.position.store(position, Ordering::Release);
    }

    /// As a client that receives: offers all buffers of its own; frames are offered by the port. The
    /// server is connected, and has set the positions to 0 for the last time.
    pub(super) fn offer_all(&self) {
        if self.loans().is_none() {
            self.ring.set_head(self.ring.slots());
        }
    }

    /// The part of a packet at a position. The descriptor is read once.
    #[inline]
    pub(super) fn part(&self, position: u16) -> Result<Part, Fault> {
        let Descriptor { region, offset, len, continues } = self.ring.descriptor(position);
        let regions = match &self.buffers {
            Buffers::OfPeer(regions) => regions,
            Buffers::Own(own) => {
                let buffer = own.buffer(self.ring.slot(position));
                return Ok(buffer.filled(fits(len, buffer.len)?, continues));
            }
            Buffers::Frames(loans) => {
                let len = fits(len, loans.room())?;
                return Ok(Part { region: POOL_REGION.into(), offset: 0, len, continues });
            }
        };
        let (region, offset, len) = (usize::from(region), offset as usize, len as usize);
        if !regions.get(region).is_some_and(|region| region.has(offset, len)) {
            return Err(beyond(region, offset, len));
        }
        Ok(Part { region, offset, len, continues })
    }

    /// The empty buffer at a position, which is not a frame.
    #[inline]
    pub(super) fn room(&self, position: u16) -> Result<Part, Fault> {
        if let Buffers::Own(own) = &self.buffers {
            return Ok(own.buffer(self.ring.slot(position)));
        }
        let part = self.part(position)?;
        if part.len == 0 { Err(Fault::new("an empty buffer of 0 bytes")) } else { Ok(part) }
    }

    /// Offers the buffer at a position to the peer, if it is ours and not a frame.
    #[inline]
    pub(super) fn empty(&self, position: u16) {
        if let Buffers::Own(own) = &self.buffers {
            self.describe(position, own.buffer(self.ring.slot(position)));
        }
    }

    /// Describes a part to the peer.
    #[inline]
    pub(super) fn describe(&self, position: u16, part: Part) {
        let (len, continues) = (part.len as u32, part.continues);
        if self.is_own() {
            let (region, offset) = (part.region as u16, part.offset as u32);
            self.ring.describe(position, Descriptor { region, offset, len, continues });
        } else {
            // Where the buffer is was for the peer to say.
            self.ring.describe_length(position, len, continues);
        }
    }

    /// The region of a part that is not in a frame.
    #[inline]
    fn region(&self, part: Part) -> &Region {
        match &self.buffers {
            Buffers::OfPeer(regions) => &regions[part.region],
            Buffers::Own(own) => &own.region,
            Buffers::Frames(_) => unreachable!("frames are not copied by their region"),
        }
    }

    /// Begins to bring the first bytes of a part into the cache.
    #[inline]
    pub(super) fn prefetch(&self, part: Part) {
        self.region(part).prefetch(part.offset);
    }

    /// Copies a part out.
    #[inline]
    pub(super) fn read(&self, part: Part, to: &mut [u8]) {
        self.region(part).read(part.offset, to);
    }

    /// Copies bytes into a part.
    #[inline]
    pub(super) fn write(&self, part: Part, from: &[u8]) {
        self.region(part).write(part.offset, from);
    }
}

/// The length that a peer has filled of a buffer of ours.
#[inline]
fn fits(len: u32, room: usize) -> Result<usize, Fault> {
    let filled = len as usize;
    if filled > room { Err(too_long(filled, room)) } else { Ok(filled) }
}

#[cold]
fn too_long(len: usize, room: usize) -> Fault {
    Fault::new(format!("{len} bytes in a buffer of {room}"))
}

#[cold]
fn beyond(region: usize, offset: usize, len: usize) -> Fault {
    let what = format!("a buffer of {len} bytes at byte {offset} of region {region}");
    Fault::new(format!("{what}, which is not there"))
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
