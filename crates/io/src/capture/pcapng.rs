//! The pcapng format
//! (<https://www.ietf.org/archive/id/draft-ietf-opsawg-pcapng-03.html>).

use thalweg_packet::Nanoseconds;

use super::reader::{Fault, MAX_RECORD, Record, damage};
use super::stream::Stream;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// The most interfaces a section may have; more is damage.
const MAX_INTERFACES: usize = 1 << 16;

const IF_TSRESOL: u16 = 9;
const IF_TSOFFSET: u16 = 14;

#[derive(Clone, Copy, Debug)]
struct Interface {
    link_type: u16,
    snap_len: u32,
    /// Units of a second in a timestamp: a power of ten, or of two.
    units: Units,
    /// Seconds to add to each timestamp.
    offset: i64,
}

#[derive(Clone, Copy, Debug)]
enum Units {
    Decimal(u32),
    Binary(u32),
}

/// How to read the blocks of the current section.
#[derive(Debug, Default)]
pub(super) struct PcapNg {
    big_endian: bool,
    interfaces: Vec<Interface>,
}

impl PcapNg {
    /// Whether the file's first four bytes are those of a section header.
    pub(super) fn recognise(magic: [u8; 4]) -> bool {
        u32::from_be_bytes(magic) == SECTION_HEADER
    }

    /// The next packet; other blocks are read or skipped.
    pub(super) fn next(&mut self, stream: &mut Stream) -> Result<Option<Record>, Fault> {
        loop {
            if !stream.fill(12)? {
                return match stream.ready() {
                    0 => Ok(None),
                    n => damage(format!("a block is cut short after {n} bytes")),
                };
            }
            let head = stream.peek(12);
            let kind = if head[..4] == SECTION_HEADER.to_be_bytes() {
                self.byte_order(head)?;
                SECTION_HEADER
            } else {
                self.u32(head, 0)
            };
            let total = self.u32(head, 4) as usize;
            if total < 12 || !total.is_multiple_of(4) {
                return damage(format!("a block says it is {total} bytes long"));
            }
            let record = match kind {
                SECTION_HEADER => {
                    self.interfaces.clear();
                    skip(stream, total)?;
                    None
                }
                INTERFACE => {
                    block(stream, total)?;
                    let interface = self.interface(stream.peek(total))?;
                    if self.interfaces.len() >= MAX_INTERFACES {
                        return damage("too many interfaces");
                    }
                    self.interfaces.push(interface);
                    stream.consume(total);
                    None
                }
                ENHANCED_PACKET | OBSOLETE_PACKET | SIMPLE_PACKET => {
                    block(stream, total)?;
                    Some(self.packet(kind, stream.peek(total))?)
                }
                _ => {
                    skip(stream, total)?;
                    None
                }
            };
            if record.is_some() {
                return Ok(record);
            }
        }
    }

    fn byte_order(&mut self, head: &[u8]) -> Result<(), Fault> {
        let magic = head[8..12].try_into().unwrap_or_default();
        self.big_endian = match BYTE_ORDER {
            m if u32::from_be_bytes(magic) == m => true,
            m if u32::from_le_bytes(magic) == m => false,
            _ => return damage("a section header has no byte-order magic"),
        };
        Ok(())
    }

