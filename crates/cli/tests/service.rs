//! What a run reports to a service manager (`sd_notify(3)`), for which a socket of the test stands.

mod support;

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use support::{command, pipe, wait, write};

const ENDLESS: &str = "[input.traffic]\ngenerate = { packets = 1000000000, rate = 20000 }\npace = 1.0\n\
    [output.out]\ndiscard = true\n[[route]]\npath = ['ingress', 'egress']\n";
/// The time of the watchdog in these tests, in microseconds.
const WATCHDOG_USEC: &str = "800000";

/// A service manager, and the run that it has started.
struct Service {
    socket: UnixDatagram,
    run: Child,
}

impl Service {
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        let socket = UnixDatagram::bind(folder.join("notify")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(8))).unwrap();
        let mut command = command(folder, &[&["run", "chain.toml"], arguments].concat());
        command.env("NOTIFY_SOCKET", folder.join("notify")).env("WATCHDOG_USEC", WATCHDOG_USEC);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        Self { socket, run: command.spawn().unwrap() }
    }

    /// The next message that is about something else than progress and the watchdog.
    #[track_caller]
    fn next(&self) -> String {
        loop {
            let message = self.message().expect("a message arrives");
            if !message.starts_with("STATUS=") && !message.starts_with("WATCHDOG=") {
                return message;
            }
        }
    }

    /// The next message; `None` if none arrives.
    ///
    /// A socket with a time limit may report `EINTR` without a handler for signals: after a process
    /// was stopped and went on (`signal(7)`).
    fn message(&self) -> Option<String> {
        let mut bytes = [0; 4096];
        loop {
            match self.socket.recv(&mut bytes) {
                Ok(len) => return Some(String::from_utf8(bytes[..len].to_vec()).unwrap()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// The messages of the next `time`.
    fn messages(&self, time: Duration) -> Vec<String> {
        let start = Instant::now();
        let left = || time.checked_sub(start.elapsed()).filter(|left| !left.is_zero());
        let mut messages = Vec::new();
        while let Some(left) = left() {
            self.socket.set_read_timeout(Some(left)).unwrap();
            messages.extend(self.message());
        }
        self.socket.set_read_timeout(Some(Duration::from_secs(8))).unwrap();
        messages
    }

    fn signal(&self, signal: &str) {
        let kill = format!("kill -{signal} {}", self.run.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// Waits for the end; returns whether the run succeeded, and its messages.
    fn end(&mut self) -> (bool, String) {
        wait(|| self.run.try_wait().unwrap().is_some());
        let mut text = String::new();
        self.run.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        (self.run.wait().unwrap().success(), text)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.run.kill();
        let _ = self.run.wait();
    }
}

fn monotonic_usec() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1000
}

/// Reloads by a signal, which the service manager must see begin after it, and end.
fn reloads(service: &Service) {
    let before = monotonic_usec();
    service.signal("HUP");
    let message = service.next();
    let time = message.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
    let time: i64 = time.and_then(|time| time.trim().parse().ok()).expect(&message);
    assert!((before..=monotonic_usec()).contains(&time), "{before}: {message}");
    assert_eq!(service.next(), "READY=1\n");
}

#[test]
fn a_run_is_ready_reloads_and_stops() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "chain.toml", ENDLESS);
    let mut service = Service::start(folder.path(), &[]);
    assert_eq!(service.next(), "READY=1\nSTATUS=packets pass\n");
    let with_nf = ENDLESS.replace("'ingress', ", "'ingress', 'watch', ");
    let with_nf = format!("{with_nf}[nf.watch]\nkind = 'monitor'\n");
    // Nothing has changed; something has; the new chain is refused.
    for chain in [ENDLESS, &with_nf, "nonsense"] {
        write(folder.path(), "chain.toml", chain);
        reloads(&service);
    }
    service.signal("TERM");
    assert_eq!(service.next(), "STOPPING=1\nSTATUS=the run ends\n");
    let (succeeded, messages) = service.end();
    assert!(succeeded, "{messages}");
    assert!(!messages.contains("service manager"), "{messages}");
}

#[test]
fn a_short_run_was_ready_and_one_that_fails_was_not() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "chain.toml", &ENDLESS.replace("1000000000", "10"));
    let mut service = Service::start(folder.path(), &[]);
    assert!(service.next().starts_with("READY=1\n"));
    assert!(service.next().starts_with("STOPPING=1\n"));
    assert!(service.end().0);
    drop(service);
    std::fs::remove_file(folder.path().join("notify")).unwrap();
    write(folder.path(), "chain.toml", ENDLESS);
    // It refuses the state, which is not there.
    let mut service = Service::start(folder.path(), &["--import-state", "none"]);
    assert!(!service.end().0);
    assert_eq!(service.messages(Duration::from_millis(100)), ["STOPPING=1\nSTATUS=the run ends\n"]);
}

#[test]
fn the_watchdog_hears_a_run_only_while_its_packets_can_pass() {
    let folder = tempfile::tempdir().unwrap();
    pipe(folder.path(), "out.pcap");
    let chain = ENDLESS.replace("discard = true", "capture = 'out.pcap'");
    write(folder.path(), "chain.toml", &chain);
    let service = Service::start(folder.path(), &[]);
    let mut reader = std::fs::File::open(folder.path().join("out.pcap")).unwrap();
    let signs = |time| {
        let messages = service.messages(Duration::from_millis(time));
        messages.iter().filter(|message| *message == "WATCHDOG=1\n").count()
    };
    assert!(service.next().starts_with("READY=1\n"));
    // The pipe, which nothing reads, is full at once, and the run waits.
    assert!(signs(400) <= 2);
    assert_eq!(signs(1600), 0);
    std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    wait(|| signs(100) > 0);
    // One each 0.4 s, less on a busy machine.
    let signs = signs(2400);
    assert!((2..=7).contains(&signs), "{signs}");
}

#[test]
fn a_run_without_packets_is_alive() {
    let folder = tempfile::tempdir().unwrap();
    pipe(folder.path(), "in.pcap");
    let (_, rest) = ENDLESS.split_once("pace = 1.0\n").unwrap();
    let chain = format!("[input.traffic]\ncapture = 'in.pcap'\n{rest}");
    write(folder.path(), "chain.toml", &chain);
    let open =
        std::fs::OpenOptions::new().read(true).write(true).open(folder.path().join("in.pcap"));
    let _writer = open.unwrap();
    let service = Service::start(folder.path(), &[]);
    assert!(service.next().starts_with("READY=1\n"));
    let messages = service.messages(Duration::from_millis(1600));
    assert!(
        messages.iter().filter(|message| *message == "WATCHDOG=1\n").count() >= 2,
        "{messages:?}"
    );
}

#[test]
fn an_unreachable_service_manager_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "chain.toml", &ENDLESS.replace("1000000000", "10"));
    for (socket, warns) in [("", false), ("/none/notify", true)] {
        let mut run = command(folder.path(), &["run", "chain.toml"]);
        let output = run.env("NOTIFY_SOCKET", socket).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{error}");
        let warnings = error.matches("warn: cannot report to the service manager: ").count();
        assert_eq!(warnings, usize::from(warns), "{error}");
    }
}
