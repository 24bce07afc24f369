//! The header fields whose prefixes are tracked.

use thalweg_packet::{Field, FlowKey, field};

/// How many fields are tracked.
pub(super) const FIELDS: usize = 14;

/// The most bits a tracked field has.
pub(super) const WIDEST: usize = 128;

/// A header field as a string of bits, its highest first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tracked {
    high: Field,
    /// The lower half of a field of 128 bits.
    low: Option<Field>,
    /// Whether a mask may hold some of its bits without the others. OpenFlow has
    /// no way to write such a mask for these fields.
    maskable: bool,
}

/// The tracked fields. The first are asked first: those that tell most rules apart.
pub(super) const TRACKED: [Tracked; FIELDS] = [
    Tracked { high: field::NW_DST, low: None, maskable: true },
    Tracked { high: field::NW_SRC, low: None, maskable: true },
    Tracked { high: field::TP_DST, low: None, maskable: true },
    Tracked { high: field::TP_SRC, low: None, maskable: true },
    Tracked { high: field::IPV6_DST[0], low: Some(field::IPV6_DST[1]), maskable: true },
    Tracked { high: field::IPV6_SRC[0], low: Some(field::IPV6_SRC[1]), maskable: true },
    Tracked { high: field::NW_PROTO, low: None, maskable: false },
    Tracked { high: field::DL_TYPE, low: None, maskable: false },
    Tracked { high: field::VLAN_TCI, low: None, maskable: true },
    Tracked { high: field::IN_PORT, low: None, maskable: false },
    Tracked { high: field::DL_DST, low: None, maskable: true },
    Tracked { high: field::DL_SRC, low: None, maskable: true },
    Tracked { high: field::METADATA, low: None, maskable: true },
    Tracked { high: field::TUN_ID, low: None, maskable: true },
];

impl Tracked {
    /// The field's bits in `key`, moved to the top.
    #[inline]
    pub(super) fn bits(self, key: &FlowKey) -> u128 {
        let high = u128::from(key.get(self.high)) << (128 - u32::from(self.high.bits));
        high | self.low.map_or(0, |low| u128::from(key.get(low)))
    }

    /// How many of the field's first bits `mask` holds. A mask that goes on
    /// behind a gap has a prefix too, and no key without it can match.
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

    /// How many of the field's first `len` bits `mask` does not hold yet.
    #[inline]
    pub(super) fn missing(self, len: u8, mask: &FlowKey) -> u32 {
        (ones(len) & !self.bits(mask)).count_ones()
    }

    /// How many bits tell a key from all prefixes of length `len` when it parts
    /// from them at bit number `differing`.
    #[inline]
    pub(super) fn examined(self, differing: u8, len: u8) -> u8 {
        if self.maskable { differing } else { len }
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
                assert_eq!(tracked.missing(len, &mask), u32::from(len));
                tracked.add_prefix(len, &mut mask);
                assert_eq!((tracked.prefix_len(&mask), tracked.missing(len, &mask)), (len, 0));
                let set: u32 = mask.words.iter().map(|w| w.count_ones()).sum();
                assert_eq!(set, u32::from(len), "no bit of another field");
            }
        }
    }
}
