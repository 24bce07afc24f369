//! The three layers combined.

use std::sync::Arc;

use thalweg_cpu::{Isa, cycles};
use thalweg_packet::{BATCH, FlowKey, Half, Lanes, Nanoseconds, TransposedKeys};

use crate::emc::{Cached, Emc};
use crate::emc_control::EmcControl;
use crate::hash::Hasher;
use crate::lookup::{Explanation, LayerStats, Lookup, MatchLayer};
use crate::megaflow::{Megaflow, Megaflows};
use crate::megaflow_budget::MegaflowBudget;
use crate::rule::Match;
use crate::rule_table::RuleTable;
use crate::shared::SharedRules;
use crate::stages::{LayerCycles, Watch};

/// The period within which every megaflow is checked for idleness, a few with
/// each batch.
const SWEEP_PERIOD: Nanoseconds = Nanoseconds::from_millis(400);

/// The idle time of a megaflow once the megaflow layer is full. As in
/// Open vSwitch, so that a scan does not lock out the flows that come after it.
const IDLE_WHEN_FULL: Nanoseconds = Nanoseconds::from_millis(100);

/// Which of the secret words chooses the batches that are timed; the hashes take the first ones.
const BUDGET: u64 = u64::MAX;

/// Sizes and times of the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The most places of the exact-match cache, rounded up to a power of two, at
    /// most 2^20; 0 turns it off. A place takes 128 bytes.
    pub emc_entries: usize,
    /// A missed key enters the exact-match cache with probability 1/N: 1 is
    /// always, 0 is never.
    pub emc_insert_inverse_probability: u32,
    /// Whether the flow register sizes the exact-match cache, and turns it off
    /// where packets are classified faster without.
    pub emc_adaptive: bool,
    /// The most megaflows; above, packets fall to the rule table, and megaflows
    /// idle for 100 ms are removed.
    pub megaflow_limit: usize,
    /// Whether packets go past the megaflows to the rules while megaflows cost more than they save.
    pub megaflow_adaptive: bool,
    /// A megaflow that no packet matches for this long is removed, at most half a
    /// second of packet time later; after a pause in the traffic, when a few thousand batches have passed.
    pub idle_timeout: Nanoseconds,
    /// The instructions to use; all give the same answers.
    pub isa: Isa,
}

impl Default for Config {
    /// The defaults of Open vSwitch.
    fn default() -> Self {
        Self {
            emc_entries: 8192,
            emc_insert_inverse_probability: 100,
            emc_adaptive: true,
            megaflow_limit: 200_000,
            megaflow_adaptive: true,
            idle_timeout: Nanoseconds::from_secs(10),
            isa: Isa::active(),
        }
    }
}

/// A classifier: caches of its own over rules that others may replace meanwhile.
#[derive(Debug)]
pub struct Classifier {
    shared: Arc<SharedRules>,
    rules: Arc<RuleTable>,
    /// For the exact-match cache and the flow register; the megaflows hash alike.
    hasher: Hasher,
    emc: Emc,
    control: Option<EmcControl>,
    megaflows: Megaflows,
    budget: Option<MegaflowBudget>,
    config: Config,
    swept: Nanoseconds,
    stats: LayerStats,
    /// Whether the layers are timed.
    timed: bool,
    cycles: LayerCycles,
}

/// The packets of one batch.
struct Packets<'a> {
    keys: &'a TransposedKeys,
    lens: &'a [u16; BATCH],
    /// Hashes of the whole keys, when the exact-match cache or the flow register
    /// needs them.
    hashes: &'a Half,
}

