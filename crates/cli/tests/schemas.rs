//! The published schemas are those of what the program writes, by Python's jsonschema.

#[path = "support/controlled.rs"]
mod controlled;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use controlled::{Controlled, ENDLESS};
use serde_json::{Value, json};
use support::{succeeds, thalweg, write};
use thalweg_testkit::peer;

/// Reads a list of `[name, schema, values]`, and writes the errors of all values. No property may be
/// there that the schema does not name, except where it describes the others.
const VALIDATE: &str = "
import json, sys, jsonschema
def closed(schema):
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    whole = {key: closed(value) for key, value in schema.items()}
    if isinstance(schema.get('properties'), dict) and 'additionalProperties' not in schema:
        whole['additionalProperties'] = False
    return whole
wrong = []
for name, schema, values in json.load(sys.stdin):
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(closed(schema))
    for value in values:
        wrong += [f'{name}: {e.json_path}: {e.message}' for e in validator.iter_errors(value)]
print(json.dumps(wrong))
";

const CHAIN: &str = r#"
routes = "routes.csv"
[input.lan]
generate = { packets = 4000, flows = 60, ipv6 = 0.3, vlan_share = 0.2, hostile = 0.2, malformed = 0.02, payload = "http" }
[output.out]
capture = "out.pcapng"
[nf.list]
kind = "acl"
default = "permit"
rules = ["deny tcp,tp_dst=22", "permit udp"]
hits = "hits.json"
[nf.hosts]
kind = "assets"
inventory = "inventory.json"
[nf.ids]
kind = "nids"
rules = ["ids.rules"]
alerts = "alerts.json"
[nf.count]
kind = "monitor"
json = "flows.json"
[nf.nat]
kind = "nat"
inside = ["10.0.0.0/8"]
external = ["192.0.2.1"]
"#;

/// A chain with work for a device.
const VPN: &str = r#"
[input.lan]
generate = { packets = 200 }
[output.out]
discard = true
[nf.vpn]
kind = "ipsec"
[[nf.vpn.sa]]
name = "a"
direction = "out"
spi = 4097
source = "192.0.2.1"
destination = "192.0.2.10"
suite = "aes128-cbc-hmac-sha1-96"
encryption_key = "7e1a90b3c4d5f60718293a4b5c6d7e8f"
authentication_key = "00112233445566778899aabbccddeeff01234567"
[[nf.vpn.policy]]
match = "ip"
action = "protect"
sa = "a"
[[route]]
path = ["ingress", "vpn", "egress"]
"#;

const ROUTES: &str = "*, ingress, list\n*, list, hosts\n*, hosts, ids\n*, ids, count\n";

const RULES: &str = "alert tcp any any -> any any (msg:\"a \\\"web\\\" page\"; sid:1;)
drop udp any any -> any 53 (msg:\"names\"; classtype:misc-activity; sid:2; rev:3;)
alert ip any any -> any any (sid:3;)
alert icmp any any -> any any (sid:4;)
";

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

fn lines(folder: &Path, name: &str) -> Vec<Value> {
    let text = fs::read_to_string(folder.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    text.lines().map(read).collect()
}

/// The arguments of a short simulation.
fn sim<'a>(command: &[&'a str]) -> Vec<&'a str> {
    let short = ["sim.measured_lookups=400", "sim.warmup_lookups=100", "workload.entries=64"];
    let settings = short.into_iter().flat_map(|setting| ["--set", setting]);
    ["sim"].into_iter().chain(command.iter().copied()).chain(settings).collect()
}

