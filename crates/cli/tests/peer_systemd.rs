//! The units of systemd: systemd accepts them, and their commands are those of the program.

mod support;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use support::{wait, write};
use thalweg_testkit::peer;

/// The units, and the capability that each has.
const UNITS: [(&str, &str); 2] = [("thalweg@", ""), ("thalweg-live@", "CAP_NET_RAW")];

/// A unit, with the program under test instead of the installed one.
fn unit(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    let text = fs::read_to_string(folder.join(format!("{name}.service"))).unwrap();
    text.replace("/usr/bin/thalweg", env!("CARGO_BIN_EXE_thalweg"))
}

/// The values of a key of a unit.
fn values<'a>(unit: &'a str, key: &str) -> Vec<&'a str> {
    unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect()
}

fn analyze(arguments: &[&str], path: &Path) -> (bool, String) {
    let output = Command::new("systemd-analyze").args(arguments).arg(path).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn systemd_accepts_the_units_and_finds_them_hardened() {
    if !peer::is_there("systemd-analyze", &["--version"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (name, capability) in UNITS {
        let path = folder.path().join(format!("{name}.service"));
        fs::write(&path, unit(name)).unwrap();
        let (accepts, text) = analyze(&["verify", "--man=no"], &path);
        let complaints: Vec<_> = text.lines().filter(|line| line.contains("thalweg")).collect();
        assert!(accepts && complaints.is_empty(), "{text}");
        // From 0 (no exposure) to 100.
        let (is_hardened, text) =
            analyze(&["security", "--no-pager", "--offline=true", "--threshold=20"], &path);
        assert!(is_hardened, "{text}");
        assert_eq!(values(&unit(name), "CapabilityBoundingSet"), [capability]);
        assert_eq!(values(&unit(name), "AmbientCapabilities"), [capability]);
        // It does complain about what it does not know.
        fs::write(&path, unit(name).replace("Type=notify", "Type=nonsense")).unwrap();
        let (_, text) = analyze(&["verify", "--man=no"], &path);
        assert!(text.contains("nonsense"), "{text}");
    }
}

/// Kills the process when it is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_commands_of_the_units_start_and_reload_a_run() {
    let chain = "[input.traffic]\ngenerate = { packets = 1000000000, rate = 1000 }\n\
        pace = 1.0\n\
        [output.out]\ndiscard = true\n[[route]]\npath = ['ingress', 'egress']\n";
    for (name, _) in UNITS {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "edge.toml", chain);
        let unit = unit(name).replace("/etc/thalweg", &folder.path().display().to_string());
        let unit = unit.replace("%i", "edge");
        let command = |key: &str| {
            let line = values(&unit, key)[0];
            let mut words = line.split(' ');
            let mut command = Command::new(words.next().unwrap());
            command.args(words).env("THALWEG_RUNTIME_DIR", folder.path().join("sockets"));
            command.stdout(Stdio::null()).stderr(Stdio::piped());
            command
        };
        let run = Killed(command("ExecStart").spawn().unwrap());
        let reload = || command("ExecReload").output().unwrap();
        wait(|| reload().status.success());
        write(folder.path(), "edge.toml", "nonsense");
        let refused = reload();
        let text = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && text.contains("edge.toml"), "{text}");
        drop(run);
    }
}
