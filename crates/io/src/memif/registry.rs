//! The connections of this program, so that an input and an output share one.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use thalweg_packet::{MemoryKind, Pool};

use super::address::Address;
use super::endpoint::Endpoint;
use super::hub::Hub;
use super::settings::{MemifSettings, Role};
use crate::kind::Link;
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
        if let Some(pool) = pool {
            check_pool(settings, pool)?;
        }
        let failed = |what| IoError::Port { port: settings.title(), what };
        let key = (settings.address.clone(), settings.role);
        let mut hubs = hubs();
        let mut of_socket = match hubs.remove(&key) {
            Some(shared) => shared,
            None => Shared {
                hub: Hub::start(&settings.address, settings.role)
                    .map_err(|e| failed(format!("cannot listen there: {e}")))?,
                taken: HashMap::new(),
            },
        };
        let endpoint = of_socket.take(settings, direction, pool).map_err(failed);
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
    ) -> Result<Arc<Endpoint>, String> {
        let endpoint = match self.hub.find(settings.id) {
            Some(endpoint) if endpoint.settings != *settings => {
                return Err("its input and output have different options; expected the same \
                            secret, ring_size, buffer_size, queues and zero_copy"
                    .into());
            }
            Some(endpoint) if !endpoint.is_over(pool) => {
                return Err("its input and output have different packet memory".into());
            }
            Some(endpoint) => endpoint,
            None => self.hub.add(settings, pool).map_err(|e| e.to_string())?,
        };
        let taken = &mut self.taken.entry(settings.id).or_default()[direction as usize];
        if std::mem::replace(taken, true) {
            let port = if direction == Direction::Input { "input" } else { "output" };
            return Err(format!("another {port} has it; expected one {port} for a connection"));
        }
        Ok(endpoint)
    }
}

/// Checks that a peer can share the memory of a pool, and that frames are left beside those in rings.
fn check_pool(settings: &MemifSettings, pool: &Pool) -> Result<(), IoError> {
    let refused = |what| Err(IoError::Port { port: settings.title(), what });
    let (len, most) = (pool.memory().len() as u64, super::region::LONGEST);
    if pool.memory().file().is_none() {
        let why = match pool.memory().kind() {
            MemoryKind::Foreign => "a device has allocated it; expected no 'zero_copy'",
            _ => "the run began without 'zero_copy'; expected a restart",
        };
        return refused(format!("its packet memory cannot be shared with a peer, since {why}"));
    }
    if len > most {
        return refused(format!(
            "'zero_copy' shares {len} bytes of packet memory; expected at most {most}: fewer frames"
        ));
    }
    let (frames, in_rings) =
        (pool.frames(), 2 * (usize::from(settings.queues) << settings.ring_size));
    if frames < in_rings + RESERVE {
        let needed = in_rings + RESERVE;
        return refused(format!(
            "'zero_copy' needs {in_rings} frames for its rings and {RESERVE} besides, but there are \
             {frames}; expected frames = {needed} in [memory], smaller rings, or fewer queues"
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
