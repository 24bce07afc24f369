//! The packets under reassembly, within bounds of time and memory.

use std::collections::VecDeque;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use thalweg_packet::{DropReason, Nanoseconds};

use super::datagram::Datagram;
use super::fragment::{DatagramId, Fragment};

/// The bounds of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The lifetime of a packet, from the first fragment to arrive.
    pub(super) timeout: Nanoseconds,
    /// Bytes of all packets.
    pub(super) memory: usize,
    /// The most fragments of a packet.
    pub(super) fragments: usize,
}

/// An incomplete packet, as it is exported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) id: DatagramId,
    since: Nanoseconds,
    datagram: Datagram,
}

struct Entry {
    since: Nanoseconds,
    /// Distinguishes it from earlier packets with its id.
    serial: u64,
    datagram: Datagram,
}

/// The incomplete packets.
pub(super) struct Table {
    limits: Limits,
    entries: HashMap<DatagramId, Entry>,
    /// In order of time; removed entries remain in it until they come first, or the list grows.
    order: VecDeque<(DatagramId, u64)>,
    serial: u64,
    memory: usize,
    pub(super) expired: u64,
    pub(super) evicted: u64,
}

/// The overhead per packet in bytes: its entries in both lists.
const PLACE: usize = size_of::<(DatagramId, Entry)>() + 2 * size_of::<(DatagramId, u64)>();

impl Table {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            entries: HashMap::new(),
            order: VecDeque::new(),
            serial: 0,
            memory: 0,
            expired: 0,
            evicted: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds a fragment; returns the packet if it is complete.
    ///
    /// # Errors
    /// Why the fragment is refused.
    pub(super) fn add(
        &mut self,
        fragment: &Fragment<'_>,
        now: Nanoseconds,
    ) -> Result<Option<Datagram>, DropReason> {
        let most = self.limits.fragments;
        if self.change(fragment.id, now, |datagram| datagram.add(fragment, most))? {
            return Ok(self.remove(&fragment.id).map(|entry| entry.datagram));
        }
        self.fit();
        Ok(None)
    }

    /// Takes note of a fragment with a damaged header.
    pub(super) fn doubt(&mut self, fragment: &Fragment<'_>, now: Nanoseconds) {
        let most = self.limits.fragments;
        self.change(fragment.id, now, |datagram| datagram.doubt(fragment, most));
        self.fit();
    }

    /// Changes the packet with this id, a new one if there is none.
    fn change<T>(
        &mut self,
        id: DatagramId,
        now: Nanoseconds,
        change: impl FnOnce(&mut Datagram) -> T,
    ) -> T {
        if !self.entries.contains_key(&id) {
            self.insert(id, now, Datagram::default());
        }
        let entry = self.entries.get_mut(&id).expect("it was put there");
        let before = entry.datagram.memory();
        let result = change(&mut entry.datagram);
        self.memory = self.memory + entry.datagram.memory() - before;
        result
    }

    /// Removes packets whose reassembly timed out.
    pub(super) fn expire(&mut self, now: Nanoseconds) {
        while let Some((id, serial)) = self.order.front() {
            match self.entries.get(id).filter(|entry| entry.serial == *serial) {
                Some(entry) if entry.since.plus(self.limits.timeout) > now => return,
                Some(_) => self.expired += self.forget_oldest(),
                None => drop(self.order.pop_front()),
            }
        }
    }

    /// The incomplete packets, the oldest first.
    pub(super) fn records(&self) -> impl Iterator<Item = Record> + '_ {
        self.order.iter().filter_map(|(id, serial)| {
            let entry = self.entries.get(id).filter(|entry| entry.serial == *serial)?;
            Some(Record { id: *id, since: entry.since, datagram: entry.datagram.clone() })
        })
    }

    /// Whether this table could have exported the record.
    pub(super) fn is_sound(&self, record: &Record) -> bool {
        record.datagram.is_sound(self.limits.fragments)
    }

    /// Takes over an incomplete packet, which replaces one with the same id.
    pub(super) fn take_over(&mut self, record: Record) {
        self.remove(&record.id);
        self.insert(record.id, record.since, record.datagram);
        self.fit();
    }

    fn insert(&mut self, id: DatagramId, since: Nanoseconds, datagram: Datagram) {
        // Amortised: at least as many entries were removed since as remain.
        if self.order.len() > 2 * self.entries.len() + 64 {
            let entries = &self.entries;
            self.order.retain(|(id, serial)| entries.get(id).is_some_and(|e| e.serial == *serial));
        }
        self.serial += 1;
        self.memory += PLACE + datagram.memory();
        self.order.push_back((id, self.serial));
        self.entries.insert(id, Entry { since, serial: self.serial, datagram });
    }

    fn remove(&mut self, id: &DatagramId) -> Option<Entry> {
        let entry = self.entries.remove(id)?;
        self.memory -= PLACE + entry.datagram.memory();
        Some(entry)
    }

    /// Evicts the oldest packets while all exceed the memory limit.
    fn fit(&mut self) {
        while self.memory > self.limits.memory && !self.order.is_empty() {
            self.evicted += self.forget_oldest();
        }
    }

    /// Removes the first in order; returns how many packets that removed: 0 for a stale entry.
    fn forget_oldest(&mut self) -> u64 {
        let Some((id, serial)) = self.order.pop_front() else { return 0 };
        let is_there = self.entries.get(&id).is_some_and(|entry| entry.serial == serial);
        u64::from(is_there && self.remove(&id).is_some())
    }
}
