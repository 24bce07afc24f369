//! Text on a terminal: tables fit it, and messages and the progress line do not disturb each other.

mod support;
#[path = "support/screen.rs"]
mod terminal;

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use support::{command, pipe, succeeds, wait, write};
use terminal::OnTerminal;

/// A chain whose table has many columns, long names and many figures.
const WIDE: &str = "routes = 'routes.csv'\n[input.uplink-of-the-second-site]\ncapture = 'in.pcap'\n\
    [output.o]\ndiscard = true\n\
    [nf.detection-of-intrusions]\nkind = 'nids'\nrules = ['n.rules']\n\
    [nf.filter]\nkind = 'filter'\ndefault = 'drop'\n\
    rules = ['accept udp', 'drop tcp']\n\
    [nf.count]\nkind = 'monitor'\n";

fn wide() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write(path, "chain.toml", WIDE);
    write(
        path,
        "routes.csv",
        "*, ingress, detection-of-intrusions\n*, detection-of-intrusions, filter\n\
         *, filter, count\n*, count, egress\n",
    );
    write(path, "n.rules", "alert tcp any any -> any any (content:\"a\"; sid:1;)\n");
    succeeds(path, &["gen", "in.pcap", "--packets", "20000", "--malformed", "0.1"]);
    folder
}

/// The words of a text, without those of times and rates, which differ from run to run.
fn words(text: &str) -> BTreeSet<String> {
    let words = text.split_whitespace().map(|word| word.trim_matches(','));
    let varies = |word: &str| word.contains(|c: char| c.is_ascii_digit()) || word.ends_with('s');
    words.filter(|word| !varies(word)).map(str::to_owned).collect()
}

fn on_terminal(folder: &Path, columns: u16, arguments: &[&str]) -> (String, Vec<String>) {
    let (status, text, lines) = OnTerminal::start(folder, columns, arguments).end();
    assert!(status.success(), "{arguments:?}: {text}");
    (text, lines)
}

#[test]
fn text_fits_the_terminal_and_loses_no_word() {
    let folder = wide();
    let path = folder.path();
    let mut commands = vec![vec!["run", "chain.toml"], vec!["nf", "list"], vec!["doctor"]];
    for kind in ["nids", "router", "ipsec", "monitor"] {
        commands.push(vec!["nf", "show", kind]);
    }
    let short = ["--set", "sim.measured_lookups=400", "--set", "sim.warmup_lookups=100"];
    let small = ["--set", "workload.entries=64", "--method", "tcam,bulk"];
    commands.push([&["sim", "run"], &short[..], &small[..]].concat());
    for command in commands {
        let whole = succeeds(path, &command);
        for columns in [60, 80, 100] {
            let (text, _) = on_terminal(path, columns, &command);
            // What is drawn over does not count, and what wraps does.
            let text = text.rsplit('\x1b').next().unwrap().trim_start_matches("[K");
            for line in text.lines() {
                let line = line.trim_end();
                let fits = line.chars().count() <= usize::from(columns);
                assert!(fits, "{command:?} in {columns} columns: {line}\n{text}");
            }
            // Columns of zeros may be left out.
            let may_miss = |word: &String| matches!(word.as_str(), "generated" | "query");
            let missing: Vec<_> = words(&whole).difference(&words(text)).cloned().collect();
            assert!(missing.iter().all(may_miss), "{command:?}: {missing:?}\n{text}");
        }
    }
}

#[test]
fn text_for_programs_is_as_wide_as_it_needs_or_as_columns_says() {
    let folder = wide();
    let run = |columns: Option<&str>| {
        let mut command = command(folder.path(), &["run", "chain.toml"]);
        command.env_remove("COLUMNS");
        columns.map(|columns| command.env("COLUMNS", columns));
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let longest = |text: &str| text.lines().map(|line| line.chars().count()).max();
    let (whole, narrow) = (run(None), run(Some("70")));
    let rows = |text: &str| text.lines().filter(|line| line.starts_with("detection-of")).count();
    // Its row, and its figures.
    assert!(longest(&whole) > Some(100) && rows(&whole) == 2, "{whole}");
    assert!(whole.contains("generated"), "columns of zeros are for programs: {whole}");
    assert!(longest(&narrow) <= Some(70), "{narrow}");
    assert_eq!(longest(&run(Some("x"))), longest(&run(Some("0"))));
}

/// A chain that runs until it is stopped: its input is a pipe that nobody writes.
fn waiting() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let chain = "routes = 'routes.csv'\n[input.a]\ncapture = 'fifo'\n[output.o]\ndiscard = true\n";
    write(path, "chain.toml", chain);
    write(path, "routes.csv", "*, ingress, egress\n");
    pipe(path, "fifo");
    folder
}

