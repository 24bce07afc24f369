//! The three layers as one, for one worker.

use std::sync::Arc;

use thalweg_packet::{BATCH, FlowKey, Lanes, Nanoseconds, PacketType};

use crate::emc::Emc;
use crate::megaflow::{MegaflowId, Megaflows};
use crate::rule::{Match, RuleId};
use crate::rule_table::{RuleTable, SharedRules};

/// How often idle megaflows are looked for.
const SWEEP_PERIOD: Nanoseconds = Nanoseconds::from_millis(500);

/// Sizes and times of the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Places of the exact-match cache; 0 turns it off.
    pub emc_entries: usize,
    /// A missed key enters the exact-match cache once in so many times.
    pub emc_insert_inverse_probability: u32,
    /// The most megaflows; above, packets fall to the rule table.
    pub megaflow_limit: usize,
    /// A megaflow that no packet meets for so long is removed.
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

/// The layer that knew the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MatchLayer {
    /// The exact-match cache.
    Emc,
    /// The megaflow layer.
    Megaflow,
    /// The rule table.
    #[default]
    RuleTable,
}

impl MatchLayer {
    /// The layer's name in traces and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Emc => "exact-match cache",
            Self::Megaflow => "megaflow",
            Self::RuleTable => "rule table",
        }
    }
}

/// What classification found for one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lookup {
    /// The winning rule, if any matched.
    pub rule: Option<RuleId>,
    /// The packet's type.
    pub packet_type: PacketType,
    /// Who knew.
    pub layer: MatchLayer,
}

/// How often each layer answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerStats {
    /// Packets answered by the exact-match cache.
    pub emc_hits: u64,
    /// Packets answered by the megaflow layer.
    pub megaflow_hits: u64,
    /// Packets that went to the rule table.
    pub rule_lookups: u64,
    /// Of those, packets that no rule matched.
    pub unmatched: u64,
    /// Subtables that megaflow lookups visited.
    pub subtables_visited: u64,
    /// Megaflows at this moment.
    pub megaflows: u64,
    /// Masks of those.
    pub subtables: u64,
    /// Megaflows removed because no packet met them.
    pub expired: u64,
    /// Megaflows removed because the rules changed.
    pub revalidated_away: u64,
    /// Answers not cached because the megaflow layer was full.
    pub not_cached: u64,
}

/// How a key's answer comes about, for `thalweg trace`.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The answer and the layer that would give it now.
    pub lookup: Lookup,
    /// The rule as the user wrote it.
    pub rule_text: Option<String>,
    /// What the megaflow of this answer covers.
    pub megaflow: Match,
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
        self.maintain(now);
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
        for lane in missed {
            let key = &keys[lane];
            let id = match self.megaflows.find(key) {
                Some(id) if self.hit(id, MatchLayer::Megaflow, lens[lane], now, &mut out[lane]) => {
                    self.stats.megaflow_hits += 1;
                    Some(id)
                }
                _ => self.upcall(key, lens[lane], now, &mut out[lane]),
            };
            if let Some(id) = id {
                self.emc.maybe_insert(key, hashes[lane], id);
            }
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

    fn maintain(&mut self, now: Nanoseconds) {
        if !self.shared.is_current(&self.rules) {
            self.rules = self.shared.load();
            self.stats.revalidated_away += self.megaflows.revalidate(&self.rules) as u64;
        }
        if now.since(self.swept) >= SWEEP_PERIOD {
            self.swept = now;
            self.stats.expired += self.megaflows.expire(now, self.config.idle_timeout) as u64;
        }
    }

    /// How `key` would be classified now, without changing any cache's content.
    pub fn explain(&mut self, key: &FlowKey) -> Explanation {
        let cached = self.emc.is_on().then(|| self.emc.find(key, Emc::hash(key))).flatten();
        let cached = cached.map(|id| (id, MatchLayer::Emc));
        let cached =
            cached.or_else(|| self.megaflows.find(key).map(|id| (id, MatchLayer::Megaflow)));
        let known = cached.and_then(|(id, layer)| {
            let mask = *self.megaflows.mask(id)?;
            let flow = self.megaflows.get_mut(id)?;
            Some((Lookup { rule: flow.rule, packet_type: flow.packet_type, layer }, mask))
        });
        let (lookup, mask) = known.unwrap_or_else(|| {
            let found = self.rules.lookup(key);
            let (rule, packet_type) = (found.rule, found.packet_type);
            (Lookup { rule, packet_type, layer: MatchLayer::RuleTable }, found.mask)
        });
        let rule_text = lookup.rule.and_then(|id| self.rules.rule(id)).map(|r| r.text.clone());
        Explanation { lookup, rule_text, megaflow: Match::new(*key, mask) }
    }

    /// How often each layer answered so far.
    pub fn stats(&self) -> LayerStats {
        LayerStats {
            subtables_visited: self.megaflows.visited,
            megaflows: self.megaflows.len() as u64,
            subtables: self.megaflows.subtables() as u64,
            ..self.stats
        }
    }
}
