//! The number of workers changes the speed of a run, and nothing else; nor does the secret of its
//! tables.

mod support;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use serde_json::Value;
use support::{command, generate, write};

/// Most of the network functions, one behind the other.
const LONG: &str = r#"
[nf.defrag]
kind = "defrag"
[nf.filter]
kind = "filter"
default = "accept"
rules = ["reject tcp,tp_dst=443", "drop icmp"]
[nf.nat]
kind = "nat"
inside = ["10.0.0.0/8"]
external = ["192.0.2.1-192.0.2.4"]
[nf.ipsec]
kind = "ipsec"
default_policy = "bypass"
[[nf.ipsec.sa]]
name = "out"
direction = "out"
spi = 0x2002
suite = "aes128-cbc-hmac-sha1-96"
encryption_key = "7e1a90b3c4d5f60718293a4b5c6d7e8f"
authentication_key = "00112233445566778899aabbccddeeff01234567"
source = "192.0.2.20"
destination = "192.0.2.10"
[[nf.ipsec.policy]]
match = "udp,tp_dst=53"
action = "protect"
sa = "out"
[nf.nids]
kind = "nids"
rules = ["many.rules"]
alerts = "alerts.json"
max_flows = 16384
stream_memory_mib = 16
[nf.assets]
kind = "assets"
inventory = "assets.json"
[nf.monitor]
kind = "monitor"
json = "flows.json"
[nf.router]
kind = "router"
routes = "table.txt"
[nf.router.ports.out]
mac = "02:00:00:00:00:01"
ip = "192.0.2.1"
ipv6 = "2001:db8::1"
neighbors = { "192.0.2.254" = "02:00:00:00:00:fe", "2001:db8::fe" = "02:00:00:00:00:fd" }
"#;

/// The others, one of them on its own thread.
const OTHERS: &str = r#"
[nf.acl]
kind = "acl"
rules = ["deny tcp,tp_dst=25", "permit ip"]
default = "deny"
hits = "hits.json"
[nf.l7fw]
kind = "l7fw"
flows = "l7.json"
[[nf.l7fw.rule]]
action = "block"
application = ["HTTP"]
[nf.tunnel]
kind = "tunnel"
pinned = true
[[nf.tunnel.tunnel]]
name = "v"
protocol = "vxlan"
id = 1
local = "192.0.2.2"
remote = "192.0.2.1"
match = "udp"
[nf.refrag]
kind = "refrag"
"#;

/// NFs whose tables are so small that they evict, and a router that resolves its neighbours.
const CROWDED: &str = r#"
[nf.defrag]
kind = "defrag"
memory_mib = 1
[nf.nat]
kind = "nat"
inside = ["10.0.0.0/8"]
external = ["192.0.2.1-192.0.2.2"]
ports = "1024-1279"
max_mappings = 400
max_sessions = 500
[nf.l7fw]
kind = "l7fw"
flows = "l7.json"
max_flows = 300
[[nf.l7fw.rule]]
action = "block"
application = ["HTTP"]
[nf.nids]
kind = "nids"
rules = ["few.rules"]
alerts = "alerts.json"
max_flows = 256
stream_memory_mib = 1
[nf.assets]
kind = "assets"
inventory = "assets.json"
max_hosts = 100
max_conversations = 200
[nf.monitor]
kind = "monitor"
json = "flows.json"
max_flows = 200
[nf.router]
kind = "router"
routes = "direct.txt"
[nf.router.ports.out]
mac = "02:00:00:00:00:01"
ip = "198.51.100.1"
resolve = true
"#;

