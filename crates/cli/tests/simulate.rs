//! `thalweg sim` as a user sees it.

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
    assert_eq!(reports[0]["schema"], "thalweg.sim.run/2");
    assert_eq!(reports[1]["config"]["workload"]["method"], "bulk");
    // All keys are found; a run whose confidence interval is too wide has more lookups.
    let found = |report: &serde_json::Value| report["hits"] == report["lookups"];
    assert!(reports.iter().all(|report| found(report) && report["hits"].as_u64() >= Some(400)));
}

#[test]
fn a_race_misses_keys_only_without_a_guard() {
    let folder = tempfile::tempdir().unwrap();
    let settings = [
        "sim.measured_lookups=100000",
        "workload.entries=64",
        "workload.occupancy=0.95",
        "race.changing=0.5",
        "race.readers=2",
    ];
    let settings = settings.iter().flat_map(|setting| ["--set", setting]);
    let arguments: Vec<&str> = ["sim", "race", "--json"].into_iter().chain(settings).collect();
    let races: serde_json::Value =
        serde_json::from_str(&succeeds(folder.path(), &arguments)).unwrap();
    assert_eq!(races["schema"], "thalweg.sim.race/1");
    let missed = |n: usize| races["races"][n]["false_negatives"].as_u64().unwrap();
    assert_eq!((missed(1), missed(3)), (0, 0), "{races}");
    assert!(missed(0) + missed(2) > 0, "{races}");
    let table = succeeds(folder.path(), &["sim", "race", "--set", "sim.measured_lookups=2000"]);
    assert!(table.contains("accelerators, locks"), "{table}");
}

#[test]
fn lookups_on_this_machine_are_shown_beside_what_is_simulated() {
    let folder = tempfile::tempdir().unwrap();
    let told =
        succeeds(folder.path(), &["sim", "predict", "--places", "6", "--rounds", "2", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["schema"], "thalweg.sim.predict/1");
    let rows = told["rows"].as_array().unwrap();
    // Steps need AVX-512.
    assert!((2..=3).contains(&rows.len()), "{told}");
    for row in rows {
        assert_eq!(row["places"], 64);
        let positive = |key: &str| row[key].as_f64().is_some_and(|ns| ns > 0.0);
        assert!(positive("measured_ns") && positive("predicted_ns"), "{row}");
    }
    let refused = thalweg(folder.path(), &["sim", "predict", "--places", "2"]);
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && told.contains("--places"), "{told}");
}

#[test]
fn a_chase_that_cannot_reach_memory_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["sim", "calibrate", "--most", "1", "--out", "host.toml"];
    let output = thalweg(folder.path(), &arguments);
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && told.contains("16..=65536"), "{told}");
    assert!(!folder.path().join("host.toml").exists());
}

#[test]
fn queries_are_written_for_an_accelerator_only() {
    let folder = tempfile::tempdir().unwrap();
    let halo = ["--set", "workload.method=halo-blocking"];
    let text = succeeds(folder.path(), &[&["sim", "queries"], &SHORT[..], &halo].concat());
    let of = |word: &str| text.lines().filter(|line| line.starts_with(word)).count();
    assert_eq!((of("table "), of("bucket "), of("query ")), (1, 8, 400));
    let output = thalweg(folder.path(), &["sim", "queries"]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && told.contains("workload.method is lock-free"), "{told}");
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
    // Combinations that the file holds are not simulated again.
    assert_eq!(sweep("cut.jsonl"), whole);
}

#[test]
fn a_figure_is_drawn_and_its_simulations_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = |number| {
        let figure = ["sim", "figure", number, "--out", "report"];
        [&figure[..], &SHORT[..4]].concat()
    };
    let csv = succeeds(folder.path(), &arguments("11"));
    assert!(csv.starts_with("tuples,bulk,halo-blocking") && csv.lines().count() == 5, "{csv}");
    let read = |name: &str| std::fs::read_to_string(folder.path().join("report").join(name));
    assert_eq!(read("figure-11.csv").unwrap(), csv);
    assert!(read("figure-11.svg").unwrap().contains("</svg>"));
    let runs = read("runs.jsonl").unwrap();
    assert_eq!(succeeds(folder.path(), &arguments("11")), csv);
    assert_eq!(read("runs.jsonl").unwrap(), runs);
    let table = ["sim", "table", "4", "--out", "report"];
    let table = succeeds(folder.path(), &[&table[..], &SHORT[..4]].concat());
    assert!(table.contains("TCAM 1024 KB,9.343,26733.100,84.820"), "{table}");
    let wrong = thalweg(folder.path(), &arguments("5"));
    let error = String::from_utf8(wrong.stderr).unwrap();
    assert!(error.contains("expected one of 3, 4, 8b, 9, 10, 11"), "{error}");
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
    assert!(String::from_utf8(output.stderr).unwrap().contains("notes.txt:1: not a report"));
}

#[test]
fn a_figure_is_a_picture_for_papers_too() {
    let folder = tempfile::tempdir().unwrap();
    let csv =
        succeeds(folder.path(), &["sim", "figure", "8b", "--out", "out", "--set", "sim.seed=7"]);
    assert!(csv.starts_with("flows,16 bits,32 bits,64 bits,128 bits,flows,16 bits 95 %"), "{csv}");
    let read = |name: &str| std::fs::read(folder.path().join("out").join(name)).unwrap();
    let (svg, pdf) = (String::from_utf8(read("figure-8b.svg")).unwrap(), read("figure-8b.pdf"));
    for part in ["seed 7", "Thalweg ", "2.1 GHz", "the paper's value", "95 % intervals"] {
        assert!(svg.contains(part), "{part}: {svg}");
    }
    assert!(pdf.starts_with(b"%PDF-1.") && pdf.trim_ascii_end().ends_with(b"%%EOF"));
    assert_eq!(read("figure-8b.csv"), csv.as_bytes());
}
