//! What an NF leaves besides its verdicts: packets that it generates (fragments, ICMP errors,
//! requests), and notes of a part for the whole.

use std::sync::Arc;

use thalweg_packet::{Batch, Lanes, Pool};

use crate::Note;

/// The packets that an NF generated while it processed a batch, in as many batches as needed.
#[derive(Debug)]
pub struct Emitted {
    pool: Arc<Pool>,
    /// Never empty; the batches after the [current](Self::current) one hold no packets.
    batches: Vec<Batch>,
    current: usize,
    /// What a part of an NF left for the whole, with the lanes.
    pub(crate) notes: Vec<(usize, Note)>,
    /// The lanes for which packets were generated, if packets are traced.
    pub(crate) origins: Vec<(usize, Made)>,
}

/// Where a generated packet lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// The number of its batch.
    pub batch: usize,
    /// Its lane there.
    pub lane: usize,
}

impl Emitted {
    /// No packets yet; their frames will come from `pool`.
    #[inline]
    pub fn new(pool: Arc<Pool>) -> Self {
        let batches = vec![Batch::new(pool.clone())];
        Self { batches, pool, current: 0, notes: Vec::new(), origins: Vec::new() }
    }

    /// Adds a packet of `bytes`, from the Ethernet header on; `None` without a free frame.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) -> Option<Made> {
        let (batch, lane) = (self.room(), self.batches[self.current].push_bytes(bytes)?);
        Some(Made { batch, lane })
    }

    /// The same with a super-packet.
    pub fn push_super(&mut self, bytes: &[u8], segment_size: u16) -> Option<Made> {
        let batch = self.room();
        let lane = self.batches[batch].push_super(bytes.len(), segment_size)?;
        self.batches[batch].bytes_mut(lane).copy_from_slice(bytes);
        Some(Made { batch, lane })
    }

    /// The number of a batch with an empty lane.
    #[inline]
    fn room(&mut self) -> usize {
        if self.batches[self.current].is_full() {
            self.current += 1;
            if self.current == self.batches.len() {
                self.batches.push(Batch::new(self.pool.clone()));
            }
        }
        self.current
    }

    /// The batch that holds a packet.
    ///
    /// # Panics
    /// When there is no such batch.
    #[inline]
    pub fn batch_of(&mut self, made: Made) -> &mut Batch {
        &mut self.batches[made.batch]
    }

    /// The batches that may hold packets, by their numbers.
    #[inline]
    pub fn batches(&self) -> &[Batch] {
        &self.batches[..=self.current]
    }

    /// The same, mutable.
    #[inline]
    pub fn batches_mut(&mut self) -> &mut [Batch] {
        &mut self.batches[..=self.current]
    }

    /// The bytes of the packets that were generated on behalf of the packet of `lane`, which is
    /// traced.
    pub fn packets_for(&self, lane: usize) -> impl Iterator<Item = &[u8]> {
        let of_lane = self.origins.iter().filter(move |(origin, _)| *origin == lane);
        of_lane.map(|(_, made)| self.batches[made.batch].bytes(made.lane))
    }

    /// The packets' bytes.
    #[inline]
    pub fn packets(&self) -> impl Iterator<Item = &[u8]> {
        let of = |batch| move |lane| Batch::bytes(batch, lane);
        self.batches.iter().flat_map(move |batch| batch.lanes().into_iter().map(of(batch)))
    }

    /// The number of packets.
    #[inline]
    pub fn len(&self) -> usize {
        self.batches.iter().map(Batch::len).sum()
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.batches.iter().all(Batch::is_empty)
    }

    /// Takes the notes that a part of an NF left, with their lanes.
    #[inline]
    pub fn take_notes(&mut self) -> std::vec::Drain<'_, (usize, Note)> {
        self.notes.drain(..)
    }

    /// Passes all batches with packets to `to`, then releases what it left in them.
    #[inline]
    pub fn hand_over(&mut self, mut to: impl FnMut(&mut Batch)) {
        for batch in &mut self.batches[..=self.current] {
            if !batch.is_empty() {
                to(batch);
                batch.release(Lanes::ALL);
            }
        }
        self.current = 0;
        self.origins.clear();
    }
}

#[cfg(test)]
mod tests {
    use thalweg_packet::BATCH;

    use super::*;

    #[test]
    fn there_is_room_for_as_many_as_there_are_frames() {
        let pool = Arc::new(Pool::anonymous(3 * BATCH, 2048).unwrap());
        let mut emitted = Emitted::new(pool.clone());
        for round in 0..2 {
            let mut number = 0;
            while let Some(made) = emitted.push(&[number as u8; 60]) {
                assert_eq!((made.batch, made.lane), (number / BATCH, number % BATCH));
                assert_eq!(emitted.batch_of(made).bytes(made.lane), [number as u8; 60]);
                number += 1;
            }
            // A pool may keep a few frames for itself.
            assert!(number > 2 * BATCH && emitted.len() == number, "{number} in round {round}");
            assert!(emitted.packets().map(|bytes| bytes[0]).eq(0..number as u8));
            let mut handed = 0;
            emitted.hand_over(|batch| handed += batch.len());
            assert_eq!((handed, emitted.is_empty(), pool.available()), (number, true, 3 * BATCH));
        }
    }
}
