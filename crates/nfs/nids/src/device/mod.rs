//! The search for the literals of rules about payloads, as a device can do it.
//!
//! A device returns the groups of literals that may have one in a payload: for most payloads, none. The
//! processor searches for the literals of those groups and verifies rules, as it does without a device.
//! Streams stay with the processor, and with them literals that begin in one segment and end in the next;
//! so do the buffers of application protocols.

mod automaton;
mod halves;
#[cfg(test)]
mod tests;

use thalweg_nf::device::{DeviceFunction, Split};
use thalweg_packet::BATCH;

use super::ahead::Texts;
use super::engine::Engine;
use super::heads::Kind;
use automaton::MOST_LENGTH;
pub use automaton::{Automaton, KINDS, Literal, MOST_BYTES};

/// Looks for literals in a payload. The first word of the argument is the kind of the packet: 0 for TCP, 1
/// for UDP, 2 for others. The first word of the result is a set of groups that may have a literal there, all
/// for another kind; the second is the mark of the table, which an [`Automaton`] makes.
pub const LITERALS: DeviceFunction = DeviceFunction {
    name: "literals",
    source: include_str!("literals.cl"),
    near: 0,
    split: Some(Split { piece: PIECE, overlap: MOST_LENGTH - 1, join }),
    changes: false,
    scalar: |bytes, argument, table| automaton::walk(bytes, argument[0] as usize, table),
};

/// From more bytes of payload than this on, several work-items walk: docs/adr/0022 has what that costs.
const PIECE: usize = 1024;

/// A literal lies whole in one of two pieces.
fn join(a: [u32; 2], b: [u32; 2]) -> [u32; 2] {
    // 0 is the mark of no table.
    [a[0] | b[0], if a[1] == b[1] { a[1] } else { 0 }]
}

/// What a device returned for the packets of a batch, by lane; 0 where it was given none.
pub(super) type Results = [[u32; 2]; BATCH];

/// Enters into `texts` the groups that the processor need not search them for.
pub(super) fn rule_out(engine: &Engine, results: &Results, texts: &mut Texts<'_>) {
    let Some(automaton) = engine.automaton.get() else { return };
    for kind in Kind::ALL {
        for lane in texts.of_kinds[kind as usize].and(texts.with_payload) {
            let [mut found, mark] = results[lane];
            // A result of another table belongs to the rules before a reload.
            if mark != automaton.mark() {
                continue;
            }
            let past = texts.known[lane];
            if past > 0 {
                found |= automaton.across(kind as usize, texts.bytes[lane], past);
            }
            texts.without[lane] = !found;
        }
    }
}
