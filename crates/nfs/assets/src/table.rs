//! The hosts and the conversations, both bounded.

use serde::{Deserialize, Serialize};
use thalweg_packet::Nanoseconds;

use super::host::{Host, HostId};
use thalweg_nf::toolkit::conversation::Conversation;
use thalweg_nf::toolkit::flow_table::{FlowTable, Found, Hand, Index, NoPlace, Slot};

/// The number of payloads of each side of a conversation that are inspected.
pub(super) const PAYLOADS: u8 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) hosts: usize,
    /// Bytes for all hosts.
    pub(super) memory: usize,
    pub(super) services: usize,
    pub(super) conversations: usize,
}

/// The hosts. A full table evicts the host worth least of a few: hosts of which only the address is
/// known, the longest unseen first, before others. A host without a place in the table is evicted at
/// once.
#[derive(Debug)]
pub(super) struct Hosts {
    table: FlowTable<HostId, Host, 3>,
    hand: Hand,
    limits: Limits,
    pub(super) memory: usize,
    pub(super) evicted: u64,
    /// Services evicted from hosts that had too many.
    pub(super) services_evicted: u64,
}

/// The bytes of hosts and conversations that the limits allow.
pub(super) fn bytes(limits: &Limits) -> usize {
    let hosts = most_hosts(limits);
    let slots = FlowTable::<HostId, Host, 3>::bytes(hosts);
    slots.max(limits.memory + Index::<3>::bytes(hosts))
        + FlowTable::<Conversation, Watched, 5>::bytes(limits.conversations)
}

/// The most hosts: the limit of memory counts their slots, too.
fn most_hosts(limits: &Limits) -> usize {
    limits.hosts.min(limits.memory / size_of::<(HostId, Host)>())
}

impl Hosts {
    pub(super) fn new(limits: Limits) -> Self {
        let (table, hand) = (FlowTable::new(most_hosts(&limits)), Hand::default());
        Self { table, hand, limits, memory: 0, evicted: 0, services_evicted: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Records that a host was seen.
    pub(super) fn touch(&mut self, id: HostId, now: Nanoseconds) {
        self.change(id, now, |_| ());
    }

    /// Changes the record of a host, which is added now if it is new; returns what `change`
    /// returns, or the default without a place for the host.
    pub(super) fn change<R: Default>(
        &mut self,
        id: HostId,
        now: Nanoseconds,
        change: impl FnOnce(&mut Host) -> R,
    ) -> R {
        let known = self.table.slot(&id).map_or_else(|| self.begin(id, Host::new(now)), Ok);
        let Some((_, host)) = known.ok().and_then(|slot| self.table.at_mut(slot)) else {
            return R::default();
        };
        host.last = host.last.follow(now);
        let before = host.memory();
        let result = change(host);
        self.memory = self.memory + host.memory() - before;
        self.fit();
        result
    }

    /// Adds a new host.
    fn begin(&mut self, id: HostId, host: Host) -> Result<Slot, NoPlace> {
        if self.table.len() >= self.limits.hosts {
            self.evict();
        }
        let memory = host.memory();
        let slot = self.table.insert(id, host);
        match slot {
            Ok(_) => self.memory += memory,
            Err(NoPlace) => self.evicted += 1,
        }
        slot
    }

    fn evict(&mut self) {
        let worth = |_: &HostId, host: &Host| (host.is_known(), host.last);
        if let Some((_, host)) = self.table.evict(0, &mut self.hand, worth) {
            self.memory -= host.memory();
            self.evicted += 1;
        }
    }

    /// Evicts hosts while all of them exceed the memory limit.
    fn fit(&mut self) {
        while self.memory > self.limits.memory && self.len() > 0 {
            self.evict();
        }
    }

    /// All hosts, in any order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&HostId, &Host)> {
        self.table.iter()
    }

    /// All hosts in a fixed order.
    pub(super) fn sorted(&self) -> Vec<(&HostId, &Host)> {
        let mut all: Vec<_> = self.table.iter().collect();
        all.sort_unstable_by_key(|(id, _)| **id);
        all
    }

    /// Forgets all hosts.
    pub(super) fn forget(&mut self) {
        self.table.clear();
        self.memory = 0;
    }

    /// Takes over the hosts of another instance.
    pub(super) fn import(&mut self, hosts: Vec<Option<(HostId, Host)>>) {
        if self.len() + hosts.len() > self.limits.hosts {
            hosts.into_iter().flatten().for_each(|(id, host)| self.insert(id, host));
            return;
        }
        self.memory += hosts.iter().flatten().map(|(_, host)| host.memory()).sum::<usize>();
        let known = self.table.extend(hosts);
        self.memory -= known.iter().map(|(_, host)| host.memory()).sum::<usize>();
        known.into_iter().for_each(|(id, host)| self.insert(id, host));
        self.fit();
    }

    /// Takes over a host of another instance.
    fn insert(&mut self, id: HostId, host: Host) {
        if self.table.slot(&id).is_some() {
            let most = self.limits.services;
            let evicted = self.change(id, host.last, |known| known.merge(&host, most));
            self.services_evicted += evicted;
        } else if self.begin(id, host).is_ok() {
            self.fit();
        }
    }
}

/// A conversation that is watched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Watched {
    pub(super) client_is_low: bool,
    /// Whether a SYN or a SYN-ACK identified the server.
    pub(super) is_sure: bool,
    /// The maximum segment size in the client's SYN, or 0.
    pub(super) client_mss: u16,
    /// The number of payloads still to inspect, of the client and of the server.
    pub(super) left: [u8; 2],
    /// When the client and the server were last recorded.
    pub(super) noted: [Option<Nanoseconds>; 2],
    pub(super) last: Nanoseconds,
}