    fn interface(&self, block: &[u8]) -> Result<Interface, Fault> {
        if block.len() < 20 {
            return damage("an interface description is too short");
        }
        let mut interface = Interface {
            link_type: self.u16(block, 8),
            snap_len: self.u32(block, 12),
            units: Units::Decimal(6),
            offset: 0,
        };
        let mut options = &block[16..block.len() - 4];
        while options.len() >= 4 {
            let (code, len) = (self.u16(options, 0), usize::from(self.u16(options, 2)));
            let Some(value) = options.get(4..4 + len) else {
                return damage("an option of an interface description is cut short");
            };
            match (code, value) {
                (0, _) => break,
                (IF_TSRESOL, [n]) if n & 0x80 != 0 => {
                    interface.units = Units::Binary(u32::from(n & 0x7f));
                }
                (IF_TSRESOL, [n]) => interface.units = Units::Decimal(u32::from(*n)),
                (IF_TSOFFSET, value) if len == 8 => {
                    let (a, b) = (self.u32(value, 0), self.u32(value, 4));
                    let (high, low) = if self.big_endian { (a, b) } else { (b, a) };
                    interface.offset = (u64::from(high) << 32 | u64::from(low)).cast_signed();
                }
                _ => {}
            }
            options = options.get(4 + len.next_multiple_of(4)..).unwrap_or(&[]);
        }
        Ok(interface)
    }

    fn packet(&self, kind: u32, block: &[u8]) -> Result<Record, Fault> {
        let total = block.len();
        let before = if kind == SIMPLE_PACKET { 12 } else { 28 };
        if total < before + 4 {
            return damage("a packet block is too short");
        }
        let (number, len, wire_len) = match kind {
            SIMPLE_PACKET => (0, usize::MAX, self.u32(block, 8)),
            OBSOLETE_PACKET => {
                (usize::from(self.u16(block, 8)), self.u32(block, 20) as usize, self.u32(block, 24))
            }
            _ => (self.u32(block, 8) as usize, self.u32(block, 20) as usize, self.u32(block, 24)),
        };
        let Some(interface) = self.interfaces.get(number) else {
            return damage(format!("a packet of interface {number}, which is not described"));
        };
        let room = total - before - 4;
        let (len, timestamp) = if kind == SIMPLE_PACKET {
            let snap_len = if interface.snap_len == 0 { u32::MAX } else { interface.snap_len };
            ((wire_len.min(snap_len) as usize).min(room), Nanoseconds(0))
        } else {
            let units = u64::from(self.u32(block, 12)) << 32 | u64::from(self.u32(block, 16));
            (len, interface.time(units))
        };
        if len > room {
            return damage(format!("a packet of {len} bytes in a block with room for {room}"));
        }
        Ok(Record {
            before,
            len,
            total,
            wire_len: wire_len.max(len as u32),
            timestamp,
            link_type: interface.link_type,
        })
    }

    fn u16(&self, bytes: &[u8], at: usize) -> u16 {
        let bytes = bytes[at..at + 2].try_into().unwrap_or_default();
        if self.big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
    }

    fn u32(&self, bytes: &[u8], at: usize) -> u32 {
        let bytes = bytes[at..at + 4].try_into().unwrap_or_default();
        if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }
}

impl Interface {
    /// A timestamp in units of this interface as nanoseconds, saturating.
    fn time(&self, units: u64) -> Nanoseconds {
        let units = u128::from(units);
        let nanoseconds = match self.units {
            Units::Decimal(n @ 0..=9) => units * 10u128.pow(9 - n),
            Units::Decimal(n @ 10..=38) => units / 10u128.pow(n - 9),
            Units::Decimal(_) => 0,
            Units::Binary(n) => units * 1_000_000_000 >> n.min(127),
        };
        let offset = i128::from(self.offset) * 1_000_000_000;
        let sum = i128::try_from(nanoseconds).unwrap_or(i128::MAX).saturating_add(offset);
        Nanoseconds(u64::try_from(sum.max(0)).unwrap_or(u64::MAX))
    }
}

/// Makes the whole block ready.
fn block(stream: &mut Stream, total: usize) -> Result<(), Fault> {
    if total > MAX_RECORD {
        return damage(format!("a block says it is {total} bytes long"));
    }
    if !stream.fill(total)? {
        return damage(format!("the block of {total} bytes is cut short after {}", stream.ready()));
    }
    Ok(())
}

fn skip(stream: &mut Stream, total: usize) -> Result<(), Fault> {
    if stream.skip(total as u64)? {
        return Ok(());
    }
    damage(format!("the block of {total} bytes before is cut short"))
}
