//! The queues of an output, and the lines that use them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_io::{Output, OutputFailure};
use thalweg_packet::{Batch, Lanes};

use crate::counters::PortCounters;

/// A queue of an output, as one line uses it.
pub(crate) struct OutputQueue {
    /// Its number among the queues of the output.
    pub(crate) number: usize,
    /// The counts of the line.
    pub(crate) counters: PortCounters,
    port: Port,
}

enum Port {
    /// One line uses it.
    Own(Box<dyn Output>),
    /// Several lines use it, because the output has fewer queues.
    Shared(Arc<Mutex<Box<dyn Output>>>),
}

/// A queue of an output, which no line uses.
pub(crate) struct FreeQueue {
    port: Box<dyn Output>,
    /// The counts of all lines that have used it.
    pub(crate) counters: PortCounters,
}

impl OutputQueue {
    /// Sends packets, and counts those that are dropped. Unless the frame of each `stays` in the batch,
    /// the queue may take it.
    #[inline]
    pub(crate) fn send(
        &mut self,
        batch: &mut Batch,
        lanes: Lanes,
        stays: bool,
    ) -> Result<Lanes, OutputFailure> {
        let drops = &mut self.counters.drops;
        let mut send = |port: &mut dyn Output| {
            if stays {
                port.send(batch, lanes, drops)
            } else {
                port.send_frames(batch, lanes, drops)
            }
        };
        match &mut self.port {
            Port::Own(port) => send(&mut **port),
            Port::Shared(port) => send(&mut **lock(port)),
        }
    }

    /// The packets that the queue has copied, if it counts them; of several lines that share it, the first
    /// one has the count.
    pub(crate) fn copied_for(&self, line: usize) -> Option<u64> {
        match &self.port {
            Port::Own(port) => port.copied(),
            Port::Shared(port) if line == self.number => lock(port).copied(),
            Port::Shared(_) => None,
        }
    }

    /// Calls `act` with the queue, which no other line uses meanwhile.
    #[inline]
    pub(crate) fn with<R>(&mut self, act: impl FnOnce(&mut dyn Output) -> R) -> R {
        match &mut self.port {
            Port::Own(port) => act(&mut **port),
            Port::Shared(port) => act(&mut **lock(port)),
        }
    }
}

impl FreeQueue {
    /// The queues of an output that was opened, without packets so far.
    pub(crate) fn of(queues: Vec<Box<dyn Output>>) -> Vec<Self> {
        let free = |port| Self { port, counters: PortCounters::default() };
        queues.into_iter().map(free).collect()
    }
}

fn lock(port: &Mutex<Box<dyn Output>>) -> MutexGuard<'_, Box<dyn Output>> {
    port.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Divides the queues of one output, at least one, among the lines: returns the queue of each line, and
/// those that are left over.
pub(crate) fn divide(queues: Vec<FreeQueue>, lines: usize) -> (Vec<OutputQueue>, Vec<OutputQueue>) {
    if queues.len() >= lines {
        let own = |(number, FreeQueue { port, counters })| OutputQueue {
            number,
            counters,
            port: Port::Own(port),
        };
        let mut own: Vec<_> = queues.into_iter().enumerate().map(own).collect();
        let unused = own.split_off(lines);
        return (own, unused);
    }
    let share = |FreeQueue { port, counters }| (Arc::new(Mutex::new(port)), counters);
    let mut shared: Vec<_> = queues.into_iter().map(share).collect();
    let of = |line: usize| {
        let number = line % shared.len();
        let (port, counters) = &mut shared[number];
        // What was counted before goes with the first of its lines.
        let counters = std::mem::take(counters);
        OutputQueue { number, counters, port: Port::Shared(port.clone()) }
    };
    ((0..lines).map(of).collect(), Vec::new())
}

/// The queues of one output, from all lines.
pub(crate) fn join(mut queues: Vec<OutputQueue>) -> Vec<FreeQueue> {
    queues.sort_by_key(|queue| queue.number);
    let mut free: Vec<FreeQueue> = Vec::new();
    let mut counters = PortCounters::default();
    for queue in queues {
        counters.merge(&queue.counters);
        let port = match queue.port {
            Port::Own(port) => Some(port),
            // The last one that shares it has it.
            Port::Shared(port) => Arc::into_inner(port)
                .map(|port| port.into_inner().unwrap_or_else(PoisonError::into_inner)),
        };
        if let Some(port) = port {
            free.push(FreeQueue { port, counters: std::mem::take(&mut counters) });
        }
    }
    free
}
