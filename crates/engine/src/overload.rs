//! Late packets: those of a live port that have waited for too long, which an NF with `on_overload`
//! does not serve.

use std::time::{SystemTime, UNIX_EPOCH};

use thalweg_chain::{OnOverload, Overload};
use thalweg_packet::{Batch, DropReason, Lanes, Nanoseconds};

use crate::burst::Round;
use crate::counters::NfCounters;

/// The packets of `lanes` that are late for an NF with `overload`: they arrived, as the kernel dates
/// them, longer ago than it allows. That time includes the wait in the interface's ring. A packet
/// that an NF generated is as late as the one it was generated for. Packets of captures and
/// generators are never late, so that one capture has one answer.
#[inline]
pub(crate) fn late(overload: Option<&Overload>, round: &Round, lanes: Lanes) -> Lanes {
    match overload {
        Some(overload) if round.is_live => older(&round.batch, lanes, overload.after),
        _ => Lanes::NONE,
    }
}

/// The packets that arrived longer than `after` ago, by the clock that the kernel dates them by.
fn older(batch: &Batch, lanes: Lanes, after: Nanoseconds) -> Lanes {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Nanoseconds(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
    let mut older = Lanes::NONE;
    for lane in lanes {
        if now.since(batch.meta.captured(lane)) > after {
            older.insert(lane);
        }
    }
    older
}

/// Counts late packets of `batch`.
pub(crate) fn count(action: OnOverload, batch: &Batch, late: Lanes, counters: &mut NfCounters) {
    let packets = late.count() as u64;
    match action {
        OnOverload::Bypass => counters.bypassed += packets,
        OnOverload::Drop => {
            counters.packets += packets;
            counters.bytes += late.into_iter().map(|l| batch.packet_len(l) as u64).sum::<u64>();
            counters.drops.add(DropReason::Overload, packets);
        }
    }
}

#[cfg(test)]
mod tests;
