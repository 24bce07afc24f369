//! Several captures are received in the order of time.

mod common;

use std::fmt::Write;

use common::{Folder, Tag};
use proptest::prelude::*;
use thalweg_engine::{Control, Report, RunOptions, run, trace};
use thalweg_io::TimeRange;
use thalweg_packet::Nanoseconds;

const SECOND: u64 = 1_000_000_000;

/// A packet of an input: its flow is the input, its sequence its place there.
fn tag(input: usize, sequence: usize) -> Tag {
    Tag { flow: input as u32, back: false, lineage: 0, sequence: sequence as u32 }
}

/// Writes a capture for each input, with packets of these times, and a chain that reads them all.
fn folder(inputs: &[Vec<u64>], in_memory: &[bool], merge: &str) -> Folder {
    let folder = Folder::new();
    let mut chain = format!(
        "routes = \"routes.csv\"\n{merge}\n[output.out]\ncapture = \"out.pcapng\"\n\
         [nf.a]\nkind = \"test\"\nnumber = 0\n"
    );
    for (input, times) in inputs.iter().enumerate() {
        let name = format!("in{input}.pcapng");
        let packets = times.iter().enumerate();
        folder.timed_capture(
            &name,
            packets.map(|(at, time)| (Nanoseconds(*time), tag(input, at).packet())),
        );
        let memory = in_memory[input % in_memory.len()];
        write!(
            chain,
            "[input.i{input}]\ncapture = \"{name}\"\nmemory = {memory}\n\
             [[class]]\ntype = \"t{input}\"\nrules = [\"in_port=i{input}\"]\n"
        )
        .unwrap();
    }
    folder.write("chain.toml", &chain).write("routes.csv", "*,ingress,a\n*,a,egress\n");
    folder
}

fn run_with(folder: &Folder, workers: usize) -> Report {
    let options = RunOptions { workers: Some(workers), ..RunOptions::default() };
    run(folder.load().unwrap(), &options, &Control::default()).unwrap()
}

/// The order in which the packets of all inputs were received: input and place there.
fn received(folder: &Folder) -> Vec<(usize, usize)> {
    let tags = folder.tags("out.pcapng");
    tags.iter().map(|tag| (tag.flow as usize, tag.sequence as usize)).collect()
}

/// The order of a stable sort by time.
fn sorted(inputs: &[Vec<u64>]) -> Vec<(usize, usize)> {
    let mut all: Vec<(u64, (usize, usize))> = Vec::new();
    for (input, times) in inputs.iter().enumerate() {
        all.extend(times.iter().enumerate().map(|(at, time)| (*time, (input, at))));
    }
    all.sort_by_key(|(time, _)| *time);
    all.into_iter().map(|(_, packet)| packet).collect()
}

