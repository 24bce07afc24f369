//! Flows and what is known about them.

use hashbrown::HashMap;
use thalweg_packet::{FiveTuple, Nanoseconds};

use super::application::{Action, Seen};
use super::ndpi::Inspection;
use thalweg_nf::toolkit::conversation::Conversation;
use thalweg_nf::toolkit::eviction::median;

/// The identity of a flow: the VLAN and the two ends.
pub(super) type FlowId = (u16, Conversation);

/// A flow, in both directions.
pub(super) struct Flow {
    /// The five-tuple of its first packet.
    pub(super) tuple: FiveTuple,
    pub(super) first: Nanoseconds,
    pub(super) last: Nanoseconds,
    pub(super) packets: u64,
    pub(super) dropped: u64,
    pub(super) seen: Seen,
    pub(super) host: Option<Box<str>>,
    /// The current action for its packets, and the rule that decided it.
    pub(super) action: Action,
    pub(super) rule: Option<u32>,
    /// Present while its packets are inspected.
    pub(super) inspection: Option<Inspection>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) flows: usize,
    pub(super) idle: Nanoseconds,
    /// The most packets that are inspected: of TCP flows, and of others.
    pub(super) packets: [u64; 2],
}

/// The flows of one worker.
pub(super) struct Flows {
    pub(super) table: HashMap<FlowId, Flow>,
    pub(super) limits: Limits,
    pub(super) evicted: u64,
}

impl Flows {
    pub(super) fn new(limits: Limits) -> Self {
        Self { table: HashMap::new(), limits, evicted: 0 }
    }

    /// Makes room for one more flow; passes the evicted ones to `gone`.
    pub(super) fn make_room(
        &mut self,
        id: &FlowId,
        now: Nanoseconds,
        mut gone: impl FnMut(FlowId, Flow),
    ) {
        if self.table.len() < self.limits.flows || self.table.contains_key(id) {
            return;
        }
        let before = self.table.len();
        // Evicts all idle flows; if they are few, the least recently used half.
        let idle = Nanoseconds(now.0.saturating_sub(self.limits.idle.0));
        let until = median(self.table.values().map(|f| f.last)).map_or(idle, |m| m.max(idle));
        for (id, flow) in self.table.extract_if(|_, flow| flow.last <= until) {
            gone(id, flow);
        }
        self.evicted += (before - self.table.len()) as u64;
    }

    /// All flows, in a fixed order.
    pub(super) fn sorted(&self) -> Vec<(&FlowId, &Flow)> {
        let mut all: Vec<_> = self.table.iter().collect();
        all.sort_unstable_by_key(|(id, flow)| (flow.first, **id));
        all
    }
}
