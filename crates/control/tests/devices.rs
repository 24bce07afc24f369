//! NFs on devices: what the API shows of a device, and of one that has failed.

mod common;

use std::sync::Arc;

use common::{Running, document, events, start_with, wait};
use serde_json::Value;
use thalweg_accel::Installed;
use thalweg_api::Limits;
use thalweg_chain::Kinds;
use thalweg_nf::device::Devices;
use thalweg_testkit::odd_device::Odd;

/// Generated traffic in real time, of which an NF at this place seals a part.
fn chain(at: &str) -> String {
    format!(
        "[input.traffic]\ngenerate = {{ packets = 1000000000, flows = 100, rate = 2000 }}\n\
         pace = 1.0\n[output.out]\ndiscard = true\n\
         [nf.vpn]\nkind = 'ipsec'\ndefault_policy = 'bypass'\n{at}\n\
         [[nf.vpn.sa]]\nname = 'a'\ndirection = 'out'\nspi = 4097\n\
         source = '192.0.2.1'\ndestination = '192.0.2.10'\n\
         suite = 'aes128-cbc-hmac-sha1-96'\nencryption_key = '7e1a90b3c4d5f60718293a4b5c6d7e8f'\n\
         authentication_key = '00112233445566778899aabbccddeeff01234567'\n\
         [[nf.vpn.policy]]\nmatch = 'tcp'\naction = 'protect'\nsa = 'a'\n\
         [[route]]\npath = ['ingress', 'vpn', 'out']\n"
    )
}

fn start(at: &str, devices: Arc<dyn Devices>) -> Running {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("chain.toml"), chain(at)).unwrap();
    let kinds = Kinds::from(thalweg_nf::Kinds::new([thalweg_ipsec::KIND])).with_devices(devices);
    let run = start_with(&kinds, folder, 1, Limits::default());
    wait(|| run.control.progress().packets_in > 100);
    run
}

/// The value of a metric of the NF; `None` if it has none.
fn metric(run: &Running, name: &str) -> Option<f64> {
    let answer = run.get("/metrics");
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    let sample = format!("{name}{{nf=\"vpn\",kind=\"ipsec\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&*sample)?.parse().ok())
}

#[test]
fn the_metrics_of_a_device_are_those_of_the_report() {
    let run = start("at = 'soft'\nfailed_after_ms = 30000", Arc::new(Installed::default()));
    let names = ["packets", "slots", "dummies"];
    let of_metrics = || {
        let text = String::from_utf8(run.get("/metrics").body.to_vec()).unwrap();
        names.map(|name| {
            let sample = format!("thalweg_nf_device_{name}_total{{nf=\"vpn\",kind=\"ipsec\"}} ");
            let value = text.lines().find_map(|line| line.strip_prefix(&*sample));
            value.unwrap_or_else(|| panic!("no {name} in {text}")).parse::<f64>().unwrap()
        })
    };
    let between = || std::thread::sleep(std::time::Duration::from_millis(120));
    // A work-group that idles gets rows that are not full.
    wait(|| of_metrics()[2] > 0.0);
    let before = of_metrics();
    between();
    let nf = run.json("/v1/nfs/vpn");
    between();
    let after = of_metrics();
    for (at, name) in names.into_iter().enumerate() {
        let reported = nf["device"][name].as_f64().unwrap();
        let bounds = before[at]..=after[at];
        assert!(bounds.contains(&reported), "{name}: {before:?} {reported} {after:?}");
    }
    // Each slot has a packet or none: of one moment, those of a row that is not sealed have none yet.
    for [packets, slots, dummies] in [before, after] {
        assert!(packets <= slots && dummies < slots && dummies >= slots - packets, "{after:?}");
    }
    assert!(after[2] > before[2], "dummies are counted while packets pass");
    assert_eq!([&nf["at"], &nf["work_groups"]], [&Value::from("soft"), &Value::from(1)]);
    assert_eq!(metric(&run, "thalweg_nf_device_failed"), Some(0.0));
    assert_eq!(metric(&run, "thalweg_nf_device_kept_frames"), Some(0.0));
    let report = run.end();
    assert_eq!(report.failures, [""; 0]);
}

#[test]
fn a_device_that_fails_is_an_event_and_stays_in_what_the_api_shows() {
    let run = start("at = 'cpu'", Arc::new(Odd::failing_at(10)));
    assert_eq!(metric(&run, "thalweg_nf_device_failed"), None, "it has no device");
    let mut stream = events(&run, "/v1/events?every=3600");
    assert_eq!(stream.next().unwrap().0, "progress");
    let odd = chain("at = 'odd'\nfallback = 'cpu'");
    std::fs::write(run.folder().join("chain.toml"), odd).unwrap();
    let reload = || document(&run.request("POST", "/v1/reload", "*/*", Some("{}")));
    for round in 1..=2 {
        let reloads = || run.json("/v1/report")["reloads"].as_u64().unwrap_or(0);
        assert_eq!(reloads(), round - 1);
        let reloaded = reload();
        assert_eq!(reloaded["changes"].as_array().map(Vec::len), Some(1), "{reloaded}");
        assert_eq!(reloads(), round, "what a reload has changed is shown at once");
        let (name, event) = stream.next().unwrap();
        assert_eq!(name, "device", "{event}");
        let [nf, at, text] = ["nf", "at", "text"].map(|key| event[key].as_str().unwrap());
        assert_eq!([nf, at, text], ["vpn", "odd", "it burns"]);
        assert!(event["time"].as_str().unwrap().ends_with('Z'), "{event}");
        wait(|| run.json("/v1/nfs/vpn")["at"] == "cpu");
        let nf = run.json("/v1/nfs/vpn");
        assert_eq!([&nf["failed_at"], &nf["device"]["failed"]], ["odd", "it burns"], "{nf}");
        assert!(nf.get("work_groups").is_none(), "{nf}");
        let kept = nf["device"]["kept_frames"].as_u64().unwrap();
        assert!(kept >= 1, "round {round}: {nf}");
        assert_eq!(metric(&run, "thalweg_nf_device_failed"), Some(1.0));
        assert_eq!(metric(&run, "thalweg_nf_device_kept_frames"), Some(kept as f64));
        // The same file again: what has failed is started again, and fails again.
    }
    let report = run.end();
    assert_eq!(report.failures, [""; 0]);
    assert_eq!((report.conserved, report.leaked_frames, report.reloads), (true, 0, 2));
    let warns = |what: &str| report.warnings.iter().any(|warning| warning.contains(what));
    assert!(warns("NF 'vpn': on the processor, as 'odd' has failed: it burns"));
    assert!(warns("lost to devices that failed"));
}