impl Classifier {
    /// A classifier with empty caches over `shared`.
    ///
    /// # Panics
    /// When the processor lacks the instructions that `config` names.
    pub fn new(shared: Arc<SharedRules>, config: Config) -> Self {
        let rules = shared.load();
        let emc = Emc::new(config.emc_entries, config.emc_insert_inverse_probability);
        let keys = shared.keys();
        Self {
            shared,
            rules,
            hasher: Hasher::new(config.isa, keys),
            control: (emc.is_on() && config.emc_adaptive).then(|| EmcControl::new(emc.entries())),
            emc,
            megaflows: Megaflows::new(config.megaflow_limit, config.isa, keys),
            budget: config.megaflow_adaptive.then(|| MegaflowBudget::new(keys.word(BUDGET))),
            config,
            swept: Nanoseconds::default(),
            stats: LayerStats::default(),
            timed: false,
            cycles: LayerCycles::default(),
        }
    }

    /// Classifies the packets of `lanes`, whose keys and lengths in bytes are
    /// given, at packet time `now`. Other lanes of `out` are left as they are.
    ///
    /// Adopts new rules first, if there are any.
    pub fn classify_batch(
        &mut self,
        keys: &TransposedKeys,
        lanes: Lanes,
        lens: &[u16; BATCH],
        now: Nanoseconds,
        out: &mut [Lookup; BATCH],
    ) {
        self.take_up_rules();
        self.megaflows.set_time(now);
        self.sweep(now);
        let control = self.control.as_ref();
        let start = control.filter(|c| c.measures()).map(|_| cycles::now());
        self.classify(keys, lanes, lens, out);
        if let Some(control) = &mut self.control {
            let cycles = start.map_or(0, |start| cycles::now().wrapping_sub(start));
            control.batch(lanes.count() as u64, cycles, &mut self.emc);
        }
    }

    fn classify(
        &mut self,
        keys: &TransposedKeys,
        lanes: Lanes,
        lens: &[u16; BATCH],
        out: &mut [Lookup; BATCH],
    ) {
        let cache = self.emc.is_on() && self.control.as_ref().is_none_or(EmcControl::uses_cache);
        let counts = self.control.as_ref().is_some_and(EmcControl::counts);
        let mut watch = Watch::start(self.timed);
        let mut hashes = [0; BATCH];
        if cache || counts {
            self.hasher.whole_lanes(keys, lanes, &mut hashes);
        }
        if counts && let Some(control) = &mut self.control {
            lanes.into_iter().for_each(|lane| control.note(hashes[lane]));
        }
        let packets = Packets { keys, lens, hashes: &hashes };
        let mut left = lanes;
        if cache {
            let found = self.ask_emc(&packets, left, out);
            left = left.without(found);
        }
        watch.lap(&mut self.cycles.emc);
        if !left.is_empty() {
            self.ask_cheaper_layer(&packets, left, cache, out);
        }
    }

    /// Classifies the packets that the exact-match cache did not know: by the megaflows, or by the
    /// rules themselves where megaflows cost more.
    fn ask_cheaper_layer(
        &mut self,
        packets: &Packets<'_>,
        lanes: Lanes,
        cache: bool,
        out: &mut [Lookup; BATCH],
    ) {
        let Some(budget) = &mut self.budget else {
            return self.ask_megaflows(packets, lanes, cache, out);
        };
        let start = budget.measures_next().then(cycles::now);
        if budget.uses_megaflows() {
            self.ask_megaflows(packets, lanes, cache, out);
        } else {
            self.ask_rules(packets, lanes, out);
        }
        if let Some(budget) = &mut self.budget {
            budget.batch(lanes.count() as u64, start.map(|s| cycles::now().wrapping_sub(s)));
        }
    }

    /// Classifies packets by the rules, and caches nothing.
    fn ask_rules(&mut self, packets: &Packets<'_>, lanes: Lanes, out: &mut [Lookup; BATCH]) {
        let mut watch = Watch::start(self.timed);
        for lane in lanes {
            self.ask_rules_for(&packets.keys.key(lane), &mut out[lane]);
        }
        watch.lap(&mut self.cycles.rules);
    }

    /// Classifies one packet by the rules, and caches nothing.
    fn ask_rules_for(&mut self, key: &FlowKey, out: &mut Lookup) {
        let (rule, packet_type) = self.rules.find(key);
        self.stats.rule_lookups += 1;
        self.stats.not_cached += 1;
        self.stats.unmatched += u64::from(rule.is_none());
        *out = Lookup { rule, packet_type, layer: MatchLayer::RuleTable };
    }

