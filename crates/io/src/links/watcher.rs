//! The thread that follows the interfaces of ports by netlink: one for all ports of a network
//! namespace.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fs, io};

use thalweg_source::netlink::{self, Socket, SocketAddr};
use thalweg_source::outside;
use thalweg_source::poll::wait_readable;

use super::bell::Bell;
use super::events::{EventLog, LinkChange, log_event};
use super::state::{self, LinkState, Message, Wanted};
use crate::port::IoError;

/// The group of changes of interfaces (`RTNLGRP_LINK`).
const LINKS: u32 = 1;
/// The longest sleep.
const LONGEST: Duration = Duration::from_secs(60);
/// The time between two attempts to take an interface again.
const RETRY: Duration = Duration::from_secs(1);

/// The MTU of an interface in bytes, whatever its name; 0 while it is unknown.
#[derive(Debug, Default)]
pub(crate) struct KnownMtu(AtomicU32);

impl KnownMtu {
    /// The MTU, in bytes; `None` while it is unknown.
    pub(crate) fn get(&self) -> Option<usize> {
        let mtu = self.0.load(Ordering::Relaxed);
        (mtu > 0).then_some(mtu as usize)
    }

    pub(crate) fn set(&self, mtu: u32) {
        self.0.store(mtu, Ordering::Relaxed);
    }
}

/// Takes an interface again.
pub(super) type Reopen = Box<dyn Fn() -> Result<(), IoError> + Send + Sync>;

/// The interface of a port, as the watcher follows it.
pub(super) struct Watched {
    /// Its name in the chain file.
    configured: String,
    mtu: Arc<KnownMtu>,
    pub(super) log: EventLog,
    reopen: Option<Reopen>,
    course: Mutex<Course>,
}

/// How far a port has come.
#[derive(Debug)]
struct Course {
    /// The index of the interface; `None` while it is gone.
    index: Option<u32>,
    /// Its state, once it is known.
    state: Option<LinkState>,
    /// Whether its state was requested since it was opened or removed.
    is_requested: bool,
    /// When to take it again, after its return.
    due: Option<Instant>,
    /// Whether a failure to take it again was logged since it returned.
    is_warned: bool,
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched").field("configured", &self.configured).finish_non_exhaustive()
    }
}

impl Watched {
    pub(super) fn new(
        configured: &str,
        index: u32,
        mtu: Arc<KnownMtu>,
        reopen: Option<Reopen>,
    ) -> Self {
        let course = Course {
            index: Some(index),
            state: None,
            is_requested: false,
            due: None,
            is_warned: false,
        };
        Self {
            configured: configured.to_owned(),
            mtu,
            log: EventLog::default(),
            reopen,
            course: Mutex::new(course),
        }
    }

    fn course(&self) -> MutexGuard<'_, Course> {
        self.course.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its state; `None` if it is unknown or the interface is gone.
    pub(super) fn state(&self) -> Option<LinkState> {
        self.course().state.clone()
    }

    /// The name of the interface; that of the chain file while it is unknown.
    pub(super) fn name(&self) -> String {
        let course = self.course();
        course.state.as_ref().map_or_else(|| self.configured.clone(), |state| state.name.clone())
    }

    /// Whether the interface is gone.
    pub(super) fn is_gone(&self) -> bool {
        self.course().index.is_none()
    }

    fn take(&self, state: &LinkState) {
        self.mtu.set(state.mtu);
        self.course().state = Some(state.clone());
    }
}

/// The watchers of this process, by the network namespace of their ports.
static WATCHERS: Mutex<Vec<(PathBuf, Weak<Watcher>)>> = Mutex::new(Vec::new());

