//! Packet blocks of a pcapng file
//! (<https://www.ietf.org/archive/id/draft-ietf-opsawg-pcapng-03.html>).

use std::sync::Arc;

use thalweg_packet::Nanoseconds;

use super::bytes::{Bytes, Fault, MAX_WINDOW};
use super::order::ByteOrder;
use super::record::{MAX_CAPTURED, Record};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const PACKET: u32 = 2; // obsolete
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// Bytes of a block before what its kind determines, its byte-order magic included if it begins a section.
const BLOCK_HEADER: usize = 12;
/// Bytes of a block before its packet, at most.
pub(super) const HEAD: usize = 28;

const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const OPTION_TSRESOL: u16 = 9;
const OPTION_TSOFFSET: u16 = 14;

/// The most interfaces that a section may describe; more is damage, so that a hostile file
/// cannot let the table grow without end.
const MAX_INTERFACES: usize = 65_536;

/// The unit of an interface's timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resolution {
    /// Units of 10^-n seconds.
    Decimal(u8),
    /// Units of 2^-n seconds.
    Binary(u8),
}

impl Resolution {
    fn from_option(value: u8) -> Self {
        if value & 0x80 == 0 { Self::Decimal(value) } else { Self::Binary(value & 0x7f) }
    }

    /// `units` in nanoseconds, rounded down.
    fn nanoseconds(self, units: u64) -> i128 {
        let units = i128::from(units);
        match self {
            Self::Decimal(n @ 0..=9) => units * 10_i128.pow(9 - u32::from(n)),
            // Beyond 10^38 no 64-bit count of units reaches a nanosecond.
            Self::Decimal(n) => {
                10_i128.checked_pow(u32::from(n) - 9).map_or(0, |divisor| units / divisor)
            }
            Self::Binary(n) => (units * 1_000_000_000) >> n,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    link: u32,
    /// The most bytes captured per packet; 0 means all.
    snap_len: u32,
    resolution: Resolution,
    offset_seconds: i64,
}

impl Interface {
    fn timestamp(&self, high: u32, low: u32) -> Nanoseconds {
        let units = u64::from(high) << 32 | u64::from(low);
        // Below 2^94, so the sum with the offset cannot overflow.
        let since = self.resolution.nanoseconds(units);
        let time = since + i128::from(self.offset_seconds) * 1_000_000_000;
        Nanoseconds(u64::try_from(time.max(0)).unwrap_or(u64::MAX))
    }
}

/// A pcapng file at the current section.
#[derive(Clone, Debug)]
pub(crate) struct PcapNg {
    order: ByteOrder,
    /// Shared with clones, which read ahead.
    interfaces: Arc<Vec<Interface>>,
    /// Simple Packet Blocks carry no time; they get the time of the previous packet.
    last_timestamp: Nanoseconds,
    /// A block without packets that is being skipped, and its bytes left.
    skipped: Option<(Block, u64)>,
}

/// Header of one block.
#[derive(Clone, Copy, Debug)]
struct Block {
    kind: u32,
    len: usize,
    offset: u64,
}

/// What begins at a place of a file.
pub(super) enum Begun {
    Packet(Record),
    /// A section or an interface; the length of its block in bytes.
    Description(usize),
    /// A block that holds neither; its length in bytes.
    Other(usize),
}

impl Block {
    /// Checks that it is not longer than what is buffered at once.
    fn check_length(&self) -> Result<(), Fault> {
        let len = self.len;
        if len <= MAX_WINDOW {
            return Ok(());
        }
        let what = format!("a block of {len} bytes is longer than the maximum, {MAX_WINDOW}");
        damaged(self.offset, &what)
    }

    /// Returns that a block that was passed over is truncated.
    fn truncated_unread<T>(&self) -> Result<T, Fault> {
        damaged(self.offset, &format!("the block of {} bytes is truncated", self.len))
    }

    /// Returns that it is truncated: the file has `there` bytes of it.
    fn truncated<T>(&self, there: usize) -> Result<T, Fault> {
        let what = format!("the block is truncated: {there} of {} bytes", self.len);
        damaged(self.offset, &what)
    }
}

impl PcapNg {
    /// Whether a file that begins with `magic` is pcapng.
    pub(crate) fn recognizes(magic: [u8; 4]) -> bool {
        u32::from_le_bytes(magic) == SECTION_HEADER
    }

    /// A file of which nothing has been read.
    pub(super) fn before_the_first_section() -> Self {
        Self {
            order: ByteOrder::Little,
            interfaces: Arc::default(),
            last_timestamp: Nanoseconds::default(),
            skipped: None,
        }
    }

    /// Reads the first section header.
    pub(crate) fn open(bytes: &mut Bytes) -> Result<Self, Fault> {
        let mut file = Self::before_the_first_section();
        if let Some(block) = file.block(bytes)? {
            file.whole(bytes, &block)?;
            file.section(bytes.window(), &block)?;
            bytes.consume(block.len);
        }
        Ok(file)
    }

    /// The next packet, `None` at the end of the file.
    pub(crate) fn next(&mut self, bytes: &mut Bytes) -> Result<Option<Record>, Fault> {
        loop {
            self.pass_over(bytes)?;
            let Some(block) = self.block(bytes)? else { return Ok(None) };
            match block.kind {
                ENHANCED_PACKET | PACKET | SIMPLE_PACKET => {
                    self.whole(bytes, &block)?;
                    return self.packet(bytes.window(), &block).map(Some);
                }
                SECTION_HEADER | INTERFACE_DESCRIPTION => {
                    self.whole(bytes, &block)?;
                    if block.kind == SECTION_HEADER {
                        self.section(bytes.window(), &block)?;
                    } else {
                        self.interface(bytes.window(), &block)?;
                    }
                    bytes.consume(block.len);
                }
                _ => self.skipped = Some((block, block.len as u64 - 4)),
            }
        }
    }

    /// Reads the next block's header; a section header sets the byte order.
    fn block(&mut self, bytes: &mut Bytes) -> Result<Option<Block>, Fault> {
        let offset = bytes.offset();
        let head = bytes.ahead(BLOCK_HEADER)?;
        self.block_of(head, offset)
    }

    /// The block that begins with `head` at `offset`; `None` at the end of the file.
    fn block_of(&mut self, head: &[u8], offset: u64) -> Result<Option<Block>, Fault> {
        if head.is_empty() {
            return Ok(None);
        }
        if head.len() < BLOCK_HEADER {
            return damaged(offset, "the block header is truncated");
        }
        if self.order.u32(head, 0) == SECTION_HEADER {
            self.order = match ByteOrder::Little.u32(head, 8) {
                BYTE_ORDER_MAGIC => ByteOrder::Little,
                magic if magic.swap_bytes() == BYTE_ORDER_MAGIC => ByteOrder::Big,
                _ => return damaged(offset, "the section header has no byte-order magic"),
            };
        }
        let (kind, len) = (self.order.u32(head, 0), self.order.u32(head, 4));
        if len < 12 || !len.is_multiple_of(4) {
            return damaged(
                offset,
                &format!("bad block length {len}; expected a multiple of 4, at least 12"),
            );
        }
        Ok(Some(Block { kind, len: len as usize, offset }))
    }

    /// Reads the whole block into the window, and checks its second length.
    fn whole(&self, bytes: &mut Bytes, block: &Block) -> Result<(), Fault> {
        block.check_length()?;
        let there = bytes.ahead(block.len)?;
        self.check_whole(there, block)
    }

    /// Checks that all bytes of a block are `there`, and its second length.
    fn check_whole(&self, there: &[u8], block: &Block) -> Result<(), Fault> {
        if there.len() < block.len {
            return block.truncated(there.len());
        }
        check_second_length(self.order.u32(there, block.len - 4), block)
    }

    /// What begins with `head`, of [`HEAD`] bytes unless the file ends, at `offset`: for a reader that does not
    /// read packets with their blocks. `None` at the end of the file.
    pub(super) fn begin(&mut self, head: &[u8], offset: u64) -> Result<Option<Begun>, Fault> {
        let Some(block) = self.block_of(head, offset)? else { return Ok(None) };
        Ok(Some(match block.kind {
            ENHANCED_PACKET | PACKET | SIMPLE_PACKET => {
                block.check_length()?;
                if head.len() < block.len.min(HEAD) {
                    return block.truncated(head.len());
                }
                Begun::Packet(self.packet(head, &block)?)
            }
            SECTION_HEADER | INTERFACE_DESCRIPTION => {
                block.check_length()?;
                Begun::Description(block.len)
            }
            _ => Begun::Other(block.len),
        }))
    }

    /// Takes over the description that [begins](Self::begin) at `offset`, whose bytes are `there`.
    pub(super) fn describe(&mut self, there: &[u8], offset: u64) -> Result<(), Fault> {
        let Some(block) = self.block_of(there, offset)? else { return Ok(()) };
        self.check_whole(there, &block)?;
        match block.kind {
            SECTION_HEADER => self.section(there, &block),
            _ => self.interface(there, &block),
        }
    }

    /// Checks the last four bytes, `end`, of a block of `len` bytes at `offset`, of which the file has `there`.
    pub(super) fn check_end(
        &self,
        (len, there): (usize, usize),
        end: &[u8],
        offset: u64,
    ) -> Result<(), Fault> {
        let block = Block { kind: ENHANCED_PACKET, len, offset };
        if there < len {
            return block.truncated(there);
        }
        check_second_length(self.order.u32(end, 0), &block)
    }

    /// The same for one that [holds neither](Begun::Other) a packet nor a description.
    pub(super) fn check_end_of_other(
        &self,
        (len, there): (usize, usize),
        end: &[u8],
        offset: u64,
    ) -> Result<(), Fault> {
        if there < len {
            return Block { kind: 0, len, offset }.truncated_unread();
        }
        self.check_end((len, there), end, offset)
    }

    /// Skips the block, of any length, that holds no packet.
    fn pass_over(&mut self, bytes: &mut Bytes) -> Result<(), Fault> {
        let Some((block, left)) = &mut self.skipped else { return Ok(()) };
        let whole = bytes.skip(left)? && bytes.ahead(4)?.len() >= 4;
        let block = *block;
        self.skipped = None;
        if !whole {
            return block.truncated_unread();
        }
        check_second_length(self.order.u32(bytes.window(), 0), &block)?;
        bytes.consume(4);
        Ok(())
    }

    fn section(&mut self, window: &[u8], block: &Block) -> Result<(), Fault> {
        if block.len < 28 {
            return damaged(block.offset, "the section header is too short");
        }
        let (major, minor) = (self.order.u16(window, 12), self.order.u16(window, 14));
        if major != 1 {
            let what = format!("unknown pcapng version {major}.{minor}; expected 1.x");
            return damaged(block.offset, &what);
        }
        self.interfaces = Arc::default();
        Ok(())
    }

    fn interface(&mut self, window: &[u8], block: &Block) -> Result<(), Fault> {
        if block.len < 20 {
            return damaged(block.offset, "the interface description is too short");
        }
        if self.interfaces.len() == MAX_INTERFACES {
            return damaged(block.offset, &format!("more than {MAX_INTERFACES} interfaces"));
        }
        let mut interface = Interface {
            link: u32::from(self.order.u16(window, 8)),
            snap_len: self.order.u32(window, 12),
            resolution: Resolution::Decimal(6),
            offset_seconds: 0,
        };
        for (code, value) in options(self.order, window.get(16..block.len - 4).unwrap_or(&[])) {
            match (code, value) {
                (OPTION_TSRESOL, [value, ..]) => {
                    interface.resolution = Resolution::from_option(*value);
                }
                (OPTION_TSOFFSET, [_, _, _, _, _, _, _, _, ..]) => {
                    interface.offset_seconds = self.order.i64(value, 0);
                }
                _ => {}
            }
        }
        Arc::make_mut(&mut self.interfaces).push(interface);
        Ok(())
    }

    fn packet(&mut self, window: &[u8], block: &Block) -> Result<Record, Fault> {
        let word = |at| self.order.u32(window, at);
        let (start, number) = match block.kind {
            ENHANCED_PACKET => (28, word(8)),
            PACKET => (28, u32::from(self.order.u16(window, 8))),
            _ => (12, 0),
        };
        // The most bytes that the block can hold, after its header and before its second length.
        let Some(room) = block.len.checked_sub(start + 4) else {
            return damaged(block.offset, "the packet block is too short");
        };
        let Some(interface) = self.interfaces.get(number as usize) else {
            return damaged(
                block.offset,
                &format!("interface {number} is not described before this packet"),
            );
        };
        let (captured, original) = if block.kind == SIMPLE_PACKET {
            let original = word(8);
            let snap_len = if interface.snap_len == 0 { u32::MAX } else { interface.snap_len };
            (original.min(snap_len), original)
        } else {
            self.last_timestamp = interface.timestamp(word(12), word(16));
            (word(20), word(24))
        };
        if captured > MAX_CAPTURED || captured as usize > room {
            return damaged(
                block.offset,
                &format!(
                    "a packet of {captured} bytes does not fit its block of {} bytes",
                    block.len
                ),
            );
        }
        Ok(Record {
            link: interface.link,
            timestamp: self.last_timestamp,
            wire_len: original.max(captured),
            start,
            len: captured as usize,
            total: block.len,
        })
    }
}

/// The options of a block as code and value, until the first that does not fit.
fn options(order: ByteOrder, mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let head = rest.get(..4)?;
        let (code, len) = (order.u16(head, 0), usize::from(order.u16(head, 2)));
        let value = rest.get(4..4 + len)?;
        rest = rest.get(4 + len.next_multiple_of(4)..).unwrap_or(&[]);
        (code != 0).then_some((code, value))
    })
}

