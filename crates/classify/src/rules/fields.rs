//! The header fields whose prefixes are tracked.

use thalweg_packet::{Field, FlowKey, field};

/// How many fields are tracked.
pub(super) const FIELDS: usize = 14;

/// The most bits a tracked field has.
pub(super) const WIDEST: usize = 128;

/// Tables of more subtables than this get their address bits in steps.
const WIDE: usize = 64;

/// The step, in bits. Where each bit counts by itself, large rule sets make so
/// many masks that the megaflow layer spends its time on them; see
/// docs/classification/rules.md for figures.
const STEP: u8 = 4;

/// A header field as a string of bits, its highest first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tracked {
    high: Field,
    /// The lower half of a field of 128 bits.
    low: Option<Field>,
    kind: Kind,
    /// What a bit in a mask costs: more where packets of the same two hosts differ.
    weight: u32,
}

/// How much of the field a proof uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// As many bits as it needs; in large tables, rounded up to steps.
    Address,
    /// As many bits as it needs.
    Number,
    /// All bits that the subtable tests. OpenFlow cannot express a partial mask.
    Name,
}

const fn tracked(high: Field, kind: Kind, weight: u32) -> Tracked {
    Tracked { high, low: None, kind, weight }
}

const fn address128(field: [Field; 2]) -> Tracked {
    Tracked { high: field[0], low: Some(field[1]), kind: Kind::Address, weight: 1 }
}

/// The tracked fields. Of proofs of equal cost, that by the earlier field is taken.
pub(super) const TRACKED: [Tracked; FIELDS] = [
    tracked(field::NW_DST, Kind::Address, 1),
    tracked(field::NW_SRC, Kind::Address, 1),
    tracked(field::TP_DST, Kind::Number, 2),
    tracked(field::TP_SRC, Kind::Number, 8),
    address128(field::IPV6_DST),
    address128(field::IPV6_SRC),
    tracked(field::NW_PROTO, Kind::Name, 1),
    tracked(field::DL_TYPE, Kind::Name, 1),
    tracked(field::VLAN_TCI, Kind::Number, 1),
    tracked(field::IN_PORT, Kind::Name, 1),
    tracked(field::DL_DST, Kind::Address, 1),
    tracked(field::DL_SRC, Kind::Address, 1),
    tracked(field::METADATA, Kind::Number, 1),
    tracked(field::TUN_ID, Kind::Number, 1),
];

impl Tracked {
    /// The field's bits in `key`, moved to the top.
    #[inline]
    pub(super) fn bits(self, key: &FlowKey) -> u128 {
        let high = u128::from(key.get(self.high)) << (128 - u32::from(self.high.bits));
        high | self.low.map_or(0, |low| u128::from(key.get(low)))
    }

    /// How many of the field's first bits `mask` holds. A mask that continues
    /// after a gap has a prefix too, and no key without it can match.
    pub(super) fn prefix_len(self, mask: &FlowKey) -> u8 {
        self.bits(mask).leading_ones() as u8
    }

    /// The mask of the field's first `len` bits.
    #[inline]
    fn prefix(self, len: u8) -> (u64, u64) {
        let top = ones(len);
        let high = (top >> (128 - u32::from(self.high.bits))) as u64;
        (high, top as u64)
    }

    /// Adds the field's first `len` bits to `mask`.
    pub(super) fn add_prefix(self, len: u8, mask: &mut FlowKey) {
        let (high, low) = self.prefix(len);
        mask.set(self.high, mask.get(self.high) | high);
        if let Some(place) = self.low {
            mask.set(place, mask.get(place) | low);
        }
    }

    /// What it costs to add the field's first `len` bits to `mask`.
    #[inline]
    pub(super) fn cost(self, len: u8, mask: &FlowKey) -> u32 {
        (ones(len) & !self.bits(mask)).count_ones() * self.weight
    }

    /// How many bits are used to distinguish a key from all prefixes of length `len`
    /// when it parts from them at bit number `differing`, in a table of so many
    /// subtables. Never more than the subtable itself looks at.
    #[inline]
    pub(super) fn examined(self, differing: u8, len: u8, subtables: usize) -> u8 {
        match self.kind {
            Kind::Address if subtables > WIDE => differing.next_multiple_of(STEP).min(len),
            Kind::Address | Kind::Number => differing,
            Kind::Name => len,
        }
    }
}

/// The number whose first `len` bits are set.
#[inline]
pub(super) fn ones(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_every_field_come_back_from_masks() {
        for tracked in TRACKED {
            let whole = tracked.prefix_len(&FlowKey::EXACT);
            let parts = [Some(tracked.high), tracked.low].into_iter().flatten();
            assert_eq!(u32::from(whole), parts.map(|f| u32::from(f.bits)).sum::<u32>());
            for len in 0..=whole {
                let mut mask = FlowKey::default();
                assert_eq!(tracked.cost(len, &mask), u32::from(len) * tracked.weight);
                tracked.add_prefix(len, &mut mask);
                assert_eq!((tracked.prefix_len(&mask), tracked.cost(len, &mask)), (len, 0));
                let set: u32 = mask.words.iter().map(|w| w.count_ones()).sum();
                assert_eq!(set, u32::from(len), "no bit of another field");
            }
        }
    }
}
