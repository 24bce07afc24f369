//! Whether packets are classified by the megaflows, or by the rules themselves.
//!
//! A megaflow pays where many packets meet it and few masks are searched before. Traffic can be made
//! so that neither holds: each packet needs a megaflow of its own, or a mask of its own, which all
//! later searches then look under (Csikor et al., "Tuple Space Explosion: A Denial-of-Service Attack
//! Against a Software Packet Classifier", CoNEXT 2019). A search of the rules without a proof costs
//! the same whatever other packets did. So megaflows live within a budget, in cycles: each packet
//! brings what the rules would have cost, and a little more; each pays what it cost. Once that
//! overdraws the budget, packets go to the rules, and save for the next attempt. Over any stretch of
//! time, classification costs at most an eighth more than the rules would have, and the budget once.

use thalweg_packet::BATCH;

use crate::random::Random;

/// The budget in cycles: what ten thousand megaflows cost to install, or about ten milliseconds.
const BUDGET: i64 = 1 << 25;
/// What packets bring beyond the rules' cost: an eighth of it, and after each attempt that failed
/// half as much, down to a 128th.
const MOST_SHIFT: u32 = 3;
const LEAST_SHIFT: u32 = 7;
/// Packets after which an attempt has not failed.
const LASTING: u64 = 1 << 20;
/// Batches of which one is timed, since reading the clock is not free.
const SAMPLED: u32 = 8;
/// The most that a batch counts for, in cycles a packet: beyond, the thread was interrupted.
const MOST: u64 = 1 << 15;
/// Batches that a trial of the rules takes: the first half brings them into the processor's caches,
/// the second is timed.
const TRIAL: u64 = 64;
/// Packets before the first trial.
const FIRST_TRIAL: i64 = 1 << 15;
/// Cycles of which trials take one; where megaflows cost less than a third, [`RARELY`] times as many.
const TRIALS: i64 = 128;
const RARELY: i64 = 16;
/// Batches that an average covers, as a power of two.
const WEIGHT: u32 = 4;
/// Bits after the point of costs, which are in cycles a packet.
const POINT: u32 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By the megaflows.
    Megaflows,
    /// By the rules for this number of further batches, to learn what they cost.
    Trial(u64),
    /// By the rules, until there is a budget again.
    Rules,
}

/// What one classifier may spend on its megaflows.
#[derive(Clone, Debug)]
pub(crate) struct MegaflowBudget {
    way: Way,
    /// In cycles.
    left: i64,
    /// What the rules cost a packet, where it is known.
    rules_cost: Option<i64>,
    megaflows_cost: i64,
    /// Packets that brought nothing yet, since it is not known what the rules would have cost.
    unpaid: i64,
    /// Until the next trial: where the rules' cost is not known in packets, else in cycles.
    trial_in: i64,
    /// Costs of batches of a trial.
    samples: Vec<i64>,
    /// Attempts that failed one after the other.
    failed: u32,
    /// Packets of this attempt.
    packets: u64,
    random: Random,
}

