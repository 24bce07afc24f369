//! The edge gateway with NFs on devices: what leaves it, and its alerts, are those of the same chain on
//! the processor.

#[path = "support/places.rs"]
mod places;
mod support;

use std::fs;
use std::path::{Path, PathBuf};

use places::places;
use serde_json::{Value, json};
use support::{command, generate, succeeds, write};

/// The NFs that go to the device, each with its work-groups.
const ON_DEVICE: [(&str, usize); 2] = [("vpn", 2), ("ids", 2)];

/// Routes, and which flows are of type `two`: by the lowest bits of their source port.
struct Routes {
    name: &'static str,
    /// In 128ths: the flows of type `two`.
    share: u32,
    /// The NFs that each type passes.
    ways: [(&'static str, &'static [&'static str]); 3],
}

const ALL: &[&str] = &["vpn", "ids", "edge"];
const ROUTES: [Routes; 4] = [
    Routes { name: "static", share: 64, ways: [("branch", ALL), ("one", ALL), ("two", ALL)] },
    Routes {
        name: "50/50",
        share: 64,
        ways: [("branch", ALL), ("one", ALL), ("two", &["vpn", "edge"])],
    },
    Routes {
        name: "93/7",
        share: 9,
        ways: [("branch", ALL), ("one", &["vpn", "edge"]), ("two", &["ids", "edge"])],
    },
    // Both orders: the NFs share a station.
    Routes {
        name: "crossed",
        share: 64,
        ways: [("branch", ALL), ("one", &["vpn", "edge"]), ("two", &["ids", "vpn", "edge"])],
    },
];

const SIZES: [&str; 4] = ["64", "512", "1472", "imix"];

/// The suite that devices do, in both directions.
const SUITE: &str = "suite = \"aes128-cbc-hmac-sha1-96\"\n\
                     encryption_key = \"000102030405060708090a0b0c0d0e0f\"\n\
                     authentication_key = \"ff112233445566778899aabbccddeeff01234567\"";

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/edge-gateway").join(name)
}

/// Replaces a part of a chain, which is there.
fn with(chain: &str, part: &str, new: &str) -> String {
    assert!(chain.contains(part), "the example has {part}");
    chain.replacen(part, new, 1)
}

/// The rules that make `share` 128ths of the flows type `two`.
fn rules(share: u32) -> String {
    let rule = |port: u32| format!("'tcp,tp_src={port}/0x7f', 'udp,tp_src={port}/0x7f'");
    (0..share).map(rule).collect::<Vec<_>>().join(", ")
}

/// The edge gateway with these routes and packets, its NFs for devices `at` one, which may do its work in launches.
fn gateway(routes: &Routes, size: &str, (at, launches): (&str, &str)) -> String {
    let mut chain = fs::read_to_string(example("chain.toml")).unwrap();
    chain = with(&chain, "branch-esp.pcapng", "tunnel.pcapng");
    chain = with(
        &chain,
        "packets = 200000, flows = 2000,",
        &format!("size = '{size}', packets = 2000, flows = 200,"),
    );
    let first =
        format!("default_type = \"one\"\n[run]\nseed = 5\n[memory]\nlaunches = '{launches}'\n");
    chain = with(&chain, "default_type = \"internet\"\n", &first);
    let two = format!("[[class]]\ntype = \"two\"\nrules = [{}]\n\n[nf.vpn]\n", rules(routes.share));
    chain = with(&chain, "[nf.vpn]\n", &two);
    let gcm =
        "suite = \"aes128-gcm16\"\nencryption_key = \"1b3f6c0e5a7d92844f10c3b6e8a7d5f2c0ffee11\"";
    chain = with(&chain, gcm, SUITE);
    for file in ["demo.rules", "table.txt"] {
        chain = with(&chain, file, example(file).to_str().unwrap());
    }
    for (nf, work_groups) in ON_DEVICE.into_iter().filter(|_| at != "cpu") {
        let place = format!(
            "[nf.{nf}]\nat = '{at}'\nwork_groups = {work_groups}\nfailed_after_ms = 30000\n"
        );
        // Half of the chains have the form of AES whose time is constant.
        let is_constant = nf == "vpn" && ["50/50", "crossed"].contains(&routes.name);
        let place = if is_constant { place + "constant_time = true\n" } else { place };
        chain = with(&chain, &format!("[nf.{nf}]\n"), &place);
    }
    chain
}

/// The file of routes.
fn table(routes: &Routes) -> String {
    let mut table = String::from("packet type, current NF, next NF\n*, edge, egress\n");
    for (name, way) in routes.ways {
        let from = std::iter::once("ingress").chain(way.iter().copied());
        for (from, to) in from.zip(way) {
            table.extend([name, ", ", from, ", ", to, "\n"]);
        }
    }
    table
}

/// Seals the example's traffic of the branch, and generated packets, into `tunnel.pcapng`.
fn seal(folder: &Path, size: &str) {
    generate(
        folder,
        &format!(
            "more.pcap --seed 9 --packets 1000 --flows 50 --size {size} --clients 10.2.0.0/16 --servers 198.51.100.0/24"
        ),
    );
    let branch = fs::read_to_string(example("branch-office.toml")).unwrap();
    let branch = with(&branch, "routes = \"branch-routes.csv\"\n", "[run]\nseed = 3\n");
    let branch =
        with(&branch, "\"branch.pcap\"", &format!("'{}'", example("branch.pcap").display()));
    let branch =
        with(&branch, "[output.tunnel]", "[input.more]\ncapture = 'more.pcap'\n[output.tunnel]");
    let branch = with(&branch, "out/branch-esp.pcapng", "tunnel.pcapng");
    let gcm =
        "suite = \"aes128-gcm16\"\nencryption_key = \"1b3f6c0e5a7d92844f10c3b6e8a7d5f2c0ffee11\"";
    let branch = with(&branch, gcm, SUITE);
    let route = "[[route]]\npath = ['ingress', 'vpn', 'tunnel']\n";
    write(folder, "branch.toml", &(branch + route));
    succeeds(folder, &["run", "branch.toml"]);
}

/// What left the gateway, and its counts.
#[derive(Debug, PartialEq)]
struct Left {
    files: Vec<Vec<u8>>,
    counts: Value,
}

fn run(
    folder: &Path,
    routes: &Routes,
    size: &str,
    (at, launches): (&str, &str),
    workers: &str,
) -> Left {
    write(folder, "chain.toml", &gateway(routes, size, (at, launches)));
    let mut run = command(folder, &["run", "chain.toml", "--json", "--workers", workers]);
    // PoCL's work-groups are threads: as many as there are processors, unless this sets more.
    let output = run.env("POCL_MAX_PTHREAD_COUNT", "8").output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && error.is_empty(),
        "{} of {size} at {at}, launches {launches}: {error}",
        routes.name
    );
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["conserved"], true, "{report}");
    for (nf, _) in ON_DEVICE.iter().filter(|_| at != "cpu") {
        let nfs = report["nfs"].as_array().unwrap();
        let device = &nfs.iter().find(|of| of["name"] == *nf).unwrap()["device"];
        let way = if launches == "never" { "resident" } else { &format!("launches-{launches}") };
        assert_eq!(device["way"], way, "{report}");
    }
    let nf = |nf: &Value| {
        let of = |key: &str| nf[key].clone();
        ["name", "packets", "bytes", "drops", "generated", "figures"].map(of)
    };
    let nfs: Vec<_> = report["nfs"].as_array().unwrap().iter().map(nf).collect();
    let counts = json!([report["packets_in"], report["packets_out"], report["drops"], nfs]);
    let files = ["lan.pcapng", "wan.pcapng", "alerts.json"];
    let files = files.map(|name| fs::read(folder.join("out").join(name)).unwrap()).into();
    Left { files, counts }
}

