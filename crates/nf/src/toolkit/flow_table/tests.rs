use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use arrayvec::ArrayVec;
use proptest::prelude::*;

use super::*;

impl FlowWords<1> for u64 {
    fn words(&self) -> [u64; 1] {
        [*self]
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(Vec<u64>),
    Extend(Vec<Option<u64>>),
    Remove(u64),
    Batch(Vec<u64>),
    TakeMultiples(u64),
    /// Index by unit, some more.
    Index,
    /// Take out the flows of a unit, if all are indexed.
    TakeUnit(u16),
    EndUnits,
}

/// Flows in sixteen units, without a hash.
fn sixteenths(flow: &u64, _: Steering) -> u16 {
    (flow % 16) as u16 * 256
}

fn units() -> Units {
    Units::new(16, Steering::default()).unwrap()
}

fn step() -> impl Strategy<Value = Step> {
    let flow = 0u64..400;
    prop_oneof![
        proptest::collection::vec(flow.clone(), 1..100).prop_map(Step::Put),
        proptest::collection::vec(proptest::option::of(flow.clone()), 0..100)
            .prop_map(Step::Extend),
        flow.clone().prop_map(Step::Remove),
        proptest::collection::vec(flow, 0..=BATCH).prop_map(Step::Batch),
        (1u64..5).prop_map(Step::TakeMultiples),
        Just(Step::Index),
        (0u16..17).prop_map(Step::TakeUnit),
        Just(Step::EndUnits),
    ]
}

proptest! {
    #[test]
    fn it_is_a_map(steps in proptest::collection::vec(step(), 1..60)) {
        let mut table = FlowTable::<u64, u64, 1>::new(0);
        let (mut model, mut indexed) = (BTreeMap::new(), false);
        for (n, step) in (0u64..).zip(steps) {
            match step {
                Step::Put(flows) => for flow in flows {
                    match table.get_mut(None, &flow) {
                        Some(value) => *value = n,
                        // Improbable, with the hash key of some table.
                        None => prop_assume!(table.insert(flow, n).is_ok()),
                    }
                    model.insert(flow, n);
                },
                Step::Extend(flows) => {
                    let coming = flows.iter().map(|flow| Some((flow.as_ref().copied()?, n)));
                    let refused = table.extend(coming.collect());
                    let mut known = Vec::new();
                    for flow in flows.into_iter().flatten() {
                        match model.entry(flow) {
                            Entry::Occupied(_) => known.push((flow, n)),
                            Entry::Vacant(entry) => drop(entry.insert(n)),
                        }
                    }
                    prop_assert_eq!(refused, known);
                }
                Step::Remove(flow) => prop_assert_eq!(table.remove(&flow), model.remove(&flow)),
                Step::Batch(flows) => {
                    let found = table.find(flows.iter().copied());
                    for (at, flow) in flows.iter().enumerate() {
                        prop_assert_eq!(found.slot(at).is_some(), model.contains_key(flow));
                        let value = table.get_mut(found.slot(at), flow).copied();
                        prop_assert_eq!(value, model.get(flow).copied());
                    }
                }
                Step::TakeMultiples(of) => {
                    let mut taken = BTreeMap::new();
                    let reason = |flow: &u64, _: &u64| flow.is_multiple_of(of).then_some(of);
                    table.extract_if(reason, |flow, value, _| { taken.insert(flow, value); });
                    let (gone, kept): (BTreeMap<u64, u64>, _) =
                        model.into_iter().partition(|(flow, _)| flow.is_multiple_of(of));
                    model = kept;
                    prop_assert_eq!(taken, gone);
                }
                // One step suffices for these few slots.
                Step::Index => {
                    indexed = table.index_units(units(), sixteenths);
                    prop_assert!(indexed);
                }
                Step::TakeUnit(unit) => {
                    let mut taken = BTreeMap::new();
                    table.take_unit(unit, |flow, value| { taken.insert(flow, value); });
                    let is_of = |flow: &u64| indexed && flow % 16 == u64::from(unit);
                    let (gone, kept): (BTreeMap<u64, u64>, _) =
                        model.into_iter().partition(|(flow, _)| is_of(flow));
                    model = kept;
                    prop_assert_eq!(taken, gone);
                }
                Step::EndUnits => {
                    table.end_units();
                    indexed = false;
                }
            }
            prop_assert_eq!(table.len(), model.len());
            for unit in (0..16).filter(|_| indexed) {
                let of_unit: BTreeMap<_, _> = table.unit(unit).map(|(k, v)| (*k, *v)).collect();
                let of_model = model.iter().filter(|(flow, _)| *flow % 16 == u64::from(unit));
                prop_assert!(of_unit.iter().eq(of_model));
            }
        }
        let all: BTreeMap<_, _> = table.iter().map(|(flow, value)| (*flow, *value)).collect();
        prop_assert_eq!(all, model);
    }
}

proptest! {
    /// Flows stay in their sections, which can be walked through and emptied one by one.
    #[test]
    fn sections_are_walked_through_one_by_one(
        flows in proptest::collection::btree_set(0u64..4000, 0..1500),
        of in 1u64..5,
    ) {
        let mut table = FlowTable::<u64, u64, 1>::with_sections(3, 4000);
        let mut model = [BTreeMap::new(), BTreeMap::new(), BTreeMap::new()];
        for flow in flows {
            let section = (flow / 7 % 3) as usize;
            let slot = table.insert_in(section, flow, flow + 1);
            prop_assume!(slot.is_ok());
            prop_assert_eq!(table.section_of(slot.unwrap()), section);
            model[section].insert(flow, flow + 1);
        }
        let reason = |flow: &u64, _: &u64| flow.is_multiple_of(of).then_some(());
        let (mut walk, most) = (table.walk(1), Most { slots: 100, flows: 30 });
        let (mut gone, mut is_complete) = (0, false);
        while !is_complete {
            let before = gone;
            is_complete = table.extract_some(&mut walk, most, reason, |flow, _, ()| {
                gone += usize::from(model[1].remove(&flow).is_some());
            });
            prop_assert!(gone - before <= most.flows);
            for flow in model[1].keys().filter(|flow| flow.is_multiple_of(of)) {
                prop_assert!(table.is_ahead(&walk, table.slot(flow).unwrap()));
            }
        }
        prop_assert!(model[1].keys().all(|flow| !flow.is_multiple_of(of)));
        if let Some((flow, value)) = model[0].pop_first() {
            prop_assert_eq!(table.remove(&flow), Some(value));
        }
        for (section, model) in model.iter().enumerate() {
            let all: BTreeMap<_, _> = table.iter_in(section).map(|(k, v)| (*k, *v)).collect();
            prop_assert_eq!(&all, model);
            prop_assert_eq!(table.len_of(section), model.len());
        }
        prop_assert_eq!(table.len(), model.iter().map(BTreeMap::len).sum::<usize>());
    }
}

#[test]
fn a_slot_that_another_flow_has_now_is_not_taken_for_the_flow() {
    let mut table = FlowTable::<u64, &str, 1>::new(2);
    table.insert(1, "one").unwrap();
    let found = table.find([1].into_iter());
    table.remove(&1);
    table.insert(2, "two").unwrap();
    assert_eq!(table.get_mut(found.slot(0), &1), None);
    table.insert(1, "again").unwrap();
    assert_eq!(table.get_mut(found.slot(0), &1), Some(&mut "again"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    /// The index is built in steps while flows begin and end, in a table of several sections, too.
    #[test]
    fn flows_are_indexed_by_unit_step_by_step(
        first in 0u64..5000,
        changes in proptest::collection::vec((any::<bool>(), 0u64..7000), 0..400),
        sections in 1usize..4,
    ) {
        let mut table = FlowTable::<u64, (), 1>::with_sections(sections, 20_000);
        let section = |flow: u64| (flow % sections as u64) as usize;
        for flow in 0..first {
            prop_assume!(table.insert_in(section(flow), flow, ()).is_ok());
        }
        let mut known: std::collections::BTreeSet<u64> = (0..first).collect();
        let slots = table.slots.len();
        let (mut steps, mut complete) = (0, false);
        for changes in changes.chunks(40).chain(std::iter::repeat_n(&[][..], 10)) {
            if !complete {
                complete = table.index_units(units(), sixteenths);
                steps += 1;
            }
            for (begins, flow) in changes {
                if *begins && known.insert(*flow) {
                    prop_assume!(table.insert_in(section(*flow), *flow, ()).is_ok());
                } else if !begins && known.remove(flow) {
                    table.remove(flow);
                }
            }
        }
        prop_assert!(complete && steps >= slots.div_ceil(MOVE_STEP).max(1), "{} steps", steps);
        for unit in 0..16 {
            let mut all: Vec<u64> = table.unit(unit).map(|(flow, ())| *flow).collect();
            all.sort_unstable();
            prop_assert!(all.iter().eq(known.iter().filter(|n| *n % 16 == u64::from(unit))));
            let mut taken = 0;
            table.take_unit(unit, |_, ()| taken += 1);
            prop_assert_eq!(taken, all.len());
        }
        prop_assert!(table.is_empty());
        table.end_units();
        prop_assert_eq!(table.slots.len(), 0, "its memory is freed");
    }
}

/// Among many flows that end, those that are used stay, and the others stay as long as in a queue.
#[test]
fn the_least_recently_used_flows_are_evicted() {
    const MOST: u64 = 10_000;
    let mut table = FlowTable::<u64, u64, 1>::new(MOST as usize);
    let mut hand = Hand::default();
    for now in 0..10 * MOST {
        if table.len() == MOST as usize {
            let (flow, last) = table.evict(0, &mut hand, |_, last| *last).unwrap();
            assert!(last + MOST * 3 / 5 <= now, "{flow} was used at {last}, evicted at {now}");
        }
        table.insert(now, now).unwrap();
        // These are used in time, and no others.
        let lasting = now % (MOST / 2) * 2;
        if lasting.is_multiple_of(100)
            && let Some(last) = table.get_mut(None, &lasting)
        {
            *last = now;
        }
    }
    assert_eq!(table.len(), MOST as usize);
    let lasting = |flow: &u64| flow.is_multiple_of(100);
    assert!((0..MOST).filter(lasting).all(|flow| table.get(&flow).is_some()), "these are in use");
    assert!((MOST..2 * MOST).all(|flow| table.get(&flow).is_none()));
}

#[test]
fn the_search_for_a_flow_to_evict_passes_over_those_without_a_worth() {
    let mut table = FlowTable::<u64, u64, 1>::new(100);
    let mut hand = Hand::default();
    assert_eq!(table.evict(0, &mut hand, |_, last| *last), None);
    for flow in 0..100 {
        table.insert(flow, 100 - flow).unwrap();
    }
    let worth = |flow: &u64, last: &u64| (*flow == 42 || *flow == 77).then_some(*last);
    for _ in 0..3 {
        let slot = table.least(0, &mut hand, worth).unwrap();
        assert_eq!(table.at(slot), Some(&(77, 23)));
    }
    assert_eq!(table.least(0, &mut hand, |_, _| None::<u64>), None);
}

/// The index grows while flows come and go, entry by entry, and loses none.
#[test]
fn an_index_that_grows_a_little_with_each_flow_holds_them_all() {
    const MOST: u64 = 60_000;
    let mut index = Index::<1>::new(MOST as usize);
    let mut grew = 0;
    for flow in 0..MOST {
        assert_eq!(index.try_insert(&[flow], flow as u32), Ok(None));
        grew += u64::from(index.is_growing());
        // One that may not have moved yet, twice: with the number that it has, and another.
        let old = flow / 2;
        assert_eq!(index.try_insert(&[old], 7), Ok(Some(old as u32)));
        assert_eq!(index.try_insert(&[old], old as u32), Ok(Some(7)));
        if flow % 5 == 4 {
            assert_eq!(index.remove(&[flow]), Some(flow as u32));
            assert_eq!(index.try_insert(&[flow], flow as u32), Ok(None));
        }
        assert_eq!(index.len() as u64, flow + 1);
        if flow % 1000 == 0 {
            let flows: ArrayVec<u64, BATCH> =
                (0..BATCH as u64).map(|n| n * (flow + 2) / BATCH as u64).collect();
            let found = find(&index, flows.iter().copied());
            for (n, known) in flows.into_iter().enumerate() {
                let slot = (known <= flow).then_some(Slot(known as u32));
                assert_eq!(found.slot(n), slot, "{known} of {flow}");
            }
        }
    }
    assert!(grew > MOST / 50, "entries moved in small steps: {grew}");
    assert!((0..MOST).all(|flow| index.get(&[flow]) == Some(flow as u32)));
    index.clear();
    assert_eq!((index.len(), index.get(&[1])), (0, None));
}

#[test]
fn an_index_goes_on_growing_without_further_flows() {
    let mut index = Index::<5>::new(2000);
    let flows = (0..).take_while(|flow| {
        index.try_insert(&[*flow; 5], *flow as u32).unwrap();
        !index.is_growing()
    });
    let flows = flows.count() as u64 + 1;
    let batches = (0..).take_while(|_| {
        index.settle();
        index.is_growing()
    });
    assert!(batches.count() > 10, "a few entries with each batch");
    assert!((0..flows).all(|flow| index.get(&[flow; 5]) == Some(flow as u32)));
    assert_eq!(index.len() as u64, flows);
}

#[test]
fn an_index_does_not_grow_ahead_of_its_limit() {
    for most in [2000, 5000, 25_000] {
        let (mut bounded, mut unbounded) = (Index::<5>::new(most), Index::<5>::new(0));
        for flow in 0..most as u64 {
            bounded.try_insert(&[flow; 5], 0).unwrap();
            unbounded.try_insert(&[flow; 5], 0).unwrap();
        }
        assert_eq!(bounded.places(), unbounded.places(), "{most}: it grew once too often");
    }
}
