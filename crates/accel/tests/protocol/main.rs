//! The protocol between processor and device as a model of both sides, under the model checker
//! stateright: every order of their steps, over memory that is weakly ordered.
//!
//! What is checked is this model, and not the code: loom runs the code of one syncer and one
//! work-group in Rust (`scripts/model.sh`). So a change of the protocol changes this model, too.

mod groups;
mod memory;
mod ours;
mod paper;
mod syncers;

use std::collections::BTreeSet;
use std::time::Instant;

use ours::{Mutation, Protocol};
use paper::{Paper, Start, Step};
use stateright::{Checker, HasDiscoveries, Model};

/// Checks a model; returns the names of the properties that do not hold, and how many states there are.
fn check<M>(model: M, until: HasDiscoveries) -> (BTreeSet<&'static str>, usize)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + PartialEq + std::hash::Hash + Send + Sync + 'static,
    M::Action: Clone + PartialEq,
{
    let properties = model.properties();
    let checker = model.checker().threads(2).finish_when(until).spawn_bfs().join();
    let found = checker.discoveries();
    let fails = properties.iter().filter(|property| {
        property.expectation.discovery_is_failure() == found.contains_key(property.name)
    });
    (fails.map(|property| property.name).collect(), checker.unique_state_count())
}

/// One work-group, whose queue is shorter than what passes.
fn one_work_group() -> Protocol {
    Protocol {
        lanes: 2,
        rows: 2,
        syncers: vec![vec![vec![0]]],
        routes: vec![vec![0]],
        packets: 4,
        first: 254,
        mutation: Mutation::None,
    }
}

#[track_caller]
fn holds(model: Protocol) {
    let began = Instant::now();
    let (fails, states) = check(model.clone(), HasDiscoveries::All);
    println!("{model:?}: {states} states in {:?}", began.elapsed());
    assert!(fails.is_empty(), "{model:?}: {fails:?}");
}

#[test]
fn packets_pass_a_work_group_once_and_in_order() {
    holds(Protocol { packets: 8, ..one_work_group() });
    holds(Protocol { lanes: 3, packets: 7, ..one_work_group() });
}

#[test]
fn work_groups_share_a_partition() {
    holds(Protocol { syncers: vec![vec![vec![0, 1]]], packets: 5, ..one_work_group() });
}

/// Two partitions, and packets that take one of them, or both in either order, so that each may starve.
fn routes() -> Protocol {
    let routes = vec![vec![0], vec![1], vec![0, 1], vec![1, 0]];
    Protocol { syncers: vec![vec![vec![0], vec![1]]], routes, packets: 3, ..one_work_group() }
}

#[test]
fn packets_take_any_route_through_partitions() {
    holds(Protocol { rows: 1, packets: 2, ..routes() });
}

#[test]
#[ignore = "takes a minute: scripts/long.sh tests"]
fn longer_queues_change_nothing() {
    holds(Protocol { rows: 4, packets: 10, ..one_work_group() });
    holds(routes());
    holds(Protocol { rows: 1, ..routes() });
}

#[test]
fn syncers_have_work_groups_of_their_own() {
    holds(Protocol { syncers: vec![vec![vec![0]], vec![vec![1]]], packets: 3, ..one_work_group() });
}

/// So that the checks above can fail: each of these does, by the property that it breaks.
#[test]
fn the_checker_finds_what_is_left_out_of_the_protocol() {
    for (mutation, expected) in [
        (Mutation::SealIsRelaxed, "no packet is lost"),
        (Mutation::DoneIsRelaxed, "each result is its packet's"),
        (Mutation::EndIsRelaxed, "no work-group ends early"),
        (Mutation::SlotBeforeSealed, "no packet is lost"),
        (Mutation::ResultBeforeDone, "each result is its packet's"),
        (Mutation::NoBarrier, "no packet is lost"),
        (Mutation::NoSealOfIdle, "every packet comes back, and all end"),
        (Mutation::NoDummies, "no packet is worked on twice"),
        (Mutation::RowTooMany, "each result is its packet's"),
        (Mutation::RowTooMany, "order in a lane"),
        (Mutation::SealedBeforeEnd, "no work-group ends early"),
        (Mutation::PacketForDummy, "no packet is lost"),
    ] {
        let model = Protocol { mutation, packets: 6, ..one_work_group() };
        let (fails, states) = check(model, HasDiscoveries::AnyOf([expected].into()));
        println!("{mutation:?}: {fails:?} after {states} states");
        assert!(fails.contains(expected), "{mutation:?}: {fails:?}");
    }
}

fn paper(start: Start) -> Paper {
    Paper { start, lanes: 2, rows: 2, packets: 2, most_rows: 6 }
}

#[test]
fn the_papers_algorithm_deadlocks_as_printed() {
    let (fails, states) = check(paper(Start::AsPrinted), HasDiscoveries::All);
    println!("as printed: {states} states");
    let expected = ["a side can move", "all packets are worked on"];
    assert_eq!(fails, expected.into(), "it deadlocks, and no packet is worked on in any run");
}

#[test]
fn the_papers_forwarder_loses_packets_that_it_writes_over_dummies() {
    let checker = paper(Start::Repaired).checker().spawn_bfs().join();
    println!("repaired start: {} states", checker.unique_state_count());
    let found = checker.discoveries();
    assert!(found.contains_key("all packets are worked on"), "in some runs it works");
    assert!(!found.contains_key("a side can move"), "it no longer deadlocks");
    let steps = found["no packet passes without being worked on"].clone().into_actions();
    let at = |step: Step| steps.iter().position(|other| *other == step);
    let written = at(Step::Write).expect("the forwarder writes");
    let looked = steps[..written].iter().any(|step| matches!(step, Step::Work(_)));
    assert!(looked, "the GPU has looked at the dummy before: {steps:?}");
}
