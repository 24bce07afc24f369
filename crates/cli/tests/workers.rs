//! The number of workers changes the speed of a run, and nothing else.

mod support;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use serde_json::Value;
use support::{report, succeeds, write};

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

/// Writes a chain of the NFs in `sections`, in the order in which they are named.
fn chain(folder: &Path, sections: &str) {
    let names = sections.lines().filter_map(|line| line.strip_prefix("[nf.")?.strip_suffix(']'));
    let nfs: Vec<_> = names.filter(|name| !name.contains('.')).collect();
    let hops = [&["ingress"], &nfs[..], &["egress"]].concat();
    let mut routes = String::new();
    for pair in hops.windows(2) {
        writeln!(routes, "*,{},{}", pair[0], pair[1]).unwrap();
    }
    write(folder, "routes.csv", &routes);
    let ports = "[input.in]\ncapture = \"in.pcap\"\n[output.out]\ncapture = \"out.pcap\"";
    let text = format!("routes = \"routes.csv\"\n[run]\nseed = 7\n{ports}\n{sections}");
    write(folder, "chain.toml", &text);
}

/// Everything that a run writes, apart from times.
fn answer(folder: &Path, workers: &str, files: &[&str]) -> BTreeMap<String, Vec<u8>> {
    let (mut report, code, error) =
        report(folder, &["run", "chain.toml", "--json", "--workers", workers]);
    assert_eq!(code, 0, "{error}");
    without_times(&mut report);
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

#[test]
fn a_capture_has_one_answer() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    let mut rules = String::from(
        "alert http any any -> any any (msg:\"u\"; http.uri; content:\"/\"; sid:1;)\n\
         alert tcp any any -> any any (msg:\"s\"; flags:S; threshold:type limit, track by_src, \
         count 1, seconds 60; sid:2;)\n\
         alert udp any any -> any any (msg:\"d\"; content:\"a\"; threshold:type both, track by_dst, \
         count 3, seconds 60; sid:3;)\n",
    );
    for sid in 1000..1600 {
        writeln!(rules, "alert udp any any -> any any (content:\"rule {sid}\"; sid:{sid};)")
            .unwrap();
    }
    write(folder, "many.rules", &rules);
    write(folder, "table.txt", "0.0.0.0/0 192.0.2.254 out\n::/0 2001:db8::fe out\n");
    let traffic = "--packets 20000 --flows 3000 --seed 3 --hostile 0.3 --malformed 0.05 \
                   --payload http --clients 10.0.0.0/8 --servers 198.51.100.0/24";
    let traffic: Vec<_> = traffic.split_whitespace().collect();
    succeeds(folder, &[&["gen"], &traffic[..], &["in.pcap"]].concat());
    for (sections, files) in [
        (LONG, &["out.pcap", "alerts.json", "assets.json", "flows.json"][..]),
        (OTHERS, &["out.pcap", "hits.json", "l7.json"][..]),
    ] {
        chain(folder, sections);
        let first = answer(folder, "1", files);
        assert!(first.values().all(|bytes| bytes.len() > 100), "each part says something");
        for workers in ["1", "2", "5"] {
            for (part, bytes) in answer(folder, workers, files) {
                let [here, there] = [&bytes, &first[&part]].map(|b| String::from_utf8_lossy(b));
                let differs = here.lines().zip(there.lines()).find(|(a, b)| a != b);
                assert!(bytes == first[&part], "{part} with {workers} workers: {differs:?}");
            }
        }
    }
}
