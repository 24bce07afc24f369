//! Once its caches know the flows, classification allocates nothing.
#![allow(unsafe_code)] // A global allocator cannot be written without.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use thalweg_classify::{
    Classifier, Config, Lookup, MatchLayer, Rule, RuleId, RuleTable, SharedRules, flow_syntax,
};
use thalweg_packet::wire::{ethertype, ip_proto};
use thalweg_packet::{BATCH, FlowKey, Lanes, Nanoseconds, PacketType, TransposedKeys, field};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: both calls are handed to the system's allocator as they come.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn rules() -> RuleTable {
    let mut table = RuleTable::new(PacketType(0));
    // The longer the prefix the later it is tried, so that megaflows have many
    // masks: more than a stable sort takes without allocating.
    for length in 1..=30u32 {
        let text =
            format!("priority={},tcp,nw_dst=10.0.0.0/{length},tp_dst={length}", 100 - length);
        let flow = flow_syntax::parse(&text, &|_| None).unwrap();
        table.insert(Rule {
            id: RuleId(length),
            priority: flow.priority,
            matches: vec![flow.pattern],
            packet_type: PacketType(1),
            text,
        });
    }
    table
}

fn key(n: u64) -> FlowKey {
    let mut key = FlowKey::default();
    key.set(field::DL_TYPE, ethertype::IPV4.into());
    key.set(field::NW_PROTO, ip_proto::TCP.into());
    key.set(field::NW_DST, 0x0a00_0000);
    key.set(field::NW_SRC, n);
    key.set(field::TP_DST, n % 40);
    key
}

#[test]
fn a_warm_classifier_allocates_nothing() {
    for emc_entries in [0, 8192] {
        let config = Config {
            emc_entries,
            emc_insert_inverse_probability: 1,
            emc_adaptive: false,
            megaflow_adaptive: false,
            ..Config::default()
        };
        let mut classifier = Classifier::new(Arc::new(SharedRules::new(rules())), config);
        let mut out = [Lookup::default(); BATCH];
        let mut layers = [0u64; 3];
        let mut allocations = 0;
        // Beyond the period after which subtables are sorted anew, and several sweeps.
        for round in 0..4000u64 {
            let keys = std::array::from_fn(|lane| key((round * BATCH as u64 + lane as u64) % 640));
            let keys = TransposedKeys::from_keys(&keys);
            let now = Nanoseconds::from_millis(round);
            let before = ALLOCATIONS.with(Cell::get);
            classifier.classify_batch(&keys, Lanes::ALL, &[64; BATCH], now, &mut out);
            if round >= 100 {
                allocations += ALLOCATIONS.with(Cell::get) - before;
                for found in &out {
                    layers[found.layer as usize] += 1;
                }
            }
        }
        assert_eq!(allocations, 0, "with {emc_entries} EMC entries");
        assert!(classifier.stats().subtables > 25);
        assert_eq!(layers[MatchLayer::RuleTable as usize], 0);
        let expected = if emc_entries == 0 { MatchLayer::Megaflow } else { MatchLayer::Emc };
        assert!(layers[expected as usize] > 100_000, "{layers:?}");
    }
    assert!(ALLOCATIONS.with(Cell::get) > 10, "the allocator counts");
}
