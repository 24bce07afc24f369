//! Two programs, each confined as by default, exchange packets by shared memory.

mod support;

use std::process::{Command, Stdio};
use std::time::Duration;

use support::{Running, command, packets, succeeds, times, wait, write};

#[test]
fn a_confined_run_receives_from_another_one_and_so_does_the_next() {
    send_and_receive("");
}

#[test]
fn a_confined_run_shares_its_packet_memory_with_another_one_and_with_the_next() {
    send_and_receive("zero_copy = true\n");
}

/// Starts a client that sends, and has some `options`, and two servers one after the other.
fn send_and_receive(options: &str) {
    let (sender, receiver) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for folder in [sender.path(), receiver.path()] {
        write(folder, "routes.csv", "*, ingress, egress\n");
    }
    // In the folder of the sender, whose client may open it; the server makes it there.
    let socket = sender.path().join("socket");
    let port = |role| format!("memif = '{}'\nrole = '{role}'\n", socket.display());
    succeeds(sender.path(), &["gen", "in.pcap", "--packets", "1000", "--size", "imix"]);
    let source = "routes = 'routes.csv'\n[input.a]\ncapture = 'in.pcap'\nloop = 0\nmemory = true\n";
    write(
        sender.path(),
        "chain.toml",
        &format!("{source}[output.o]\n{}", port("client") + options),
    );
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
    assert_eq!(report["leaked_frames"], 0, "{report}");
    assert!(report["outputs"][0]["packets"].as_u64().unwrap() >= 10_000, "{report}");
}

/// A sender that is faster than the link: packets arrive at its pace, and those that its queue has no room for are
/// counted.
#[test]
fn packets_arrive_as_the_model_of_a_link_has_it() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [sender, receiver] = folders.each_ref().map(tempfile::TempDir::path);
    let port = format!("memif = '{}'\n", sender.join("socket").display());
    succeeds(sender, &["gen", "in.pcap", "--packets", "1000", "--size", "1000"]);
    let source = "[input.a]\ncapture = 'in.pcap'\nloop = 0\nmemory = true\n[output.o]\n";
    let link = "link = { bandwidth_mbps = 10, latency_us = 2000, queue = 64 }\n";
    let target =
        format!("[input.a]\n{port}role = 'server'\n{link}[output.o]\ncapture = 'out.pcap'\n");
    let source = format!("{source}{port}role = 'client'\n");
    for (folder, ports) in [(sender, source), (receiver, target)] {
        write(folder, "routes.csv", "*, ingress, egress\n");
        write(folder, "chain.toml", &format!("routes = 'routes.csv'\n{ports}"));
    }
    let sends = Running::start(sender, &[], Stdio::null());
    let ended = Running::start(receiver, &["--duration", "1s"], Stdio::null()).end();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.error);
    let report = ended.report();
    assert_eq!(report["conserved"], true, "{report}");
    assert!(report["inputs"][0]["drops"]["receive-ring-full"].as_u64() > Some(0), "{report}");
    let times = times(&receiver.join("out.pcap"));
    assert!(times.len() > 50 && times.is_sorted(), "{times:?}");
    // The first one takes no time.
    let (sent, packets) = (report["outputs"][0]["bytes"].as_u64().unwrap(), times.len() as u64);
    let bits = 8 * (sent * (packets - 1) / packets + 24 * (packets - 1));
    let expected = bits * 100;
    let took = times[times.len() - 1] - times[0];
    assert!(took >= expected * 99 / 100, "{took} ns, expected {expected} ns or more: {report}");
    sends.signal("INT");
    assert_eq!(sends.end().status.code(), Some(0));
}