/// Types of packets and NFs with rules, each of which has caches; more megaflows than there is
/// room for.
const CLASSIFIED: &str = r#"
emc_entries = 64
megaflow_limit = 100
[[class]]
type = "web"
rules = ["tcp,tp_dst=80", "tcp,nw_dst=198.51.100.0/25,tp_dst=443", "udp,nw_src=10.1.0.0/16"]
[[class]]
type = "odd"
rules = ["udp,tp_src=1024/0xfc00", "tcp6"]
[nf.acl]
kind = "acl"
rules = ["deny tcp,tp_dst=25", "deny udp,nw_src=10.0.0.0/9", "permit ip"]
default = "deny"
hits = "hits.json"
[nf.filter]
kind = "filter"
default = "accept"
rules = ["reject tcp,tp_dst=443", "drop icmp,nw_src=10.0.0.0/12"]
[nf.tunnel]
kind = "tunnel"
[[nf.tunnel.tunnel]]
name = "v"
protocol = "vxlan"
id = 1
local = "192.0.2.2"
remote = "192.0.2.1"
match = "udp,nw_dst=198.51.100.0/24"
[nf.refrag]
kind = "refrag"
"#;

/// Writes a chain of the NFs in `sections`, in the order in which they are named; `run` is its
/// section of that name.
fn chain(folder: &Path, run: &str, sections: &str) {
    let names = sections.lines().filter_map(|line| line.strip_prefix("[nf.")?.strip_suffix(']'));
    let nfs: Vec<_> = names.filter(|name| !name.contains('.')).collect();
    let hops = [&["ingress"], &nfs[..], &["egress"]].concat();
    let mut routes = String::new();
    for pair in hops.windows(2) {
        writeln!(routes, "*,{},{}", pair[0], pair[1]).unwrap();
    }
    write(folder, "routes.csv", &routes);
    let ports = "[input.in]\ncapture = \"in.pcap\"\n[output.out]\ncapture = \"out.pcap\"";
    // How many packets the rules themselves classify would depend on measured times.
    let classify = "[classify]\nmegaflow_adaptive = false";
    let text = format!("routes = \"routes.csv\"\n[run]\n{run}\n{ports}\n{classify}\n{sections}");
    write(folder, "chain.toml", &text);
}

/// Everything that a run of `workers` writes, apart from times, with the secret that `seed` gives.
fn answer(
    folder: &Path,
    workers: &str,
    seed: Option<u64>,
    files: &[&str],
) -> BTreeMap<String, Vec<u8>> {
    let mut run = command(folder, &["run", "chain.toml", "--json", "--workers", workers]);
    if let Some(seed) = seed {
        run.env("THALWEG_TABLE_SEED", seed.to_string());
    }
    let output = run.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut report = serde_json::from_slice(&output.stdout).unwrap();
    without_times(&mut report);
    without_layers(&mut report);
    let read = |name: &&str| (name.to_string(), std::fs::read(folder.join(name)).unwrap());
    let mut all: BTreeMap<_, _> = files.iter().map(read).collect();
    all.insert("report".into(), serde_json::to_vec_pretty(&report).unwrap());
    all
}

fn without_times(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|name, _| !name.contains("per_") && !name.starts_with("latency"));
            members.remove("duration_s");
            members.remove("workers");
            members.remove("by_worker");
            members.values_mut().for_each(without_times);
        }
        Value::Array(values) => values.iter_mut().for_each(without_times),
        _ => {}
    }
}

/// Adds up the packets for which the caches of classification answered: which of them did depends on
/// their places and on measured times.
fn without_layers(report: &mut Value) {
    let layers = report["classification"].as_object_mut().unwrap();
    layers.remove("subtables_visited");
    let cached = ["emc_hits", "megaflow_hits"].map(|name| layers.remove(name).unwrap());
    let cached: u64 = cached.iter().filter_map(Value::as_u64).sum();
    layers.insert("cached".into(), cached.into());
}

/// Fails unless all kinds with limits have evicted many entries, and the router has repeated requests.
fn everything_was_evicted(report: &Value) {
    for (nf, figure) in [
        ("nat", "evicted"),
        ("l7fw", "flows_evicted"),
        ("nids", "flows_evicted"),
        ("nids", "filter_counts_evicted"),
        ("assets", "hosts_evicted"),
        ("assets", "conversations_evicted"),
        ("monitor", "times_table_full"),
        ("router", "neighbor_requests"),
    ] {
        let nfs = report["nfs"].as_array().unwrap();
        let figures = &nfs.iter().find(|each| each["name"] == nf).unwrap()["figures"];
        assert!(figures[figure].as_u64() > Some(50), "{nf} has {figure} {}", figures[figure]);
    }
}

