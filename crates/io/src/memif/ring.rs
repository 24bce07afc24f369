//! A ring of descriptors in a region.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::atomic::fence;

use super::Fault;
use super::region::Region;
use super::settings::MAX_RING_SIZE;

/// What a ring begins with.
const COOKIE: u32 = 0x3E3_1F20;
/// Where its fields are, in bytes. Each party's own index has a cache line.
const FLAGS: usize = 4;
const HEAD: usize = 6;
const TAIL: usize = 64;
const DESCRIPTORS: usize = 128;
/// The length of a descriptor.
const DESCRIPTOR: usize = 16;
/// The flag by which a receiver declines interrupts.
const NO_INTERRUPTS: u16 = 1;
/// The flag of a descriptor whose packet continues in the next one.
const NEXT: u16 = 1;

/// A ring.
#[derive(Debug)]
pub(super) struct Ring {
    region: Arc<Region>,
    offset: usize,
    /// The binary logarithm of its descriptors.
    size: u8,
}

/// A descriptor as it was read, once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Descriptor {
    pub(super) region: u16,
    pub(super) offset: u32,
    pub(super) len: u32,
    /// The packet continues in the next descriptor.
    pub(super) continues: bool,
}

impl Ring {
    /// The bytes of a ring of `1 << size` descriptors.
    pub(super) fn len(size: u8) -> usize {
        DESCRIPTORS + (DESCRIPTOR << size)
    }

    /// Makes an empty ring.
    ///
    /// # Panics
    /// When the region is too short.
    pub(super) fn create(region: Arc<Region>, offset: usize, size: u8) -> Self {
        assert!(region.has(offset, Self::len(size)), "the ring is in the region");
        region.u32(offset).store(COOKIE, Ordering::Relaxed);
        let ring = Self { region, offset, size };
        ring.decline(true);
        ring
    }

    /// Takes over a ring that a peer made.
    pub(super) fn of_peer(region: Arc<Region>, offset: u32, size: u8) -> Result<Self, Fault> {
        let offset = offset as usize;
        if size > MAX_RING_SIZE {
            return Err(Fault::new(format!("a ring of 2^{size} descriptors")));
        }
        if !offset.is_multiple_of(DESCRIPTOR) || !region.has(offset, Self::len(size)) {
            return Err(Fault::new(format!("a ring at byte {offset}, not in its region")));
        }
        if region.u32(offset).load(Ordering::Acquire) != COOKIE {
            return Err(Fault::new("a ring without the cookie of one"));
        }
        Ok(Self { region, offset, size })
    }

    /// How many descriptors it has.
    pub(super) fn slots(&self) -> u16 {
        1 << self.size
    }

    /// The number of its region's bytes before the ring, for messages to a peer.
    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    pub(super) fn size(&self) -> u8 {
        self.size
    }

    pub(super) fn head(&self) -> u16 {
        self.region.u16(self.offset + HEAD).load(Ordering::Acquire)
    }

    pub(super) fn set_head(&self, head: u16) {
        self.region.u16(self.offset + HEAD).store(head, Ordering::Release);
    }

    pub(super) fn tail(&self) -> u16 {
        self.region.u16(self.offset + TAIL).load(Ordering::Acquire)
    }

    pub(super) fn set_tail(&self, tail: u16) {
        self.region.u16(self.offset + TAIL).store(tail, Ordering::Release);
    }

