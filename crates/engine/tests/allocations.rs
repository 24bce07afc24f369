//! A batch in steady state needs no allocation.
//!
//! `unsafe` here: a global allocator that counts.
#![allow(unsafe_code)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use common::{Folder, Tag};
use thalweg_engine::{Control, RunOptions, run};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CHAIN: &str = r#"routes = "routes.csv"
[input.in]
capture = "in.pcap"
memory = true
[output.out]
discard = true
[[class]]
type = "web"
rules = ["udp,tp_dst=1001"]
[nf.guard]
kind = "filter"
rules = ["drop udp,tp_dst=1003"]
[nf.count]
kind = "monitor"
"#;

/// The allocations of a run of `passes` passes over 1000 packets.
fn allocations(folder: &Folder, passes: u64, workers: usize) -> u64 {
    let options =
        RunOptions { loops: Some(passes), workers: Some(workers), ..RunOptions::default() };
    let plan = folder.load().unwrap();
    let before = ALLOCATIONS.load(Relaxed);
    let report = run(plan, &options, &Control::default()).unwrap();
    assert_eq!(report.packets_in, passes * 1000);
    assert!(report.conserved && report.packets_dropped > 0, "{:?}", report.drops);
    ALLOCATIONS.load(Relaxed) - before
}

#[test]
fn ten_times_the_packets_cost_no_more_allocations() {
    let folder = Folder::new();
    let tags: Vec<_> = (0..1000)
        .map(|n| Tag { flow: n % 50, back: n % 3 == 0, lineage: 0, sequence: n })
        .collect();
    folder.capture("in.pcap", &tags).write("chain.toml", CHAIN);
    folder
        .write("routes.csv", "*,ingress,guard\nweb,guard,egress\n*,guard,count\n*,count,egress\n");
    let (few, many) = (allocations(&folder, 40, 1), allocations(&folder, 400, 1));
    assert!(few > 0, "the allocator counts nothing");
    // 360,000 packets in more than 11,000 batches.
    assert!(many <= few + 8, "{few} allocations, then {many}");
}
