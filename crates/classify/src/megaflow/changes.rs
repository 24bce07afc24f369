//! Families that change while packets pass.
//!
//! An index that grows, or a coarse mask that loses bits, gives all flows of a family other places: tens
//! of milliseconds for a hundred thousand. So a family is not changed but succeeded. Its heirs take its
//! members, and with them all flows from then on; those that it has move to the heirs, some with each
//! batch and each new megaflow. Until it is empty, searches look into it as into any family.

use std::sync::mpsc::{self, TryRecvError};

use thalweg_cpu::helper;

use super::Megaflows;
use super::family::{Family, Room, State};
use super::index::Refused;

/// The places in the indexes of a family that moves at once.
const AT_ONCE: usize = 1024;
/// The buckets whose flows move with a batch; with each new megaflow, those of one more.
pub(super) const MOVED: usize = 8;

/// The most flows for which indexes are made at once. Larger ones take long to fill, so that a helper
/// thread prepares them.
const SMALL: usize = 4096;

/// Flows for which an index is made, for each that is there.
const ROOM: usize = 2;
/// The same when chance has filled one of its buckets before the others.
const MORE_ROOM: usize = 4;

impl Megaflows {
    /// Indexes the megaflow `handle`; `false` when there is no place for it.
    pub(super) fn index(&mut self, handle: u32) -> bool {
        self.go_on(1);
        let subtable = self.store.flows[handle as usize].subtable;
        if let Err(refused) = self.place(handle) {
            let at = self.family_of(subtable);
            // A larger index would not help: equal hashes stay equal.
            let Some(at) = at.filter(|_| refused == Refused::Full) else { return false };
            self.enlarge(at, MORE_ROOM);
            return self.place(handle).is_ok();
        }
        let Some(at) = self.family_of(subtable) else { return false };
        if let Some(misfit) = self.families[at].misfit(&self.store) {
            self.take_apart(at, misfit);
        } else if self.families[at].wants_room() {
            self.enlarge(at, ROOM);
        }
        true
    }

    /// Goes on with what changes: the flows of some buckets move.
    #[inline]
    pub(super) fn go_on(&mut self, buckets: usize) {
        if self.changes {
            self.change(buckets);
        }
    }

    fn change(&mut self, buckets: usize) {
        while let Some((at, room)) = self.next_room() {
            let family = &self.families[at];
            let heir = family.heir(&self.store, family.members().collect(), room);
            self.families.push(heir);
            self.leave(at);
        }
        let waits = |family: &Family| matches!(family.state, State::Waits(_));
        if self.families.iter().any(waits) {
            // Flows would move twice.
            return;
        }
        match self.families.iter().position(|family| !family.is_open()) {
            Some(at) => self.move_flows(at, buckets),
            None => self.changes = false,
        }
    }

    /// Puts the megaflow `handle` into the family of its subtable.
    fn place(&mut self, handle: u32) -> Result<(), Refused> {
        let subtable = self.store.flows[handle as usize].subtable;
        let at = self.family_of(subtable).ok_or(Refused::Full)?;
        self.families[at].place(&self.store, &self.hasher, handle)
    }

    /// Gives a family room for `room` times its flows, now or when it is prepared.
    fn enlarge(&mut self, at: usize, room: usize) {
        let family = &self.families[at];
        let flows = family.len() * room;
        if flows <= SMALL {
            self.succeed(at, vec![family.members().collect()], flows);
        } else if matches!(family.state, State::Open) {
            self.prepare(at, flows);
        }
    }

    /// Has indexes for `flows` prepared for a family.
    fn prepare(&mut self, at: usize, flows: usize) {
        let (done, ready) = mpsc::channel();
        self.families[at].state = State::Waits(ready);
        self.changes = true;
        helper::run(move || {
            // The family may be gone.
            let _ = done.send(Room::new(flows));
        });
    }

    /// The indexes of a family for which they are ready.
    fn next_room(&mut self) -> Option<(usize, Room)> {
        for (at, family) in self.families.iter_mut().enumerate() {
            let State::Waits(ready) = &family.state else { continue };
            match ready.try_recv() {
                Ok(room) => return Some((at, room)),
                Err(TryRecvError::Empty) => {}
                // There was no memory for them; there may be later.
                Err(TryRecvError::Disconnected) => family.state = State::Open,
            }
        }
        None
    }

    /// Lets the family at `at` take in a subtable.
    pub(super) fn join(&mut self, at: usize, subtable: u16) {
        let family = &mut self.families[at];
        if !family.join(&self.store, subtable) {
            let members = family.members().chain([subtable]).collect();
            let flows = family.len() * ROOM;
            self.succeed(at, vec![members], flows);
        }
    }

    /// Gives a subtable a family of its own.
    fn take_apart(&mut self, at: usize, subtable: u16) {
        let family = &self.families[at];
        let others: Vec<u16> = family.members().filter(|m| *m != subtable).collect();
        let (one, flows) = (others.first().copied(), family.len() * ROOM);
        self.succeed(at, vec![vec![subtable], others], flows);
        if let Some(at) = one.and_then(|other| self.family_of(other)) {
            self.families[at].settle();
        }
    }

    /// Lets a family be succeeded by one for each set of members, which have room for `flows`, now or
    /// when it is prepared.
    fn succeed(&mut self, at: usize, sets: Vec<Vec<u16>>, flows: usize) {
        for members in sets {
            let room = Room::new(flows.min(SMALL));
            let heir = self.families[at].heir(&self.store, members, room);
            self.families.push(heir);
            if flows > SMALL {
                self.prepare(self.families.len() - 1, flows);
            }
        }
        self.leave(at);
    }

    /// Lets the flows of a family that has heirs move to them.
    fn leave(&mut self, at: usize) {
        self.families[at].state = State::Leaves(0);
        self.changes = true;
        if self.families[at].places() <= AT_ONCE {
            self.move_flows(at, usize::MAX);
        }
    }

    /// Moves the flows of some buckets of a family that leaves.
    fn move_flows(&mut self, at: usize, buckets: usize) {
        let mut moving = std::mem::take(&mut self.moving);
        let is_empty = !(0..buckets).all(|_| self.families[at].take_bucket(&mut moving));
        moving.retain(|handle| self.place(*handle).is_err());
        if is_empty {
            self.drop_family(at);
        }
        // Their next packet makes them again.
        moving.drain(..).for_each(|handle| self.remove(handle));
        self.moving = moving;
    }

    /// Drops a family without flows.
    pub(super) fn drop_family(&mut self, at: usize) {
        let family = self.families.swap_remove(at);
        if family.places() > SMALL {
            helper::discard(family);
        }
    }
}
