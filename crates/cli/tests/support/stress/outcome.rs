//! What a run has to report when it has ended.

use serde_json::Value;

use super::chain::Frame;
use super::ledger::Ledger;

/// The packets of a run that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    pub received: u64,
    pub dropped: u64,
}

/// Checks the report of a run that has ended by itself or by request against what was sent and what has
/// arrived.
///
/// # Errors
/// What is wrong.
pub fn check(report: &Value, frame: &Frame, ledger: &Ledger) -> Result<Counts, String> {
    let inputs = report["inputs"].as_array().map_or(&[][..], Vec::as_slice);
    let streams: Vec<_> = inputs.iter().flat_map(|input| queues(input, frame)).collect();
    if streams.len() != frame.streams() {
        return Err(format!("{} queues instead of {}: {report}", streams.len(), frame.streams()));
    }
    let dropped = ledger.check(&streams)?;
    let received: u64 = inputs.iter().map(packets).sum();
    let counts = ["packets_in", "packets_out", "packets_dropped", "leaked_frames"];
    let counts = counts.map(|name| number(&report[name]));
    if counts != [streams.iter().sum(), ledger.arrived, dropped, 0] || counts[0] != received {
        return Err(format!("the counts do not balance: {dropped} dropped, {report}"));
    }
    if report["conserved"] != true || report["failures"] != Value::Array(Vec::new()) {
        return Err(format!("a failure: {report}"));
    }
    Ok(Counts { received, dropped })
}

/// The packets that each queue of an input has received.
fn queues(input: &Value, frame: &Frame) -> Vec<u64> {
    if frame.queues() == 1 {
        return vec![packets(input)];
    }
    input["queues"].as_array().into_iter().flatten().map(packets).collect()
}

fn packets(of: &Value) -> u64 {
    number(&of["packets"])
}

/// A count that is not there is no count that any run has.
fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(u64::from(u32::MAX))
}