/// Fails unless every part of an answer is that of `first`.
fn compare(first: &BTreeMap<String, Vec<u8>>, other: BTreeMap<String, Vec<u8>>, which: &str) {
    for (part, bytes) in other {
        let [here, there] = [&bytes, &first[&part]].map(|b| String::from_utf8_lossy(b));
        let differs = here.lines().zip(there.lines()).find(|(a, b)| a != b);
        assert!(bytes == first[&part], "{part} with {which}: {differs:?}");
    }
}

/// Writes the files of the chains: rules, routes and the capture.
fn prepare(folder: &Path) {
    let few = "alert http any any -> any any (msg:\"u\"; http.uri; content:\"/\"; sid:1;)\n\
         alert tcp any any -> any any (msg:\"s\"; flags:S; threshold:type limit, track by_src, \
         count 1, seconds 60; sid:2;)\n\
         alert udp any any -> any any (msg:\"d\"; content:\"a\"; threshold:type both, track by_dst, \
         count 3, seconds 60; sid:3;)\n";
    let mut many = few.to_owned();
    for sid in 1000..1600 {
        writeln!(many, "alert udp any any -> any any (content:\"rule {sid}\"; sid:{sid};)")
            .unwrap();
    }
    write(folder, "few.rules", few);
    write(folder, "many.rules", &many);
    write(folder, "table.txt", "0.0.0.0/0 192.0.2.254 out\n::/0 2001:db8::fe out\n");
    write(folder, "direct.txt", "198.51.100.0/24 direct out\n0.0.0.0/0 198.51.100.254 out\n");
    let traffic = "--packets 10000 --flows 3000 --seed 3 --hostile 0.3 --malformed 0.05 --rate 5000 \
                   --payload http --clients 10.0.0.0/8 --servers 198.51.100.0/24 in.pcap";
    generate(folder, traffic);
}

const FILES_OF_LONG: &[&str] = &["out.pcap", "alerts.json", "assets.json", "flows.json"];

#[test]
fn a_capture_has_one_answer() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    prepare(folder);
    for (sections, files) in
        [(LONG, FILES_OF_LONG), (OTHERS, &["out.pcap", "hits.json", "l7.json"])]
    {
        chain(folder, "seed = 7", sections);
        let first = answer(folder, "1", None, files);
        assert!(first.values().all(|bytes| bytes.len() > 100), "each part says something");
        for workers in ["1", "2", "5"] {
            compare(&first, answer(folder, workers, None, files), &format!("{workers} workers"));
        }
    }
}

#[test]
fn the_secret_of_the_tables_shows_in_no_answer() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    prepare(folder);
    let crowded = [FILES_OF_LONG, &["l7.json"]].concat();
    for (run, sections, files) in [
        ("seed = 7", LONG, FILES_OF_LONG),
        ("", OTHERS, &["out.pcap", "hits.json", "l7.json"]),
        ("", CROWDED, &crowded),
        ("", CLASSIFIED, &["out.pcap", "hits.json"]),
    ] {
        chain(folder, run, sections);
        let first = answer(folder, "1", Some(0), files);
        assert!(first.values().all(|bytes| bytes.len() > 100), "each part says something");
        for seed in [Some(1), Some(u64::MAX), None] {
            compare(&first, answer(folder, "1", seed, files), &format!("seed {seed:?}"));
        }
        compare(&first, answer(folder, "3", Some(2), files), "seed 2 and 3 workers");
        if sections == CROWDED {
            let report: Value = serde_json::from_slice(&first["report"]).unwrap();
            everything_was_evicted(&report);
        }
    }
}

#[test]
fn a_secret_that_is_no_number_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let output = command(dir.path(), &["doctor"]).env("THALWEG_TABLE_SEED", "x7").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("THALWEG_TABLE_SEED=x7: not a number; expected 0 to"), "{error}");
}
