//! The hashes that one subtable needs of a batch.

use thalweg_cpu::Isa;
use thalweg_packet::{FlowKey, Half, Lanes, TransposedKeys};

use super::{Hasher, MaskedHalf, halves};
use crate::secret::Keys;

/// Hashes the keys of a batch under one mask, as the megaflow search does for each
/// family of masks. All levels give the same hashes.
#[derive(Clone, Debug)]
pub struct Signatures {
    hasher: Hasher,
    halves: Vec<MaskedHalf>,
}

impl Signatures {
    /// Hashes under `mask`, with the keys that `seed` gives. Uses the instructions of `isa` where
    /// there are packets enough, else hashes one by one.
    ///
    /// # Panics
    /// When the processor lacks the instructions.
    pub fn new(mask: &FlowKey, seed: u64, isa: Isa) -> Self {
        Self { hasher: Hasher::new(isa, Keys::seeded(seed)), halves: halves(mask) }
    }

    /// How many halves of words the mask has.
    pub fn halves(&self) -> usize {
        self.halves.len()
    }

    /// The hashes of the keys of `lanes`; those of other lanes are unspecified.
    pub fn of(&self, keys: &TransposedKeys, lanes: Lanes, hashes: &mut Half) {
        self.hasher.masked_lanes(&self.halves, keys, lanes, hashes);
    }
}

#[cfg(test)]
mod tests {
    use thalweg_packet::BATCH;

    use super::*;

    #[test]
    fn all_levels_hash_alike() {
        let keys = std::array::from_fn(|lane| FlowKey {
            words: std::array::from_fn(|word| (lane as u64 + 1) << word),
        });
        let keys = TransposedKeys::from_keys(&keys);
        let mut mask = FlowKey::default();
        (mask.words[2], mask.words[5]) = (0xffff_0000_00ff, 7);
        let hashes = |isa, lanes| {
            let mut hashes = [0; BATCH];
            Signatures::new(&mask, 3, isa).of(&keys, lanes, &mut hashes);
            lanes.into_iter().map(|lane| hashes[lane]).collect::<Vec<_>>()
        };
        for lanes in [Lanes::ALL, Lanes(0b1_0010_0001), Lanes::one(31)] {
            let expected = hashes(Isa::Scalar, lanes);
            assert!(Isa::available().all(|isa| hashes(isa, lanes) == expected));
        }
    }
}
