//! `thalweg place`: each NF measured where it can run.

mod support;

use serde_json::Value;
use support::{succeeds, thalweg, write};
use thalweg_accel::{Listing, Residency, devices};
use thalweg_testkit::peer;

/// Packets that are sealed on the way out, and counted.
const CHAIN: &str = "[input.lan]\ncapture = 'lan.pcap'\n[output.wan]\ncapture = 'wan.pcap'\n\
    [nf.count]\nkind = 'monitor'\njson = 'flows.json'\n\
    [nf.vpn]\nkind = 'ipsec'\ndefault_policy = 'bypass'\n\
    [[nf.vpn.sa]]\nname = 'a'\ndirection = 'out'\nspi = 4097\nsource = '192.0.2.1'\n\
    destination = '192.0.2.10'\nsuite = 'aes128-cbc-hmac-sha1-96'\n\
    encryption_key = '7e1a90b3c4d5f60718293a4b5c6d7e8f'\n\
    authentication_key = '00112233445566778899aabbccddeeff01234567'\n\
    [[nf.vpn.policy]]\nmatch = 'ip'\naction = 'protect'\nsa = 'a'\n\
    [[route]]\npath = ['ingress', 'count', 'vpn', 'wan']\n";

fn folder(chain: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    succeeds(folder.path(), &["gen", "lan.pcap", "--packets", "300", "--size", "128"]);
    write(folder.path(), "chain.toml", chain);
    folder
}

/// The arguments of measurements that are too short to be of use.
const SHORT: [&str; 10] = [
    "place",
    "--measure",
    "chain.toml",
    "--samples",
    "1",
    "--time",
    "30",
    "--packets",
    "300",
    "--sizes",
];

#[test]
fn each_nf_is_measured_on_each_place_where_it_can_run() {
    let folder = folder(CHAIN);
    let f = folder.path();
    let mut places = vec!["cpu".to_owned()];
    let Listing { devices: found, without_opencl: why, .. } = devices();
    let resident = found.into_iter().filter(|device| device.residency == Residency::Resident);
    places.extend(resident.map(|device| device.place));
    if places.len() < 3 {
        let why = why.map(|why| why.to_string());
        peer::missing(why.as_deref().unwrap_or("OpenCL device with SVM atomics"));
    }
    let text = succeeds(f, &[&SHORT[..], &["64", "512", "--json"]].concat());
    let placement: Value = serde_json::from_str(&text).unwrap();
    let measurements = placement["measurements"].as_array().unwrap();
    let mut expected = Vec::new();
    for traffic in ["own", "64", "512"] {
        expected.push(["count".to_owned(), traffic.to_owned(), "cpu".to_owned()]);
    }
    for traffic in ["own", "64", "512"] {
        let of_vpn = |at: &String| ["vpn".to_owned(), traffic.to_owned(), at.clone()];
        expected.extend(places.iter().map(of_vpn));
    }
    let name = |measured: &Value| {
        ["nf", "traffic", "at"].map(|key| measured[key].as_str().unwrap().to_owned())
    };
    assert_eq!(measurements.iter().map(name).collect::<Vec<_>>(), expected);
    for measured in measurements {
        assert!(measured["failure"].is_null(), "{measured}");
        assert!(measured["packets_per_second"].as_f64().unwrap() > 100.0, "{measured}");
        assert!(measured["cpu_ns_per_packet"].as_f64().unwrap() > 1.0, "{measured}");
        assert_eq!(measured["dropped"], 0.0, "{measured}");
        let has_joules = !measured["joules_per_packet"].is_null();
        assert_eq!(has_joules, placement["without_joules"].is_null(), "{measured}");
    }
    let cheapest = &placement["cheapest"];
    assert_eq!(cheapest["traffic"], "own");
    let chosen = cheapest["nfs"].as_array().unwrap();
    assert_eq!((&chosen[0]["nf"], &chosen[0]["at"]), (&"count".into(), &"cpu".into()));
    assert!(places.iter().any(|at| chosen[1]["at"] == **at), "{cheapest}");
    // The chain's own files are left alone.
    assert!(!f.join("wan.pcap").exists() && !f.join("flows.json").exists());
}

#[test]
fn the_table_ends_with_the_cheapest_placement() {
    let folder = folder(CHAIN);
    let text = succeeds(folder.path(), &[&SHORT[..], &["64"]].concat());
    for words in ["packets/s", "opencl", "soft", "cheapest by", "  [nf.count]  at = \"cpu\""] {
        // The device of the tests may be missing, which another test names.
        assert!(text.contains(words) || words == "opencl", "{words}: {text}");
    }
    let has_joules = text.contains("uJ/packet");
    assert_ne!(has_joules, text.contains("joules are unavailable: "), "{text}");
}

#[test]
fn an_nf_that_drops_all_packets_has_no_place() {
    let chain = CHAIN.replace("'192.0.2.10'", "'192.0.2.10'\nlifetime_packets = 1");
    let folder = folder(&chain);
    let output = thalweg(folder.path(), &["check", "chain.toml"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = succeeds(folder.path(), &[&SHORT[..], &["64"]].concat());
    assert!(text.contains("  [nf.vpn]  no place: it failed or dropped all packets"), "{text}");
    assert!(text.contains("100.0 %"), "{text}");
}

#[test]
fn what_cannot_be_measured_is_refused_with_the_reason() {
    let folder = folder(
        "[input.lan]\ncapture = 'lan.pcap'\n[output.wan]\ndiscard = true\n\
        [nf.count]\nkind = 'monitor'\n[[route]]\npath = ['ingress', 'count', 'wan']\n",
    );
    let f = folder.path();
    let refused = |arguments: &[&str], code: i32| {
        let output = thalweg(f, arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let error = refused(&[&SHORT[..], &["64"]].concat(), 78);
    assert!(error.contains("no NF of this chain can leave work to a device"), "{error}");
    assert!(error.contains("chain.toml:1") && error.contains("'ipsec'"), "{error}");
    let error = refused(&["place", "chain.toml"], 2);
    assert!(error.contains("--measure"), "{error}");
    let error = refused(&["place", "--measure", "none.toml"], 78);
    assert!(error.contains("none.toml"), "{error}");
    write(f, "chain.toml", CHAIN);
    let error = refused(&[&SHORT[..], &["7"]].concat(), 2);
    assert!(error.contains("--sizes: ") && error.contains("64 to 10000"), "{error}");
    let _ = std::fs::write(f.join("lan.pcap"), "no capture");
    let error = refused(&[&SHORT[..], &["64"]].concat(), 78);
    assert!(error.contains("lan.pcap"), "{error}");
}
