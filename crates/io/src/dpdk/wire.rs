//! The link and the counters of a device, for those who do not have its packets.
//!
//! Of a device at an interface of the kernel, the kernel reports what happens to its link. At any other a thread looks
//! again and again: few drivers report a change, and virtual devices none.

use std::fmt;
use std::io;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use thalweg_source::outside;

use super::binding::{self, LinkState};
use super::device::Direction;
use super::settings::DpdkSettings;
use crate::interface::{PacketSocket, mtu};
use crate::kind::Link;
use crate::links::{EventLog, Follows, KnownMtu, LinkChange, LinkEvents, OfInterface, log_event};

/// Between two looks at a link.
const PERIOD: Duration = Duration::from_millis(250);
/// The MTU of a device of which it is unknown, in bytes.
const MTU: u32 = 1500;

/// The state of a link.
#[derive(Clone, Copy)]
struct State {
    is_up: bool,
    /// 0 if it is unknown.
    speed_mbps: u32,
    mtu: usize,
}

/// The way to a device that is set up.
pub(super) struct Wire {
    pub(super) port: u16,
    /// Bound to the interface of this name without receiving, which shows whether it exists.
    interface: Option<(PacketSocket, String)>,
    mtu: Arc<KnownMtu>,
}

impl Wire {
    pub(super) fn new(port: u16, interface: Option<(PacketSocket, String)>) -> Self {
        let known = KnownMtu::default();
        let of_interface = interface.as_ref().and_then(|(at, name)| mtu(at, name).ok());
        let mtu = of_interface.and_then(|mtu| u32::try_from(mtu).ok());
        known.set(mtu.unwrap_or(MTU));
        Self { port, interface, mtu: Arc::new(known) }
    }

    /// Whether the device exists.
    pub(super) fn is_there(&self) -> bool {
        self.interface.as_ref().is_none_or(|(socket, _)| socket.has_interface())
            && !binding::is_removed(self.port)
    }

    /// Asks the driver.
    fn look(&self) -> State {
        let LinkState { up, speed_mbps, mtu } = binding::link(self.port);
        // What the driver knows of an interface is as old as the device.
        if self.interface.is_none() {
            self.mtu.set(if mtu == 0 { MTU } else { mtu.into() });
        }
        State { is_up: up > 0, speed_mbps, mtu: self.mtu() }
    }

    /// The longest packet that it sends, from the network header on, in bytes, as it was last known.
    pub(super) fn mtu(&self) -> usize {
        self.mtu.get().unwrap_or(MTU as usize)
    }
}

/// A device as its followers see it.
struct Seen {
    settings: DpdkSettings,
    course: Mutex<Course>,
    /// Rung when it is closed.
    closed: Condvar,
}

struct Course {
    /// `None` when it is closed.
    wire: Option<Arc<Wire>>,
    /// When the thread last looked; `None` if it was gone then.
    state: Option<State>,
    /// Its counters when it was closed.
    counters: Vec<(String, u64)>,
    /// Of each port that it has.
    logs: Vec<Arc<EventLog>>,
}

impl Seen {
    fn course(&self) -> MutexGuard<'_, Course> {
        self.course.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the link until it is closed.
    fn follow(&self) {
        let mut course = self.course();
        while course.wire.is_some() {
            let waited = self.closed.wait_timeout(course, PERIOD);
            course = waited.unwrap_or_else(PoisonError::into_inner).0;
            course.look(&self.settings);
        }
    }

    /// The state of the link; `None` if it is closed.
    fn link(&self) -> Option<Link> {
        let course = self.course();
        let wire = course.wire.as_ref()?;
        if !wire.is_there() {
            return Some(Link { up: Some(false), ..Link::default() });
        }
        let state = wire.look();
        Some(Link {
            up: Some(true),
            carrier: Some(state.is_up),
            speed_mbps: Some(state.speed_mbps.into()).filter(|mbps| *mbps > 0),
            mtu: Some(state.mtu as u64),
        })
    }
}

impl Course {
    fn look(&mut self, settings: &DpdkSettings) {
        let Some(wire) = &self.wire else { return };
        let now = wire.is_there().then(|| wire.look());
        let before = mem::replace(&mut self.state, now);
        for (change, text) in changes(before, now) {
            self.logs.iter().for_each(|log| log.add(&settings.device.name, change, &text));
            if !self.logs.is_empty() {
                log_event(&settings.title(), change, &text);
            }
        }
    }

    /// The counters now, or when it was closed.
    fn counters(&self) -> Vec<(String, u64)> {
        let of = |wire: &Arc<Wire>| binding::extended_counts(wire.port);
        self.wire.as_ref().map_or_else(|| self.counters.clone(), of)
    }
}

/// What has happened between two looks, with the words for it.
fn changes(before: Option<State>, now: Option<State>) -> Vec<(LinkChange, String)> {
    let (before, now) = match (before, now) {
        (Some(before), Some(now)) => (before, now),
        (Some(_), None) => return vec![(LinkChange::Removed, "it was removed".into())],
        (None, Some(_)) => return vec![(LinkChange::Returned, "it has returned".into())],
        (None, None) => return Vec::new(),
    };
    let mut changes = Vec::new();
    if now.mtu != before.mtu {
        changes.push((LinkChange::Mtu, format!("its MTU is {}, and was {}", now.mtu, before.mtu)));
    }
    match (before.is_up, now.is_up) {
        (false, true) if now.speed_mbps > 0 => changes
            .push((LinkChange::Carrier, format!("it has a link of {} Mbit/s", now.speed_mbps))),
        (false, true) => changes.push((LinkChange::Carrier, "it has a link".into())),
        (true, false) => changes.push((LinkChange::NoCarrier, "it has no link".into())),
        _ => {}
    }
    changes
}

