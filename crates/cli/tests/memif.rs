//! Two programs, each confined as by default, exchange packets by shared memory.

mod support;

use std::process::Stdio;

use support::{Running, packets, succeeds, write};

#[test]
fn a_confined_run_receives_from_another_one_and_so_does_the_next() {
    let (sender, receiver) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for folder in [sender.path(), receiver.path()] {
        write(folder, "routes.csv", "*, ingress, egress\n");
    }
    // In the folder of the sender, whose client may open it; the server makes it there.
    let socket = sender.path().join("socket");
    let port = |role| format!("memif = '{}'\nrole = '{role}'\n", socket.display());
    succeeds(sender.path(), &["gen", "in.pcap", "--packets", "1000", "--size", "imix"]);
    let source = "routes = 'routes.csv'\n[input.a]\ncapture = 'in.pcap'\nloop = 0\nmemory = true\n";
    write(sender.path(), "chain.toml", &format!("{source}[output.o]\n{}", port("client")));
    let target = "[output.o]\ncapture = 'out.pcap'\n";
    let chain = format!("routes = 'routes.csv'\n[input.a]\n{}{target}", port("server"));
    write(receiver.path(), "chain.toml", &chain);
    let sends = Running::start(sender.path(), &["--workers", "2"], Stdio::null());
    for workers in ["1", "2"] {
        let arguments = ["--count", "5000", "--workers", workers];
        let ended = Running::start(receiver.path(), &arguments, Stdio::null()).end();
        assert_eq!(ended.status.code(), Some(0), "{}", ended.error);
        assert_eq!(ended.report()["sandbox"]["calls"], true, "{}", ended.report);
        assert_eq!(packets(&receiver.path().join("out.pcap")), 5000);
    }
    sends.signal("INT");
    let ended = sends.end();
    let report = ended.report();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.error);
    assert_eq!((&report["conserved"], &report["failures"]), (&true.into(), &serde_json::json!([])));
    assert!(report["outputs"][0]["packets"].as_u64().unwrap() >= 10_000, "{report}");
}