    /// Enables timing of each layer from now on; the timing itself costs
    /// some time.
    pub fn take_time(&mut self) {
        self.timed = true;
    }

    /// Cycles spent in each layer while timing was enabled.
    pub fn layer_cycles(&self) -> LayerCycles {
        self.cycles
    }

    /// Classifies the packets that the exact-match cache knows; returns those.
    fn ask_emc(&mut self, packets: &Packets<'_>, lanes: Lanes, out: &mut [Lookup; BATCH]) -> Lanes {
        let mut cached = [Cached::default(); BATCH];
        let found = self.emc.find_batch(packets.keys, lanes, packets.hashes, &mut cached);
        let now = self.megaflows.now();
        let mut hits = Lanes::NONE;
        for lane in found {
            let Cached { handle, stamp } = cached[lane];
            if let Some(flow) = self.megaflows.stamped_mut(handle, stamp) {
                flow.meet(1, packets.lens[lane].into(), now);
                out[lane] = flow.answer(MatchLayer::Emc);
                hits.insert(lane);
            }
        }
        self.stats.emc_hits += hits.count() as u64;
        hits
    }

    /// Classifies packets by the megaflows, and caches what these lack.
    fn ask_megaflows(
        &mut self,
        packets: &Packets<'_>,
        lanes: Lanes,
        cache: bool,
        out: &mut [Lookup; BATCH],
    ) {
        let mut watch = Watch::start(self.timed);
        let mut handles = [0; BATCH];
        let found = self.megaflows.find_batch(packets.keys, lanes, &mut handles);
        let hits = self.megaflows.answer(found, &handles, packets.lens, out);
        self.stats.megaflow_hits += hits.count() as u64;
        watch.lap(&mut self.cycles.megaflow);
        if hits != lanes {
            for lane in lanes.without(hits) {
                self.classify_slowly(packets, lane, out);
            }
            watch.lap(&mut self.cycles.rules);
        }
        if cache {
            self.fill_emc(packets, hits, &handles);
            watch.lap(&mut self.cycles.emc);
        }
    }

    /// Puts keys that met a megaflow into the exact-match cache, now and then.
    fn fill_emc(&mut self, packets: &Packets<'_>, lanes: Lanes, handles: &Half) {
        let always = self.control.as_ref().is_some_and(EmcControl::fills);
        for lane in lanes {
            if self.emc.wants(always) {
                let (megaflows, handle) = (&self.megaflows, handles[lane]);
                let live = |c: Cached| megaflows.has_stamp(c.handle, c.stamp);
                let stamp = megaflows.stamp(handle);
                // An earlier packet of this batch may have removed the megaflow.
                if stamp != 0 {
                    let key = packets.keys.key(lane);
                    self.emc.insert(&key, packets.hashes[lane], Cached { handle, stamp }, live);
                }
            }
        }
    }

    /// Classifies a packet whose megaflow is missing or doubtful.
    fn classify_slowly(&mut self, packets: &Packets<'_>, lane: usize, out: &mut [Lookup; BATCH]) {
        let (keys, len, out) = (packets.keys, packets.lens[lane], &mut out[lane]);
        // An earlier packet of this batch may have installed what this one
        // needs. Each round removes a doubtful megaflow, so they end.
        let mut handles = [0; BATCH];
        while self.megaflows.find_batch(keys, Lanes::one(lane), &mut handles).contains(lane) {
            let handle = handles[lane];
            let right = !self.megaflows.is_doubtful(handle);
            if right || self.megaflows.confirm(handle, &self.rules) {
                let now = self.megaflows.now();
                let flow = self.megaflows.flow_mut(handle);
                flow.meet(1, len.into(), now);
                *out = flow.answer(MatchLayer::Megaflow);
                self.stats.megaflow_hits += 1;
                return;
            }
            self.stats.revalidated_away += 1;
        }
        self.upcall(&keys.key(lane), len, out);
    }

