//! The index of a table: it maps each flow to a number, and grows while packets pass.
//!
//! A hash table that grows moves all its entries, which takes tens of milliseconds for some hundred
//! thousand flows. This one has the larger table prepared by a helper thread once it is three
//! quarters full, and then moves the entries of some buckets with each flow that is inserted and each
//! batch that is looked up. Until all have moved, a lookup searches both tables.

use std::sync::mpsc::{self, Receiver, TryRecvError};

use arrayvec::ArrayVec;
use thalweg_classify::cuckoo::{self, NoPlace, Writer};
use thalweg_cpu::helper;
use thalweg_packet::BATCH;

/// The initial capacity, in flows.
const FIRST: usize = 1024;
/// A table for fewer flows is made at once: that takes less time than a batch of packets.
const SMALL: usize = 4096;

/// The most entries of a bucket.
const WAYS: usize = 8;
/// The buckets that move with a batch: no flow may be inserted for long.
const MOVED: usize = 8;

/// An index that maps each flow to a number.
#[derive(Debug)]
pub struct Index<const W: usize> {
    /// Where flows are inserted.
    table: Writer<W>,
    former: Option<Former<W>>,
    /// The larger table that the helper thread prepares.
    next: Option<Receiver<Writer<W>>>,
    /// The most flows: the index does not grow ahead of them.
    most: usize,
}

/// The table before, as long as not all its entries have moved.
#[derive(Debug)]
struct Former<const W: usize> {
    table: Writer<W>,
    /// The buckets before this one are empty.
    bucket: usize,
}

impl<const W: usize> Index<W> {
    /// An empty index with a secret hash key, for up to `most` flows.
    pub fn new(most: usize) -> Self {
        Self { table: cuckoo::secret_table(FIRST), former: None, next: None, most }
    }

    /// The bytes of an index that has grown to `flows` flows.
    pub fn bytes(flows: usize) -> usize {
        cuckoo::bytes::<W>(FIRST, flows)
    }

    /// The number of flows.
    pub fn len(&self) -> usize {
        self.table.len() + self.former.as_ref().map_or(0, |former| former.table.len())
    }

    /// Whether there is no flow.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sets the most flows.
    pub fn limit(&mut self, most: usize) {
        self.most = most;
    }

    /// The number of a flow.
    pub fn get(&self, words: &[u64; W]) -> Option<u32> {
        let former = || self.former.as_ref()?.table.get(words);
        self.table.get(words).or_else(former)
    }

    /// Goes on with growing, if it grows.
    #[inline]
    pub fn settle(&mut self) {
        if self.former.is_some() {
            (0..MOVED).for_each(|_| self.move_bucket());
        }
    }

    /// The numbers of up to a batch of flows; returns a bit for each that was found.
    pub(super) fn get_step(&self, flows: &[[u64; W]], numbers: &mut [u32; BATCH]) -> u32 {
        let there = self.table.get_step(flows, numbers);
        let Some(former) = &self.former else { return there };
        let mut others = [0; BATCH];
        let more = former.table.get_step(flows, &mut others) & !there;
        for (n, number) in others.into_iter().enumerate() {
            if more >> n & 1 == 1 {
                numbers[n] = number;
            }
        }
        there | more
    }

    /// Gives a flow a number; returns the one it had.
    ///
    /// # Errors
    /// When all its places are taken: improbable unless the flows were chosen to collide.
    pub fn try_insert(&mut self, words: &[u64; W], number: u32) -> Result<Option<u32>, NoPlace> {
        self.grow();
        if let Some(Former { table, .. }) = &mut self.former
            && table.get(words).is_some()
        {
            return table.insert_within(words, number);
        }
        if let Ok(before) = self.table.insert_within(words, number) {
            return Ok(before);
        }
        if self.len() < self.table.places() / 4 {
            return Err(NoPlace);
        }
        // It grows beyond its limit, or faster than the next table could be prepared.
        self.finish();
        if let Some(next) = self.next.take().and_then(|next| next.recv().ok()) {
            self.succeed(next);
        }
        Ok(self.table.insert(words, number))
    }

    /// Takes out a flow; returns its number.
    pub fn remove(&mut self, words: &[u64; W]) -> Option<u32> {
        let former = |index: &mut Self| index.former.as_mut()?.table.remove(words);
        self.table.remove(words).or_else(|| former(self))
    }

    /// Makes room for `more` flows and some slack, at once: an index that is almost full must move
    /// entries.
    pub fn reserve(&mut self, more: usize) {
        self.finish();
        self.table.reserve(more + more / 2);
    }

    #[cfg(test)]
    pub(super) fn is_growing(&self) -> bool {
        self.former.is_some()
    }

    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.table.places()
    }

    /// Goes a step further with growing, if there is need.
    fn grow(&mut self) {
        if self.former.is_some() {
            self.move_bucket();
        } else if let Some(next) = &self.next {
            match next.try_recv() {
                Ok(table) => self.succeed(table),
                Err(TryRecvError::Empty) => {}
                // There was no memory for it; there may be later.
                Err(TryRecvError::Disconnected) => self.next = None,
            }
        } else if self.table.room() < self.most && self.table.len() * 4 >= self.table.room() * 3 {
            self.prepare(self.table.places() * 2);
        }
    }

    /// Has a table for `room` flows prepared.
    fn prepare(&mut self, room: usize) {
        let mut next = self.table.sibling();
        if room < SMALL {
            next.reserve(room);
            return self.succeed(next);
        }
        let (done, next_is) = mpsc::channel();
        self.next = Some(next_is);
        helper::run(move || {
            next.reserve(room);
            // The index may be gone.
            let _ = done.send(next);
        });
    }

    /// Lets an empty table take the place of the present one, which is the former from now on.
    fn succeed(&mut self, next: Writer<W>) {
        let table = std::mem::replace(&mut self.table, next);
        (self.former, self.next) = (Some(Former { table, bucket: 0 }), None);
    }

    /// Moves the entries of the next bucket of the former table.
    fn move_bucket(&mut self) {
        let Self { table, former, .. } = self;
        let Some(Former { table: from, bucket }) = former else { return };
        if *bucket < from.buckets() && !from.is_empty() {
            let moving: ArrayVec<_, WAYS> = from.in_bucket(*bucket).collect();
            for (words, number) in moving {
                from.remove(&words);
                table.insert(&words, number);
            }
            *bucket += 1;
            return;
        }
        // To free a large table takes long.
        former.take().into_iter().for_each(helper::discard);
    }

    /// Moves all entries of the former table, if there is one.
    fn finish(&mut self) {
        while self.former.is_some() {
            self.move_bucket();
        }
    }

    /// Forgets all flows, and takes a new hash key.
    pub fn clear(&mut self) {
        let most = self.most;
        helper::discard(std::mem::replace(self, Self::new(most)));
    }
}
