//! One end of a connection, as its ports and its hub share it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use thalweg_packet::Pool;

use super::Fault;
use super::settings::MemifSettings;
use super::shared::{Bell, Shared};

/// One end of a connection, with or without a peer.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) settings: MemifSettings,
    /// The pool whose memory is shared with the peer, if it is.
    pub(super) pool: Option<Arc<Pool>>,
    /// Changes whenever a peer comes or goes; read for each batch.
    generation: AtomicU64,
    state: Mutex<State>,
    /// Rung when a peer comes or goes.
    pub(super) news: Bell,
    /// Wakes the hub.
    hub: Arc<Bell>,
}

#[derive(Debug, Default)]
struct State {
    shared: Option<Arc<Shared>>,
    accusation: Option<Fault>,
}

impl Endpoint {
    pub(super) fn new(
        settings: MemifSettings,
        pool: Option<Arc<Pool>>,
        hub: Arc<Bell>,
    ) -> std::io::Result<Self> {
        let (generation, state) = (AtomicU64::new(0), Mutex::default());
        Ok(Self { settings, pool, generation, state, news: Bell::new()?, hub })
    }

    /// Whether it shares this pool's memory, or no memory as this is `None`.
    pub(super) fn is_over(&self, pool: Option<&Arc<Pool>>) -> bool {
        self.pool.as_ref().map(Arc::as_ptr) == pool.map(Arc::as_ptr)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the present connection, or of the time without one.
    #[inline]
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// That number, and what is shared with the peer, if there is one.
    pub(super) fn present(&self) -> (u64, Option<Arc<Shared>>) {
        let state = self.state();
        (self.generation(), state.shared.clone())
    }

    /// Whether a peer is connected.
    pub(super) fn is_connected(&self) -> bool {
        self.state().shared.is_some()
    }

    /// A peer came, or went; returns what was shared before.
    pub(super) fn set(&self, shared: Option<Shared>) -> Option<Arc<Shared>> {
        let mut state = self.state();
        let next = State { shared: shared.map(Arc::new), accusation: None };
        let before = std::mem::replace(&mut *state, next);
        self.generation.fetch_add(1, Ordering::Release);
        drop(state);
        self.news.ring();
        before.shared
    }

    /// A port found the peer of this generation to break the rules: the hub disconnects it.
    pub(super) fn accuse(&self, generation: u64, fault: Fault) {
        let mut state = self.state();
        if self.generation() == generation && state.shared.is_some() {
            state.accusation.get_or_insert(fault);
            self.hub.ring();
        }
    }

    /// What the present peer is accused of.
    pub(super) fn take_accusation(&self) -> Option<Fault> {
        self.state().accusation.take()
    }
}

/// What a port has of an endpoint: what it shares with the peer, and its own ends of the rings.
#[derive(Debug)]
pub(super) struct Ends<T> {
    generation: u64,
    shared: Option<Arc<Shared>>,
    /// An end for each ring of the port.
    pub(super) ends: Vec<T>,
}

impl<T> Ends<T> {
    pub(super) fn new() -> Self {
        // No generation has this number, so that the first look finds the present one.
        Self { generation: u64::MAX, shared: None, ends: Vec::new() }
    }

    /// Looks whether a peer came or went; then makes the `ends` anew. Returns what is shared.
    #[inline]
    pub(super) fn look(
        &mut self,
        endpoint: &Endpoint,
        ends: impl FnOnce(&Shared) -> Vec<T>,
    ) -> Option<Arc<Shared>> {
        if self.generation != endpoint.generation() {
            (self.generation, self.shared) = endpoint.present();
            self.ends = self.shared.as_deref().map(ends).unwrap_or_default();
        }
        self.shared.clone()
    }

    /// Uses the peer no longer, because it broke the rules.
    pub(super) fn accuse(&mut self, endpoint: &Endpoint, fault: Fault) {
        self.shared = None;
        self.ends.clear();
        endpoint.accuse(self.generation, fault);
    }

    /// Whether a peer came or went since the last look.
    pub(super) fn is_past(&self, endpoint: &Endpoint) -> bool {
        self.generation != endpoint.generation()
    }

    /// What is shared, as it was found last.
    pub(super) fn shared(&self) -> Option<&Arc<Shared>> {
        self.shared.as_ref()
    }
}