    /// As the receiver: whether the sender is to leave interrupts out. What the ring has is to be
    /// looked at again after they were asked for.
    pub(super) fn decline(&self, interrupts: bool) {
        let flags = if interrupts { NO_INTERRUPTS } else { 0 };
        self.region.u16(self.offset + FLAGS).store(flags, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// As the sender: whether the receiver waits for an interrupt, after packets were put there.
    pub(super) fn wants_interrupt(&self) -> bool {
        fence(Ordering::SeqCst);
        self.region.u16(self.offset + FLAGS).load(Ordering::Relaxed) & NO_INTERRUPTS == 0
    }

    /// Where the descriptor at a position is.
    fn place(&self, position: u16) -> usize {
        let slot = usize::from(position & (self.slots() - 1));
        self.offset + DESCRIPTORS + slot * DESCRIPTOR
    }

    /// Which buffer belongs to a position.
    pub(super) fn slot(&self, position: u16) -> usize {
        usize::from(position & (self.slots() - 1))
    }

    /// Reads the descriptor at a position. The peer may change it at any time: use what was read.
    #[inline]
    pub(super) fn descriptor(&self, position: u16) -> Descriptor {
        let place = self.place(position);
        let words = [place, place + 8].map(|at| self.region.u64(at).load(Ordering::Relaxed));
        let [[flags, region], len] = halves(words[0]);
        let [[low, high], _metadata] = halves(words[1]);
        Descriptor {
            continues: flags & NEXT != 0,
            region,
            len: whole(len),
            offset: whole([low, high]),
        }
    }

    /// Writes the descriptor at a position.
    #[inline]
    pub(super) fn describe(&self, position: u16, descriptor: Descriptor) {
        let Descriptor { region, offset, len, continues } = descriptor;
        let place = self.place(position);
        self.region.u32(place + 8).store(offset, Ordering::Relaxed);
        let flags = if continues { NEXT } else { 0 };
        let word = word([flags, region], len);
        self.region.u64(place).store(word, Ordering::Relaxed);
    }

    /// Writes length and flags of the descriptor at a position.
    #[inline]
    pub(super) fn describe_length(&self, position: u16, len: u32, continues: bool) {
        let place = self.place(position);
        let flags = if continues { NEXT } else { 0 };
        self.region.u16(place).store(flags, Ordering::Relaxed);
        self.region.u32(place + 4).store(len, Ordering::Relaxed);
    }

    /// Ends the chain at a position: some senders set the flag and never clear it.
    pub(super) fn unchain(&self, position: u16) {
        self.region.u16(self.place(position)).store(0, Ordering::Relaxed);
    }
}

/// The parts of a word of shared memory, in the order in which they lie there: two of 16 bits each,
/// twice.
#[inline]
fn halves(word: u64) -> [[u16; 2]; 2] {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    [[[a, b], [c, d]], [[e, f], [g, h]]].map(|half| half.map(u16::from_ne_bytes))
}

/// A word of 32 bits of its parts.
#[inline]
fn whole([first, second]: [u16; 2]) -> u32 {
    let ([a, b], [c, d]) = (first.to_ne_bytes(), second.to_ne_bytes());
    u32::from_ne_bytes([a, b, c, d])
}

/// A word of shared memory of its parts, in the order in which they lie there.
#[inline]
fn word(first: [u16; 2], last: u32) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (whole(first).to_ne_bytes(), last.to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peers_ring_lies_in_its_region() {
        let region = Arc::new(Region::new(4096).unwrap());
        Ring::create(region.clone(), 160, 3);
        let found = |offset, size| Ring::of_peer(region.clone(), offset, size);
        assert_eq!(found(160, 3).unwrap().slots(), 8);
        for (offset, size, what) in [
            (160, 15, "2^15"),
            (160, 255, "2^255"),
            (160, 8, "not in its region"),
            (168, 3, "not in its region"),
            (4096, 3, "not in its region"),
            (u32::MAX - 15, 3, "not in its region"),
            (176, 3, "cookie"),
        ] {
            let refusal = found(offset, size).unwrap_err().to_string();
            assert!(refusal.contains(what), "{refusal}");
        }
    }

    #[test]
    fn positions_wrap() {
        let region = Arc::new(Region::new(4096).unwrap());
        let ring = Ring::create(region, 0, 2);
        let descriptor = Descriptor { region: 7, offset: 8, len: 9, continues: true };
        ring.describe(u16::MAX, descriptor);
        let read = ring.descriptor(3);
        assert_eq!((read.region, read.offset, read.len, read.continues), (7, 8, 9, true));
        ring.unchain(3);
        assert!(!ring.descriptor(u16::MAX).continues);
    }
}
