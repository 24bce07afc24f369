//! The thread of a control socket: it accepts or connects, agrees with peers, and finds out that they
//! have gone.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use thalweg_packet::Pool;
use thalweg_source::poll::wait_readable;

use super::Fault;
use super::address::Address;
use super::endpoint::Endpoint;
use super::session::{Farewell, Session};
use super::settings::{MemifSettings, Role};
use super::shared::Bell;
use super::socket::{ControlSocket, Listener};

/// The time from one attempt of a client to the next.
const RETRY: Duration = Duration::from_millis(100);
/// The longest sleep.
const LONGEST: Duration = Duration::from_secs(60);
/// The most clients of a server at a time, those included that have not agreed yet.
const MAX_SESSIONS: usize = 128;
/// The time between two different warnings.
const QUIET: Duration = Duration::from_secs(1);

/// The thread of a control socket, with all ends that use the socket.
#[derive(Debug)]
pub(super) struct Hub {
    common: Arc<Common>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread and others see.
#[derive(Debug)]
struct Common {
    endpoints: Mutex<Vec<Arc<Endpoint>>>,
    bell: Arc<Bell>,
    stop: AtomicBool,
}

impl Common {
    fn endpoints(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Endpoint>>> {
        self.endpoints.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hub {
    /// Listens at an address if it is of servers, and begins to agree with peers.
    pub(super) fn start(address: &Address, role: Role) -> std::io::Result<Self> {
        let listener = match role {
            Role::Server => Some(Listener::bind(address)?),
            Role::Client => None,
        };
        let bell = Arc::new(Bell::new()?);
        let (endpoints, stop) = (Mutex::default(), AtomicBool::new(false));
        let common = Arc::new(Common { endpoints, bell, stop });
        let exchange = Exchange {
            common: common.clone(),
            address: address.clone(),
            listener,
            sessions: Vec::new(),
            farewells: Vec::new(),
            retry: Instant::now(),
            warned: None,
        };
        let thread = thread::Builder::new().name("memif".into()).spawn(|| exchange.run())?;
        Ok(Self { common, thread: Some(thread) })
    }

    /// Adds an end, which shares the memory of a pool with its peer if there is one.
    pub(super) fn add(
        &self,
        settings: &MemifSettings,
        pool: Option<&Arc<Pool>>,
    ) -> std::io::Result<Arc<Endpoint>> {
        let (settings, bell) = (settings.clone(), self.common.bell.clone());
        let endpoint = Arc::new(Endpoint::new(settings, pool.cloned(), bell)?);
        self.common.endpoints().push(endpoint.clone());
        self.common.bell.ring();
        Ok(endpoint)
    }

    /// The end with an identifier.
    pub(super) fn find(&self, id: u32) -> Option<Arc<Endpoint>> {
        self.common.endpoints().iter().find(|endpoint| endpoint.settings.id == id).cloned()
    }

    /// Removes an end; its peer is disconnected. Returns whether others are left.
    pub(super) fn remove(&self, id: u32) -> bool {
        let mut endpoints = self.common.endpoints();
        endpoints.retain(|endpoint| endpoint.settings.id != id);
        self.common.bell.ring();
        !endpoints.is_empty()
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.common.stop.store(true, Ordering::Release);
        self.common.bell.ring();
        // It never waits for anything but its descriptors, and for peers only as long as they have frames.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// What the thread has.
struct Exchange {
    common: Arc<Common>,
    address: Address,
    listener: Option<Listener>,
    sessions: Vec<Session>,
    /// Connections that have ended, whose peers may still have frames.
    farewells: Vec<Farewell>,
    /// When ends without a session may connect again.
    retry: Instant,
    /// The last warning about a peer that was not connected.
    warned: Option<(Instant, String)>,
}

impl Exchange {
    fn run(mut self) {
        while !self.common.stop.load(Ordering::Acquire) {
            self.common.bell.quieten();
            let endpoints = self.common.endpoints().clone();
            self.farewells.retain(|farewell| !farewell.is_over());
            self.end_sessions(&endpoints);
            self.accept();
            self.connect(&endpoints);
            self.go_on(&endpoints);
            self.wait(&endpoints);
        }
        let why = Fault::new("the port was closed");
        self.farewells.extend(self.sessions.drain(..).filter_map(|session| session.end(&why)));
        self.farewells.retain(|farewell| !farewell.is_over());
        while let Some(until) = self.farewells.iter().map(Farewell::until).min() {
            let left = until.saturating_duration_since(Instant::now());
            wait_readable(self.farewells.iter().map(AsFd::as_fd), left);
            self.farewells.retain(|farewell| !farewell.is_over());
        }
    }

    /// Ends the sessions of ends that were removed, and of peers that ports accuse.
    fn end_sessions(&mut self, endpoints: &[Arc<Endpoint>]) {
        let why = |session: &mut Session| {
            let endpoint = session.endpoint()?;
            let is_there = endpoints.iter().any(|other| Arc::ptr_eq(endpoint, other));
            if !is_there {
                return Some(Fault::new("the port was closed"));
            }
            endpoint.take_accusation()
        };
        self.end_where(why);
    }

    /// Ends the sessions for which there is a reason.
    fn end_where(&mut self, mut why: impl FnMut(&mut Session) -> Option<Fault>) {
        for mut session in std::mem::take(&mut self.sessions) {
            let Some(fault) = why(&mut session) else {
                self.sessions.push(session);
                continue;
            };
            let title = session.endpoint().map_or_else(
                || format!("memif {}", self.address),
                |endpoint| endpoint.settings.title(),
            );
            if session.is_connected() {
                log::warn!("{title}: disconnected: {fault}");
                self.warned = None;
            } else {
                self.warn(format!("{title}: a peer was not connected: {fault}"));
            }
            self.farewells.extend(session.end(&fault));
        }
    }

    /// Warns, unless it would be the same again, or soon after another warning.
    fn warn(&mut self, text: String) {
        let now = Instant::now();
        let is_new = self.warned.as_ref().is_none_or(|(when, last)| {
            *last != text && now.saturating_duration_since(*when) >= QUIET
        });
        if is_new {
            log::warn!("{text}");
            self.warned = Some((now, text));
        }
    }

    /// Accepts clients, as far as there is room for them.
    fn accept(&mut self) {
        while self.sessions.len() < MAX_SESSIONS {
            let Some(socket) = self.listener.as_ref().and_then(Listener::accept) else { return };
            match Session::with_client(socket) {
                Ok(session) => self.sessions.push(session),
                Err(fault) => self.warn(format!("memif {}: a client: {fault}", self.address)),
            }
        }
    }

    /// Connects the ends of clients that have no session.
    fn connect(&mut self, endpoints: &[Arc<Endpoint>]) {
        if self.listener.is_some() || Instant::now() < self.retry {
            return;
        }
        for endpoint in endpoints {
            if self.sessions.iter().any(|session| session.is_of(endpoint)) {
                continue;
            }
            self.retry = Instant::now() + RETRY;
            match ControlSocket::connect(&self.address) {
                Ok(socket) => self.sessions.push(Session::with_server(socket, endpoint.clone())),
                Err(error) => {
                    let what = match error {
                        Errno::NOENT | Errno::CONNREFUSED => "no server listens yet".into(),
                        error => format!("cannot connect: {error}"),
                    };
                    self.warn(format!("{}: {what}; trying again", endpoint.settings.title()));
                }
            }
        }
    }

    /// Goes on with all sessions.
    fn go_on(&mut self, endpoints: &[Arc<Endpoint>]) {
        let mut faults: Vec<Option<Fault>> = Vec::new();
        for at in 0..self.sessions.len() {
            let (before, rest) = self.sessions.split_at_mut(at);
            let (session, after) = rest.split_first_mut().expect("the index is of a session");
            let was_connected = session.is_connected();
            let outcome = session.go_on(|id| {
                let found = endpoints.iter().find(|endpoint| endpoint.settings.id == id);
                let endpoint = found.ok_or_else(|| Fault::new(format!("no interface {id}")))?;
                if before.iter().chain(&*after).any(|other| other.is_of(endpoint)) {
                    return Err(Fault::new(format!("interface {id} is connected already")));
                }
                Ok(endpoint.clone())
            });
            if let Some(endpoint) = session.endpoint().filter(|_| session.is_connected())
                && !was_connected
            {
                log::info!("{}: connected", endpoint.settings.title());
                self.warned = None;
            }
            faults.push(outcome.err());
        }
        let mut faults = faults.into_iter();
        self.end_where(|_| faults.next().flatten());
    }

    /// Waits until a peer, a port or the time gives something to do.
    fn wait(&self, endpoints: &[Arc<Endpoint>]) {
        let is_lonely =
            |endpoint| !self.sessions.iter().any(|session: &Session| session.is_of(endpoint));
        let retry = self.listener.is_none() && endpoints.iter().any(is_lonely);
        let due = self.sessions.iter().filter_map(Session::deadline);
        let due = due.chain(self.farewells.iter().map(Farewell::until));
        let due = due.chain(retry.then_some(self.retry)).min();
        let most = due.map_or(LONGEST, |due| due.saturating_duration_since(Instant::now()));
        let listener = self.listener.as_ref().filter(|_| self.sessions.len() < MAX_SESSIONS);
        let descriptors = [self.common.bell.as_fd()]
            .into_iter()
            .chain(listener.map(AsFd::as_fd))
            .chain(self.sessions.iter().map(AsFd::as_fd))
            .chain(self.farewells.iter().map(AsFd::as_fd));
        wait_readable(descriptors, most);
    }
}