/// A watcher, which ends when its last port does.
#[derive(Debug)]
pub(super) struct Watcher {
    common: Arc<Common>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread and others see.
#[derive(Debug)]
struct Common {
    ports: Mutex<Vec<Arc<Watched>>>,
    bell: Bell,
    stop: AtomicBool,
}

impl Common {
    fn ports(&self) -> MutexGuard<'_, Vec<Arc<Watched>>> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watcher {
    /// The watcher of the network namespace of this thread.
    pub(super) fn of_this_namespace() -> io::Result<Arc<Self>> {
        let namespace = fs::read_link("/proc/thread-self/ns/net")?;
        let mut all = WATCHERS.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, watcher)| watcher.strong_count() > 0);
        let known = all.iter().find(|(of, _)| *of == namespace);
        if let Some(watcher) = known.and_then(|(_, watcher)| watcher.upgrade()) {
            return Ok(watcher);
        }
        let watcher = Arc::new(Self::start()?);
        all.push((namespace, Arc::downgrade(&watcher)));
        Ok(watcher)
    }

    fn start() -> io::Result<Self> {
        let socket = netlink::open()?;
        socket.add_membership(LINKS)?;
        let (ports, bell, stop) = (Mutex::default(), Bell::new()?, AtomicBool::new(false));
        let common = Arc::new(Common { ports, bell, stop });
        let follower = Follower {
            common: common.clone(),
            socket,
            sequence: 0,
            requests: HashMap::new(),
            datagram: Vec::new(),
        };
        let thread = outside::spawn("links", || follower.run())?;
        Ok(Self { common, thread: Some(thread) })
    }

    /// Follows the interface of a port.
    pub(super) fn add(&self, port: Arc<Watched>) {
        self.common.ports().push(port);
        self.common.bell.ring();
    }

    /// Follows it no longer.
    pub(super) fn remove(&self, port: &Arc<Watched>) {
        self.common.ports().retain(|other| !Arc::ptr_eq(other, port));
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.common.stop.store(true, Ordering::Release);
        self.common.bell.ring();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// What the thread has.
struct Follower {
    common: Arc<Common>,
    socket: Socket,
    /// The number of the last request.
    sequence: u32,
    /// The ports for which a request was sent, by its number.
    requests: HashMap<u32, Weak<Watched>>,
    datagram: Vec<u8>,
}

impl Follower {
    fn run(mut self) {
        while !self.common.stop.load(Ordering::Acquire) {
            self.common.bell.quieten();
            self.request_missing();
            self.receive();
            self.take_again();
            self.wait();
        }
    }

    /// Requests the states of interfaces of which none is known. What happens from then on arrives
    /// after the answer, by the same socket.
    fn request_missing(&mut self) {
        self.requests.retain(|_, port| port.strong_count() > 0);
        let ports = self.common.ports().clone();
        for port in ports {
            let (index, is_requested) = {
                let mut course = port.course();
                (course.index, std::mem::replace(&mut course.is_requested, true))
            };
            if !is_requested {
                self.request(&port, index);
            }
        }
    }

    /// Requests the state of an interface: by its index, or by its name if it is gone.
    fn request(&mut self, port: &Arc<Watched>, index: Option<u32>) {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        let wanted = index.map_or(Wanted::Name(&port.configured), Wanted::Index);
        let message = state::request(wanted, self.sequence);
        // If that fails, changes still arrive.
        let _ = self.socket.send_to(&message, &SocketAddr::new(0, 0), 0);
        self.requests.insert(self.sequence, Arc::downgrade(port));
    }

    fn receive(&mut self) {
        loop {
            let mut datagram = std::mem::take(&mut self.datagram);
            let outcome = netlink::receive(&self.socket, &mut datagram);
            match &outcome {
                Ok(()) => {
                    for frame in netlink::frames(&datagram).flatten() {
                        let sequence = frame.sequence;
                        if let Some(message) = state::read(frame) {
                            self.take(&message, sequence);
                        }
                    }
                }
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => self.catch_up(),
                Err(_) => {}
            }
            self.datagram = datagram;
            let goes_on = outcome.is_ok_and(|()| true);
            if !goes_on {
                return;
            }
        }
    }

    /// Requests the states of all interfaces, since changes were lost.
    fn catch_up(&mut self) {
        self.requests.clear();
        let ports = self.common.ports().clone();
        for port in ports {
            let index = port.course().index;
            self.request(&port, index);
        }
    }

    fn take(&mut self, message: &Message, sequence: u32) {
        let requested = self.requests.remove(&sequence).and_then(|port| port.upgrade());
        match message {
            Message::There(index, state) => self.there(*index, state, requested.as_ref()),
            Message::Gone { index, moved } => {
                let what = if *moved {
                    "it was moved to another network namespace"
                } else {
                    "it was removed"
                };
                self.gone(*index, what);
            }
            // Of an interface that is gone already, none of that name has returned.
            Message::Failed(_) => {
                let index = requested.and_then(|port| port.course().index);
                index.into_iter().for_each(|index| self.gone(index, "it was removed"));
            }
        }
    }

    /// An interface exists, in a state, as the request for the port `requested` is answered.
    fn there(&self, index: u32, state: &LinkState, requested: Option<&Arc<Watched>>) {
        let mut logged = Vec::new();
        for port in &*self.common.ports() {
            let (known, before) = {
                let course = port.course();
                (course.index, course.state.clone())
            };
            let changes = match (known, before) {
                (Some(known), Some(before)) if known == index => state.since(&before),
                // What was reported before the answer may be older than the port.
                (Some(known), None)
                    if known == index && requested.is_some_and(|one| Arc::ptr_eq(one, port)) =>
                {
                    Vec::new()
                }
                (None, _) if port.reopen.is_some() && port.configured == state.name => {
                    let mut course = port.course();
                    course.index = Some(index);
                    course.due = Some(Instant::now());
                    course.is_warned = false;
                    vec![(LinkChange::Returned, "it has returned".into())]
                }
                _ => continue,
            };
            port.take(state);
            for (change, text) in changes {
                port.log.add(&state.name, change, &text);
                // Once for all ports of the interface.
                if !logged.contains(&change) {
                    log_event(&title(&state.name), change, &text);
                    logged.push(change);
                }
            }
            // What could not be opened while it was down may be now.
            let mut course = port.course();
            if course.due.is_some() {
                course.due = Some(Instant::now());
            }
        }
    }

    /// An interface is gone.
    fn gone(&self, index: u32, what: &str) {
        let ports = self.common.ports().clone();
        let mut is_logged = false;
        for port in ports.iter().filter(|port| port.course().index == Some(index)) {
            let name = {
                let mut course = port.course();
                // It may have returned already.
                (course.index, course.due, course.is_requested) = (None, None, false);
                course.state.take().map_or_else(|| port.configured.clone(), |state| state.name)
            };
            port.mtu.set(0);
            port.log.add(&name, LinkChange::Removed, what);
            if !std::mem::replace(&mut is_logged, true) {
                log_event(&title(&name), LinkChange::Removed, what);
            }
        }
    }

    /// Takes interfaces that have returned.
    fn take_again(&mut self) {
        let ports = self.common.ports().clone();
        for port in ports {
            let is_due = port.course().due.is_some_and(|due| due <= Instant::now());
            let Some(reopen) = port.reopen.as_ref().filter(|_| is_due) else { continue };
            // Without a lock: it takes a while, and others look at the port meanwhile.
            let outcome = reopen();
            let mut course = port.course();
            match outcome {
                Ok(()) => {
                    course.due = None;
                    log::info!("interface {}: it is in use again", port.configured);
                }
                Err(error) => {
                    course.due = Some(Instant::now() + RETRY);
                    if !std::mem::replace(&mut course.is_warned, true) {
                        log::warn!("{error}; trying again");
                    }
                }
            }
        }
    }

    /// Waits until the kernel, a port or the time gives something to do.
    fn wait(&self) {
        let due = self.common.ports().iter().filter_map(|port| port.course().due).min();
        let most = due.map_or(LONGEST, |due| due.saturating_duration_since(Instant::now()));
        wait_readable([self.common.bell.as_fd(), self.socket.as_fd()].into_iter(), most);
    }
}

fn title(interface: &str) -> String {
    format!("interface {interface}")
}
