//! What a server did, and what it refused and interrupted.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use schemars::JsonSchema;
use serde::Serialize;

/// One count.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }

    pub(crate) fn increment(&self) {
        self.add(1);
    }

    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

macro_rules! counts {
    ($($(#[doc = $help:literal])+ $name:ident,)+) => {
        /// The counts of a server, which its threads share.
        #[derive(Debug, Default)]
        pub struct Counts {
            $(pub(crate) $name: Count,)+
        }

        /// The counts of a server at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
        pub struct Counted {
            $($(#[doc = $help])+ pub $name: u64,)+
        }

        impl Counts {
            /// The counts of this moment.
            pub fn now(&self) -> Counted {
                Counted { $($name: self.$name.get(),)+ }
            }
        }

        impl Counted {
            /// The counts: name, help, number.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                [$((stringify!($name), concat!($($help),+).trim_ascii(), self.$name),)+].into_iter()
            }
        }
    };
}

counts! {
    /// Connections accepted.
    connections,
    /// Connections closed at once, since too many were open.
    connections_refused,
    /// Connections whose TLS handshake failed.
    handshakes_failed,
    /// Requests whose head was read.
    requests,
    /// Requests refused, since too many were under way.
    requests_refused,
    /// Requests that were not HTTP, or whose head or body was malformed.
    malformed,
    /// Requests with a head or a body that was too large.
    too_large,
    /// Requests that a client sent too slowly.
    too_slow,
    /// Requests that were not answered in time.
    timed_out,
    /// Connections closed, since the client did not read its answer.
    stalled,
    /// Panics of the code that answers requests.
    panics,
    /// Events queued for clients.
    events,
    /// Events lost, since a client did not read those before them.
    events_lost,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_has_a_name_and_a_help_text() {
        let counts = Counts::default();
        counts.too_slow.add(3);
        let each: Vec<_> = counts.now().each().collect();
        assert!(each.contains(&("too_slow", "Requests that a client sent too slowly.", 3)));
        assert_eq!(each.iter().map(|(_, _, number)| number).sum::<u64>(), 3);
    }
}
