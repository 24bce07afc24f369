//! The network interfaces of ports: what happens to them, and what ports do when they are removed.
//!
//! A thread ([`watcher`]) follows the interfaces of all ports by netlink, by their indices, so that it
//! finds one that was renamed. It logs and counts what happens to them ([`events`], [`state`]); devices that the
//! kernel does not know are followed by their own kinds of ports ([`link_events`]). A port
//! with `on_removal = "wait"` continues without its interface, and the thread opens an interface of its
//! name again when there is one ([`returning`]).

#[cfg(target_os = "linux")]
mod bell;
#[cfg(target_os = "linux")]
mod counts;
mod events;
#[cfg(target_os = "linux")]
mod followed;
mod link_events;
#[cfg(target_os = "linux")]
mod returning;
#[cfg(target_os = "linux")]
mod state;
#[cfg(target_os = "linux")]
mod watcher;

use schemars::JsonSchema;
use serde::Deserialize;

#[cfg(target_os = "linux")]
pub(crate) use counts::DeviceCounts;
#[cfg(feature = "dpdk")]
pub(crate) use events::{EventLog, log_event};
pub use events::{LinkChange, LinkEvent};
#[cfg(all(target_os = "linux", feature = "dpdk"))]
pub(crate) use followed::OfInterface;
#[cfg(target_os = "linux")]
pub(crate) use followed::{Following, inputs, outputs};
#[cfg(feature = "dpdk")]
pub(crate) use link_events::Follows;
pub use link_events::LinkEvents;
#[cfg(target_os = "linux")]
pub(crate) use state::has_carrier;
#[cfg(target_os = "linux")]
pub(crate) use watcher::KnownMtu;

/// What a port does when its interface is removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnRemoval {
    /// The run ends, and has failed.
    #[default]
    End,
    /// The run continues without the interface, and takes one of the same name when there is one.
    Wait,
}
