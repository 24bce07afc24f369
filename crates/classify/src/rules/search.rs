//! The search for the winning rule, and, where wanted, for few bits that prove that it wins.

use thalweg_packet::FlowKey;

use super::fields::{FIELDS, TRACKED, WIDEST};
use super::order::{Order, Slot};
use super::signature::{Asked, PAIRS, PairList, Pairs, Signature};
use super::subtable::{Ranked, Reached, Subtable};
use super::trie::Trie;
use crate::rule::Rank;

/// The number of searched subtables that are recorded without an allocation.
const REMEMBERED: usize = 32;

/// So many subtables are searched sooner than it is found out which of them cannot match.
const FEW_SUBTABLES: usize = 24;

/// Bits of this cost are added only after a search did not do without them: a bit
/// of a source port.
const DEAR: u32 = 8;

/// One search: a key against all subtables.
pub(super) struct Search<'a> {
    order: &'a Order,
    key: &'a FlowKey,
    /// Bits that the mask is to have.
    examined: &'a FlowKey,
    /// The pairs of field and length of which no prefix matches the key.
    dead: Signature,
    dead_list: PairList,
    /// For each of those, its field, and how many bits of the key show it.
    shown_by: [(u8, u8); PAIRS],
}

/// The winning rule for `key`, without a proof.
pub(super) fn winner(
    order: &Order,
    tries: &[Trie; FIELDS],
    pairs: &Pairs,
    key: &FlowKey,
) -> Option<Ranked> {
    let mut dead = PairList::new();
    if order.len() > FEW_SUBTABLES {
        each_dead(tries, pairs, key, |_, asked, _| dead.push(asked.pair));
    }
    let mut winner: Option<Ranked> = None;
    for chunk in order.chunks() {
        if winner.is_some_and(|(rank, _)| rank < chunk.best()) {
            break;
        }
        for at in bits(chunk.without(dead.pairs())) {
            let slot = &chunk.slots()[at];
            if winner.is_some_and(|(rank, _)| rank < slot.place.0) {
                break;
            }
            winner = slot.subtable.find(key).into_iter().chain(winner).min();
        }
    }
    winner
}

/// Calls `each` for every pair of field and length of which no prefix matches `key`, with how many
/// bits of the key show it.
fn each_dead(
    tries: &[Trie; FIELDS],
    pairs: &Pairs,
    key: &FlowKey,
    mut each: impl FnMut(usize, &Asked, u8),
) {
    let used = tries.iter().zip(TRACKED).enumerate().filter(|(_, (t, _))| !t.is_empty());
    for (field, (trie, tracked)) in used {
        let mut differing = [0; WIDEST + 1];
        trie.differing(tracked.bits(key), &mut differing);
        for asked in pairs.of_field(field) {
            let bits = differing[usize::from(asked.len)];
            if bits > 0 {
                each(field, asked, bits);
            }
        }
    }
}

/// A slot whose subtable was searched, and how far.
type Tried<'a> = (&'a Slot, Reached);

