//! The packets under reassembly, within bounds of time and memory.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use thalweg_packet::{DropReason, Nanoseconds};

use super::datagram::Datagram;
use super::fragment::{DatagramId, Fragment};
use thalweg_nf::Units;
use thalweg_nf::toolkit::flow_table::{FlowTable, NoPlace, Slot};

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

impl Limits {
    /// Whether a packet that began at `since` has timed out at `now`.
    fn is_over(&self, since: Nanoseconds, now: Nanoseconds) -> bool {
        since.plus(self.timeout) <= now
    }
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

impl Entry {
    /// What it takes to remove it: its place in the table and in the order, and each piece.
    fn work(&self) -> usize {
        1 + self.datagram.pieces()
    }

    fn age(&self) -> Age {
        (self.since, self.serial)
    }

    fn record(&self, id: &DatagramId) -> Record {
        Record { id: *id, since: self.since, datagram: self.datagram.clone() }
    }
}

/// A packet's place in the order of time; packets of one time follow each other as they came.
type Age = (Nanoseconds, u64);

/// The packets and pieces after which a call of [`Table::expire`] leaves the rest to the next ones:
/// more than a fragment adds. After a pause in the traffic, thousands time out at once.
const WORK: usize = 8;

/// The incomplete packets.
pub(super) struct Table {
    limits: Limits,
    entries: FlowTable<DatagramId, Entry, 6>,
    /// The oldest first. Not in the order of insertion: packets that are taken over from another
    /// instance may be older.
    order: BTreeSet<(Age, DatagramId)>,
    /// Present while packets are here that have timed out by then: they count as removed.
    late: Option<Nanoseconds>,
    serial: u64,
    memory: usize,
    expired: u64,
    pub(super) evicted: u64,
}

/// The overhead per packet in bytes: its slot, its words and number in the index of slots, and its
/// place in the order.
const PLACE: usize = size_of::<Option<(DatagramId, Entry)>>()
    + 2 * size_of::<[u64; 6]>()
    + 2 * size_of::<(Age, DatagramId)>();

impl Table {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            entries: FlowTable::new(limits.memory / PLACE),
            order: BTreeSet::new(),
            late: None,
            serial: 0,
            memory: 0,
            expired: 0,
            evicted: 0,
        }
    }

    /// The number of incomplete packets.
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.late()
    }

    /// The number of packets whose memory is not freed yet.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.entries.len()
    }

    /// The number of packets whose reassembly timed out.
    pub(super) fn expired(&self) -> u64 {
        self.expired + self.late() as u64
    }

    /// The packets that are to be removed.
    fn late(&self) -> usize {
        self.order.iter().take_while(|((since, _), _)| self.is_late(*since)).count()
    }

    /// Whether a packet that began at `since` is one of them.
    fn is_late(&self, since: Nanoseconds) -> bool {
        self.late.is_some_and(|late| self.limits.is_over(since, late))
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
        let added = self.change(fragment.id, now, |datagram| datagram.add(fragment, most));
        if added.map_err(|NoPlace| DropReason::StateFull)?? {
            return Ok(self.remove(&fragment.id).map(|entry| entry.datagram));
        }
        self.fit();
        Ok(None)
    }

    /// Takes note of a fragment with a damaged header.
    pub(super) fn doubt(&mut self, fragment: &Fragment<'_>, now: Nanoseconds) {
        let most = self.limits.fragments;
        // Without a place for the packet, its other fragments are refused, too.
        let _ = self.change(fragment.id, now, |datagram| datagram.doubt(fragment, most));
        self.fit();
    }

    /// Changes the packet with this id, a new one if there is none.
    fn change<T>(
        &mut self,
        id: DatagramId,
        now: Nanoseconds,
        change: impl FnOnce(&mut Datagram) -> T,
    ) -> Result<T, NoPlace> {
        let mut known = self.entries.slot(&id);
        let entry = known.and_then(|slot| self.entries.at(slot));
        if entry.is_some_and(|(_, entry)| self.is_late(entry.since)) {
            self.remove(&id);
            known = None;
        }
        let slot = match known {
            Some(slot) => slot,
            None => self.insert(id, now, Datagram::default())?,
        };
        let (_, entry) = self.entries.at_mut(slot).ok_or(NoPlace)?;
        let before = entry.datagram.memory();
        let result = change(&mut entry.datagram);
        self.memory = self.memory + entry.datagram.memory() - before;
        Ok(result)
    }

    /// Ends the reassembly of packets that have timed out at `now`, whose memory is freed with this
    /// call and the next ones.
    pub(super) fn expire(&mut self, now: Nanoseconds) {
        self.late = Some(self.late.map_or(now, |late| late.follow(now)));
        let mut work = 0;
        while work < WORK {
            if !self.order.first().is_some_and(|((since, _), _)| self.is_late(*since)) {
                self.late = None;
                return;
            }
            work += self.remove_oldest();
        }
    }

    /// The incomplete packets, the oldest first.
    pub(super) fn records(&self) -> impl Iterator<Item = Record> + '_ {
        self.in_order(self.entries.iter())
    }

    /// The incomplete packets of a unit, the oldest first.
    pub(super) fn records_of(&self, unit: u16) -> impl Iterator<Item = Record> + '_ {
        self.in_order(self.entries.unit(unit))
    }

    /// The records of `entries` that have not timed out, the oldest first.
    fn in_order<'a>(
        &'a self,
        entries: impl Iterator<Item = (&'a DatagramId, &'a Entry)>,
    ) -> impl Iterator<Item = Record> {
        let mut entries: Vec<_> = entries.filter(|(_, entry)| !self.is_late(entry.since)).collect();
        entries.sort_unstable_by_key(|(_, entry)| entry.age());
        entries.into_iter().map(|(id, entry)| entry.record(id))
    }

    /// Begins to index the packets by unit, or continues; returns whether all are indexed.
    pub(super) fn index_units(&mut self, units: Units) -> bool {
        self.entries.index_units(units, |id, steering| steering.of_flow(&id.flow()))
    }

    /// Removes the packets of a unit.
    pub(super) fn forget_unit(&mut self, unit: u16) {
        let Self { limits, late, order, memory, expired, .. } = self;
        self.entries.take_unit(unit, |id, entry| {
            *memory -= PLACE + entry.datagram.memory();
            order.remove(&(entry.age(), id));
            // One that has timed out was not exported.
            let is_late = late.is_some_and(|late| limits.is_over(entry.since, late));
            *expired += u64::from(is_late);
        });
    }

    /// Drops the index by unit.
    pub(super) fn end_units(&mut self) {
        self.entries.end_units();
    }

    /// Whether this table could have exported the record.
    pub(super) fn is_sound(&self, record: &Record) -> bool {
        record.datagram.is_sound(self.limits.fragments)
    }

    /// Takes over an incomplete packet, which replaces one with the same id. Without a place for
    /// it, it counts as evicted.
    pub(super) fn take_over(&mut self, record: Record) {
        self.remove(&record.id);
        let taken = self.insert(record.id, record.since, record.datagram);
        self.evicted += u64::from(taken.is_err());
        self.fit();
    }

    fn insert(
        &mut self,
        id: DatagramId,
        since: Nanoseconds,
        datagram: Datagram,
    ) -> Result<Slot, NoPlace> {
        let (serial, memory) = (self.serial + 1, datagram.memory());
        let slot = self.entries.insert(id, Entry { since, serial, datagram })?;
        self.serial = serial;
        self.memory += PLACE + memory;
        self.order.insert(((since, serial), id));
        Ok(slot)
    }

    /// Removes a packet, which counts as expired if it has timed out.
    fn remove(&mut self, id: &DatagramId) -> Option<Entry> {
        let entry = self.entries.remove(id)?;
        self.memory -= PLACE + entry.datagram.memory();
        self.order.remove(&(entry.age(), *id));
        self.expired += u64::from(self.is_late(entry.since));
        Some(entry)
    }

    /// Evicts the oldest packets while all exceed the memory limit.
    fn fit(&mut self) {
        while self.memory > self.limits.memory
            && let Some(((since, _), _)) = self.order.first()
        {
            self.evicted += u64::from(!self.is_late(*since));
            self.remove_oldest();
        }
    }

    /// Removes the oldest packet; returns the work that was.
    fn remove_oldest(&mut self) -> usize {
        let oldest = self.order.pop_first();
        oldest.and_then(|(_, id)| self.remove(&id)).map_or(1, |entry| entry.work())
    }
}
