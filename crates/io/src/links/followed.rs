//! The interface of a port, as it is followed.

use std::io;
use std::sync::Arc;

use super::OnRemoval;
use super::counts::DeviceCounts;
use super::events::EventLog;
use super::link_events::{Follows, LinkEvents};
use super::returning::{self, Places};
use super::watcher::{KnownMtu, Reopen, Watched, Watcher};
use crate::interface::{index_of, link_of};
use crate::kind::{Link, Opened};
use crate::port::{Input, IoError, Output};

/// The interface of an open port, which is followed as long as this exists.
#[derive(Debug)]
pub(crate) struct OfInterface {
    watched: Arc<Watched>,
    watcher: Arc<Watcher>,
    /// The counts of the interface, and those on receipt when the port was opened.
    counts: Option<(DeviceCounts, u64)>,
}

impl OfInterface {
    /// Follows the interface `name`; keeps its MTU in `mtu`, and counts what it drops on receipt if this is
    /// to be shown.
    ///
    /// # Errors
    /// If the system does not permit it.
    #[cfg(feature = "dpdk")]
    pub(crate) fn follow(name: &str, mtu: Arc<KnownMtu>, shows_drops: bool) -> io::Result<Self> {
        Self::follow_again(name, mtu, shows_drops, None)
    }

    /// As [`follow`](Self::follow), and takes the interface `again` when it has returned.
    fn follow_again(
        name: &str,
        mtu: Arc<KnownMtu>,
        shows_drops: bool,
        again: Option<Reopen>,
    ) -> io::Result<Self> {
        // Unknown if it was removed meanwhile, which the port will find out.
        let index = index_of(name).and_then(|index| u32::try_from(index).ok()).unwrap_or(u32::MAX);
        let counts = shows_drops.then(DeviceCounts::open).and_then(Result::ok);
        let counts = counts.and_then(|counts| {
            let before = counts.read(name)?.received;
            Some((counts, before))
        });
        let watched = Arc::new(Watched::new(name, index, mtu, again));
        let watcher = Watcher::of_this_namespace()?;
        watcher.add(watched.clone());
        Ok(Self { watched, watcher, counts })
    }
}

impl Follows for OfInterface {
    fn log(&self) -> &EventLog {
        &self.watched.log
    }

    fn link(&self) -> Option<Link> {
        if self.watched.is_gone() {
            return Some(Link { up: Some(false), ..Link::default() });
        }
        let state = self.watched.state()?;
        let speed_mbps = link_of(&state.name).and_then(|link| link.speed_mbps);
        let carrier = state.is_up.then_some(state.has_carrier);
        Some(Link { up: Some(state.is_up), carrier, speed_mbps, mtu: Some(state.mtu.into()) })
    }

    fn device_drops(&self) -> Option<u64> {
        let (counts, before) = self.counts.as_ref()?;
        let now = counts.read(&self.watched.name())?.received;
        // An interface that was made anew begins at 0.
        Some(now.checked_sub(*before).unwrap_or(now))
    }

    fn end(&self) {
        self.watcher.remove(&self.watched);
    }
}

/// A port whose interface is to be followed.
pub(crate) struct Following<'a, P: ?Sized> {
    /// The name of the interface.
    pub(crate) name: &'a str,
    /// Where its MTU is kept.
    pub(crate) mtu: Arc<KnownMtu>,
    pub(crate) on_removal: OnRemoval,
    /// Whether to show what the interface drops on receipt.
    pub(crate) shows_drops: bool,
    /// Its open queues, and how packets pass.
    pub(crate) opened: Opened<P>,
    /// Opens the queues of an interface that has returned.
    pub(crate) reopen: Box<dyn Fn() -> Result<Vec<Box<P>>, IoError> + Send + Sync>,
}

/// Follows the interface of an input.
///
/// # Errors
/// If the port waits for interfaces that return, and the system does not permit to follow them.
pub(crate) fn inputs(following: Following<'_, dyn Input>) -> Result<Opened<dyn Input>, IoError> {
    follow(following, returning::inputs)
}

/// Follows the interface of an output.
///
/// # Errors
/// As [`inputs`].
pub(crate) fn outputs(following: Following<'_, dyn Output>) -> Result<Opened<dyn Output>, IoError> {
    follow(following, returning::outputs)
}

/// Makes queues ones that may be gone for a while, and return in the places.
type Wrap<P> = fn(Vec<Box<P>>, &Arc<Places<P>>) -> Vec<Box<P>>;

fn follow<P: ?Sized + Send + 'static>(
    following: Following<'_, P>,
    wrap: Wrap<P>,
) -> Result<Opened<P>, IoError> {
    let Following { name, mtu, on_removal, shows_drops, mut opened, reopen } = following;
    let failed = |error: io::Error| IoError::Interface {
        name: name.to_owned(),
        what: format!("cannot follow its state by netlink: {error}"),
    };
    let mut again: Option<Reopen> = None;
    if on_removal == OnRemoval::Wait {
        let places = Places::new(opened.queues.len()).map_err(failed)?;
        opened.queues = wrap(opened.queues, &places);
        let name = name.to_owned();
        again = Some(Box::new(move || fill(&name, &places, reopen()?)));
    }
    match OfInterface::follow_again(name, mtu, shows_drops, again) {
        Ok(follows) => opened.events = Some(LinkEvents::new(follows)),
        Err(error) if on_removal == OnRemoval::Wait => return Err(failed(error)),
        Err(error) => log::warn!("{}", failed(error)),
    }
    Ok(opened)
}

/// Leaves the queues of an interface that has returned for their workers.
fn fill<P: ?Sized>(name: &str, places: &Places<P>, queues: Vec<Box<P>>) -> Result<(), IoError> {
    let (count, found) = (places.count(), queues.len());
    if found != count {
        let what = format!("it has returned with {found} queues; expected {count}");
        return Err(IoError::Interface { name: name.to_owned(), what });
    }
    places.fill(queues);
    Ok(())
}