/// Ticks of the system's clock for which a run without packets keeps a processor busy in half a second.
fn busy_ticks(options: &str) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "routes.csv", "*, ingress, egress\n");
    let ports = "[input.a]\nmemif = 'socket'\nrole = 'server'\n[output.o]\ndiscard = true\n";
    let chain = format!("routes = 'routes.csv'\n[run]\n{options}{ports}");
    write(folder.path(), "chain.toml", &chain);
    let mut run = Running::start(folder.path(), &[], Stdio::null());
    let stat = format!("/proc/{}/stat", run.child().id());
    let ticks = || {
        let stat = std::fs::read_to_string(&stat).unwrap();
        let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        // Of user and system.
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    // No thread of another test may take the core from its threads, where the system allows that.
    let mut first = Command::new("chrt");
    first.args(["--all-tasks", "--fifo", "--pid", "1", &run.child().id().to_string()]);
    let _ = first.stderr(Stdio::null()).status();
    let before = ticks();
    std::thread::sleep(Duration::from_millis(500));
    let busy = ticks() - before;
    run.signal("INT");
    assert_eq!(run.end().status.code(), Some(0));
    busy
}

#[test]
fn a_worker_polls_as_long_as_configured_before_it_sleeps() {
    // Polls are short while other threads need the core.
    let polls_longer = |_: &u32| {
        let (sleeps, polls) = (busy_ticks(""), busy_ticks("poll_us = 1000000\n"));
        polls > 2 * sleeps + 2
    };
    assert!((0..20).any(|attempt| polls_longer(&attempt)), "polls take no longer than sleeps");
}

/// Kills the peers of a run that returns what they send, and then ends the run, which must have lost no
/// frame.
fn kill_peers(kills: u32, [survivor, victim]: [&str; 2]) {
    let (survives, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let port = format!("memif = '{}'\n", survives.path().join("socket").display());
    for (folder, inputs, output, role) in [
        (survives.path(), "[input.a]\n", "[output.o]\n", survivor),
        (
            killed.path(),
            "[input.g]\ncapture = 'in.pcap'\nloop = 0\nmemory = true\n[input.a]\n",
            "[output.o]\n",
            victim,
        ),
    ] {
        write(folder, "routes.csv", "*, ingress, egress\n");
        let chain = format!("routes = 'routes.csv'\n{inputs}{port}{role}{output}{port}{role}");
        write(folder, "chain.toml", &chain);
    }
    succeeds(killed.path(), &["gen", "in.pcap", "--packets", "1000", "--size", "imix"]);
    let survivor = Running::start(survives.path(), &["-v", "--workers", "1"], Stdio::null());
    let connections = || {
        let log = std::fs::read_to_string(survives.path().join("error")).unwrap();
        log.lines().filter(|line| line.ends_with(": connected")).count()
    };
    for number in 1..=kills {
        let mut victim = command(killed.path(), &["run", "chain.toml", "--quiet", "--no-control"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait(|| connections() >= number as usize);
        std::thread::sleep(std::time::Duration::from_millis(u64::from(number * 7 % 20)));
        // SIGKILL: it ends in the middle of what it does.
        victim.kill().unwrap();
        victim.wait().unwrap();
    }
    survivor.signal("INT");
    let ended = survivor.end();
    let report = ended.report();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.error);
    assert_eq!((&report["conserved"], &report["failures"]), (&true.into(), &serde_json::json!([])));
    assert_eq!(report["leaked_frames"], 0, "{report}");
    assert!(report["inputs"][0]["packets"].as_u64().unwrap() > kills.into(), "{report}");
    let connected = connections();
    println!(
        "{kills} kills, {connected} connections, {} packets in",
        report["inputs"][0]["packets"]
    );
}

const SERVER: &str = "role = 'server'\n";
const CLIENT: &str = "role = 'client'\n";
const ZERO_COPY: &str = "role = 'client'\nzero_copy = true\n";

#[test]
fn a_run_serves_the_next_client_after_one_was_killed() {
    kill_peers(10, [SERVER, CLIENT]);
    kill_peers(10, [SERVER, ZERO_COPY]);
}

#[test]
fn a_client_connects_again_after_its_server_was_killed() {
    kill_peers(10, [CLIENT, SERVER]);
    kill_peers(10, [ZERO_COPY, SERVER]);
}

#[test]
#[ignore = "takes minutes: KILLS (default 1,000) peers in each role"]
fn very_many_peers_are_killed() {
    let kills = std::env::var("KILLS").map_or(1000, |text| text.parse().unwrap());
    for pair in [[SERVER, CLIENT], [SERVER, ZERO_COPY], [CLIENT, SERVER], [ZERO_COPY, SERVER]] {
        kill_peers(kills, pair);
    }
}