/// Times that never go back, with steps of very different lengths.
fn ordered_times() -> impl Strategy<Value = Vec<u64>> {
    let step = prop_oneof![4 => 0..3u64, 4 => 0..2000u64, 1 => Just(90 * SECOND)];
    (0..5000u64, prop::collection::vec(step, 0..150)).prop_map(|(start, steps)| {
        let mut time = 1000 * SECOND + start;
        let mut next = |step: u64| {
            time += step;
            time
        };
        steps.into_iter().map(&mut next).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn ordered_captures_are_received_as_a_stable_sort_orders_them(
        inputs in prop::collection::vec(ordered_times(), 1..5),
        in_memory in prop::collection::vec(any::<bool>(), 1..5),
        workers in 1..4usize,
        wanted in any::<prop::sample::Index>(),
    ) {
        let folder = folder(&inputs, &in_memory, "");
        let report = run_with(&folder, workers);
        let expected = sorted(&inputs);
        prop_assert_eq!(&received(&folder), &expected);
        for (input, times) in inputs.iter().enumerate() {
            prop_assert_eq!(report.inputs[input].packets, times.len() as u64);
            prop_assert_eq!(report.types[&format!("t{input}")].packets, times.len() as u64);
        }
        if !expected.is_empty() {
            let at = wanted.index(expected.len());
            let trace = trace(folder.load().unwrap(), at as u64 + 1, &RunOptions::default()).unwrap();
            let (input, place) = expected[at];
            prop_assert_eq!(trace.input, format!("i{input}"));
            prop_assert_eq!(trace.timestamp_ns, inputs[input][place]);
        }
    }

    /// Whatever the times of one capture, the packets of the others keep the order that they have
    /// without it, and its own keep theirs.
    #[test]
    fn a_capture_out_of_order_leaves_the_others_in_order(
        inputs in prop::collection::vec(ordered_times(), 1..4),
        odd in prop::collection::vec(prop_oneof![0..3000u64, Just(1 << 62)], 0..100),
        at in any::<prop::sample::Index>(),
        workers in 1..3usize,
    ) {
        let mut with_odd = inputs.clone();
        let at = at.index(inputs.len() + 1);
        with_odd.insert(at, odd.iter().map(|time| 1000 * SECOND + time).collect());
        let folder = folder(&with_odd, &[false, true], "");
        run_with(&folder, workers);
        let received = received(&folder);
        let others = received.iter().filter(|(input, _)| *input != at);
        let others: Vec<_> =
            others.map(|(input, place)| (input - usize::from(*input > at), *place)).collect();
        prop_assert_eq!(others, sorted(&inputs));
        let own = received.iter().filter(|(input, _)| *input == at).map(|(_, place)| *place);
        prop_assert_eq!(own.collect::<Vec<_>>(), (0..odd.len()).collect::<Vec<_>>());
    }
}

#[test]
fn one_wrong_time_does_not_hold_up_its_capture() {
    for wrong in [0, 4_000_000_000] {
        let times = |start: u64| (0..100).map(move |n| (1000 + start + 2 * n) * SECOND / 10);
        let mut first: Vec<u64> = times(0).collect();
        let second: Vec<u64> = times(1).collect();
        let expected = sorted(&[first.clone(), second.clone()]);
        first[50] = wrong * SECOND;
        let folder = folder(&[first, second], &[false, true], "");
        run_with(&folder, 1);
        let received = received(&folder);
        let place = |order: &[(usize, usize)], packet| order.iter().position(|p| *p == packet);
        // The packet itself is received with the one before it.
        assert!(place(&received, (0, 50)) <= place(&expected, (0, 50)));
        let rest = |order: &[(usize, usize)]| -> Vec<_> {
            order.iter().copied().filter(|packet| *packet != (0, 50)).collect()
        };
        assert_eq!(rest(&received), rest(&expected), "{wrong}");
    }
}

#[test]
fn packets_outside_of_the_range_of_times_are_not_received() {
    // More than are passed over at once, before and between those inside.
    let inputs = [
        (0..12_000).map(|n| 1000 * SECOND + 2 * n).collect::<Vec<u64>>(),
        (0..12_000).map(|n| 1000 * SECOND + 2 * n + 1).collect(),
    ];
    let [from, to] = [18_000, 18_100].map(|n| 1000 * SECOND + n);
    let keys = "from = \"1000.000018\"\nto = 1970-01-01T00:30:00Z\n[[class]]";
    for in_memory in [false, true] {
        for workers in [1, 2] {
            let folder = folder(&inputs, &[in_memory], "");
            let chain = std::fs::read_to_string(folder.path("chain.toml")).unwrap();
            // The end for the first input is later than the option's, which is used instead.
            let chain = chain.replace("[[class]]", keys);
            folder.write("chain.toml", &chain);
            let times = TimeRange { from: None, to: Some(Nanoseconds(to)) };
            let options = RunOptions { workers: Some(workers), times, ..RunOptions::default() };
            let report = run(folder.load().unwrap(), &options, &Control::default()).unwrap();
            let inside =
                |(input, place): &(usize, usize)| (from..to).contains(&inputs[*input][*place]);
            let expected: Vec<_> = sorted(&inputs).into_iter().filter(inside).collect();
            assert_eq!(expected.len(), 100);
            assert_eq!(received(&folder), expected);
            assert_eq!((report.packets_in, report.conserved), (100, true));
            assert_eq!([0, 1].map(|input: usize| report.inputs[input].outside), [11_950; 2]);
            let trace = trace(folder.load().unwrap(), 3, &options).unwrap();
            assert_eq!(trace.timestamp_ns, from + 2);
        }
    }
}

#[test]
fn captures_take_turns_on_request() {
    let times = |start| (0..70).map(|n| SECOND + start + n).collect::<Vec<u64>>();
    let inputs = [times(1000), times(0)];
    let in_turn = |input, places: std::ops::Range<usize>| places.map(move |at| (input, at));
    let expected: Vec<_> = in_turn(0, 0..32)
        .chain(in_turn(1, 0..32))
        .chain(in_turn(0, 32..64))
        .chain(in_turn(1, 32..64))
        .chain(in_turn(0, 64..70))
        .chain(in_turn(1, 64..70))
        .collect();
    for (merge, expected) in [("turn", expected), ("time", sorted(&inputs))] {
        let folder = folder(&inputs, &[false], &format!("[run]\nmerge = \"{merge}\""));
        run_with(&folder, 1);
        assert_eq!(received(&folder), expected, "{merge}");
    }
}

#[test]
fn captures_are_merged_among_themselves_beside_other_inputs() {
    let times = |start| (0..60).map(|n| SECOND + start + 3 * n).collect::<Vec<u64>>();
    let inputs = [times(0), times(1), times(2)];
    let folder = folder(&inputs, &[false, true], "");
    let chain = std::fs::read_to_string(folder.path("chain.toml")).unwrap();
    let more = "[input.gen]\ngenerate = { packets = 500 }\n[output.rest]\ndiscard = true\n";
    folder.write("chain.toml", &(chain + more));
    folder.write("routes.csv", "*,ingress,a\n*,gen,rest\n*,a,out\n");
    let report = run_with(&folder, 1);
    assert_eq!(received(&folder), sorted(&inputs));
    assert_eq!(report.inputs[3].packets, 500);
}

/// Two captures of one link, one of each direction: a client uploads ten packets, and the server
/// answers the first of them.
#[test]
fn a_nat_knows_the_answers_in_the_capture_of_the_other_direction() {
    const FLOWS: u32 = 200;
    let folder = Folder::new();
    let mut uploads = Vec::new();
    let mut answers = Vec::new();
    for flow in 0..FLOWS {
        let start = SECOND + u64::from(flow) * 1_000_000;
        for sequence in 0..10 {
            let tag = Tag { flow, back: false, lineage: 0, sequence };
            uploads.push((Nanoseconds(start + u64::from(sequence) * 1000), tag.packet()));
        }
        let mut answer = Tag { flow, back: true, lineage: 0, sequence: 0 }.packet();
        // To the address that the NAT gives the client, whose port it keeps.
        answer[30..34].copy_from_slice(&[198, 51, 100, 7]);
        answers.push((Nanoseconds(start + 500), answer));
    }
    folder.timed_capture("up.pcap", uploads).timed_capture("down.pcap", answers);
    folder.write("routes.csv", "*,ingress,nat\n*,nat,out\n");
    let translated = |merge: &str| {
        let chain = format!(
            "routes = \"routes.csv\"\n{merge}\n[input.down]\ncapture = \"down.pcap\"\n\
             [input.up]\ncapture = \"up.pcap\"\n[output.out]\ndiscard = true\n\
             [nf.nat]\nkind = \"nat\"\ninside = [\"10.0.0.0/8\"]\nexternal = [\"198.51.100.7\"]\n"
        );
        folder.write("chain.toml", &chain);
        let report = run_with(&folder, 1);
        (report.packets_out, report.drops.get("no-mapping").copied().unwrap_or(0))
    };
    assert_eq!(translated(""), (u64::from(11 * FLOWS), 0));
    let (_, lost) = translated("[run]\nmerge = \"turn\"");
    assert!(lost > 100, "{lost} answers without a mapping");
}