/// What leaves the gateway without a device.
fn alone(folder: &Path, routes: &Routes, size: &str) -> Left {
    write(folder, "routes.csv", &table(routes));
    let alone = run(folder, routes, size, ("cpu", "never"), "1");
    assert!(alone.files[2].windows(7).any(|of| of == b"1000001"), "there are alerts");
    let figures = alone.counts.to_string();
    assert!(!figures.contains("\"opened\":0,") && !figures.contains("\"protected\":0,"));
    alone
}

#[test]
fn the_edge_gateway_is_the_same_with_launches_over_shared_memory_and_with_copies() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    fs::create_dir(f.join("out")).unwrap();
    let (places, _turn) = places();
    let Some(at) = places.iter().find(|at| at.starts_with("opencl:")) else { return };
    for (size, routes) in [("64", &ROUTES[2]), ("imix", &ROUTES[1]), ("imix", &ROUTES[3])] {
        seal(f, size);
        let alone = alone(f, routes, size);
        for launches in ["shared", "copied"] {
            for workers in ["1", "2"] {
                let with = run(f, routes, size, (at, launches), workers);
                let name = routes.name;
                assert_eq!(with.counts, alone.counts, "{name} of {size}, {launches}, {workers}");
                assert!(with == alone, "{name} of {size}, {launches}, {workers} workers");
            }
        }
    }
}

#[test]
fn the_edge_gateway_is_the_same_with_tunnels_and_detection_on_a_device() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    fs::create_dir(f.join("out")).unwrap();
    let (places, _turn) = places();
    for size in SIZES {
        seal(f, size);
        for routes in &ROUTES {
            let alone = alone(f, routes, size);
            for at in places.iter().filter(|at| *at != "cpu") {
                for workers in ["1", "2"] {
                    let with = run(f, routes, size, (at, "never"), workers);
                    let name = routes.name;
                    assert_eq!(with.counts, alone.counts, "{name} of {size} at {at}, {workers}");
                    assert!(with == alone, "{name} of {size} at {at}, {workers} workers");
                }
            }
        }
    }
}
