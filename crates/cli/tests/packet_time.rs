//! Timers of NFs go by the time of each packet, however packets fall into batches, and one wrong
//! time moves none of them.

mod support;

use std::fs;
use std::path::Path;

use support::{capture, report, write};
use thalweg_packet::write::{IcmpEcho, PacketBuilder};
use thalweg_testkit::fragments;

/// A packet, and when it arrives in milliseconds.
type Timed = (u64, Vec<u8>);

const FAR: u64 = 4_000_000_000_000;

fn builder(from: [u8; 4], to: [u8; 4]) -> PacketBuilder {
    PacketBuilder::new([2; 6], [4; 6]).ip(from.into(), to.into())
}

fn request() -> Vec<u8> {
    builder([192, 0, 2, 9], [10, 0, 0, 1])
        .echo(IcmpEcho { reply: false, id: 1, seq: 1 })
        .build(b"x")
}

/// Packets of another kind, which only pass time.
fn fill(times: impl IntoIterator<Item = u64>) -> Vec<Timed> {
    let filler = builder([198, 18, 0, 1], [198, 18, 0, 2]).udp(9, 9).build(&[]);
    times.into_iter().map(|time| (time, filler.clone())).collect()
}

fn requests(times: impl IntoIterator<Item = u64>) -> Vec<Timed> {
    times.into_iter().map(|time| (time, request())).collect()
}

/// Runs packets through one NF in each way that threads can be; returns the packets out and the
/// lines of its alerts, which must not depend on it.
fn run(nf: &str, packets: &[Timed]) -> (u64, usize) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    capture(path, "in.pcap", packets);
    write(path, "routes.csv", "*, ingress, x\n*, x, egress\n");
    let inline = outcome(path, nf, "");
    assert_eq!(outcome(path, nf, "[run]\nworkers = 2\n"), inline, "on two workers");
    let pinned = format!("{nf}\npinned = true\n");
    assert_eq!(outcome(path, &pinned, ""), inline, "on its own worker");
    inline
}

fn outcome(path: &Path, nf: &str, workers: &str) -> (u64, usize) {
    let _ = fs::remove_file(path.join("alerts.json"));
    let chain = format!(
        "routes = 'routes.csv'\ndefault_type = 't'\n{workers}[input.in]\ncapture = 'in.pcap'\n\
         [output.out]\ncapture = 'out.pcap'\n[nf.x]\n{nf}"
    );
    write(path, "chain.toml", &chain);
    let (told, code, error) = report(path, &["run", "chain.toml", "--json"]);
    assert_eq!(code, 0, "{error}");
    let alerts = fs::read_to_string(path.join("alerts.json")).unwrap_or_default();
    (told["packets_out"].as_u64().unwrap(), alerts.lines().count())
}

/// Alerts of a rule about echo requests.
fn alerts(filter: &str, packets: &[Timed]) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let rule = format!("alert icmp any any -> any any (itype:8; {filter}; sid:1;)");
    write(folder.path(), "t.rules", &rule);
    let rules = folder.path().join("t.rules");
    let nf = format!("kind = 'nids'\nrules = ['{}']\nalerts = 'alerts.json'", rules.display());
    run(&nf, packets).1
}

const LIMIT: &str = "threshold:type limit, track by_src, count 1, seconds 60";

#[test]
fn thresholds_and_filters_count_by_each_packets_time() {
    for gap in [70_000, 61_001, 4_000_000] {
        assert_eq!(alerts(LIMIT, &requests((0..40).map(|n| n * gap))), 40, "{gap} ms");
    }
    assert_eq!(alerts(LIMIT, &requests((0..120).map(|n| n * 1000))), 2);
    let flood = "detection_filter:track by_src, count 3, seconds 5";
    assert_eq!(alerts(flood, &requests((0..40).map(|n| n * 6000))), 0);
    assert_eq!(alerts(flood, &requests((0..4).map(|n| n * 1000))), 1);
    let threshold = "threshold:type threshold, track by_src, count 2, seconds 3";
    assert_eq!(alerts(threshold, &requests((0..40).map(|n| n * 4000))), 0);
    assert_eq!(alerts(threshold, &requests((0..40).map(|n| n * 1000))), 20);
}

