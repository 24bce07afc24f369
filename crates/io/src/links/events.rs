//! What happens to the network interface of a port.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use schemars::JsonSchema;
use serde::Serialize;

/// What has happened to an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LinkChange {
    /// It was set up.
    Up,
    /// It was set down.
    Down,
    /// A peer was connected.
    Carrier,
    /// Its peer is gone.
    NoCarrier,
    /// It was removed, or moved to another network namespace.
    Removed,
    /// There is an interface of its name again.
    Returned,
    /// It has another name.
    Renamed,
    /// It has another MTU.
    Mtu,
    /// It began or ceased to receive packets to any address (promiscuous mode).
    Promiscuous,
    /// It began or ceased to receive all multicast packets.
    AllMulticast,
}

impl LinkChange {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Up,
        Self::Down,
        Self::Carrier,
        Self::NoCarrier,
        Self::Removed,
        Self::Returned,
        Self::Renamed,
        Self::Mtu,
        Self::Promiscuous,
        Self::AllMulticast,
    ];

    /// Its name in reports and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Carrier => "carrier",
            Self::NoCarrier => "no-carrier",
            Self::Removed => "removed",
            Self::Returned => "returned",
            Self::Renamed => "renamed",
            Self::Mtu => "mtu",
            Self::Promiscuous => "promiscuous",
            Self::AllMulticast => "all-multicast",
        }
    }

    /// Whether packets may be lost by it, so that it is worth a warning.
    fn is_loss(self) -> bool {
        matches!(self, Self::Down | Self::NoCarrier | Self::Removed | Self::Renamed | Self::Mtu)
    }
}

/// An event of the interface of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkEvent {
    /// Its number: later events of this process have higher ones. An interface that several ports have
    /// gives each of them an event of its own.
    pub number: u64,
    /// When it was noticed.
    pub time: SystemTime,
    /// The interface, by the name that it had then.
    pub interface: String,
    /// What has happened.
    pub change: LinkChange,
    /// The same in words, with the values: `its MTU is 9000, and was 1500`.
    pub text: String,
}

/// The number of the next event.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The events of a port that are kept for readers.
const KEPT: usize = 64;

/// The events of a port: how many of each, and the last ones.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    counts: [AtomicU64; LinkChange::ALL.len()],
    last: Mutex<VecDeque<LinkEvent>>,
}

impl EventLog {
    fn last(&self) -> MutexGuard<'_, VecDeque<LinkEvent>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event, which has happened now.
    pub(crate) fn add(&self, interface: &str, change: LinkChange, text: &str) {
        let mut last = self.last();
        last.truncate(KEPT - 1);
        // Under the lock, so that readers find the events in the order of their numbers.
        last.push_front(LinkEvent {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            time: SystemTime::now(),
            interface: interface.to_owned(),
            change,
            text: text.to_owned(),
        });
        self.counts[change as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often each change has happened; those that have not are left out.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (LinkChange, u64)> {
        let count = |change| (change, self.counts[change as usize].load(Ordering::Relaxed));
        LinkChange::ALL.into_iter().map(count).filter(|(_, count)| *count > 0)
    }

    /// The events after the one with this number, the oldest first, as far as they are kept.
    pub(crate) fn since(&self, number: u64) -> Vec<LinkEvent> {
        let last = self.last();
        let new = last.iter().take_while(|event| event.number > number);
        let mut new: Vec<_> = new.cloned().collect();
        new.reverse();
        new
    }
}

/// Logs an event of what messages name `title`: the interface or device.
pub(crate) fn log_event(title: &str, change: LinkChange, text: &str) {
    let level = if change.is_loss() { log::Level::Warn } else { log::Level::Info };
    log::log!(level, "{title}: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_changes_are_in_the_order_of_their_values() {
        for (at, change) in LinkChange::ALL.into_iter().enumerate() {
            assert_eq!(change as usize, at);
            let json = serde_json::to_value(change).unwrap();
            assert_eq!(json, change.name());
        }
    }

    #[test]
    fn events_are_counted_and_the_last_ones_are_kept() {
        let log = EventLog::default();
        for number in 0..KEPT + 5 {
            log.add("eth1", LinkChange::Mtu, &format!("change {number}"));
        }
        log.add("eth1", LinkChange::Down, "it is down");
        let counts: Vec<_> = log.counts().map(|(change, count)| (change.name(), count)).collect();
        assert_eq!(counts, [("down", 1), ("mtu", KEPT as u64 + 5)]);
        let all = log.since(0);
        assert_eq!((all.len(), &*all[0].text), (KEPT, "change 6"));
        assert_eq!(all.last().map(|event| event.change), Some(LinkChange::Down));
        assert!(all.windows(2).all(|two| two[0].number < two[1].number));
        assert_eq!(log.since(all[KEPT - 2].number).len(), 1);
        assert_eq!(log.since(all[KEPT - 1].number), []);
    }
}
