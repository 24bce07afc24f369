//! The queues that this program has open, so that an input and an output share one.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use thalweg_packet::Pool;
use thalweg_source::outside;

use super::endpoint::Endpoint;
use super::failed;
use super::interface::Redirection;
use super::receiver::Receiver;
use super::sender::Sender;
use super::settings::XdpSettings;
use crate::kind::Refusal;
use crate::port::IoError;
use crate::{host, interface};

/// What is open, by the index of an interface.
static OPEN: LazyLock<Mutex<Open>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Open {
    queues: HashMap<(u32, u32), Shared>,
    redirections: HashMap<u32, Weak<Redirection>>,
}

/// A queue, and what is taken of it: whether by an input and by an output.
struct Shared {
    endpoint: Arc<Endpoint>,
    taken: [bool; 2],
}

fn open() -> MutexGuard<'static, Open> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a port does with a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Input,
    Output,
}

impl Direction {
    fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Input => Self::Output,
            Self::Output => Self::Input,
        }
    }
}

/// A port's hold on its queue; the last one closes it.
struct Lease {
    /// Always there until it is dropped.
    endpoint: Option<Arc<Endpoint>>,
    direction: Direction,
}

impl Lease {
    /// Opens a queue for a port, or shares the one that is open.
    fn take(
        settings: &XdpSettings,
        pool: &Arc<Pool>,
        direction: Direction,
    ) -> Result<Self, IoError> {
        let name = &settings.interface;
        let (watch, index) = interface::open(name)?;
        interface::bind(&watch, name, index, false)?;
        let number = u32::try_from(index).unwrap_or_default();
        let (mut open, key) = (open(), (number, settings.queue));
        if let Some(shared) = open.queues.get_mut(&key) {
            let endpoint = &shared.endpoint;
            let refused = |refusal: Refusal| refusal.of(settings.title(1));
            let taken = &mut shared.taken[direction as usize];
            let other = if *taken { direction } else { direction.other() }.name();
            let other = format!("another {other}");
            settings.check_queue(&endpoint.settings, &other, *taken).map_err(refused)?;
            if !endpoint.is_over(pool) {
                let message = "its input and output have different packet memory";
                return Err(refused(Refusal::new(&[], message, "the same for both")));
            }
            *taken = true;
            return Ok(Self { endpoint: Some(endpoint.clone()), direction });
        }
        host::check(name, settings.force)?;
        if settings.promiscuous {
            watch
                .hear_all(index)
                .map_err(|e| failed(name, "cannot enable promiscuous mode", &e))?;
        }
        let redirection = open.redirection(settings, number)?;
        let others: Vec<_> = open.queues.values().map(|shared| shared.endpoint.clone()).collect();
        let endpoint = Endpoint::open(settings, number, pool, watch, redirection, &others)?;
        let endpoint = Arc::new(endpoint);
        let mut taken = [false; 2];
        taken[direction as usize] = true;
        open.queues.insert(key, Shared { endpoint: endpoint.clone(), taken });
        Ok(Self { endpoint: Some(endpoint), direction })
    }

    fn endpoint(&self) -> &Endpoint {
        self.endpoint.as_ref().expect("the lease has not ended")
    }
}

impl Open {
    /// The program at an interface.
    fn redirection(
        &mut self,
        settings: &XdpSettings,
        index: u32,
    ) -> Result<Arc<Redirection>, IoError> {
        if let Some(redirection) = self.redirections.get(&index).and_then(Weak::upgrade) {
            let refused = |refusal: Refusal| refusal.of(settings.title(1));
            return redirection.check(settings).map_err(refused).map(|()| redirection);
        }
        let redirection = Arc::new(Redirection::attach(settings, index)?);
        self.redirections.insert(index, Arc::downgrade(&redirection));
        Ok(redirection)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(endpoint) = self.endpoint.take() else { return };
        let (key, direction) = ((endpoint.index, endpoint.settings.queue), self.direction);
        let close = || {
            let mut open = open();
            if let Some(shared) = open.queues.get_mut(&key) {
                shared.taken[direction as usize] = false;
                if shared.taken == [false; 2] {
                    open.queues.remove(&key);
                }
            }
            // Closes the queue while others wait here, so that it is free for them.
            drop(endpoint);
            open.redirections.retain(|_, redirection| redirection.strong_count() > 0);
        };
        outside::privileged(close);
    }
}

/// The receiving half of a queue, as long as an input has it.
pub(super) struct Receiving {
    lease: Lease,
    receiver: Option<Receiver>,
}

impl Receiving {
    /// Opens a queue for an input; its packets go there from now on.
    pub(super) fn open(settings: &XdpSettings, pool: &Arc<Pool>) -> Result<Self, IoError> {
        let lease = Lease::take(settings, pool, Direction::Input)?;
        let endpoint = lease.endpoint();
        let name = &settings.interface;
        let mut receiver = endpoint.take_receiver().expect("it has one input");
        receiver.refill();
        let redirected = endpoint.redirection.add(settings.queue, endpoint.socket());
        // Its half is returned if this fails.
        let receiving = Self { receiver: Some(receiver), lease };
        redirected.map_err(|e| failed(name, "cannot redirect packets", &e))?;
        Ok(receiving)
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        self.lease.endpoint()
    }

    #[inline]
    pub(super) fn half(&self) -> &Receiver {
        self.receiver.as_ref().expect("it is open")
    }

    #[inline]
    pub(super) fn half_mut(&mut self) -> &mut Receiver {
        self.receiver.as_mut().expect("it is open")
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        let endpoint = self.lease.endpoint();
        outside::privileged(|| endpoint.redirection.remove(endpoint.settings.queue));
        if let Some(receiver) = self.receiver.take() {
            endpoint.return_receiver(receiver);
        }
    }
}

/// The sending half of a queue, as long as an output has it.
pub(super) struct Sending {
    lease: Lease,
    sender: Option<Sender>,
}

impl Sending {
    /// Opens a queue for an output.
    pub(super) fn open(settings: &XdpSettings, pool: &Arc<Pool>) -> Result<Self, IoError> {
        let lease = Lease::take(settings, pool, Direction::Output)?;
        let sender = Some(lease.endpoint().take_sender().expect("it has one output"));
        Ok(Self { lease, sender })
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        self.lease.endpoint()
    }

    #[inline]
    pub(super) fn half(&self) -> &Sender {
        self.sender.as_ref().expect("it is open")
    }

    #[inline]
    pub(super) fn half_mut(&mut self) -> &mut Sender {
        self.sender.as_mut().expect("it is open")
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if let Some(sender) = self.sender.take() {
            self.lease.endpoint().return_sender(sender);
        }
    }
}
