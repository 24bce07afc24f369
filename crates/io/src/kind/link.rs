//! The state of a port's link.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The state of a link, as far as the system reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Link {
    /// Whether it is set up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up: Option<bool>,
    /// Whether a peer is connected; unknown while it is down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carrier: Option<bool>,
    /// Its speed in Mbit/s; virtual links have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed_mbps: Option<u64>,
    /// Its MTU: the most bytes after the link header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u64>,
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match (self.up, self.carrier) {
            (Some(false), _) => Some("down".to_owned()),
            (Some(true), Some(false)) => Some("no carrier".to_owned()),
            (Some(true), _) => Some("up".to_owned()),
            (None, _) => None,
        };
        let speed = self.speed_mbps.map(|mbps| {
            if mbps >= 1000 {
                format!("{} Gbit/s", mbps as f64 / 1e3)
            } else {
                format!("{mbps} Mbit/s")
            }
        });
        let mtu = self.mtu.map(|mtu| format!("MTU {mtu}"));
        let parts: Vec<_> = [state, speed, mtu].into_iter().flatten().collect();
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_shown_as_far_as_it_is_known() {
        let up = Link { up: Some(true), carrier: Some(true), ..Link::default() };
        for (link, text) in [
            (Link { speed_mbps: Some(2500), mtu: Some(1500), ..up }, "up, 2.5 Gbit/s, MTU 1500"),
            (Link { speed_mbps: Some(100), ..up }, "up, 100 Mbit/s"),
            (Link { carrier: Some(false), mtu: Some(9000), ..up }, "no carrier, MTU 9000"),
            (Link { up: Some(false), carrier: None, mtu: Some(1500), ..up }, "down, MTU 1500"),
            (Link::default(), ""),
        ] {
            assert_eq!(link.to_string(), text);
        }
    }
}
