//! Traces to be classified by a rule set.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use thalweg_classify::Rule;
use thalweg_packet::wire::{ethertype, ip_proto};
use thalweg_packet::{FlowKey, KEY_WORDS, field};

/// Keys of a trace.
pub const KEYS: usize = 20_000;

/// Connections from each client to its server.
const CONNECTIONS: usize = 20;

/// Pairs of hosts that rules drawn at random match, each with connections from
/// source ports of their own where the rule leaves them open.
pub fn connections(rules: &[Rule]) -> Vec<FlowKey> {
    let rng = &mut StdRng::seed_from_u64(7);
    let open = open_bits();
    let mut keys = Vec::with_capacity(KEYS);
    for _ in 0..KEYS / CONNECTIONS {
        let rule = &rules[rng.random_range(0..rules.len())];
        let pattern = &rule.matches[rng.random_range(0..rule.matches.len())];
        let mut key = *pattern.value();
        for i in 0..KEY_WORDS {
            key.words[i] |= rng.random::<u64>() & open.words[i] & !pattern.mask().words[i];
        }
        for _ in 0..CONNECTIONS {
            if pattern.mask().get(field::TP_SRC) == 0 {
                key.set(field::TP_SRC, rng.random_range(32768..61000));
            }
            keys.push(key);
        }
    }
    for at in (1..keys.len()).rev() {
        keys.swap(at, rng.random_range(0..=at));
    }
    keys
}

/// A few sources that try ports at all addresses near those of rules.
pub fn scans(rules: &[Rule]) -> Vec<FlowKey> {
    let rng = &mut StdRng::seed_from_u64(8);
    let sources: Vec<u64> = (0..10).map(|_| rng.random()).collect();
    let mut key = || {
        let rule = &rules[rng.random_range(0..rules.len())];
        let near = rule.matches[0].value().get(field::NW_DST) & 0xffff_0000;
        let mut key = FlowKey::default();
        key.set(field::DL_TYPE, ethertype::IPV4.into());
        key.set(field::NW_SRC, sources[rng.random_range(0..sources.len())]);
        key.set(field::NW_DST, near | rng.random_range(0..0x1_0000));
        key.set(field::NW_PROTO, ip_proto::TCP.into());
        key.set(field::TP_SRC, rng.random_range(32768..61000));
        key.set(field::TP_DST, [22, 23, 445][rng.random_range(0..3usize)]);
        key
    };
    (0..KEYS).map(|_| key()).collect()
}

/// The bits that a ClassBench rule may look at.
fn open_bits() -> FlowKey {
    let mut open = FlowKey::default();
    for place in [field::NW_SRC, field::NW_DST, field::NW_PROTO, field::TP_SRC, field::TP_DST] {
        open.set(place, u64::MAX);
    }
    open
}
