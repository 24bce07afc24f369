//! Flows and what is known about them.

use thalweg_packet::{FiveTuple, Nanoseconds};

use super::application::{Action, Seen};
use super::ndpi::Inspection;
use super::watch::Watch;
use thalweg_nf::toolkit::conversation::Conversation;
use thalweg_nf::toolkit::flow_table::{FlowTable, Hand, NoPlace, Slot};

/// The identity of a flow: the VLAN and the two ends.
pub(super) type FlowId = (u16, Conversation);

/// The most hosts that are remembered of a flow.
pub(super) const MOST_HOSTS: usize = 32;

/// About the bytes of an inspection by the library.
const INSPECTION: usize = 2048;

/// A flow, in both directions.
pub(super) struct Flow {
    /// The five-tuple of its first packet.
    pub(super) tuple: FiveTuple,
    pub(super) first: Nanoseconds,
    pub(super) last: Nanoseconds,
    pub(super) packets: u64,
    pub(super) dropped: u64,
    pub(super) seen: Seen,
    /// The hosts that it names, by our own readers or, if these find none, by the library.
    pub(super) hosts: Vec<Box<str>>,
    /// The acknowledgment and sequence numbers of the SYN that opened its TCP connection.
    pub(super) opened: Option<(u32, u32)>,
    /// The current action for its packets, and the rule that decided it.
    pub(super) action: Action,
    pub(super) rule: Option<u32>,
    /// Present while its packets are inspected.
    pub(super) inspection: Option<Inspection>,
    /// The packets that the inspection has had.
    pub(super) inspected: u64,
    /// The start of a TCP connection, while it may name hosts.
    pub(super) watch: Option<Box<Watch>>,
    /// Whether its packets are held.
    pub(super) holds: bool,
}

impl Flow {
    /// A flow without packets, of which nothing is known and that is not inspected.
    pub(super) fn new(tuple: FiveTuple, first: Nanoseconds) -> Self {
        Self {
            tuple,
            first,
            last: first,
            packets: 0,
            dropped: 0,
            seen: Seen::default(),
            hosts: Vec::new(),
            opened: None,
            action: Action::Allow,
            rule: None,
            inspection: None,
            inspected: 0,
            watch: None,
            holds: false,
        }
    }

    /// Its hosts: if our own readers found none, that of the library.
    pub(super) fn all_hosts(&self, inspection: Option<&Inspection>) -> Vec<Box<str>> {
        let library = || inspection.and_then(Inspection::host_name).into_iter().collect();
        if self.hosts.is_empty() { library() } else { self.hosts.clone() }
    }

    /// Adds a host, unless it is known. When there are too many, the last gives way.
    pub(super) fn add_host(&mut self, host: Box<str>) {
        if !self.hosts.contains(&host) {
            self.hosts.truncate(MOST_HOSTS - 1);
            self.hosts.push(host);
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) flows: usize,
    pub(super) idle: Nanoseconds,
    /// The most packets that are inspected: of TCP flows, and of others.
    pub(super) packets: [u64; 2],
}

/// The flows.
pub(super) struct Flows {
    pub(super) table: FlowTable<FlowId, Flow, 5>,
    hand: Hand,
    pub(super) limits: Limits,
    pub(super) evicted: u64,
}

impl Flows {
    pub(super) fn new(limits: Limits) -> Self {
        let table = FlowTable::new(limits.flows);
        Self { table, hand: Hand::default(), limits, evicted: 0 }
    }

    /// The bytes of `flows` flows, all of which are inspected.
    pub(super) fn bytes(flows: usize) -> usize {
        FlowTable::<FlowId, Flow, 5>::bytes(flows) + flows * INSPECTION
    }

    /// Makes room for a flow; returns one that is evicted for it.
    pub(super) fn make_room(&mut self, id: &FlowId) -> Option<(FlowId, Flow)> {
        if self.table.len() < self.limits.flows || self.table.slot(id).is_some() {
            return None;
        }
        let evicted = self.table.evict(0, &mut self.hand, |_, flow| flow.last)?;
        self.evicted += 1;
        Some(evicted)
    }

    /// The slot of a flow, which begins with `begin` if it is new.
    ///
    /// # Errors
    /// When the table has no place for it.
    pub(super) fn slot_or_begin(
        &mut self,
        id: FlowId,
        begin: impl FnOnce() -> Flow,
    ) -> Result<Slot, NoPlace> {
        let known = self.table.slot(&id);
        known.map_or_else(|| self.table.insert(id, begin()), Ok)
    }

    /// All flows, in a fixed order.
    pub(super) fn sorted(&self) -> Vec<(&FlowId, &Flow)> {
        let mut all: Vec<_> = self.table.iter().collect();
        all.sort_unstable_by_key(|(id, flow)| (flow.first, **id));
        all
    }
}
