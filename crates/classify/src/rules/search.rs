//! The search for the winning rule, and for few bits that prove that it wins.

use thalweg_packet::FlowKey;

use super::fields::{FIELDS, TRACKED, WIDEST};
use super::order::{Order, Slot};
use super::subtable::{Ranked, Reached};
use super::trie::{Differing, Trie};

/// One search: a key against all subtables.
pub(super) struct Search<'a> {
    order: &'a Order,
    key: &'a FlowKey,
    /// The tracked fields that any rule looks at.
    fields: [usize; FIELDS],
    count: usize,
    differing: [Differing; FIELDS],
}

/// The winner so far, and the number of slots visited.
struct Winner {
    rule: Option<Ranked>,
    /// Its place among the slots.
    at: usize,
    visited: usize,
}

impl<'a> Search<'a> {
    pub(super) fn new(order: &'a Order, tries: &[Trie; FIELDS], key: &'a FlowKey) -> Self {
        let mut search = Self {
            order,
            key,
            fields: [0; FIELDS],
            count: 0,
            differing: [[0; WIDEST + 1]; FIELDS],
        };
        for (field, trie) in tries.iter().enumerate().filter(|(_, t)| !t.is_empty()) {
            trie.differing(TRACKED[field].bits(key), &mut search.differing[field]);
            search.fields[search.count] = field;
            search.count += 1;
        }
        search
    }

    /// The winning rule, and the bits that prove it.
    pub(super) fn run(&self) -> (Option<Ranked>, FlowKey) {
        let winner = self.winner();
        (winner.rule, self.proof(&winner))
    }

    fn winner(&self) -> Winner {
        let mut winner = Winner { rule: None, at: 0, visited: 0 };
        for (at, slot) in self.order.iter().enumerate() {
            if winner.rule.is_some_and(|(rank, _)| rank <= slot.place.0) {
                break;
            }
            winner.visited = at + 1;
            if !self.is_skipped(slot)
                && let Reached::Match(found) = slot.subtable.search(self.key)
                && winner.rule.is_none_or(|best| found.0 < best.0)
            {
                (winner.rule, winner.at) = (Some(found), at);
            }
        }
        winner
    }

    /// The bits that show, for every subtable visited, that it has no better
    /// rule. One of them is the winner's: its bits come first, since what they
    /// show of others costs nothing. Then those that leave no choice, then the
    /// cheapest prefix for each of the rest.
    fn proof(&self, winner: &Winner) -> FlowKey {
        let slots = || self.order.iter().enumerate().take(winner.visited);
        let mut mask = FlowKey::default();
        if let Some((_, slot)) = slots().find(|(at, _)| winner.rule.is_some() && *at == winner.at) {
            mask = *slot.subtable.mask();
        }
        for (_, slot) in slots().filter(|(_, s)| !self.is_skipped(s)) {
            if !slot.subtable.is_ruled_out(self.key, &mask) {
                slot.subtable.add_examined(slot.subtable.search(self.key), &mut mask);
            }
        }
        for (_, slot) in slots().filter(|(_, s)| self.is_skipped(s)) {
            self.add_prefix(slot, &mut mask);
        }
        mask
    }

    /// The fields whose prefixes show that no pattern of `slot` matches, and how
    /// many bits show it.
    fn ruling_out<'s>(&'s self, slot: &'s Slot) -> impl Iterator<Item = (usize, u8)> + 's {
        self.fields[..self.count].iter().filter_map(|&field| {
            let len = slot.prefix_lens[field];
            let differing = self.differing[field][usize::from(len)];
            (differing > 0).then(|| (field, TRACKED[field].examined(differing, len)))
        })
    }

    fn is_skipped(&self, slot: &Slot) -> bool {
        self.ruling_out(slot).next().is_some()
    }

    /// Adds the prefix that rules `slot` out with the fewest new bits.
    fn add_prefix(&self, slot: &Slot, mask: &mut FlowKey) {
        let missing = |&(field, len): &(usize, u8)| TRACKED[field].missing(len, mask);
        let Some(cheapest) = self.ruling_out(slot).min_by_key(missing) else { return };
        if missing(&cheapest) > 0 && !slot.subtable.is_ruled_out(self.key, mask) {
            TRACKED[cheapest.0].add_prefix(cheapest.1, mask);
        }
    }
}