impl Watched {
    /// Whether it satisfies the limits of this module.
    pub(super) fn is_sound(&self) -> bool {
        self.left.iter().all(|left| *left <= PAYLOADS)
    }
}

/// The conversations. A full table evicts the least recently used one of a few; a later packet of an
/// evicted conversation starts it again. One without a place in the table is evicted at once.
#[derive(Debug)]
pub(super) struct Conversations {
    table: FlowTable<Conversation, Watched, 5>,
    hand: Hand,
    most: usize,
    pub(super) evicted: u64,
}

impl Conversations {
    pub(super) fn new(most: usize) -> Self {
        Self { table: FlowTable::new(most), hand: Hand::default(), most, evicted: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Looks up the conversations of a batch.
    pub(super) fn find(&mut self, ids: impl Iterator<Item = Conversation>) -> Found {
        self.table.find(ids)
    }

    /// The conversation, added with `fresh` if it is new; `hint` is the slot of an earlier lookup,
    /// if that found it. `None` without a place for it.
    pub(super) fn entry(
        &mut self,
        hint: Option<Slot>,
        id: Conversation,
        fresh: impl FnOnce() -> Watched,
    ) -> Option<(Slot, &mut Watched)> {
        let known = self.table.slot_now(hint, &id);
        let slot = known.map_or_else(|| self.begin(id, fresh()), Ok).ok()?;
        Some((slot, self.at_mut(slot)?))
    }

    /// The conversation in `slot`.
    pub(super) fn at_mut(&mut self, slot: Slot) -> Option<&mut Watched> {
        self.table.at_mut(slot).map(|(_, watched)| watched)
    }

    /// Adds a new conversation.
    fn begin(&mut self, id: Conversation, watched: Watched) -> Result<Slot, NoPlace> {
        if self.table.len() >= self.most {
            self.evict();
        }
        let slot = self.table.insert(id, watched);
        self.evicted += u64::from(slot.is_err());
        slot
    }

    fn evict(&mut self) {
        let evicted = self.table.evict(0, &mut self.hand, |_, watched| watched.last);
        self.evicted += u64::from(evicted.is_some());
    }

    /// All conversations, in any order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Conversation, &Watched)> {
        self.table.iter()
    }

    /// Forgets all conversations.
    pub(super) fn forget(&mut self) {
        self.table.clear();
    }

    /// Takes conversations over from another instance.
    pub(super) fn import(&mut self, conversations: Vec<Option<(Conversation, Watched)>>) {
        if self.len() + conversations.len() > self.most {
            conversations.into_iter().flatten().for_each(|(id, watched)| self.insert(id, watched));
            return;
        }
        for (id, watched) in self.table.extend(conversations) {
            self.insert(id, watched);
        }
    }

    /// Takes a conversation over from another instance.
    fn insert(&mut self, id: Conversation, watched: Watched) {
        match self.table.get_mut(None, &id) {
            Some(known) => *known = watched,
            None => drop(self.begin(id, watched)),
        }
    }
}
