//! `thalweg sim` as a user meets it.

mod support;

use support::{succeeds, thalweg, write};

/// Settings of a short simulation.
const SHORT: [&str; 6] = [
    "--set",
    "sim.measured_lookups=400",
    "--set",
    "sim.warmup_lookups=100",
    "--set",
    "workload.entries=64",
];

#[test]
fn a_run_compares_the_methods_and_says_so_in_json_too() {
    let folder = tempfile::tempdir().unwrap();
    let table = succeeds(folder.path(), &[&["sim", "run"], &SHORT[..]].concat());
    for part in ["48 keys of 16 bytes in 1 table", "lock-free", "halo-non-blocking", "sram-tcam"] {
        assert!(table.contains(part), "{part}: {table}");
    }
    let arguments = [&["sim", "run", "--json", "--method", "tcam,bulk"], &SHORT[..]].concat();
    let reports: serde_json::Value =
        serde_json::from_str(&succeeds(folder.path(), &arguments)).unwrap();
    let reports = reports.as_array().unwrap();
    assert_eq!(reports.len(), 2);
    assert_eq!(reports[0]["schema"], "thalweg.sim.run/1");
    assert_eq!(reports[1]["config"]["workload"]["method"], "bulk");
    assert!(reports.iter().all(|report| report["hits"] == 400));
}

#[test]
fn the_configuration_that_is_printed_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let config = succeeds(folder.path(), &["sim", "config", "--set", "core.width=6"]);
    write(folder.path(), "machine.toml", &config);
    assert_eq!(succeeds(folder.path(), &["sim", "config", "machine.toml"]), config);
}

#[test]
fn a_stopped_sweep_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = |output: &str| {
        let over = ["--over", "workload.tuples=1,2", "--over", "workload.method=bulk,tcam"];
        succeeds(folder.path(), &[&["sim", "sweep"], &SHORT[..], &over[..], &[output]].concat());
        let text = std::fs::read_to_string(folder.path().join(output)).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let whole = sweep("whole.jsonl");
    assert_eq!(whole.len(), 4);
    // Stopped within the second line.
    let cut = format!("{}\n{}", whole[2], &whole[0][..100]);
    write(folder.path(), "cut.jsonl", &cut);
    assert_eq!(sweep("cut.jsonl"), whole);
    // And what is there is not simulated again.
    assert_eq!(sweep("cut.jsonl"), whole);
}

#[test]
fn what_cannot_be_simulated_is_refused_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "wrong.toml", "[core]\nwidth = 4\nrobb = 3\n");
    let cases: [(&[&str], i32, &str); 7] = [
        (&["sim", "run", "wrong.toml"], 78, "wrong.toml: TOML parse error at line 3"),
        (&["sim", "run", "nowhere.toml"], 78, "nowhere.toml"),
        (&["sim", "run", "--set", "llc.slices=12"], 78, "a power of two up to 64"),
        (&["sim", "run", "--set", "core.width"], 78, "expected table.key=value"),
        (&["sim", "run", "--method", "magic"], 2, "halo-blocking"),
        (&["sim", "sweep", "x.jsonl"], 2, "--over"),
        (&["sim", "sweep", "--over", "workload.entries=64,9", "x.jsonl"], 78, "entries is 9"),
    ];
    for (arguments, code, told) in cases {
        let output = thalweg(folder.path(), arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(told), "{arguments:?}: {error}");
    }
    assert!(!folder.path().join("x.jsonl").exists());
    write(folder.path(), "notes.txt", "not a report\n");
    let arguments = ["sim", "sweep", "--over", "workload.tuples=1", "notes.txt"];
    let output = thalweg(folder.path(), &arguments);
    assert!(String::from_utf8(output.stderr).unwrap().contains("notes.txt line 1"));
}
