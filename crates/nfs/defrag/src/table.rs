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
    fn age(&self) -> Age {
        (self.since, self.serial)
    }

    fn record(&self, id: &DatagramId) -> Record {
        Record { id: *id, since: self.since, datagram: self.datagram.clone() }
    }
}

/// A packet's place in the order of time; packets of one time follow each other as they came.
type Age = (Nanoseconds, u64);

/// The incomplete packets.
pub(super) struct Table {
    limits: Limits,
    entries: FlowTable<DatagramId, Entry, 6>,
    /// The oldest first. Not in the order of insertion: packets that are taken over from another
    /// instance may be older.
    order: BTreeSet<(Age, DatagramId)>,
    serial: u64,
    memory: usize,
    pub(super) expired: u64,
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
        let slot = match self.entries.slot(&id) {
            Some(slot) => slot,
            None => self.insert(id, now, Datagram::default())?,
        };
        let (_, entry) = self.entries.at_mut(slot).ok_or(NoPlace)?;
        let before = entry.datagram.memory();
        let result = change(&mut entry.datagram);
        self.memory = self.memory + entry.datagram.memory() - before;
        Ok(result)
    }

    /// Removes packets whose reassembly timed out.
    pub(super) fn expire(&mut self, now: Nanoseconds) {
        while let Some(((since, _), _)) = self.order.first()
            && since.plus(self.limits.timeout) <= now
        {
            self.expired += self.remove_oldest();
        }
    }

    /// The incomplete packets, the oldest first.
    pub(super) fn records(&self) -> impl Iterator<Item = Record> + '_ {
        in_order(self.entries.iter().collect())
    }

    /// The incomplete packets of a unit, the oldest first.
    pub(super) fn records_of(&self, unit: u16) -> impl Iterator<Item = Record> + '_ {
        in_order(self.entries.unit(unit).collect())
    }

    /// Begins to index the packets by unit, or continues; returns whether all are indexed.
    pub(super) fn index_units(&mut self, units: Units) -> bool {
        self.entries.index_units(units, |id, steering| steering.of_flow(&id.flow()))
    }

    /// Removes the packets of a unit.
    pub(super) fn forget_unit(&mut self, unit: u16) {
        let Self { memory, order, .. } = self;
        self.entries.take_unit(unit, |id, entry| {
            *memory -= PLACE + entry.datagram.memory();
            order.remove(&(entry.age(), id));
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

    fn remove(&mut self, id: &DatagramId) -> Option<Entry> {
        let entry = self.entries.remove(id)?;
        self.memory -= PLACE + entry.datagram.memory();
        self.order.remove(&(entry.age(), *id));
        Some(entry)
    }

    /// Evicts the oldest packets while all exceed the memory limit.
    fn fit(&mut self) {
        while self.memory > self.limits.memory && !self.order.is_empty() {
            self.evicted += self.remove_oldest();
        }
    }

    /// Removes the oldest packet; returns how many that are.
    fn remove_oldest(&mut self) -> u64 {
        let oldest = self.order.pop_first();
        u64::from(oldest.and_then(|(_, id)| self.remove(&id)).is_some())
    }
}

/// The records of `entries`, the oldest first.
fn in_order<'a>(
    mut entries: Vec<(&'a DatagramId, &'a Entry)>,
) -> impl Iterator<Item = Record> + 'a {
    entries.sort_unstable_by_key(|(_, entry)| (entry.since, entry.serial));
    entries.into_iter().map(|(id, entry)| entry.record(id))
}
