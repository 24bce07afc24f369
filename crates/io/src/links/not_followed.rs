//! Interfaces of other systems, which are not followed.

use std::convert::Infallible;

use super::events::{LinkChange, LinkEvent};
use crate::kind::Link;

/// What happens to the interface of an open port.
#[derive(Debug)]
pub struct LinkEvents(Infallible);

impl LinkEvents {
    /// How often each change has happened.
    pub fn counts(&self) -> impl Iterator<Item = (LinkChange, u64)> {
        match self.0 {}
        #[allow(unreachable_code)]
        std::iter::empty()
    }

    /// The packets that the interface has dropped on receipt.
    pub fn device_drops(&self) -> Option<u64> {
        match self.0 {}
    }

    /// The events after the one with this number.
    pub fn since(&self, _number: u64) -> Vec<LinkEvent> {
        match self.0 {}
    }

    /// Follows the interface no longer.
    pub fn end(&self) {
        match self.0 {}
    }

    /// The state of the link now.
    pub fn link(&self) -> Option<Link> {
        match self.0 {}
    }
}
