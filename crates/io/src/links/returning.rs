//! Ports that go on without an interface that was removed, and take it again when it has returned.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use thalweg_packet::{Batch, DropCounts, DropReason, Lanes};

use super::bell::Bell;
use crate::port::{Input, IoError, Lost, Output, OutputFailure, Received, Shortfall, copied_by};

/// The places of the queues of a port, in which the watcher leaves those that it has opened again.
pub(super) struct Places<P: ?Sized>(Vec<Place<P>>);

struct Place<P: ?Sized> {
    queue: Mutex<Option<Box<P>>>,
    is_full: AtomicBool,
    bell: Bell,
}

impl<P: ?Sized> Places<P> {
    /// Places for this many queues.
    pub(super) fn new(count: usize) -> std::io::Result<Arc<Self>> {
        let place = |_| {
            let bell = Bell::new()?;
            Ok(Place { queue: Mutex::default(), is_full: AtomicBool::new(false), bell })
        };
        (0..count).map(place).collect::<std::io::Result<_>>().map(|all| Arc::new(Self(all)))
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Leaves queues for their workers, one in each place.
    pub(super) fn fill(&self, queues: Vec<Box<P>>) {
        for (place, queue) in self.0.iter().zip(queues) {
            let former = place.lock().replace(queue);
            place.is_full.store(true, Ordering::Release);
            place.bell.ring();
            // One that no worker has taken, since it was removed at once.
            drop(former);
        }
    }
}

impl<P: ?Sized> Place<P> {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Box<P>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the queue that was left here.
    fn take(&self) -> Option<Box<P>> {
        if !self.is_full.swap(false, Ordering::Acquire) {
            return None;
        }
        self.bell.quieten();
        self.lock().take()
    }
}

/// A queue of a port, which may be gone.
struct Queue<P: ?Sized> {
    there: Option<Box<P>>,
    places: Arc<Places<P>>,
    /// Its number.
    at: usize,
    /// What kept packets from passing by queues that are gone.
    shortfall: Shortfall,
    /// The packets that those have copied.
    copied: Option<u64>,
}

impl<P: ?Sized> Queue<P> {
    fn place(&self) -> &Place<P> {
        &self.places.0[self.at]
    }

    /// The queue, which may have returned.
    fn get(&mut self) -> Option<&mut P> {
        if self.there.is_none() {
            self.there = self.place().take();
        }
        self.there.as_deref_mut()
    }

    /// Gives up the queue of an interface that was removed.
    fn give_up(&mut self, shortfall: Shortfall, copied: Option<u64>) {
        self.there = None;
        self.shortfall = self.shortfall.with(shortfall);
        self.copied = copied_by(self.copied, copied);
    }
}

/// Queues of a port that `places` can take the place of.
fn queues<P: ?Sized>(
    queues: Vec<Box<P>>,
    places: &Arc<Places<P>>,
) -> impl Iterator<Item = Queue<P>> {
    let queue = |(at, there)| Queue {
        there: Some(there),
        places: places.clone(),
        at,
        shortfall: Shortfall::default(),
        copied: None,
    };
    queues.into_iter().enumerate().map(queue)
}

/// A queue of an input, without packets while its interface is gone.
struct ReturningInput(Queue<dyn Input>);

/// The queues of an input, which may be gone for a while.
pub(super) fn inputs(
    all: Vec<Box<dyn Input>>,
    places: &Arc<Places<dyn Input>>,
) -> Vec<Box<dyn Input>> {
    queues(all, places).map(|queue| Box::new(ReturningInput(queue)) as _).collect()
}

impl Input for ReturningInput {
    fn receive(
        &mut self,
        batch: &mut Batch,
        most: usize,
        drops: &mut DropCounts,
    ) -> Result<Received, IoError> {
        let Some(queue) = self.0.get() else { return Ok(Received::default()) };
        match queue.receive(batch, most, drops) {
            // All packets before the removal were received.
            Err(IoError::Removed(_)) => {
                let (shortfall, copied) = (queue.shortfall(), queue.copied());
                self.0.give_up(shortfall, copied);
                Ok(Received::default())
            }
            other => other,
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.0.there {
            Some(queue) => queue.descriptor(),
            None => Some(self.0.place().bell.as_fd()),
        }
    }

    fn shortfall(&self) -> Shortfall {
        let there = self.0.there.as_ref().map(|queue| queue.shortfall());
        self.0.shortfall.with(there.unwrap_or_default())
    }

    fn copied(&self) -> Option<u64> {
        let there = self.0.there.as_ref().and_then(|queue| queue.copied());
        copied_by(self.0.copied, there)
    }
}

/// A queue of an output, which drops packets while its interface is gone.
struct ReturningOutput {
    queue: Queue<dyn Output>,
    takes_supers: bool,
    takes_tunnelled_supers: bool,
    /// Packets that queues which are gone had accepted.
    lost: Lost,
}

/// The queues of an output, which may be gone for a while.
pub(super) fn outputs(
    all: Vec<Box<dyn Output>>,
    places: &Arc<Places<dyn Output>>,
) -> Vec<Box<dyn Output>> {
    let output = |queue: Queue<dyn Output>| {
        let there = queue.there.as_ref();
        let takes_supers = there.is_some_and(|there| there.takes_supers());
        let takes_tunnelled_supers = there.is_some_and(|there| there.takes_tunnelled_supers());
        let lost = Lost::default();
        Box::new(ReturningOutput { queue, takes_supers, takes_tunnelled_supers, lost }) as _
    };
    queues(all, places).map(output).collect()
}

impl ReturningOutput {
    /// Gives up a queue whose interface was removed.
    fn give_up(&mut self, lost: Lost) {
        self.lost.add(lost);
        let Some(there) = &mut self.queue.there else { return };
        self.lost.add(there.take_lost());
        let (shortfall, copied) = (there.shortfall(), there.copied());
        self.queue.give_up(shortfall, copied);
    }

