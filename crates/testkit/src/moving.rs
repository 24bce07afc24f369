//! State that moves from one instance to another, unit by unit, while packets flow: the two must do
//! together what one instance does that sees all packets.

use std::sync::Arc;

use thalweg_packet::{BATCH, Batch, Decapsulate, Lanes, Nanoseconds, Pool};

use thalweg_nf::state::{StateReader, StateWriter};
use thalweg_nf::{Buckets, Context, Emitted, NetworkFunction, Units, Verdict};

use crate::Fate;

/// The state that an instance exports.
///
/// # Panics
/// When the instance cannot write it.
pub fn exported(nf: &dyn NetworkFunction, kind: &str) -> Vec<u8> {
    written(nf, kind, |writer| nf.export_state(writer).unwrap())
}

/// The state that `write` writes.
fn written(
    nf: &dyn NetworkFunction,
    kind: &str,
    write: impl FnOnce(&mut StateWriter<'_>),
) -> Vec<u8> {
    let mut stream = Vec::new();
    let mut writer = StateWriter::new(&mut stream, kind, nf.state_version()).unwrap();
    write(&mut writer);
    writer.finish().unwrap();
    stream
}

/// Lets an instance import a stream; returns how many records it took over.
///
/// # Panics
/// When it refuses the stream.
pub fn import(nf: &mut dyn NetworkFunction, kind: &str, mut stream: &[u8]) -> usize {
    let mut reader = StateReader::new(&mut stream, kind, nf.state_version()).unwrap();
    let imported = nf.import_state(&mut reader).unwrap_or_else(|e| panic!("{kind}: {e}"));
    reader.finish().unwrap();
    imported
}

/// The bytes that the NF wrote in each record of a complete stream, whatever its format, in an order
/// of their own.
///
/// # Panics
/// When the stream is damaged.
pub fn records(stream: &[u8]) -> Vec<Vec<u8>> {
    let number = |at: usize| u32::from_le_bytes(stream[at..at + 4].try_into().unwrap());
    let (format, kind) = (stream[4], usize::from(stream[6]));
    let mut at = 4 + 2 + 1 + kind + 2 + 12 + if format > 2 { 8 + 8 + 4 } else { 0 };
    let mut records = Vec::new();
    while number(at) != u32::MAX {
        let (start, end) = (at + 4, at + 4 + number(at) as usize);
        let names = if format > 2 { 4 + number(start) as usize } else { 0 };
        records.push(stream[start + names..end].to_vec());
        at = end + 4;
    }
    records.sort();
    records
}

/// Asserts that an instance takes over a stream that an earlier version recorded, and exports the
/// same records. `count` is the number of them.
///
/// # Panics
/// When it does not.
pub fn assert_reads_recorded(
    nf: &mut dyn NetworkFunction,
    kind: &str,
    recorded: &[u8],
    count: usize,
) {
    assert_eq!(import(nf, kind, recorded), count);
    assert_eq!(records(&exported(nf, kind)), records(recorded));
}

/// An instance that sees all packets, and two between which units move.
pub struct Moving {
    kind: &'static str,
    units: Units,
    /// That which sees all.
    pub whole: Box<dyn NetworkFunction>,
    /// That which has all units first.
    pub old: Box<dyn NetworkFunction>,
    /// That which takes units over.
    pub new: Box<dyn NetworkFunction>,
    has_moved: Vec<bool>,
    /// Whether all flows are indexed by unit.
    is_indexed: bool,
    /// The records that have moved.
    pub moved: usize,
    clock: Nanoseconds,
    pool: Arc<Pool>,
}

/// A packet with the time of its arrival.
pub type Timed = (Nanoseconds, Vec<u8>);

/// What became of packets: the fate of each, and what was emitted, in an order of its own.
type Outcome = (Vec<Option<Fate>>, Vec<Vec<u8>>);

impl Moving {
    /// Three instances of a kind, made by `instance`, without state.
    ///
    /// # Panics
    /// When there is no memory for the frames.
    pub fn new(
        kind: &'static str,
        units: Units,
        mut instance: impl FnMut(Role) -> Box<dyn NetworkFunction>,
    ) -> Self {
        let pool = Arc::new(Pool::anonymous(512, 16384).unwrap());
        let has_moved = vec![false; units.count()];
        let (whole, old) = (instance(Role::Whole), instance(Role::Part));
        let (new, clock) = (instance(Role::Part), Nanoseconds::default());
        let (is_indexed, moved) = (false, 0);
        Self { kind, units, whole, old, new, has_moved, is_indexed, moved, clock, pool }
    }

    /// Sends packets of one batch to the instance that sees all, and to those that have their units.
    ///
    /// # Panics
    /// When the outcomes differ.
    pub fn send(&mut self, packets: &[Timed]) {
        let (mut one, lanes) = self.batch(packets);
        let (mut two, _) = self.batch(packets);
        let expected = process(&mut *self.whole, &mut one, lanes, self.clock, &self.pool);
        let units = self.old.units_of(&two, lanes, self.units);
        let moved: Lanes =
            lanes.into_iter().filter(|lane| self.has_moved[usize::from(units[*lane])]).collect();
        let left = lanes.without(moved);
        let mut found = process(&mut *self.old, &mut two, left, self.clock, &self.pool);
        let there = process(&mut *self.new, &mut two, moved, self.clock, &self.pool);
        for (mine, other) in found.0.iter_mut().zip(there.0) {
            *mine = mine.take().or(other);
        }
        found.1.extend(there.1);
        found.1.sort();
        assert_eq!(found, expected, "{}: the outcomes differ", self.kind);
        self.clock = packets.iter().fold(self.clock, |clock, (time, _)| clock.max(*time));
        one.release(lanes);
        two.release(lanes);
    }

    fn batch(&self, packets: &[Timed]) -> (Batch, Lanes) {
        let mut batch = Batch::new(self.pool.clone());
        for (time, bytes) in packets {
            let lane = batch.push_bytes(bytes).expect("the packet fits");
            batch.meta.timestamp[lane] = *time;
        }
        let lanes = batch.lanes();
        batch.parse(lanes, Decapsulate::No);
        (batch, lanes)
    }

    /// Indexes some more flows; returns whether all are indexed.
    pub fn begin(&mut self) -> bool {
        self.is_indexed = self.old.begin_move(self.units);
        self.is_indexed
    }

    /// Moves a unit if it is ready and has not moved; returns whether it moved.
    ///
    /// # Panics
    /// When the unit's export is not what an export of its buckets holds, when not all of it is
    /// taken over, or when the flows are not indexed.
    pub fn move_unit(&mut self, unit: u16) -> bool {
        assert!(self.is_indexed, "begin until all flows are indexed");
        if self.has_moved[usize::from(unit)] || !self.old.is_ready(unit) {
            return false;
        }
        let stream = written(&*self.old, self.kind, |w| self.old.export_unit(unit, w).unwrap());
        let buckets = Buckets::new(self.units.steering(), self.units.buckets_of(unit));
        let mut selected = Vec::new();
        let version = self.old.state_version();
        let writer = StateWriter::new(&mut selected, self.kind, version).unwrap();
        let mut writer = writer.within(buckets);
        self.old.export_state(&mut writer).unwrap();
        writer.finish().unwrap();
        assert_eq!(records(&stream), records(&selected), "unit {unit}");
        let imported = import(&mut *self.new, self.kind, &stream);
        assert_eq!(imported, records(&stream).len(), "unit {unit}");
        self.old.forget_unit(unit);
        let left = written(&*self.old, self.kind, |w| self.old.export_unit(unit, w).unwrap());
        assert_eq!(records(&left).len(), 0, "unit {unit} leaves records");
        self.has_moved[usize::from(unit)] = true;
        self.moved += imported;
        true
    }

    /// Moves all units that are ready; returns how many remain.
    ///
    /// # Panics
    /// As [`move_unit`](Self::move_unit).
    pub fn move_all(&mut self) -> usize {
        while !self.begin() {}
        for unit in 0..self.units.count() as u16 {
            self.move_unit(unit);
        }
        self.has_moved.iter().filter(|moved| !**moved).count()
    }

    /// Sends packets in batches of `batch`: a third of them before the move begins, and the others while
    /// units move, up to `at_a_time` of `moves` before each batch. Returns the units that are left.
    ///
    /// # Panics
    /// As [`send`](Self::send) and [`move_unit`](Self::move_unit).
    pub fn send_while_moving(
        &mut self,
        packets: &[Timed],
        batch: usize,
        moves: Vec<u16>,
        at_a_time: usize,
    ) -> impl Iterator<Item = u16> + use<> {
        let (before, during) = packets.split_at(packets.len() / 3);
        before.chunks(batch).for_each(|packets| self.send(packets));
        while !self.begin() {}
        let mut moves = moves.into_iter();
        for packets in during.chunks(batch) {
            for unit in moves.by_ref().take(at_a_time) {
                self.move_unit(unit);
            }
            self.send(packets);
        }
        moves
    }

    /// Lets all instances write what they hold.
    ///
    /// # Panics
    /// When one cannot.
    pub fn flush(&mut self) {
        for nf in [&mut self.whole, &mut self.old, &mut self.new] {
            nf.flush().unwrap();
        }
    }

    /// Ends the move. Asserts that both instances together hold the state of the one that saw all.
    ///
    /// # Panics
    /// When they do not.
    pub fn end(&mut self) {
        self.old.end_move();
        self.tick();
        let of = |nf: &dyn NetworkFunction| records(&exported(nf, self.kind));
        let mut both = of(&*self.old);
        both.extend(of(&*self.new));
        both.sort();
        let whole = of(&*self.whole);
        let (mine, theirs) = (whole.len(), both.len());
        assert!(both == whole, "{}: {mine} records of one, {theirs} of both differ", self.kind);
    }

    /// Lets all instances notice the time: one that has no packets does so later than others.
    fn tick(&mut self) {
        for nf in [&mut self.whole, &mut self.old, &mut self.new] {
            let mut batch = Batch::new(self.pool.clone());
            process(&mut **nf, &mut batch, Lanes::NONE, self.clock, &self.pool);
        }
    }
}

/// What an instance is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It sees all packets.
    Whole,
    /// It sees those of its units.
    Part,
}

/// Lets an instance process `lanes` of a batch.
fn process(
    nf: &mut dyn NetworkFunction,
    batch: &mut Batch,
    lanes: Lanes,
    clock: Nanoseconds,
    pool: &Arc<Pool>,
) -> Outcome {
    let mut emitted = Emitted::new(pool.clone());
    let mut fates: Vec<Option<Fate>> = vec![None; BATCH];
    let mut context = Context::new(clock, &mut emitted, None);
    nf.process(batch, lanes, &mut context);
    for lane in lanes {
        fates[lane] = Some(match context.verdict(lane) {
            Verdict::Forward => Ok(batch.bytes(lane).to_vec()),
            Verdict::Drop(reason) => Err(reason),
            Verdict::Punt => panic!("lane {lane} is punted"),
        });
    }
    let mut generated: Vec<_> = emitted.packets().map(<[u8]>::to_vec).collect();
    generated.sort();
    (fates, generated)
}
