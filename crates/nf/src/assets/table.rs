//! The hosts and the conversations of one worker, both bounded.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use serde::{Deserialize, Serialize};
use thalweg_packet::Nanoseconds;

use super::host::{Host, HostId};
use crate::conversation::Conversation;
use crate::eviction::median;

/// Payloads of each side of a conversation that are looked at.
pub(super) const PAYLOADS: u8 = 8;

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) hosts: usize,
    /// Bytes for all hosts.
    pub(super) memory: usize,
    pub(super) services: usize,
    pub(super) conversations: usize,
}

/// The hosts. Of too many the half goes that is worth least: those of which nothing is known
/// but an address, longest unseen first, before those of which something is.
#[derive(Debug)]
pub(super) struct Hosts {
    table: HashMap<HostId, Host>,
    limits: Limits,
    pub(super) memory: usize,
    pub(super) evicted: u64,
}

impl Hosts {
    pub(super) fn new(limits: Limits) -> Self {
        Self { table: HashMap::new(), limits, memory: 0, evicted: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Notes that a host was seen.
    pub(super) fn touch(&mut self, id: HostId, now: Nanoseconds) {
        if let Some(host) = self.table.get_mut(&id) {
            host.last = host.last.max(now);
        } else {
            self.change(id, now, |_| ());
        }
    }

    /// Changes what is known of a host, which is noted now if it is new.
    pub(super) fn change<R>(
        &mut self,
        id: HostId,
        now: Nanoseconds,
        change: impl FnOnce(&mut Host) -> R,
    ) -> R {
        if self.table.len() >= self.limits.hosts && !self.table.contains_key(&id) {
            self.evict();
        }
        let memory = &mut self.memory;
        let host = self.table.entry(id).or_insert_with(|| {
            let host = Host::new(now);
            *memory += host.memory();
            host
        });
        host.last = host.last.max(now);
        let before = host.memory();
        let result = change(host);
        *memory = *memory + host.memory() - before;
        if *memory > self.limits.memory {
            self.evict();
        }
        result
    }

    fn evict(&mut self) {
        let worth = |host: &Host| (host.is_known(), host.last);
        let Some(least) = median(self.table.values().map(worth)) else { return };
        let before = self.table.len();
        self.table.retain(|_, host| worth(host) > least);
        self.evicted += (before - self.table.len()) as u64;
        self.memory = self.table.values().map(Host::memory).sum();
    }

    /// All hosts, in any order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&HostId, &Host)> {
        self.table.iter()
    }

    /// Makes ready for so many more.
    pub(super) fn reserve(&mut self, more: usize) {
        self.table.reserve(more.min(self.limits.hosts.saturating_sub(self.table.len())));
    }

    /// All hosts in a fixed order.
    pub(super) fn sorted(&self) -> Vec<(&HostId, &Host)> {
        let mut all: Vec<_> = self.table.iter().collect();
        all.sort_unstable_by_key(|(id, _)| **id);
        all
    }

    /// Takes over what another instance knows of a host.
    pub(super) fn insert(&mut self, id: HostId, host: Host) {
        let memory = host.memory();
        let has_room = self.table.len() < self.limits.hosts;
        if has_room
            && self.memory + memory <= self.limits.memory
            && let Entry::Vacant(entry) = self.table.entry(id)
        {
            entry.insert(host);
            self.memory += memory;
            return;
        }
        let most = self.limits.services;
        self.change(id, host.last, |known| known.merge(&host, most));
    }
}

/// A conversation that is watched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Watched {
    pub(super) client_is_low: bool,
    /// Whether a SYN-ACK, or the port, told who is the server.
    pub(super) is_sure: bool,
    /// The maximum segment size in the client's SYN, or 0.
    pub(super) client_mss: u16,
    /// Payloads still to be looked at, of the client and of the server.
    pub(super) left: [u8; 2],
    /// When the client and the server were noted last.
    pub(super) noted: [Option<Nanoseconds>; 2],
    pub(super) last: Nanoseconds,
}

impl Watched {
    /// Whether it is one that could have been made here.
    pub(super) fn is_sound(&self) -> bool {
        self.left.iter().all(|left| *left <= PAYLOADS)
    }
}

/// The conversations. Of too many the half goes that was used longest ago; it is looked at
/// anew when it goes on.
#[derive(Debug)]
pub(super) struct Conversations {
    table: HashMap<Conversation, Watched>,
    most: usize,
    pub(super) evicted: u64,
}

impl Conversations {
    pub(super) fn new(most: usize) -> Self {
        Self { table: HashMap::new(), most, evicted: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// The conversation, begun with `fresh` if it is new.
    pub(super) fn entry(
        &mut self,
        id: Conversation,
        fresh: impl FnOnce() -> Watched,
    ) -> &mut Watched {
        self.make_room(&id);
        self.table.entry(id).or_insert_with(fresh)
    }

    fn make_room(&mut self, id: &Conversation) {
        if self.table.len() >= self.most && !self.table.contains_key(id) {
            self.evict();
        }
    }

    pub(super) fn get_mut(&mut self, id: &Conversation) -> Option<&mut Watched> {
        self.table.get_mut(id)
    }

    fn evict(&mut self) {
        let Some(oldest) = median(self.table.values().map(|w| w.last)) else { return };
        let before = self.table.len();
        self.table.retain(|_, watched| watched.last > oldest);
        self.evicted += (before - self.table.len()) as u64;
    }

    /// All conversations, in any order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Conversation, &Watched)> {
        self.table.iter()
    }

    /// Makes ready for so many more.
    pub(super) fn reserve(&mut self, more: usize) {
        self.table.reserve(more.min(self.most.saturating_sub(self.table.len())));
    }

    pub(super) fn insert(&mut self, id: Conversation, watched: Watched) {
        self.make_room(&id);
        self.table.insert(id, watched);
    }
}
