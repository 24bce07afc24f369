//! Peer programs: independent implementations that our results are held against.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

/// Whether a missing peer is a failure instead of a skip (`REQUIRE_PEERS` is set, and not to 0).
pub fn are_required() -> bool {
    std::env::var_os("REQUIRE_PEERS").is_some_and(|value| value != "0")
}

/// Reports that a test skips what needs `what`.
///
/// # Panics
/// When peers are required.
pub fn missing(what: &str) {
    assert!(!are_required(), "REQUIRE_PEERS is set, and there is no {what}");
    println!("SKIPPED: no {what}");
}

/// Whether the tests run as root.
pub fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n")
}

/// Whether the tests run as root, which `what` needs.
///
/// # Panics
/// When they do not, and peers are required.
pub fn has_root(what: &str) -> bool {
    let is_root = is_root();
    if !is_root {
        missing(&format!("{what}: root"));
    }
    is_root
}

/// Whether `program`, run with `arguments` that make it print its version or the like, starts;
/// prints the first line of that.
///
/// # Panics
/// When it does not, and peers are required.
pub fn is_there(program: &str, arguments: &[&str]) -> bool {
    let started = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    match &started {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            println!("peer: {program}: {}", text.lines().next().unwrap_or_default());
        }
        Err(_) => missing(program),
    }
    started.is_ok()
}

/// The folder of programs and of a Python from PyPI, which `scripts/setup.sh ci` makes.
fn tools() -> PathBuf {
    let home = std::env::var_os("HOME").unwrap_or_default();
    Path::new(&home).join(".cache/thalweg/tools/bin")
}

/// The path of `program` from PyPI, which must start with `arguments`; `None` where it is missing.
///
/// # Panics
/// When it is missing, and peers are required.
pub fn tool(program: &str, arguments: &[&str]) -> Option<PathBuf> {
    let path = tools().join(program);
    let path = if path.exists() { path } else { program.into() };
    is_there(path.to_str()?, arguments).then_some(path)
}

/// The standard output of `command`, which reads `input` and must succeed.
///
/// # Panics
/// When the command does not start or fails, with its standard error.
pub fn output(command: &mut Command, input: &str) -> String {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the peer starts");
    let mut stdin = child.stdin.take().expect("the standard input is a pipe");
    let output = thread::scope(|scope| {
        // While we read, since the peer may answer before it has read everything. A peer that
        // stops reading fails by its exit status.
        scope.spawn(move || stdin.write_all(input.as_bytes()));
        child.wait_with_output().expect("the peer ends")
    });
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
    String::from_utf8(output.stdout).expect("the peer writes UTF-8")
}

/// Runs a Python `script` that has `modules` (separated by commas); `None` where they are missing.
///
/// # Panics
/// When the script fails, or when a module is missing and peers are required.
pub fn python(modules: &str, script: &str, input: &str) -> Option<String> {
    // Importing them takes longer than most scripts.
    const HAS: &str = "
import importlib.util, sys
sys.exit(not all(map(importlib.util.find_spec, sys.argv[1:])))
";
    let of_tools = tools().join("python3");
    let pythons = [Path::new("/usr/bin/python3"), Path::new("python3"), &*of_tools];
    let python = pythons.into_iter().find(|python| {
        let test = Command::new(python).args(["-c", HAS]).args(modules.split(", ")).output();
        test.is_ok_and(|output| output.status.success())
    });
    if python.is_none() {
        missing(&format!("Python with {modules}"));
    }
    python.map(|python| output(Command::new(python).args(["-c", script]), input))
}

/// Runs a Python `script` that has scapy and cryptography; `None` where they are missing.
///
/// # Panics
/// As [`python`].
pub fn scapy(script: &str, input: &str) -> Option<String> {
    python("scapy.all, cryptography", script, input)
}

/// Runs a Python `script` that has scapy on each of `inputs`, in one process, since importing scapy
/// takes longer than most scripts; returns what each run printed. `None` where scapy is missing.
///
/// # Panics
/// As [`python`].
pub fn scapy_each(script: &str, inputs: &[String]) -> Option<Vec<String>> {
    const EACH: &str = "
import contextlib, io, json, sys
script, *inputs = json.load(sys.stdin)
code, outputs = compile(script, 'script', 'exec'), []
for text in inputs:
    sys.stdin, out = io.StringIO(text), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        exec(code, {})
    outputs.append(out.getvalue())
print(json.dumps(outputs))
";
    let all: Vec<&str> = [script].into_iter().chain(inputs.iter().map(String::as_str)).collect();
    let all = serde_json::to_string(&all).expect("strings have a form in JSON");
    let outputs = scapy(EACH, &all)?;
    Some(serde_json::from_str(&outputs).expect("the script prints a list of strings"))
}