/// The result of the first pass over the subtables.
struct Outcome<'a> {
    winner: Option<(Ranked, &'a Subtable)>,
    tried: [Option<Tried<'a>>; REMEMBERED],
    count: usize,
    more: Vec<Tried<'a>>,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        order: &'a Order,
        tries: &[Trie; FIELDS],
        pairs: &Pairs,
        key: &'a FlowKey,
        examined: &'a FlowKey,
    ) -> Self {
        let mut search = Self {
            order,
            key,
            examined,
            dead: Signature::default(),
            dead_list: PairList::new(),
            shown_by: [(0, 0); PAIRS],
        };
        each_dead(tries, pairs, key, |field, asked, bits| {
            search.dead.add(asked.pair);
            search.dead_list.push(asked.pair);
            let bits = TRACKED[field].examined(bits, asked.len, order.len());
            search.shown_by[usize::from(asked.pair)] = (field as u8, bits);
        });
        search
    }

    /// The winning rule, and the bits that prove it.
    pub(super) fn run(&self) -> (Option<Ranked>, FlowKey) {
        let outcome = self.find();
        (outcome.winner.map(|(rule, _)| rule), self.proof(&outcome))
    }

    fn find(&self) -> Outcome<'a> {
        let mut outcome =
            Outcome { winner: None, tried: [None; REMEMBERED], count: 0, more: Vec::new() };
        for chunk in self.order.chunks() {
            if outcome.rank().is_some_and(|rank| rank < chunk.best()) {
                break;
            }
            for at in bits(chunk.without(self.dead_list.pairs())) {
                let slot = &chunk.slots()[at];
                if outcome.rank().is_some_and(|rank| rank < slot.place.0) {
                    break;
                }
                outcome.try_slot(slot, self.key, self.examined);
            }
        }
        outcome
    }

    /// The bits that show, for every subtable that has a better rule, that none of
    /// these matches. The winner's own come first, since what they show of others
    /// costs nothing. Then those of subtables that only a search rules out. Then
    /// the prefixes of subtables that leave no choice, and last the cheapest prefix
    /// for each subtable that is still open.
    fn proof(&self, outcome: &Outcome) -> FlowKey {
        let mut mask =
            outcome.winner.map_or(*self.examined, |(_, s)| self.examined.union(s.mask()));
        let is_better = |slot: &Slot| outcome.rank().is_none_or(|rank| slot.place.0 < rank);
        for (slot, reached) in outcome.tried().filter(|(slot, _)| is_better(slot)) {
            if !slot.subtable.is_ruled_out(self.key, &mask) {
                slot.subtable.add_examined(reached, &mut mask);
            }
        }
        self.add_prefixes::<true>(outcome.rank(), &mut mask);
        self.add_prefixes::<false>(outcome.rank(), &mut mask);
        mask
    }

    /// Adds prefixes until every skipped subtable that has a better rule than
    /// `rank` is ruled out, or only those that leave no choice of prefix.
    fn add_prefixes<const NO_CHOICE: bool>(&self, rank: Option<Rank>, mask: &mut FlowKey) {
        let is_better = |best: Rank| rank.is_none_or(|rank| best < rank);
        let dead = self.dead_list.pairs();
        let mut shown = self.shown(mask);
        for chunk in self.order.chunks().take_while(|c| is_better(c.best())) {
            let skipped = if NO_CHOICE { chunk.with_one(dead) } else { chunk.with(dead) };
            let mut open = skipped & !chunk.with(shown.pairs());
            while let Some(at) = bits(open).next() {
                open &= open - 1;
                let slot = &chunk.slots()[at];
                if is_better(slot.place.0) && self.add_prefix(slot, mask) {
                    shown = self.shown(mask);
                    open &= !chunk.with(shown.pairs());
                }
            }
        }
    }

    /// The dead pairs that the bits of `mask` show to be dead.
    fn shown(&self, mask: &FlowKey) -> PairList {
        let have = TRACKED.map(|field| field.prefix_len(mask));
        let mut shown = PairList::new();
        for &pair in self.dead_list.pairs() {
            let (field, bits) = self.shown_by[usize::from(pair)];
            if bits <= have[usize::from(field)] {
                shown.push(pair);
            }
        }
        shown
    }

    /// Adds the prefix that rules `slot` out at the least cost, unless the bits of
    /// `mask` do. Returns whether it added one.
    fn add_prefix(&self, slot: &Slot, mask: &mut FlowKey) -> bool {
        if slot.subtable.is_ruled_out(self.key, mask) {
            return false;
        }
        let prefixes = slot.signature.and(&self.dead).pairs();
        let prefixes = prefixes.map(|pair| self.shown_by[usize::from(pair)]);
        // Of equal ones the first field: the mask is to depend on the rules alone.
        let cost =
            |(field, bits): (u8, u8)| (TRACKED[usize::from(field)].cost(bits, mask), field, bits);
        let Some((cost, field, bits)) = prefixes.map(cost).min() else { return false };
        // A search takes time; it is worth that for expensive bits, or for any bits when
        // the question is whether they exist at all.
        let is_worth_it = cost >= DEAR || *self.examined != FlowKey::default();
        if is_worth_it && slot.subtable.is_shown_to_fail(self.key, mask) {
            return false;
        }
        TRACKED[usize::from(field)].add_prefix(bits, mask);
        true
    }
}

impl<'a> Outcome<'a> {
    /// The winner's rank.
    fn rank(&self) -> Option<Rank> {
        self.winner.map(|((rank, _), _)| rank)
    }

    /// Searches the subtable of `slot`. Where the winning rule has several
    /// patterns that match, the one wins that adds the fewest bits to `examined`.
    fn try_slot(&mut self, slot: &'a Slot, key: &FlowKey, examined: &FlowKey) {
        let reached = slot.subtable.search(key);
        if let Reached::Match(found) = reached {
            let adds = |subtable: &Subtable| subtable.bits_beyond(examined);
            let wins = self.winner.is_none_or(|(best, subtable)| {
                found.0 < best.0 || found.0 == best.0 && adds(&slot.subtable) < adds(subtable)
            });
            if wins {
                self.winner = Some((found, &slot.subtable));
            }
        }
        if let Some(place) = self.tried.get_mut(self.count) {
            *place = Some((slot, reached));
            self.count += 1;
        } else {
            self.more.push((slot, reached));
        }
    }

    fn tried(&self) -> impl Iterator<Item = Tried<'a>> {
        self.tried[..self.count].iter().flatten().chain(&self.more).copied()
    }
}

/// The numbers of the bits set in `word`.
fn bits(word: u64) -> impl Iterator<Item = usize> {
    let first = Some(word).filter(|w| *w != 0);
    let next = |left: &u64| Some(left & (left - 1)).filter(|l| *l != 0);
    std::iter::successors(first, next).map(|left| left.trailing_zeros() as usize)
}