/// What the program writes, by the names of the schemas.
fn written(f: &Path) -> BTreeMap<&'static str, Vec<Value>> {
    let with_ndpi = cfg!(feature = "ndpi");
    let l7 = if with_ndpi { "[nf.l7]\nkind = \"l7fw\"\nflows = \"l7.json\"\n" } else { "" };
    let last = if with_ndpi { "*, nat, l7\n*, l7, egress\n" } else { "*, nat, egress\n" };
    write(f, "chain.toml", &format!("{CHAIN}{l7}"));
    write(f, "routes.csv", &format!("{ROUTES}*, count, nat\n{last}"));
    write(f, "ids.rules", RULES);
    let json = |arguments: &[&str]| read(&succeeds(f, arguments));
    let mut all = BTreeMap::new();
    // Flows that are exported are not written, so a second run writes them.
    let runs = [&["--export-state", "kept"][..], &[]];
    let runs = runs.map(|more| json(&[&["run", "chain.toml", "--json"], more].concat()));
    let stats = ["--stats", "10ms", "--stats-format", "json", "--stats-file", "stats.jsonl"];
    let sampled = json(&[&["run", "chain.toml", "--json"], &stats[..]].concat());
    all.insert("thalweg.run/1", [&runs[..], &[sampled]].concat());
    all.insert("thalweg.stats/1", lines(f, "stats.jsonl"));
    all.insert(
        "thalweg.state/1",
        vec![read(&fs::read_to_string(f.join("kept/state.json")).unwrap())],
    );
    for (name, file) in [
        ("thalweg.acl/1", "hits.json"),
        ("thalweg.assets/1", "inventory.json"),
        ("thalweg.monitor/2", "flows.json"),
        ("thalweg.nids.alert/1", "alerts.json"),
    ] {
        all.insert(name, lines(f, file));
    }
    if with_ndpi {
        all.insert("thalweg.l7fw/2", lines(f, "l7.json"));
    }
    all.insert("thalweg.check/1", vec![json(&["check", "chain.toml", "--json"])]);
    let trace = |packet: &str| json(&["trace", "chain.toml", "--json", "--packet", packet]);
    all.insert("thalweg.trace/1", ["1", "7", "300", "2000"].map(trace).to_vec());
    all.insert("thalweg.gen/1", vec![json(&["gen", "x.pcap", "--json", "--zipf", "1.1"])]);
    let list = json(&["nf", "list", "--json"]);
    let kinds = list["kinds"].as_array().unwrap().iter();
    let kinds = kinds.map(|kind| json(&["nf", "show", kind["kind"].as_str().unwrap(), "--json"]));
    all.insert("thalweg.nf/1", kinds.collect());
    all.insert("thalweg.nf.list/1", vec![list]);
    let list = json(&["port", "list", "--json"]);
    let kinds = list["kinds"].as_array().unwrap().iter();
    let kinds = kinds.map(|kind| json(&["port", "show", kind["key"].as_str().unwrap(), "--json"]));
    all.insert("thalweg.port/1", kinds.collect());
    all.insert("thalweg.port.list/1", vec![list]);
    let profile = ["profile", "--json", "--packets", "1000", "--samples", "2"];
    all.insert("thalweg.profile/1", vec![json(&profile)]);
    all.insert("thalweg.doctor/1", vec![json(&["doctor", "--json"])]);
    all.insert("thalweg.devices/1", vec![json(&["devices", "--json"])]);
    write(f, "vpn.toml", VPN);
    let short = ["--samples", "1", "--time", "20", "--packets", "200", "--sizes", "64"];
    let place = json(&[&["place", "--measure", "vpn.toml", "--json"], &short[..]].concat());
    all.insert("thalweg.place/1", vec![place]);
    let mut reports = json(&sim(&["run", "--json"])).as_array().unwrap().clone();
    succeeds(f, &sim(&["sweep", "s.jsonl", "--over", "workload.method=bulk,tcam"]));
    reports.extend(lines(f, "s.jsonl"));
    all.insert("thalweg.sim.run/2", reports);
    all.insert("thalweg.sim.race/1", vec![json(&sim(&["race", "--json"]))]);
    all.insert(
        "thalweg.sim.predict/1",
        vec![json(&["sim", "predict", "--places", "6", "--rounds", "2", "--json"])],
    );
    let run = Controlled::endless(f, "edge");
    for (name, request) in [
        ("thalweg.status/1", "status"),
        ("thalweg.ports/1", "ports"),
        ("thalweg.nfs/1", "nfs"),
        ("thalweg.rules/1", "rules"),
        ("thalweg.runs/1", "list"),
    ] {
        all.insert(name, vec![read(&run.succeeds(&[request, "--json"]))]);
    }
    write(f, "endless.toml", &ENDLESS.replace("443", "8443").replace("\"deny icmp\"", ""));
    let reload = ["reload", "--dry-run", "--json"];
    all.insert("thalweg.reload/1", vec![read(&run.succeeds(&reload))]);
    drop(run);
    write(f, "wrong.toml", &CHAIN.replace("alerts =", "alrets ="));
    let refused = |arguments: &[&str]| {
        let stdout = thalweg(f, arguments).stdout;
        serde_json::from_slice::<Value>(&stdout).unwrap()
    };
    let commands = [&["check"][..], &["run"], &["trace", "--packet", "1"]];
    let mistakes = commands.map(|command| refused(&[command, &["wrong.toml", "--json"]].concat()));
    all.insert("thalweg.mistakes/1", mistakes.to_vec());
    let failure = refused(&["trace", "chain.toml", "--json", "--packet", "99999999"]);
    all.insert("thalweg.failure/1", vec![failure]);
    all
}