#[test]
fn one_wrong_time_neither_fires_a_timer_nor_stops_it() {
    let usual: Vec<Timed> = requests((0..240).map(|n| 1_000_000 + n * 1000));
    assert_eq!(alerts(LIMIT, &usual), 4);
    for (place, wrong) in [(40, FAR), (31, FAR), (32, 0), (63, 1_400_000), (100, 3)] {
        let mut packets = usual.clone();
        packets.insert(place, (wrong, request()));
        assert_eq!(alerts(LIMIT, &packets), 4, "packet {place} at {wrong} ms");
    }
    // At the end it may be right.
    let mut last = usual;
    last.push((FAR, request()));
    assert_eq!(alerts(LIMIT, &last), 5);
}

#[test]
fn two_wrong_times_stop_no_timer_for_good() {
    let mut packets: Vec<Timed> = requests((0..240).map(|n| 1_000_000 + n * 1000));
    packets.splice(50..50, requests([FAR, FAR + 10]));
    // Of the first interval, of the two, and anew each minute after them.
    assert_eq!(alerts(LIMIT, &packets), 6);
}

const NAT: &str = "kind = 'nat'\ninside = ['10.0.0.0/8']\nexternal = ['192.0.2.1']";

/// A datagram from inside at `sent`, the answer at `answered`.
fn conversation(sent: u64, answered: u64) -> [Timed; 2] {
    let out = builder([10, 0, 0, 5], [198, 51, 100, 9]).udp(5000, 53).build(b"question");
    // The first mapping of a port-preserving NAT.
    let back = builder([198, 51, 100, 9], [192, 0, 2, 1]).udp(53, 5000).build(b"answer");
    [(sent, out), (answered, back)]
}

#[test]
fn nat_forgets_a_mapping_when_its_time_has_come_and_not_before() {
    let timeline = |between: Vec<Timed>, answered: u64, after: Vec<Timed>| {
        let [question, answer] = conversation(0, answered);
        let packets = [vec![question], between, vec![answer], after].concat();
        let all = packets.len() as u64;
        all - run(NAT, &packets).0
    };
    let gap = |from: u64, to: u64| fill((from..to).step_by(15_000));
    assert_eq!(timeline(gap(1, 150_000), 151_000, gap(160_000, 600_000)), 0, "in time");
    assert_eq!(timeline(vec![], 299_000, gap(310_000, 900_000)), 0, "just in time");
    assert_eq!(timeline(gap(1, 290_000), 301_000, vec![]), 1, "late, in one batch");
    assert_eq!(timeline(gap(1, 900_000), 901_000, vec![]), 1, "late, in another batch");
    for place in [0, 5, 30, 31, 32, 60] {
        let mut between = fill((0..80).map(|n| 10 + n));
        between.insert(place, (FAR, between[0].1.clone()));
        assert_eq!(timeline(between, 200, vec![]), 0, "a wrong time at {place}");
    }
}

#[test]
fn fragments_wait_for_each_other_as_long_as_they_may() {
    let parts = fragments::parts(&fragments::packet(false, 1000, 7), 7, 528);
    let run = |second: u64, after: Vec<Timed>| {
        let both = vec![(0, parts[0].clone()), (second, parts[1].clone())];
        run("kind = 'defrag'", &[both, after].concat()).0
    };
    let gap = || fill((0..40).map(|n| 40_000 + n * 2000));
    assert_eq!(run(1000, gap()), 41, "put together");
    assert_eq!(run(29_000, gap()), 41, "just in time");
    assert_eq!(run(31_000, gap()), 40, "late");
}
