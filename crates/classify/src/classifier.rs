//! The three layers as one, for one worker.

use std::sync::Arc;

use thalweg_packet::{BATCH, FlowKey, Lanes, Nanoseconds};

use crate::emc::Emc;
use crate::lookup::{Explanation, LayerStats, Lookup, MatchLayer};
use crate::megaflow::{Megaflow, MegaflowId, Megaflows};
use crate::rule::Match;
use crate::rule_table::RuleTable;
use crate::shared::SharedRules;

/// How often idle megaflows are looked for.
const SWEEP_PERIOD: Nanoseconds = Nanoseconds::from_millis(500);

/// How soon a megaflow is idle once there are as many as there may be. As in
/// Open vSwitch, so that a scan does not lock out the flows that come after it.
const IDLE_WHEN_FULL: Nanoseconds = Nanoseconds::from_millis(100);

/// Sizes and times of the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Places of the exact-match cache, rounded up to a power of two, at most
    /// 2^20; 0 turns it off. A place takes 208 bytes.
    pub emc_entries: usize,
    /// A missed key enters the exact-match cache once in so many times: 1 is
    /// always, 0 is never.
    pub emc_insert_inverse_probability: u32,
    /// The most megaflows; above, packets fall to the rule table, and megaflows
    /// idle for 100 ms are removed.
    pub megaflow_limit: usize,
    /// A megaflow that no packet meets for so long is removed, at most half a
    /// second of packet time later.
    pub idle_timeout: Nanoseconds,
}

impl Default for Config {
    /// The defaults of Open vSwitch.
    fn default() -> Self {
        Self {
            emc_entries: 8192,
            emc_insert_inverse_probability: 100,
            megaflow_limit: 200_000,
            idle_timeout: Nanoseconds::from_secs(10),
        }
    }
}

/// One worker's classifier: its own caches over the rules that all share.
#[derive(Debug)]
pub struct Classifier {
    shared: Arc<SharedRules>,
    rules: Arc<RuleTable>,
    emc: Emc,
    megaflows: Megaflows,
    config: Config,
    swept: Nanoseconds,
    stats: LayerStats,
}

impl Classifier {
    /// A classifier with empty caches over `shared`.
    pub fn new(shared: Arc<SharedRules>, config: Config) -> Self {
        let rules = shared.load();
        Self {
            shared,
            rules,
            emc: Emc::new(config.emc_entries, config.emc_insert_inverse_probability),
            megaflows: Megaflows::new(config.megaflow_limit),
            config,
            swept: Nanoseconds::default(),
            stats: LayerStats::default(),
        }
    }

    /// Classifies the packets of `lanes`, whose keys and lengths in bytes are
    /// given, at packet time `now`. Other lanes of `out` are left as they are.
    ///
    /// Takes up new rules first, if there are any.
    pub fn classify_batch(
        &mut self,
        keys: &[FlowKey; BATCH],
        lanes: Lanes,
        lens: &[u32; BATCH],
        now: Nanoseconds,
        out: &mut [Lookup; BATCH],
    ) {
        self.take_up_rules();
        self.sweep(now);
        let mut hashes = [0; BATCH];
        let mut missed = lanes;
        if self.emc.is_on() {
            for lane in lanes {
                hashes[lane] = Emc::hash(&keys[lane]);
            }
            for lane in lanes {
                if let Some(id) = self.emc.find(&keys[lane], hashes[lane])
                    && self.hit(id, MatchLayer::Emc, lens[lane], now, &mut out[lane])
                {
                    self.stats.emc_hits += 1;
                    missed.remove(lane);
                }
            }
        }
        if !missed.is_empty() {
            self.classify_missed(keys, missed, lens, now, &hashes, out);
        }
    }