impl MegaflowBudget {
    /// A whole budget. `seed` decides which batches are timed; senders who do not know it cannot
    /// foresee them.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            way: Way::Megaflows,
            left: BUDGET,
            rules_cost: None,
            megaflows_cost: 0,
            unpaid: 0,
            trial_in: FIRST_TRIAL,
            samples: Vec::with_capacity(TRIAL as usize / 2),
            failed: 0,
            packets: 0,
            random: Random::new(seed),
        }
    }

    /// Whether the next batch is classified by the megaflows.
    #[inline]
    pub(crate) fn uses_megaflows(&self) -> bool {
        self.way == Way::Megaflows
    }

    /// Whether the next batch is to be timed.
    #[inline]
    pub(crate) fn measures_next(&mut self) -> bool {
        match self.way {
            Way::Trial(left) => left <= TRIAL / 2,
            Way::Megaflows | Way::Rules => self.random.next().is_multiple_of(SAMPLED),
        }
    }

    /// Forgets what the rules cost: they have changed.
    pub(crate) fn forget_rules(&mut self) {
        match self.way {
            Way::Megaflows => (self.rules_cost, self.trial_in) = (None, FIRST_TRIAL),
            Way::Trial(_) => self.begin_trial(),
            Way::Rules => {} // Measured all the time.
        }
    }

    /// Records that a batch of `packets` was classified, in `cycles` where it was timed.
    #[inline]
    pub(crate) fn batch(&mut self, packets: u64, cycles: Option<u64>) {
        let cost = cycles.map(|c| ((c << POINT) / packets.max(1)).min(MOST << POINT) as i64);
        match self.way {
            Way::Megaflows => {
                self.packets += packets;
                if let Some(cost) = cost {
                    self.pay(cost, packets as i64 * i64::from(SAMPLED));
                }
            }
            Way::Trial(left) => {
                self.samples.extend(cost);
                self.way = Way::Trial(left - 1);
                if left == 1 {
                    self.end_trial();
                }
            }
            Way::Rules => self.save(cost, packets as i64),
        }
    }

    /// Charges what `packets` cost by the megaflows.
    fn pay(&mut self, cost: i64, packets: i64) {
        let spent = (cost * packets) >> POINT;
        self.megaflows_cost += (cost - self.megaflows_cost) >> WEIGHT;
        self.left -= spent;
        if self.rules_cost.is_some() {
            self.trial_in -= spent;
            self.credit(packets);
        } else {
            self.trial_in -= packets;
            self.unpaid += packets;
        }
        if self.packets >= LASTING {
            self.failed = 0;
        }
        if self.left < 0 && self.rules_cost.is_some() {
            self.way = Way::Rules;
            self.failed += 1;
        } else if self.left < 0 || self.trial_in <= 0 {
            self.begin_trial();
        }
    }

    /// Adds what the rules would have cost for `packets`, and the share beyond.
    fn credit(&mut self, packets: i64) {
        let cost = self.rules_cost.unwrap_or(0);
        self.left = (self.left + (((cost + self.share()) * packets) >> POINT)).min(BUDGET);
    }

    /// What a packet brings beyond the rules' cost.
    fn share(&self) -> i64 {
        self.rules_cost.unwrap_or(0) >> (MOST_SHIFT + self.failed).min(LEAST_SHIFT)
    }

    fn begin_trial(&mut self) {
        self.samples.clear();
        self.way = Way::Trial(TRIAL);
    }

    fn end_trial(&mut self) {
        // Some batches may have been interrupted.
        let middle = self.samples.len() / 2;
        let cost = (*self.samples.select_nth_unstable(middle).1).max(1);
        self.rules_cost = Some(cost);
        let unpaid = std::mem::take(&mut self.unpaid);
        self.credit(unpaid);
        self.attempt();
        if self.left < 0 {
            self.way = Way::Rules;
            self.failed += 1;
        }
    }

    /// Goes on with the megaflows.
    fn attempt(&mut self) {
        let cost = self.rules_cost.unwrap_or(0);
        let trial = (cost * TRIAL as i64 * BATCH as i64) >> POINT;
        let rarely = if self.megaflows_cost * 3 < cost { RARELY } else { 1 };
        self.trial_in = trial * TRIALS * rarely;
        self.way = Way::Megaflows;
    }

    /// Saves for the next attempt with `packets` that went to the rules.
    fn save(&mut self, cost: Option<i64>, packets: i64) {
        if let (Some(known), Some(cost)) = (&mut self.rules_cost, cost) {
            // Where it is far more, the thread was interrupted, or the traffic is becoming dearer.
            *known = (*known + ((cost.min(4 * *known) - *known) >> WEIGHT)).max(1);
        }
        self.left += (self.share() * packets).max(1) >> POINT;
        if self.left >= BUDGET {
            self.packets = 0;
            self.attempt();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What packets cost by the rules, by megaflows that are there, and more for one that is not.
    struct Costs {
        rules: u64,
        search: u64,
        install: u64,
    }

    /// Runs batches whose packets need `new` megaflows a thousand; returns the cycles in all and the
    /// share of batches, in percent, that the megaflows classified.
    fn run(budget: &mut MegaflowBudget, batches: u64, new: u64, costs: &Costs) -> (u64, u64) {
        let (mut spent, mut by_megaflows) = (0, 0);
        for batch in 0..batches {
            let timed = budget.measures_next();
            let cycles = if budget.uses_megaflows() {
                by_megaflows += 1;
                let installed = (32 * new * (batch + 1) / 1000) - (32 * new * batch / 1000);
                32 * costs.search + installed * costs.install
            } else {
                32 * costs.rules
            };
            budget.batch(32, timed.then_some(cycles));
            spent += cycles;
        }
        (spent, by_megaflows * 100 / batches)
    }

    #[test]
    fn whatever_megaflows_cost_an_eighth_more_than_the_rules_is_spent_and_the_budget() {
        for (search, install, new) in
            [(70, 3000, 1000), (20_000, 3000, 0), (240, 3000, 10), (190, 0, 0)]
        {
            let costs = Costs { rules: 200, search, install };
            let mut budget = MegaflowBudget::new(1);
            for _ in 0..20 {
                let (spent, _) = run(&mut budget, 100_000, new, &costs);
                let most = 200 * 32 * 100_000 * 9 / 8 + 3 * BUDGET as u64 / 2;
                assert!(spent <= most, "{search} {install} {new}: {spent} of {most}");
            }
        }
    }

    #[test]
    fn megaflows_that_pay_stay_in_use() {
        let mut budget = MegaflowBudget::new(2);
        let costs = Costs { rules: 900, search: 60, install: 3000 };
        // A tenth of the packets needs a new one at first: less than what all others save.
        assert!(run(&mut budget, 10_000, 100, &costs).1 >= 95);
        let (spent, by_megaflows) = run(&mut budget, 200_000, 0, &costs);
        assert!(
            by_megaflows >= 99 && spent <= 60 * 32 * 200_000 * 101 / 100,
            "{by_megaflows} {spent}"
        );
    }

    #[test]
    fn they_are_used_again_once_they_pay_again() {
        let mut budget = MegaflowBudget::new(3);
        let costs = |search| Costs { rules: 200, search, install: 3000 };
        assert!(run(&mut budget, 400_000, 0, &costs(5000)).1 <= 3);
        run(&mut budget, 2_000_000, 0, &costs(50));
        assert!(run(&mut budget, 10_000, 0, &costs(50)).1 >= 90);
    }

    #[test]
    fn new_rules_are_tried_before_they_are_judged() {
        let mut budget = MegaflowBudget::new(4);
        assert!(run(&mut budget, 20_000, 0, &Costs { rules: 40, search: 300, install: 0 }).1 <= 60);
        let mut budget = MegaflowBudget::new(4);
        run(&mut budget, 20_000, 0, &Costs { rules: 4000, search: 300, install: 0 });
        budget.forget_rules();
        let dear = run(&mut budget, 20_000, 0, &Costs { rules: 40, search: 300, install: 0 }).1;
        assert!(dear <= 60, "{dear}");
    }
}
