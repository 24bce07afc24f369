//! The work of a core's other thread: network functions as streams of operations.
//!
//! Their loads go where those of the real ones go: through the nodes of a trie, the rows of
//! an automaton, the connections of a TCP stack. **Weak evidence**: sizes are ours, after
//! the published algorithms, and no result is tuned.

use crate::config::{Beside, Config};
use crate::engine::Tag;
use crate::machine::{Address, Layout, Machine, Region};
use crate::random::Random;
use crate::table::mix;

/// Places in the program, for the branch predictor.
mod pc {
    pub(super) const LOOP: u32 = 60;
    pub(super) const MATCH: u32 = 61;
    pub(super) const STATE: u32 = 62;
}

/// Bytes of a packet's fields that a trie looks at: addresses, ports, protocol.
const FIELDS: u64 = 13;
/// Nodes of the trie on each level, of 64 bytes: 2 MB in all, the upper ones used most.
const NODES: [u64; FIELDS as usize] =
    [1, 16, 128, 512, 1024, 2048, 4096, 4096, 4096, 4096, 4096, 4096, 4096];
/// States of the automaton, a row of 1 KB each: 4 MB.
const STATES: u64 = 4096;
/// Those that random payload goes through nearly always: near the root.
const NEAR: u64 = 16;
/// Flows that nine packets of ten belong to, and all flows.
const BUSY: u64 = 64;
const FLOWS: u64 = 1 << 16;
/// Bytes of payload of a unit of work.
const PAYLOAD: u64 = 64;
/// Connections, four lines each: 4 MB.
const CONNECTIONS: u64 = 1 << 14;
/// Bytes of packet buffers that are gone through again and again.
const BUFFERS: u64 = 256 << 10;

/// The other thread.
#[derive(Clone, Debug)]
pub(super) struct Neighbour {
    what: Beside,
    data: Region,
    buffers: Region,
    stack: Region,
    random: Random,
    units: u64,
    /// Lines that it missed in the first-level cache.
    pub(super) l1_misses: u64,
}

impl Neighbour {
    /// `None` where there is no other thread.
    pub(super) fn new(config: &Config, layout: &mut Layout) -> Option<Self> {
        let what = config.workload.beside;
        let bytes = match what {
            Beside::None => return None,
            Beside::Acl => NODES.iter().sum::<u64>() * 64,
            Beside::Snort => STATES * 1024,
            Beside::Mtcp => CONNECTIONS * 256,
        };
        Some(Self {
            what,
            data: layout.region(bytes),
            buffers: layout.region(BUFFERS),
            stack: layout.region(4096),
            random: Random::new(config.sim.seed ^ 0x00be_51de),
            units: 0,
            l1_misses: 0,
        })
    }

    /// Its lines, for the caches to be warm.
    pub(super) fn lines(&self) -> impl Iterator<Item = Address> + use<> {
        self.data.lines().chain(self.buffers.lines())
    }

    /// The flow of the next packet.
    fn flow(&mut self) -> u64 {
        let busy = self.random.below(10) > 0;
        self.random.below(if busy { BUSY } else { FLOWS })
    }

    /// A unit of work: a packet's fields, or 64 bytes of payload.
    pub(super) fn work(&mut self, m: &mut Machine) {
        let before = m.memory.counts.l1_misses;
        let packet = self.buffers.at(self.units * 256 % BUFFERS);
        self.units += 1;
        match self.what {
            Beside::None => {}
            Beside::Acl => self.walk_trie(m, packet),
            Beside::Snort => self.match_payload(m, packet),
            Beside::Mtcp => self.serve_connection(m, packet),
        }
        m.branch(pc::LOOP, true, &[]);
        self.l1_misses += m.memory.counts.l1_misses - before;
    }

    /// A node for each byte, whose address the node before gives.
    fn walk_trie(&mut self, m: &mut Machine, packet: Address) {
        let (flow, mut state, mut first) = (self.flow(), Tag::NONE, 0);
        for (level, nodes) in NODES.into_iter().enumerate() {
            let byte = m.load(packet.plus(level as u64), &[]);
            let node = first + mix(flow << 8 | level as u64) % nodes;
            let at = m.alu(&[state, byte]);
            let loaded = m.load(self.data.at(node * 64), &[at]);
            // The range that the byte falls into, of four: compared without a branch.
            state = m.chain(3, loaded);
            m.alus(3, &[byte]);
            m.branch(pc::LOOP + 10, level + 1 < NODES.len(), &[]);
            first += nodes;
        }
        let matched = self.random.below(8) == 0;
        m.branch(pc::MATCH, matched, &[state]);
        m.store(self.stack.at(64), &[state]);
    }

    /// A row for each byte; where rows lie near the root they are few.
    fn match_payload(&mut self, m: &mut Machine, packet: Address) {
        let mut state = Tag::NONE;
        for n in 0..PAYLOAD {
            let byte = m.load(packet.plus(n), &[]);
            let deep = self.random.below(32) == 0;
            let row = self.random.below(if deep { STATES } else { NEAR });
            let at = m.alu(&[state, byte]);
            let column = self.random.below(256) * 4;
            state = m.load(self.data.at(row * 1024 + column), &[at]);
            let accepts = m.alu(&[state]);
            m.branch(pc::STATE, false, &[accepts]);
        }
    }

    /// A connection by its hash, its state read and written, payload copied and summed.
    fn serve_connection(&mut self, m: &mut Machine, packet: Address) {
        let key = m.load(packet, &[]);
        let hash = m.chain(12, key);
        let number = mix(self.flow()) % CONNECTIONS;
        let connection = self.data.at(number * 256);
        let found = m.load(connection, &[hash]);
        m.branch(pc::MATCH, true, &[found]);
        for line in 1..4 {
            let value = m.load(connection.plus(64 * line), &[found]);
            let value = m.chain(2, value);
            m.store(connection.plus(64 * line + 8), &[value]);
        }
        // Whether it comes in order, whether there is something to acknowledge.
        let (ordered, acknowledged) = (self.random.below(16) != 0, self.random.below(2) == 0);
        m.branch(pc::STATE, ordered, &[found]);
        m.branch(pc::STATE + 1, acknowledged, &[found]);
        let to = self.buffers.at((self.units * 256 + BUFFERS / 2) % BUFFERS);
        let mut sum = Tag::NONE;
        for n in (0..2 * PAYLOAD).step_by(16) {
            let word = m.load(packet.plus(n), &[]);
            sum = m.alu(&[sum, word]);
            m.store(to.plus(n), &[word]);
        }
        m.chain(4, sum);
    }
}
