//! What network functions do for a packet beside its lookup.
//!
//! Written after the functions' published algorithms: the headers that they read and
//! write, the state of a flow, host or rule that they keep. **Nothing is tuned to results.**

use crate::config::Function;
use crate::machine::{Address, LINE, Layout, Machine, Region};
use crate::software::Answer;

/// Places in the program, for the branch predictor.
mod pc {
    pub(super) const VERSION: u32 = 40;
    pub(super) const PROTOCOL: u32 = 41;
    pub(super) const FLAGS: u32 = 42;
    pub(super) const VERDICT: u32 = 43;
}

/// Lines of a host's record: addresses, times, services, fingerprints.
const RECORD: u64 = 4;

/// A function with its state.
#[derive(Clone, Debug)]
pub(super) struct Program {
    function: Function,
    state: Option<Region>,
}

impl Program {
    /// With state for this many keys.
    pub(super) fn new(function: Function, keys: u64, layout: &mut Layout) -> Self {
        let lines = match function {
            Function::None => 0,
            Function::Nat | Function::Filter => 1,
            Function::Assets => RECORD,
        };
        let state = (lines > 0).then(|| layout.region(keys * lines * LINE));
        Self { function, state }
    }

    /// Its lines, for the caches to be warm.
    pub(super) fn lines(&self) -> impl Iterator<Item = Address> + use<> {
        self.state.into_iter().flat_map(Region::lines)
    }

    /// Reads the packet's headers, before its key is looked up.
    pub(super) fn parse(&self, m: &mut Machine, packet: Address) {
        if self.function == Function::None {
            return;
        }
        // EtherType; version, header length, protocol, fragments; ports, flags.
        let ether = m.load(packet, &[]);
        m.branch(pc::VERSION, false, &[ether]);
        let fields: Vec<_> = (1..6).map(|n| m.load(packet.plus(8 * n), &[])).collect();
        fields.iter().for_each(|field| {
            m.chain(2, *field);
        });
        m.branch(pc::PROTOCOL, true, &[fields[1]]);
    }

    /// Does what is to be done with the lookup's answer.
    pub(super) fn finish(&self, m: &mut Machine, packet: Address, key: u64, answer: Answer) {
        let Some(state) = &self.state else { return };
        match self.function {
            Function::None => {}
            Function::Nat => translate(m, packet, state.at(key * LINE), answer),
            Function::Assets => note_host(m, packet, state.at(key * RECORD * LINE), answer),
            Function::Filter => judge(m, state.at(key * LINE), answer),
        }
    }
}

/// New address and port, both checksums by their differences (RFC 1624), the flow's time.
fn translate(m: &mut Machine, packet: Address, flow: Address, answer: Answer) {
    let mapping = m.load(flow, &[answer.tag]);
    let port = m.load(flow.plus(8), &[answer.tag]);
    for (at, value) in [(24, mapping), (32, port)] {
        let old = m.load(packet.plus(at), &[]);
        let sum = m.load(packet.plus(at + 8), &[]);
        let difference = m.alu(&[old, value]);
        let folded = m.alu(&[difference, sum]);
        let folded = m.chain(3, folded);
        m.store(packet.plus(at), &[value]);
        m.store(packet.plus(at + 8), &[folded]);
    }
    let seen = m.load(flow.plus(16), &[answer.tag]);
    let seen = m.alu(&[seen]);
    m.store(flow.plus(16), &[seen]);
    m.store(flow.plus(24), &[answer.tag]);
}

/// The host's record: time and count, the service of the port, and for a packet that opens
/// a connection its fingerprint: window, TTL, options compared with those known.
fn note_host(m: &mut Machine, packet: Address, record: Address, answer: Answer) {
    let seen = m.load(record, &[answer.tag]);
    let seen = m.alu(&[seen]);
    m.store(record, &[seen]);
    m.store(record.plus(8), &[answer.tag]);
    let port = m.load(packet.plus(32), &[]);
    let service = m.load(record.plus(LINE), &[answer.tag]);
    let same = m.alu(&[port, service]);
    m.branch(pc::FLAGS, false, &[same]);
    let mut state = m.load(record.plus(2 * LINE), &[answer.tag]);
    for option in 0..6 {
        let field = m.load(packet.plus(40 + 4 * option), &[]);
        let mixed = m.alu(&[state, field]);
        state = m.multiply(&[mixed]);
    }
    let known = m.load(record.plus(3 * LINE), &[answer.tag]);
    let same = m.alu(&[known, state]);
    m.branch(pc::FLAGS + 10, true, &[same]);
}

/// The rule's counters, and its verdict.
fn judge(m: &mut Machine, rule: Address, answer: Answer) {
    for counter in [rule, rule.plus(8)] {
        let count = m.load(counter, &[answer.tag]);
        let count = m.alu(&[count]);
        m.store(counter, &[count]);
    }
    let verdict = m.load(rule.plus(16), &[answer.tag]);
    m.branch(pc::VERDICT, true, &[verdict]);
}
