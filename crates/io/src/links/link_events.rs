//! What happens to the link of a port, whoever follows it.

use std::fmt;

use super::events::{EventLog, LinkChange, LinkEvent};
use crate::kind::Link;

/// Follows the link of an open port.
pub(crate) trait Follows: fmt::Debug + Send + Sync {
    /// What has happened.
    fn log(&self) -> &EventLog;

    /// The state now; `None` if it is unknown.
    fn link(&self) -> Option<Link>;

    /// The packets that were dropped before the port had them.
    fn device_drops(&self) -> Option<u64> {
        None
    }

    /// The device's own counters, by the names that its driver gives them.
    fn device_counters(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// Follows the link no longer.
    fn end(&self);
}

/// What happens to the link of an open port, which is followed as long as this exists.
#[derive(Debug)]
pub struct LinkEvents(Box<dyn Follows>);

impl LinkEvents {
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    pub(crate) fn new(follows: impl Follows + 'static) -> Self {
        Self(Box::new(follows))
    }

    /// The packets that the interface, its driver or the kernel has dropped on receipt since the port was
    /// opened, as far as the kernel counts them. `None` for an output, and if the interface is gone.
    pub fn device_drops(&self) -> Option<u64> {
        self.0.device_drops()
    }

    /// The counters of the device that are not 0, by the names that its driver gives them (the extended
    /// statistics of DPDK): those of receipt for an input, those of sending for an output.
    pub fn device_counters(&self) -> Vec<(String, u64)> {
        self.0.device_counters()
    }

    /// How often each change has happened; those that have not are left out.
    pub fn counts(&self) -> impl Iterator<Item = (LinkChange, u64)> {
        self.0.log().counts()
    }

    /// The events after the one with this number, the oldest first. Only the last ones are kept.
    pub fn since(&self, number: u64) -> Vec<LinkEvent> {
        self.0.log().since(number)
    }

    /// Follows the link no longer: what the end of a run does to it is no event.
    pub fn end(&self) {
        self.0.end();
    }

    /// The state of the link now: of the interface that the port has, by whatever name. `None` if it is
    /// unknown.
    pub fn link(&self) -> Option<Link> {
        self.0.link()
    }
}

impl Drop for LinkEvents {
    fn drop(&mut self) {
        self.end();
    }
}