    /// Classifies the packets that the exact-match cache did not know.
    fn classify_missed(
        &mut self,
        keys: &[FlowKey; BATCH],
        missed: Lanes,
        lens: &[u32; BATCH],
        now: Nanoseconds,
        hashes: &[u64; BATCH],
        out: &mut [Lookup; BATCH],
    ) {
        let mut ids = [MegaflowId::default(); BATCH];
        let mut found = self.megaflows.find_batch(keys, missed, &mut ids);
        let mut installed = false;
        for lane in missed {
            let (key, len, out) = (&keys[lane], lens[lane], &mut out[lane]);
            // An earlier packet of this batch may have brought in what this one needs.
            if installed && !found.contains(lane) {
                found = found.or(self.megaflows.find_batch(keys, Lanes::one(lane), &mut ids));
            }
            if found.contains(lane) && self.hit(ids[lane], MatchLayer::Megaflow, len, now, out) {
                self.stats.megaflow_hits += 1;
            } else if let Some(id) = self.upcall(key, len, now, out) {
                installed = true;
                ids[lane] = id;
            } else {
                continue;
            }
            let megaflows = &self.megaflows;
            self.emc.maybe_insert(key, hashes[lane], ids[lane], |id| megaflows.is_live(id));
        }
    }

    /// Counts the packet at the megaflow `id` and gives its answer.
    #[inline]
    fn hit(
        &mut self,
        id: MegaflowId,
        layer: MatchLayer,
        len: u32,
        now: Nanoseconds,
        out: &mut Lookup,
    ) -> bool {
        let Some(flow) = self.megaflows.get_mut(id) else { return false };
        flow.stats.packets += 1;
        flow.stats.bytes += u64::from(len);
        flow.stats.last_used = flow.stats.last_used.max(now);
        *out = Lookup { rule: flow.rule, packet_type: flow.packet_type, layer };
        true
    }

    /// Asks the rule table and caches its answer.
    fn upcall(
        &mut self,
        key: &FlowKey,
        len: u32,
        now: Nanoseconds,
        out: &mut Lookup,
    ) -> Option<MegaflowId> {
        let found = self.rules.lookup(key);
        self.stats.rule_lookups += 1;
        self.stats.unmatched += u64::from(found.rule.is_none());
        let id = self.megaflows.insert(key, &found, now);
        match id {
            Some(id) => {
                self.hit(id, MatchLayer::RuleTable, len, now, out);
            }
            None => self.stats.not_cached += 1,
        }
        *out = Lookup {
            rule: found.rule,
            packet_type: found.packet_type,
            layer: MatchLayer::RuleTable,
        };
        id
    }

    /// Takes up new rules, if there are any, and drops what they made wrong.
    fn take_up_rules(&mut self) {
        if !self.shared.is_current(&self.rules) {
            self.rules = self.shared.load();
            self.stats.revalidated_away += self.megaflows.revalidate(&self.rules) as u64;
        }
    }

    /// Removes idle megaflows, now and then.
    fn sweep(&mut self, now: Nanoseconds) {
        let stepped_back = now < self.swept;
        if stepped_back || now.since(self.swept) >= SWEEP_PERIOD {
            self.swept = now;
            let idle = self.config.idle_timeout;
            let idle = if self.megaflows.is_full() { idle.min(IDLE_WHEN_FULL) } else { idle };
            self.stats.expired += self.megaflows.expire(now, idle) as u64;
        }
    }

    /// How `key` would be classified now. Takes up new rules first; counts
    /// nothing and caches nothing.
    pub fn explain(&mut self, key: &FlowKey) -> Explanation {
        self.take_up_rules();
        let Some(flow) = self.megaflows.peek(key) else {
            let found = self.rules.lookup(key);
            let lookup = Lookup {
                rule: found.rule,
                packet_type: found.packet_type,
                layer: MatchLayer::RuleTable,
            };
            return self.explanation(lookup, &Match::new(*key, found.mask));
        };
        // A live entry of the exact-match cache names a megaflow that covers the
        // key; whichever covers it gives the same answer.
        let cached = self.emc.is_on().then(|| self.emc.find(key, Emc::hash(key))).flatten();
        let exact = cached.is_some_and(|id| self.megaflows.is_live(id));
        let layer = if exact { MatchLayer::Emc } else { MatchLayer::Megaflow };
        let lookup = Lookup { rule: flow.rule, packet_type: flow.packet_type, layer };
        self.explanation(lookup, &flow.pattern)
    }

    fn explanation(&self, lookup: Lookup, megaflow: &Match) -> Explanation {
        let rule_text = lookup.rule.and_then(|id| self.rules.rule(id)).map(|r| r.text.clone());
        Explanation { lookup, rule_text, megaflow: *megaflow }
    }

    /// The megaflows of this moment, in no order that matters.
    pub fn megaflows(&self) -> impl Iterator<Item = Megaflow> + '_ {
        self.megaflows.iter()
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