/// The names that `thalweg schema` lists.
fn names(folder: &Path) -> Vec<String> {
    let list = succeeds(folder, &["schema"]);
    let first = |line: &str| line.split_whitespace().next().unwrap_or_default().to_owned();
    list.lines().skip(1).map(first).collect()
}

#[test]
fn what_the_program_writes_is_valid_by_the_published_schemas() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let written = written(f);
    let names = names(f);
    let mut known: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    if !cfg!(feature = "ndpi") {
        known.remove("thalweg.l7fw/2");
    }
    // Takes minutes: the simulator tests its content (tests/claims.rs, ignored).
    known.remove("thalweg.sim.claims/1");
    assert_eq!(written.keys().copied().collect::<BTreeSet<_>>(), known);
    let mut cases = Vec::new();
    for (name, values) in &written {
        assert!(!values.is_empty(), "{name}: nothing was written");
        for value in values {
            let schema = (*name != "thalweg.nids.alert/1").then_some(*name);
            assert_eq!(value["schema"].as_str(), schema, "{value}");
        }
        cases.push(json!([name, read(&succeeds(f, &["schema", name])), values]));
    }
    let input = serde_json::to_string(&cases).unwrap();
    let Some(wrong) = peer::python("jsonschema", VALIDATE, &input) else { return };
    let wrong: Vec<String> = serde_json::from_str(&wrong).unwrap();
    assert!(wrong.is_empty(), "{wrong:#?}");
    // The check itself: a document is not valid by the schema of another, nor with a key too many.
    let run = read(&succeeds(f, &["schema", "thalweg.run/1"]));
    let mut more = written["thalweg.run/1"][0].clone();
    more["surprise"] = json!(1);
    let cases = json!([["other", run, written["thalweg.check/1"]], ["more", run, [more]],]);
    let wrong = peer::python("jsonschema", VALIDATE, &cases.to_string()).unwrap();
    assert!(wrong.contains("other: ") && wrong.contains("surprise"), "{wrong}");
}

#[test]
fn the_published_files_are_what_the_program_prints() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let published = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas");
    succeeds(f, &["schema", "--out", "now"]);
    let files = |folder: &Path| -> BTreeMap<String, String> {
        let read = |entry: fs::DirEntry| {
            let text = fs::read_to_string(entry.path()).unwrap();
            (entry.file_name().into_string().unwrap(), text)
        };
        let files = fs::read_dir(folder).unwrap().map(|entry| read(entry.unwrap()));
        files.filter(|(name, _)| Path::new(name).extension() == Some("json".as_ref())).collect()
    };
    let (published, now) = (files(&published), files(&f.join("now")));
    let stale: Vec<_> = published
        .keys()
        .chain(now.keys())
        .filter(|name| published.get(*name) != now.get(*name))
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    assert!(stale.is_empty(), "{stale:?} are stale: thalweg schema --out docs/schemas");
    for name in names(f) {
        let text = succeeds(f, &["schema", &name]);
        assert_eq!(Some(&text), published.get(&format!("{}.json", name.replace('/', "-"))));
        let short = name.strip_prefix("thalweg.").unwrap().split('/').next().unwrap();
        assert_eq!(succeeds(f, &["schema", short]), text, "{short}");
    }
}

#[test]
fn an_unknown_schema_is_refused_with_a_suggestion() {
    let folder = tempfile::tempdir().unwrap();
    for (name, expected) in [("rnu", "did you mean 'run'?"), ("nothing-alike", "'thalweg schema'")]
    {
        let output = thalweg(folder.path(), &["schema", name]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && error.contains(expected), "{error}");
    }
}
