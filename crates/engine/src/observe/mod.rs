//! Observes single packets of a run under way: [traces](Traces) of packets that match a pattern, and
//! copies of [dropped packets](Drops).
//!
//! The requests travel with the bursts, as the counts of a snapshot do ([`Tally`](crate::tally::Tally)):
//! the intake looks once a burst whether there are any, and each batch then carries its
//! [observation](Observed). So stages need nothing in common to observe a packet, whichever thread it
//! is on and whatever chain a reload has put in place meanwhile.

mod drops;
mod error;
mod observed;
mod pattern;
mod traces;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_chain::{NfIndex, Plan};

use crate::control::Control;
use drops::DropWatch;
use pattern::Pattern;

pub use drops::{DropPlace, DropRecord, Drops, DropsWanted};
pub use error::ObserveError;
pub(crate) use observed::{Notes, Observed};
pub(crate) use traces::TraceWatch;
pub use traces::Traces;

/// The most requests of a kind at once.
const MOST_REQUESTS: usize = 4;

impl Control {
    /// Requests traces of the next `count` packets that match `pattern`, a flow in the syntax of rules
    /// (all packets match an empty one). Packets do not wait for the reader: while it is 64 traces
    /// behind, packets are [passed over](Traces::passed_over).
    ///
    /// Up to 4 requests at once. Before the run begins, a pattern cannot have `in_port`.
    ///
    /// # Errors
    /// If the pattern has a mistake, `count` is not 1 to 1000, there are too many requests, or the run
    /// has ended.
    pub fn traces(&self, pattern: &str, count: usize) -> Result<Traces, ObserveError> {
        if !(1..=Traces::MOST).contains(&count) {
            return Err(ObserveError::Count(count));
        }
        let pattern = Pattern::parse(pattern, self.plan().as_deref())?;
        let (watch, traces) = traces::watch(pattern, count, self.observers.clone());
        self.observers.add(watch, |lists| &mut lists.traces)?;
        Ok(traces)
    }

    /// Requests copies of the packets that are dropped from now on: by NFs, between them and at
    /// outputs. A packet that an input drops has no frame and is not among them, and neither is one
    /// that ends with a panic or with a failed output that had accepted it. Packets do not wait for
    /// the reader: what it has no room for is [missed](Drops::missed).
    ///
    /// Up to 4 requests at once. Before the run begins, a pattern cannot have `in_port`.
    ///
    /// # Errors
    /// If the pattern has a mistake, the chain has no such NF, there are too many requests, or the run
    /// has ended.
    pub fn drops(&self, wanted: &DropsWanted) -> Result<Drops, ObserveError> {
        let plan = self.plan();
        let pattern = Pattern::parse(&wanted.pattern, plan.as_deref())?;
        if let (Some(name), Some(plan)) = (&wanted.nf, &plan)
            && !plan.nfs.iter().any(|nf| nf.name == *name)
        {
            return Err(ObserveError::unknown_nf(name, plan));
        }
        let (watch, drops) = drops::watch(pattern, wanted.nf.clone(), self.observers.clone());
        self.observers.add(watch, |lists| &mut lists.drops)?;
        Ok(drops)
    }
}

/// All who observe packets of a run.
#[derive(Debug, Default)]
pub(crate) struct Observers {
    /// Whether there are any.
    any: AtomicBool,
    lists: Mutex<Lists>,
}

#[derive(Debug, Default)]
struct Lists {
    traces: Vec<Arc<TraceWatch>>,
    drops: Vec<Arc<DropWatch>>,
    /// The run has ended.
    is_closed: bool,
}

/// Those who observe packets of a burst, and the plan that it takes.
pub(crate) struct Audience {
    plan: Arc<Plan>,
    traces: Vec<Arc<TraceWatch>>,
    drops: Vec<Arc<DropWatch>>,
}

impl Audience {
    /// One who has a packet of `plan` traced.
    pub(crate) fn of_trace(plan: Arc<Plan>, watch: TraceWatch) -> Arc<Self> {
        Arc::new(Self { plan, traces: vec![Arc::new(watch)], drops: Vec::new() })
    }

    /// The name of an NF.
    fn name(&self, nf: NfIndex) -> String {
        self.plan.nfs[usize::from(nf.0)].name.clone()
    }
}

impl Observers {
    /// Those who observe now, for a burst that takes `plan`.
    #[inline]
    pub(crate) fn audience(&self, plan: &Arc<Plan>) -> Option<Arc<Audience>> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let lists = self.lists();
        let (traces, drops) = (lists.traces.clone(), lists.drops.clone());
        Some(Arc::new(Audience { plan: plan.clone(), traces, drops }))
    }

    /// Ends all requests.
    pub(crate) fn close(&self) {
        let mut lists = self.lists();
        *lists = Lists { is_closed: true, ..Lists::default() };
        self.any.store(false, Ordering::Relaxed);
    }

    fn add<T>(
        &self,
        watch: T,
        list: impl Fn(&mut Lists) -> &mut Vec<Arc<T>>,
    ) -> Result<(), ObserveError> {
        let mut lists = self.lists();
        if lists.is_closed {
            return Err(ObserveError::Ended);
        }
        if list(&mut lists).len() == MOST_REQUESTS {
            return Err(ObserveError::Busy);
        }
        list(&mut lists).push(Arc::new(watch));
        self.any.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Removes what is no longer `wanted`.
    fn retain(&self, traces: impl Fn(&TraceWatch) -> bool, drops: impl Fn(&DropWatch) -> bool) {
        let mut lists = self.lists();
        lists.traces.retain(|watch| traces(watch));
        lists.drops.retain(|watch| drops(watch));
        let any = !(lists.traces.is_empty() && lists.drops.is_empty());
        self.any.store(any, Ordering::Relaxed);
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
