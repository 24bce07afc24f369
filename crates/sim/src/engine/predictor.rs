//! The branch predictor: TAGE (Seznec and Michaud, "A case for (partially) TAgged
//! GEometric history length branch prediction", JILP 8, 2006), with a base table and
//! four tagged ones.

/// Bits of history that each tagged table looks at.
const HISTORIES: [u32; 4] = [5, 12, 27, 60];
/// Entries of a tagged table.
const ENTRIES: usize = 1024;
/// Entries of the base table.
const BASE: usize = 4096;
/// Branches after which useful counters fade.
const FADE: u32 = 1 << 18;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    tag: u16,
    /// -4 to 3; taken from 0 on.
    counter: i8,
    useful: u8,
}

/// The predictor's tables and history.
#[derive(Clone, Debug)]
pub struct Predictor {
    base: Box<[i8]>,
    tables: [Box<[Entry]>; HISTORIES.len()],
    history: u64,
    since_fade: u32,
    /// Last targets of indirect branches.
    targets: Box<[u32]>,
}

impl Default for Predictor {
    fn default() -> Self {
        Self {
            base: vec![0; BASE].into(),
            tables: std::array::from_fn(|_| vec![Entry::default(); ENTRIES].into()),
            history: 0,
            since_fade: 0,
            targets: vec![0; ENTRIES].into(),
        }
    }
}

/// Spreads all bits of `n`.
#[inline]
fn mix(n: u64) -> u64 {
    let n = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    n ^ n >> 29
}

impl Predictor {
    /// Index and tag of a branch in table `table`.
    #[inline]
    fn place(&self, table: usize, pc: u32) -> (usize, u16) {
        let history = self.history & ((1 << HISTORIES[table]) - 1);
        let mixed = mix(history ^ u64::from(pc) << 32 ^ (table as u64) << 61);
        ((mixed >> 20) as usize % ENTRIES, (mixed >> 48) as u16 | 1)
    }

    /// Records a branch with the outcome `taken`; returns whether that was predicted.
    pub fn branch(&mut self, pc: u32, taken: bool) -> bool {
        let places: [_; HISTORIES.len()] = std::array::from_fn(|table| self.place(table, pc));
        let hits = |table: &usize| self.tables[*table][places[*table].0].tag == places[*table].1;
        let mut found = (0..HISTORIES.len()).rev().filter(hits);
        let (provider, other) = (found.next(), found.next());
        let base_at = pc as usize % BASE;
        let of = |table: Option<usize>| match table {
            Some(table) => self.tables[table][places[table].0].counter >= 0,
            None => self.base[base_at] >= 0,
        };
        let (predicted, alternative) = (of(provider), of(other));
        match provider {
            Some(table) => {
                let entry = &mut self.tables[table][places[table].0];
                entry.counter = step(entry.counter, taken, 3);
                if predicted != alternative {
                    let better = predicted == taken;
                    entry.useful = if better {
                        3.min(entry.useful + 1)
                    } else {
                        entry.useful.saturating_sub(1)
                    };
                }
            }
            None => self.base[base_at] = step(self.base[base_at], taken, 1),
        }
        if predicted != taken {
            self.allocate(provider.map_or(0, |table| table + 1), &places, taken);
        }
        self.fade();
        self.history = self.history << 1 | u64::from(taken);
        predicted == taken
    }

    /// Gives a branch that was mispredicted an entry with a longer history.
    fn allocate(&mut self, from: usize, places: &[(usize, u16)], taken: bool) {
        let counter = if taken { 0 } else { -1 };
        for (table, (at, tag)) in self.tables.iter_mut().zip(places).skip(from) {
            let entry = &mut table[*at];
            if entry.useful == 0 {
                *entry = Entry { tag: *tag, counter, useful: 0 };
                return;
            }
        }
        for (table, (at, _)) in self.tables.iter_mut().zip(places).skip(from) {
            let entry = &mut table[*at];
            entry.useful = entry.useful.saturating_sub(1);
        }
    }

    fn fade(&mut self) {
        self.since_fade += 1;
        if self.since_fade == FADE {
            self.since_fade = 0;
            self.tables.iter_mut().flat_map(|t| t.iter_mut()).for_each(|e| e.useful >>= 1);
        }
    }

    /// Meets an indirect branch to `target`; whether that was predicted: the last target
    /// with the same history.
    pub fn indirect(&mut self, pc: u32, target: u32) -> bool {
        let history = self.history & 0xff;
        let at = (mix(history ^ u64::from(pc) << 32) >> 20) as usize % ENTRIES;
        let predicted = self.targets[at] == target;
        self.targets[at] = target;
        self.history = self.history << 2 | u64::from(target & 3);
        predicted
    }
}

#[inline]
fn step(counter: i8, taken: bool, most: i8) -> i8 {
    if taken { (counter + 1).min(most) } else { (counter - 1).max(-most - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(mut taken: impl FnMut(u32) -> bool) -> f64 {
        let mut predictor = Predictor::default();
        let mut right = 0;
        for n in 0..40_000 {
            let was_right = predictor.branch(7, taken(n));
            right += u32::from(was_right && n >= 20_000);
        }
        f64::from(right) / 20_000.0
    }

    fn chance(n: u32) -> u64 {
        mix(mix(mix(u64::from(n) + 1)) >> 7) >> 33
    }

    #[test]
    fn patterns_are_learnt_and_chance_is_not() {
        assert!(rate(|_| true) > 0.999);
        assert!(rate(|n| n % 7 == 0) > 0.99);
        assert!(rate(|n| n % 23 == 3) > 0.97);
        let random = rate(|n| chance(n).is_multiple_of(2));
        assert!((0.45..0.55).contains(&random), "{random}");
        let biased = rate(|n| !chance(n).is_multiple_of(8));
        assert!((0.82..0.9).contains(&biased), "{biased}");
    }

    #[test]
    fn a_target_that_comes_again_is_predicted() {
        let mut predictor = Predictor::default();
        let right = (0..1000).filter(|_| predictor.indirect(3, 77)).count();
        assert!(right > 990, "{right}");
    }
}
