//! Compares alerts with those that Suricata's own tests (suricata-verify) expect.

use std::net::IpAddr;
use std::path::Path;

use serde_json::Value;

use super::Bench;
use thalweg_testkit::data_folder;

/// Whether we write every field that a check compares.
fn comparable(asked: &Value) -> bool {
    const WRITTEN: [&str; 10] = [
        "alert.",
        "src_ip",
        "dest_ip",
        "src_port",
        "dest_port",
        "proto",
        "event_type",
        "icmp_",
        "app_proto",
        "direction",
    ];
    let asked = asked.as_object().unwrap();
    asked.keys().all(|path| WRITTEN.iter().any(|w| path.starts_with(w)))
}

/// Whether an alert has the values that a check requires at its dotted paths.
fn fits(alert: &Value, asked: &Value) -> bool {
    asked.as_object().unwrap().iter().all(|(path, value)| {
        let ours = path.split('.').try_fold(alert, |at, name| at.get(name));
        // Addresses are equal whatever their notation.
        let address = |v: &Value| v.as_str()?.parse::<IpAddr>().ok();
        ours == Some(value) || ours.and_then(address).is_some_and(|a| address(value) == Some(a))
    })
}

/// Our options for the arguments that a test passes to Suricata.
fn options(arguments: &str) -> String {
    let mut options = String::new();
    if arguments.contains("-k none") {
        options += "checksums = false\n";
    }
    if arguments.contains("stream.midstream=true") {
        options += "midstream = true\n";
    }
    options
}

/// Checks that differ although all rules are supported, with the reason.
const EXPLAINED: &[(&str, &str)] = &[
    ("detect-bytetest-02", "a rule with offsets alerts for the packet and again for the stream"),
    ("detect-pcre__detect-pcre-05", "the capture ends within a response's head"),
    ("eve-overlap-payload-02-policy-oldlinux", "its configuration sets old Linux's overlap policy"),
    (
        "eve-payload-02-tcp-exact-overlap-policy-oldlinux",
        "its configuration sets old Linux's overlap policy",
    ),
];

/// Whether the warning reports a skipped rule.
fn is_about_support(warning: &str) -> bool {
    warning.contains("is not supported")
}

/// The outcome of a test.
enum Fate {
    /// The number of correct checks, and the wrong ones.
    Run(usize, Vec<String>),
    Refused(String),
}

fn run(folder: &Path, test: &Value) -> Option<Fate> {
    let name = test["dir"].as_str().unwrap();
    let at = folder.join(name);
    let yaml = std::fs::read_to_string(at.join("test.yaml")).unwrap_or_default();
    let pcap = yaml.lines().find_map(|l| l.strip_prefix("pcap:")).map(str::trim);
    let own = at.join("input.pcap");
    let pcap = pcap.map(|p| at.join(p)).filter(|_| !own.exists()).unwrap_or(own);
    let rules = std::fs::read_to_string(at.join("test.rules")).ok()?;
    let (mut bench, warnings) = match Bench::try_new(&rules, &options(&test["args"].to_string())) {
        Ok(ready) => ready,
        Err(e) if e.0.iter().any(|e| is_about_support(&e.to_string())) => {
            return Some(Fate::Refused(e.to_string()));
        }
        Err(e) => return Some(Fate::Run(0, vec![format!("{name}: {e}")])),
    };
    if let Some(first) = warnings.into_iter().find(|w| is_about_support(w)) {
        return Some(Fate::Refused(first));
    }
    bench.capture(&pcap);
    let alerts = bench.alerts();
    let (mut right, mut wrong) = (0, Vec::new());
    for check in test["expected_alerts"].as_array().unwrap() {
        if !comparable(&check["match"]) {
            continue;
        }
        let got = alerts.iter().filter(|a| fits(a, &check["match"])).count() as u64;
        if Some(got) == check["count"].as_u64() {
            right += 1;
        } else {
            wrong.push(format!("{name}: {got} of {check}"));
        }
    }
    Some(Fate::Run(right, wrong))
}

#[test]
fn alerts_agree_with_suricatas_own_tests() {
    let Some(data) = data_folder() else { return };
    let folder = data.join("ids/suricata-verify");
    let index: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("index.json")).unwrap()).unwrap();
    let (mut tests, mut agree, mut checks, mut wrong, mut refused) =
        (0, 0, 0, Vec::new(), Vec::new());
    for test in index.as_array().unwrap() {
        if test["tier"] == "app-layer" {
            continue;
        }
        tests += 1;
        match run(&folder, test) {
            Some(Fate::Run(right, differences)) => {
                checks += right;
                agree += usize::from(differences.is_empty());
                let explained = EXPLAINED.iter().any(|(name, _)| test["dir"] == *name);
                assert!(!explained || !differences.is_empty(), "{} agrees now", test["dir"]);
                wrong.extend(differences.into_iter().filter(|_| !explained));
            }
            Some(Fate::Refused(why)) => refused.push(format!("{}: {why}", test["dir"])),
            None => refused.push(format!("{}: no rules", test["dir"])),
        }
    }
    println!("{}", refused.join("\n"));
    for (name, why) in EXPLAINED {
        println!("{name} differs: {why}");
    }
    println!(
        "{tests} tests: {agree} run and right, with {checks} checks; {} refused",
        refused.len()
    );
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(agree * 5 >= tests * 4, "{agree} of {tests}");
}

/// Rule sets in common use have no errors, and most of their rules need no unsupported feature.
#[test]
fn rule_sets_of_others_are_read() {
    let Some(data) = data_folder() else { return };
    for (set, share) in [("emerging-threats", 0.9), ("snort-community", 0.99)] {
        let (mut rules, mut unsupported) = (0, 0);
        for file in std::fs::read_dir(data.join("ids/rules").join(set)).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_none_or(|e| e != "rules") {
                continue;
            }
            // Two bytes of a comment are not UTF-8.
            let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
            let variables = "variables = { SHELLCODE_PORTS = 'any', ORACLE_PORTS = 'any', \
                SSH_PORTS = '22', FILE_DATA_PORTS = 'any', FTP_PORTS = '21', SIP_PORTS = '5060', \
                SIP_SERVERS = 'any', FTP_SERVERS = 'any', SSH_SERVERS = 'any', GTP_PORTS = 'any' }";
            // Some files have unsupported rules alone.
            let supported = "alert ip any any -> any any (sid:4294967295;)";
            let (bench, _) = Bench::try_new(&format!("{text}\n{supported}\n"), variables)
                .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            rules += text.lines().filter(|l| l.starts_with("alert")).count();
            let figures = bench.drive.nf.figures();
            let of_file = figures.iter().find(|(name, _)| *name == "rules_unsupported");
            unsupported += of_file.map_or(0, |(_, count)| *count);
        }
        println!("{set}: {unsupported} of {rules} rules need an unsupported feature");
        assert!((unsupported as f64) < (1.0 - share) * rules as f64, "{unsupported} of {rules}");
    }
}
