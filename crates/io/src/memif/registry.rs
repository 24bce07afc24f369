//! The connections of this program, so that an input and an output share one.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use thalweg_packet::{MemoryKind, Pool};

use super::address::Address;
use super::endpoint::Endpoint;
use super::hub::Hub;
use super::settings::{MemifSettings, Role};
use crate::kind::{Link, Refusal};
use crate::port::IoError;

/// The hubs of all sockets, with the ports of each of their ends.
static HUBS: LazyLock<Mutex<Hubs>> = LazyLock::new(Mutex::default);

type Hubs = HashMap<(Address, Role), Shared>;

/// A hub, and what is taken of its ends: by identifier, whether by an input and by an output.
struct Shared {
    hub: Hub,
    taken: HashMap<u32, [bool; 2]>,
}

fn hubs() -> MutexGuard<'static, Hubs> {
    HUBS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a port does with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Input,
    Output,
}

/// A port's hold on its end of a connection; the last one closes it.
#[derive(Debug)]
pub(super) struct Lease {
    endpoint: Arc<Endpoint>,
    direction: Direction,
}

impl Lease {
    /// Opens an end for a port, or shares the one that is open.
    ///
    /// # Errors
    /// If the socket cannot be had, the end has such a port or was opened with other settings, or the
    /// memory of the pool is to be shared and cannot be.
    pub(super) fn open(
        settings: &MemifSettings,
        direction: Direction,
        pool: &Arc<Pool>,
    ) -> Result<Self, IoError> {
        let pool = settings.pool(pool);
        let refused = |refusal: Refusal| refusal.of(settings.title());
        if let Some(pool) = pool {
            check_pool(settings, pool).map_err(refused)?;
        }
        let key = (settings.address.clone(), settings.role);
        let mut hubs = hubs();
        let mut of_socket = match hubs.remove(&key) {
            Some(shared) => shared,
            None => Shared {
                hub: Hub::start(&settings.address, settings.role)
                    .map_err(|e| refused(cannot_listen(&e)))?,
                taken: HashMap::new(),
            },
        };
        let endpoint = of_socket.take(settings, direction, pool).map_err(refused);
        if !of_socket.taken.is_empty() {
            hubs.insert(key, of_socket);
        }
        Ok(Self { endpoint: endpoint?, direction })
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }
}

impl Shared {
    fn take(
        &mut self,
        settings: &MemifSettings,
        direction: Direction,
        pool: Option<&Arc<Pool>>,
    ) -> Result<Arc<Endpoint>, Refusal> {
        let taken = self.taken.get(&settings.id);
        let same_direction = taken.is_some_and(|taken| taken[direction as usize]);
        let other =
            if (direction == Direction::Input) == same_direction { "input" } else { "output" };
        let endpoint = match self.hub.find(settings.id) {
            Some(endpoint) => {
                let other = format!("another {other}");
                settings.check_end(&endpoint.settings, &other, same_direction)?;
                if !endpoint.is_over(pool) {
                    let message = "its input and output have different packet memory";
                    return Err(Refusal::new(&[], message, "the same for both"));
                }
                endpoint
            }
            None => self.hub.add(settings, pool).map_err(|e| {
                Refusal::new(&[], e.to_string(), "less packet memory or smaller rings")
            })?,
        };
        self.taken.entry(settings.id).or_default()[direction as usize] = true;
        Ok(endpoint)
    }
}

fn cannot_listen(error: &io::Error) -> Refusal {
    let expected = match error.kind() {
        io::ErrorKind::AddrInUse => "a socket on which no other program listens",
        io::ErrorKind::NotFound => "a socket in a folder that exists",
        io::ErrorKind::PermissionDenied => "a socket in a folder where this user may make one",
        _ => "a socket on which this program can listen",
    };
    Refusal::new(&[], format!("cannot listen there: {error}"), expected)
}

/// Checks that a peer can share the memory of a pool, and that frames are left beside those in rings.
pub(super) fn check_pool(settings: &MemifSettings, pool: &Pool) -> Result<(), Refusal> {
    let (len, most) = (pool.memory().len() as u64, super::region::LONGEST);
    if pool.memory().file().is_none() {
        let why = match pool.memory().kind() {
            MemoryKind::Foreign => ("a device has allocated it", "no 'zero_copy'"),
            _ => ("the run began without 'zero_copy'", "a restart"),
        };
        let message = format!("its packet memory cannot be shared with a peer, since {}", why.0);
        return Err(Refusal::new(&["zero_copy"], message, why.1));
    }
    if len > most {
        return Err(Refusal::new(
            &["zero_copy", "memory.frames"],
            format!("'zero_copy' shares {len} bytes of packet memory"),
            format!("at most {most}: fewer frames"),
        ));
    }
    let (frames, in_rings) = (pool.frames(), settings.frames());
    if frames < in_rings + RESERVE {
        let needed = in_rings + RESERVE;
        return Err(Refusal::new(
            &["zero_copy", "memory.frames"],
            format!(
                "'zero_copy' needs {in_rings} frames for its rings and {RESERVE} besides, but there \
                 are {frames}"
            ),
            format!("frames = {needed} in [memory], smaller rings, or fewer queues"),
        ));
    }
    Ok(())
}

/// The frames that a run has at least, beside those in the rings of a connection.
const RESERVE: usize = 256;

impl Drop for Lease {
    fn drop(&mut self) {
        let settings = &self.endpoint.settings;
        let key = (settings.address.clone(), settings.role);
        let mut hubs = hubs();
        let Some(of_socket) = hubs.get_mut(&key) else { return };
        if let Some(taken) = of_socket.taken.get_mut(&settings.id) {
            taken[self.direction as usize] = false;
            if taken.contains(&true) {
                return;
            }
        }
        of_socket.taken.remove(&settings.id);
        if !of_socket.hub.remove(settings.id) {
            // Ends the thread while others wait here, so that the address is free for them.
            hubs.remove(&key);
        }
    }
}

/// The state of a connection, if a port has it open.
pub(super) fn link(settings: &MemifSettings) -> Option<Link> {
    let key = (settings.address.clone(), settings.role);
    let endpoint = hubs().get(&key)?.hub.find(settings.id)?;
    Some(Link { up: Some(true), carrier: Some(endpoint.is_connected()), ..Link::default() })
}