fn writer(folder: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(folder.join("fifo")).unwrap()
}

#[test]
fn a_message_does_not_stand_behind_the_progress_line() {
    let folder = waiting();
    let path = folder.path();
    let _writer = writer(path);
    for columns in [80, 30] {
        let good = std::fs::read_to_string(path.join("chain.toml")).unwrap();
        let run = OnTerminal::start(path, columns, &["run", "chain.toml"]);
        let drawn = |run: &OnTerminal| run.text().matches(" pps").count();
        wait(|| drawn(&run) >= 2);
        write(path, "chain.toml", &format!("{good}[[class]]\ntype = 't'\nrules = ['nonsense']\n"));
        run.signal("HUP");
        wait(|| run.text().contains("error: reload"));
        let before = drawn(&run);
        wait(|| drawn(&run) > before + 1);
        write(path, "chain.toml", &good);
        run.signal("TERM");
        let (_, text, lines) = run.end();
        // The message begins its line, and no piece of progress is left on the screen.
        assert!(lines.iter().any(|line| line.starts_with("error: reload")), "{text:?}\n{lines:#?}");
        assert!(!lines.iter().any(|line| line.contains(" in, ")), "{text:?}\n{lines:#?}");
        // The line never wraps, or a part of it would stay.
        let parts = text.split("\x1b[K").skip(1);
        let longest = parts
            .filter(|part| part.contains(" s, "))
            .map(|part| part.trim_end_matches('\r').split("\r\n").last().unwrap().chars().count());
        assert!(longest.max().unwrap() < usize::from(columns), "{text:?}");
    }
}

#[test]
fn progress_has_percent_and_remaining_time_where_the_end_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write(path, "routes.csv", "*, ingress, egress\n");
    succeeds(path, &["gen", "in.pcap", "--packets", "1000", "--rate", "10000"]);
    succeeds(path, &["gen", "in.pcap.gz", "--packets", "1000", "--rate", "10000"]);
    pipe(path, "fifo");
    let _writer = writer(path);
    let long = "generate = { packets = 4000000000, rate = 10000 }\npace = 1.0";
    let capture = "capture = 'in.pcap'\npace = 1.0";
    let cases: [(&str, &[&str], bool); 9] = [
        (capture, &["--loop", "300000"], true),
        ("capture = 'in.pcap'\nmemory = true\npace = 1.0", &["--loop", "3000000"], true),
        ("capture = 'in.pcap.gz'\npace = 1.0", &["--loop", "100000"], true),
        (
            "capture = 'in.pcap'\npace = 1.0\n[input.b]\ncapture = 'in.pcap'\npace = 1.0",
            &["--loop", "300000"],
            true,
        ),
        (capture, &["--loop", "0", "--count", "40000000000"], true),
        (long, &[], true),
        (capture, &["--loop", "0", "--duration", "30s"], true),
        ("capture = 'fifo'", &[], false),
        (capture, &["--loop", "0"], false),
    ];
    for (input, options, known) in cases {
        let chain =
            format!("routes = 'routes.csv'\n[input.a]\n{input}\n[output.o]\ndiscard = true\n");
        write(path, "chain.toml", &chain);
        let run = OnTerminal::start(path, 80, &[&["run", "chain.toml"], options].concat());
        wait(|| run.text().matches("pps").count() >= 3);
        run.signal("TERM");
        let (status, text, _) = run.end();
        assert!(status.success(), "{text}");
        assert_eq!(text.contains(" %, "), known, "{input} {options:?}: {text:?}");
    }
}

#[test]
fn without_a_terminal_progress_is_a_message_now_and_then() {
    let folder = waiting();
    let path = folder.path();
    let _writer = writer(path);
    let start = |level: &str| {
        let mut arguments = vec!["run", "chain.toml", "--duration", "11s"];
        arguments.extend((!level.is_empty()).then_some(level));
        let mut command = command(path, &arguments);
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let runs = ["-v", "", "-q"].map(start);
    std::thread::sleep(Duration::from_secs(11));
    let [told, usual, quiet] =
        runs.map(|run| String::from_utf8(run.wait_with_output().unwrap().stderr).unwrap());
    assert!(told.contains("info: 10 s, 9"), "a line after 10 s, with percent: {told}");
    assert_eq!(told.matches(" pps").count(), 1, "{told}");
    assert!(usual.is_empty() && quiet.is_empty(), "{usual}{quiet}");
}