    /// The packets that were sent, if the interface was removed meanwhile.
    fn sent(&mut self, outcome: Result<Lanes, OutputFailure>) -> Result<Lanes, OutputFailure> {
        match outcome {
            Err(OutputFailure { error: IoError::Removed(_), sent, lost }) => {
                self.give_up(lost);
                Ok(sent)
            }
            other => other,
        }
    }
}

impl Output for ReturningOutput {
    fn send(
        &mut self,
        batch: &Batch,
        lanes: Lanes,
        drops: &mut DropCounts,
    ) -> Result<Lanes, OutputFailure> {
        let Some(queue) = self.queue.get() else {
            drops.add(DropReason::OutputFailed, lanes.and(batch.lanes()).count() as u64);
            return Ok(Lanes::NONE);
        };
        let outcome = queue.send(batch, lanes, drops);
        self.sent(outcome)
    }

    fn send_frames(
        &mut self,
        batch: &mut Batch,
        lanes: Lanes,
        drops: &mut DropCounts,
    ) -> Result<Lanes, OutputFailure> {
        let Some(queue) = self.queue.get() else {
            drops.add(DropReason::OutputFailed, lanes.and(batch.lanes()).count() as u64);
            return Ok(Lanes::NONE);
        };
        let outcome = queue.send_frames(batch, lanes, drops);
        self.sent(outcome)
    }

    fn takes_supers(&self) -> bool {
        self.takes_supers
    }

    fn takes_tunnelled_supers(&self) -> bool {
        self.takes_tunnelled_supers
    }

    fn flush(&mut self) -> Result<(), OutputFailure> {
        let Some(queue) = &mut self.queue.there else { return Ok(()) };
        let outcome = queue.flush().map(|()| Lanes::NONE);
        self.sent(outcome).map(drop)
    }

    fn shortfall(&self) -> Shortfall {
        let there = self.queue.there.as_ref().map(|queue| queue.shortfall());
        self.queue.shortfall.with(there.unwrap_or_default())
    }

    fn copied(&self) -> Option<u64> {
        let there = self.queue.there.as_ref().and_then(|queue| queue.copied());
        copied_by(self.queue.copied, there)
    }

    fn check(&mut self) -> Result<(), IoError> {
        let Some(queue) = self.queue.get() else { return Ok(()) };
        match queue.check() {
            Err(IoError::Removed(_)) => {
                self.give_up(Lost::default());
                Ok(())
            }
            other => other,
        }
    }

    fn take_lost(&mut self) -> Lost {
        let there = self.queue.there.as_mut().map(|queue| queue.take_lost());
        let mut lost = std::mem::take(&mut self.lost);
        lost.add(there.unwrap_or_default());
        lost
    }
}
