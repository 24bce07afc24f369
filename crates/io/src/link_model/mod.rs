//! A model of the link by which packets arrive, for experiments: its bandwidth, its latency, and a slower
//! core at its end.
//!
//! Each packet waits for tokens of its bytes, as a token bucket has them; then it is under way for the
//! latency; then a core works on it, on one packet at a time. It is received when all that is over. So
//! the model changes when packets arrive and how many, and never their order or bytes.

mod input;

use schemars::JsonSchema;
use serde::Deserialize;

pub use input::ModelledInput;
pub(crate) use input::ModelledLink;

/// Bytes that a packet takes on a wire of Ethernet besides its own: preamble, checksum and gap.
const FRAMING: u64 = 24;

/// A model of a link, in the direction in which packets arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LinkModel {
    /// Megabits a second, up to 10,000,000, with 24 bytes a packet for preamble, checksum and gap; 0 for
    /// no limit.
    #[schemars(range(max = 10_000_000))]
    pub bandwidth_mbps: u32,
    /// Bytes, up to 16,777,216, that pass at once after a pause, without waiting for their bandwidth.
    #[schemars(range(max = 16_777_216))]
    pub burst_bytes: u32,
    /// The time on the way in microseconds, up to 10,000,000.
    #[schemars(range(max = 10_000_000))]
    pub latency_us: u32,
    /// The time in nanoseconds, up to 1,000,000,000, that a slower core at the end takes for each packet.
    #[schemars(range(max = 1_000_000_000))]
    pub packet_ns: u32,
    /// The packets that wait or are under way, 1 to 65,536; further ones are dropped.
    #[schemars(range(min = 1, max = 65_536))]
    pub queue: u32,
}

impl Default for LinkModel {
    /// No limits, with a queue of 1,024 packets.
    fn default() -> Self {
        Self { bandwidth_mbps: 0, burst_bytes: 0, latency_us: 0, packet_ns: 0, queue: 1024 }
    }
}

impl LinkModel {
    /// The first value out of range: its key, and the range.
    pub(crate) fn mistake(&self) -> Option<(&'static str, u32, &'static str)> {
        let Self { bandwidth_mbps, burst_bytes, latency_us, packet_ns, queue } = *self;
        [
            ("bandwidth_mbps", bandwidth_mbps, 0, 10_000_000, "0 to 10000000"),
            ("burst_bytes", burst_bytes, 0, 1 << 24, "0 to 16777216"),
            ("latency_us", latency_us, 0, 10_000_000, "0 to 10000000"),
            ("packet_ns", packet_ns, 0, 1_000_000_000, "0 to 1000000000"),
            ("queue", queue, 1, 1 << 16, "1 to 65536"),
        ]
        .into_iter()
        .find(|(_, value, least, most, _)| !(least..=most).contains(&value))
        .map(|(key, value, _, _, range)| (key, value, range))
    }

    /// Picoseconds for bytes on the wire; times are counted in them so that the bandwidth is exact.
    fn time_of(&self, bytes: u64) -> u64 {
        // A bit at 1 Mbit/s takes 1,000,000 picoseconds.
        (bytes * 8 * 1_000_000).checked_div(self.bandwidth_mbps.into()).unwrap_or(0)
    }
}

impl std::fmt::Display for LinkModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("modelled link")?;
        if self.bandwidth_mbps > 0 {
            write!(f, ", {} Mbit/s", self.bandwidth_mbps)?;
        }
        if self.latency_us > 0 {
            write!(f, ", {} us", self.latency_us)?;
        }
        if self.packet_ns > 0 {
            write!(f, ", {} ns a packet", self.packet_ns)?;
        }
        Ok(())
    }
}

/// What a link has been doing. Times are picoseconds from any moment, and do not go back.
#[derive(Clone, Copy, Debug, Default)]
struct LinkState {
    /// When the tokens of all packets so far have been filled up again.
    filled: u64,
    /// When the core has finished all packets so far.
    free: u64,
}

impl LinkState {
    /// Takes a packet of `bytes` that arrives `now`; returns when it is received.
    fn pass(&mut self, model: &LinkModel, now: u64, bytes: usize) -> u64 {
        self.filled = self.filled.max(now) + model.time_of(bytes as u64 + FRAMING);
        let burst = model.time_of(model.burst_bytes.into());
        let sent = self.filled.saturating_sub(burst).max(now);
        let there = sent + u64::from(model.latency_us) * 1_000_000;
        self.free = self.free.max(there) + u64::from(model.packet_ns) * 1000;
        self.free
    }
}

#[cfg(test)]
mod tests;
