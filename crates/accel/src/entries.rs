//! The packets that a work-group has, as the processor remembers them.

use thalweg_packet::Frame;

/// A packet under way: its frame, and what its sender wants to know when it is back.
#[derive(Debug)]
pub(crate) struct Entry<T> {
    pub(crate) frame: Frame,
    pub(crate) tag: T,
}

/// What is in a slot.
#[derive(Debug)]
pub(crate) enum Content<T> {
    /// A piece of the packet of a later slot.
    Piece,
    /// A packet, or its last piece.
    Packet(Entry<T>),
}

/// By slot of a work-group's queue: what is in it.
#[derive(Debug)]
pub(crate) struct Entries<T> {
    lanes: usize,
    slots: Vec<Option<Content<T>>>,
}

impl<T> Entries<T> {
    pub(crate) fn new(rows: usize, lanes: usize) -> Self {
        Self { lanes, slots: (0..rows * lanes).map(|_| None).collect() }
    }

    fn at(&self, row: u32, lane: usize) -> usize {
        (row as usize & (self.slots.len() / self.lanes - 1)) * self.lanes + lane
    }

    pub(crate) fn put(&mut self, row: u32, lane: usize, content: Content<T>) {
        let at = self.at(row, lane);
        debug_assert!(self.slots[at].is_none(), "a slot holds one packet");
        self.slots[at] = Some(content);
    }

    /// Takes what is in a slot; `None` for a dummy.
    pub(crate) fn take(&mut self, row: u32, lane: usize) -> Option<Content<T>> {
        let at = self.at(row, lane);
        self.slots[at].take()
    }

    /// Takes all packets.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Entry<T>> {
        self.slots.iter_mut().filter_map(|slot| match slot.take() {
            Some(Content::Packet(entry)) => Some(entry),
            Some(Content::Piece) | None => None,
        })
    }
}