fn check_second_length(second: u32, block: &Block) -> Result<(), Fault> {
    if second as usize == block.len {
        return Ok(());
    }
    let first = block.len;
    damaged(block.offset, &format!("the block's two lengths differ: {first} and {second}"))
}

fn damaged<T>(offset: u64, what: &str) -> Result<T, Fault> {
    Err(Fault::Damaged { offset, what: what.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_resolution_comes_out_in_nanoseconds() {
        let ns = |option, units| Resolution::from_option(option).nanoseconds(units);
        assert_eq!(ns(6, 1_500_000), 1_500_000_000);
        assert_eq!(ns(9, 7), 7);
        assert_eq!(ns(0, 3), 3_000_000_000);
        assert_eq!(ns(12, 1_999), 1);
        assert_eq!(ns(127, u64::MAX), 0);
        assert_eq!(ns(0x8a, 1536), 1_500_000_000);
        assert_eq!(ns(0xff, u64::MAX), 0);
    }

    #[test]
    fn an_offset_moves_time_and_cannot_move_it_below_zero() {
        let interface = |offset_seconds| Interface {
            link: 1,
            snap_len: 0,
            resolution: Resolution::Decimal(9),
            offset_seconds,
        };
        assert_eq!(interface(2).timestamp(0, 5), Nanoseconds(2_000_000_005));
        assert_eq!(interface(-1).timestamp(0, 5), Nanoseconds(0));
        assert_eq!(interface(i64::MAX).timestamp(u32::MAX, 0), Nanoseconds(u64::MAX));
    }

    #[test]
    fn options_end_at_the_mark_or_where_they_are_damaged() {
        let bytes = [9, 0, 1, 0, 6, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, 9, 0, 0, 0];
        let found: Vec<_> = options(ByteOrder::Little, &bytes).collect();
        assert_eq!(found, [(9, &[6][..])]);
        assert_eq!(options(ByteOrder::Little, &[9, 0, 200, 0, 1]).count(), 0);
    }
}