/// Follows a device until this is dropped.
pub(super) struct Follower {
    seen: Arc<Seen>,
    /// Unless the kernel reports what happens to its interface.
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    /// # Errors
    /// When the system refuses to start a thread.
    pub(super) fn start(settings: &DpdkSettings, wire: &Arc<Wire>) -> io::Result<Self> {
        let has_interface = wire.interface.is_some();
        let (state, wire) = (Some(wire.look()), Some(wire.clone()));
        let course = Course { wire, state, counters: Vec::new(), logs: Vec::new() };
        let (settings, closed) = (settings.clone(), Condvar::new());
        let seen = Arc::new(Seen { settings, course: Mutex::new(course), closed });
        let of_thread = seen.clone();
        let follow = move || of_thread.follow();
        let thread = (!has_interface).then(|| outside::spawn("links of DPDK", follow));
        Ok(Self { seen, thread: thread.transpose()? })
    }

    /// The events and counters of a port that the device has.
    ///
    /// # Errors
    /// When the system does not permit to follow its interface.
    pub(super) fn events(&self, direction: Direction) -> io::Result<LinkEvents> {
        let seen = self.seen.clone();
        let mut course = seen.course();
        let of_wire = course.wire.as_ref().and_then(|wire| {
            wire.interface.as_ref().map(|(_, name)| (name.clone(), wire.mtu.clone()))
        });
        let link = if let Some((name, mtu)) = of_wire {
            let shows_drops = direction == Direction::Input;
            FollowedLink::Interface(OfInterface::follow(&name, mtu, shows_drops)?)
        } else {
            let log = Arc::<EventLog>::default();
            course.logs.push(log.clone());
            FollowedLink::Device(log)
        };
        drop(course);
        Ok(LinkEvents::new(OfDevice { seen, link, direction }))
    }

    /// The state of the link.
    pub(super) fn link(&self) -> Option<Link> {
        self.seen.link()
    }
}

impl Drop for Follower {
    /// Ends all looks at the device: it may be closed after this.
    fn drop(&mut self) {
        let mut course = self.seen.course();
        course.counters = course.counters();
        course.wire = None;
        drop(course);
        self.seen.closed.notify_all();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The device of a port.
struct OfDevice {
    seen: Arc<Seen>,
    link: FollowedLink,
    direction: Direction,
}

/// Who reports what happens to a link.
enum FollowedLink {
    /// The kernel.
    Interface(OfInterface),
    /// The thread that asks the driver.
    Device(Arc<EventLog>),
}

impl fmt::Debug for OfDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.seen.settings.device.name;
        f.debug_struct("OfDevice").field("name", name).finish_non_exhaustive()
    }
}

impl Follows for OfDevice {
    fn log(&self) -> &EventLog {
        match &self.link {
            FollowedLink::Interface(of) => of.log(),
            FollowedLink::Device(log) => log,
        }
    }

    fn link(&self) -> Option<Link> {
        match &self.link {
            FollowedLink::Interface(of) => of.link(),
            FollowedLink::Device(_) => self.seen.link(),
        }
    }

    fn device_drops(&self) -> Option<u64> {
        match &self.link {
            FollowedLink::Interface(of) => of.device_drops(),
            FollowedLink::Device(_) => None,
        }
    }

    fn device_counters(&self) -> Vec<(String, u64)> {
        let mut counters = self.seen.course().counters();
        // DPDK's own names say which they are; a driver's may not, and are shown with the input.
        let is_output = self.direction == Direction::Output;
        counters.retain(|(name, _)| name.starts_with("tx_") == is_output);
        counters
    }

    fn end(&self) {
        match &self.link {
            FollowedLink::Interface(of) => of.end(),
            FollowedLink::Device(log) => {
                self.seen.course().logs.retain(|other| !Arc::ptr_eq(other, log));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_named_with_their_values() {
        let up = State { is_up: true, speed_mbps: 10_000, mtu: 1500 };
        let of = |before, now| -> Vec<_> {
            let changes = changes(before, now).into_iter();
            changes.map(|(change, text)| format!("{}: {text}", change.name())).collect()
        };
        let down = State { is_up: false, speed_mbps: 0, mtu: 9000 };
        assert_eq!(of(Some(up), Some(up)), [""; 0]);
        assert_eq!(
            of(Some(up), Some(down)),
            ["mtu: its MTU is 9000, and was 1500", "no-carrier: it has no link"]
        );
        assert_eq!(
            of(Some(down), Some(up))[1..],
            ["carrier: it has a link of 10000 Mbit/s".to_owned()]
        );
        let unknown = State { speed_mbps: 0, mtu: 9000, ..up };
        assert_eq!(of(Some(down), Some(unknown)), ["carrier: it has a link"]);
        assert_eq!(of(Some(up), None), ["removed: it was removed"]);
        assert_eq!(of(None, Some(up)), ["returned: it has returned"]);
        assert_eq!(of(None, None), [""; 0]);
    }
}
