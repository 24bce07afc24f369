//! Names of the chain in all JSON, where numbers would mean nothing to its reader.

mod support;

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use support::{succeeds, write};

const CHAIN: &str = "routes = 'routes.csv'\ndefault_type = 'rest'\n\
    [input.lan]\ncapture = 'lan.pcap'\n[input.'wan \\ 2']\ncapture = 'wan.pcap'\n\
    [output.o]\ndiscard = true\n\
    [[class]]\ntype = 'web'\nrules = ['tcp,in_port=lan', 'tcp6,in_port=lan']\n\
    [nf.count]\nkind = 'monitor'\njson = 'flows.json'\n\
    [nf.ids]\nkind = 'nids'\nrules = ['n.rules']\nalerts = 'alerts.json'\n";

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn values(lines: &[Value], key: &str) -> BTreeSet<String> {
    let text = |line: &Value| line[key].as_str().unwrap_or_else(|| panic!("{line}")).to_owned();
    lines.iter().map(text).collect()
}

#[test]
fn records_and_alerts_name_inputs_types_and_protocols() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write(path, "chain.toml", CHAIN);
    write(path, "routes.csv", "*, ingress, count\n*, count, ids\n*, ids, egress\n");
    write(path, "n.rules", "alert ip any any -> any any (dsize:>0; sid:1;)\n");
    for (name, seed) in [("lan.pcap", "1"), ("wan.pcap", "2")] {
        succeeds(path, &["gen", name, "--packets", "2000", "--seed", seed, "--icmp", "20"]);
    }
    for workers in ["1", "2"] {
        succeeds(path, &["run", "chain.toml", "--workers", workers]);
        let flows = lines(&path.join("flows.json"));
        let of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let inputs: BTreeSet<String> = of(&["lan", "wan \\ 2"]);
        assert_eq!(values(&flows, "in_port"), inputs);
        assert_eq!(values(&flows, "packet_type"), of(&["rest", "web"]));
        let protocols = values(&flows, "protocol");
        assert!(protocols.is_superset(&of(&["tcp", "udp"])), "{protocols:?}");
        assert!(protocols.iter().all(|name| name.parse::<u8>().is_err()), "{protocols:?}");
        for flow in &flows {
            let web = flow["protocol"] == "tcp" && flow["in_port"] == "lan";
            assert_eq!(flow["packet_type"] == "web", web, "{flow}");
        }
        assert_eq!(values(&lines(&path.join("alerts.json")), "in_iface"), inputs);
    }
}