    /// Searches the rule table and caches its answer.
    fn upcall(&mut self, key: &FlowKey, len: u16, out: &mut Lookup) {
        if !self.megaflows.has_room() {
            // Without a place for it a proof is of no use.
            return self.ask_rules_for(key, out);
        }
        let found = self.rules.lookup(key);
        self.stats.rule_lookups += 1;
        self.stats.unmatched += u64::from(found.rule.is_none());
        let now = self.megaflows.now();
        match self.megaflows.insert(key, &found) {
            Some(handle) => self.megaflows.flow_mut(handle).meet(1, len.into(), now),
            None => self.stats.not_cached += 1,
        }
        *out = Lookup {
            rule: found.rule,
            packet_type: found.packet_type,
            layer: MatchLayer::RuleTable,
        };
    }

    /// Adopts new rules, if there are any. Cached entries are then doubtful,
    /// and each is checked when it is next hit.
    fn take_up_rules(&mut self) {
        if !self.shared.is_current(&self.rules) {
            self.rules = self.shared.load();
            self.megaflows.doubt_all();
            if let Some(budget) = &mut self.budget {
                budget.forget_rules();
            }
        }
    }

    /// Removes idle megaflows, a few at a time.
    fn sweep(&mut self, now: Nanoseconds) {
        let passed = now.since(self.swept);
        if passed != Nanoseconds(0) && self.megaflows.len() > 0 {
            let idle = self.config.idle_timeout;
            let idle = if self.megaflows.is_full() { idle.min(IDLE_WHEN_FULL) } else { idle };
            let part = passed.0 as f64 / SWEEP_PERIOD.0 as f64;
            self.stats.expired += self.megaflows.expire(part, idle) as u64;
        }
        self.swept = now;
    }

    /// How `key` would be classified now. Adopts new rules first; counts
    /// nothing and caches nothing.
    pub fn explain(&mut self, key: &FlowKey) -> Explanation {
        self.take_up_rules();
        let asked = self.budget.as_ref().is_none_or(MegaflowBudget::uses_megaflows);
        let peek = || self.megaflows.peek(key, &self.rules);
        if let Some(flow) = asked.then(peek).flatten() {
            let layer = if self.is_in_emc(key) { MatchLayer::Emc } else { MatchLayer::Megaflow };
            let lookup = Lookup { rule: flow.rule, packet_type: flow.packet_type, layer };
            return self.explanation(lookup, &flow.pattern);
        }
        let found = self.rules.lookup(key);
        let lookup = Lookup {
            rule: found.rule,
            packet_type: found.packet_type,
            layer: MatchLayer::RuleTable,
        };
        self.explanation(lookup, &Match::new(*key, found.mask))
    }

    /// Whether the exact-match cache would answer for `key`, which a megaflow
    /// covers. Every megaflow that covers it gives the same answer.
    fn is_in_emc(&self, key: &FlowKey) -> bool {
        let used = self.emc.is_on() && self.control.as_ref().is_none_or(EmcControl::uses_cache);
        let cached =
            used.then(|| self.emc.find(key, self.hasher.whole(|word| key.words[word]))).flatten();
        cached.is_some_and(|c| self.megaflows.has_stamp(c.handle, c.stamp))
    }

    fn explanation(&self, lookup: Lookup, megaflow: &Match) -> Explanation {
        let rule_text = lookup.rule.and_then(|id| self.rules.rule(id)).map(|r| r.text.clone());
        Explanation { lookup, rule_text, megaflow: *megaflow }
    }

    /// The megaflows of this moment, in no order that matters.
    pub fn megaflows(&self) -> impl Iterator<Item = Megaflow> + '_ {
        self.megaflows.iter(&self.rules)
    }

    /// How often each layer answered so far.
    pub fn stats(&self) -> LayerStats {
        LayerStats {
            subtables_visited: self.megaflows.visited(),
            megaflows: self.megaflows.len() as u64,
            subtables: self.megaflows.subtables() as u64,
            ..self.stats
        }
    }
}
