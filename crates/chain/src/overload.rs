//! What an NF does with packets when it gets more than it can serve.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thalweg_packet::Nanoseconds;

/// What an NF does with late packets: those of a live port that have waited for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overload {
    /// What becomes of them.
    pub action: OnOverload,
    /// A packet is late when it arrived longer ago than this.
    pub after: Nanoseconds,
}

/// What becomes of a late packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnOverload {
    /// It is sent to the next NF as if this one had forwarded it.
    Bypass,
    /// It is dropped.
    Drop,
}

impl OnOverload {
    /// The value of `on_overload` in a chain file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::Drop => "drop",
        }
    }
}
