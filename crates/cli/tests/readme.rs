//! What README and the page on an NF of one's own quote is as it is.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Stands for a figure that varies.
const MASK: &str = "#";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The fenced block of `page` that begins with `first`, without its fences.
fn block<'a>(page: &'a str, first: &str) -> &'a str {
    let begin = page.find(&format!("```{first}")).unwrap_or_else(|| panic!("no block '{first}'"));
    let (_, rest) = page[begin..].split_once('\n').expect("a block has lines");
    rest.split_once("```").expect("a block ends").0
}

/// What the demo prints, run in a copy of its folder.
fn demo() -> String {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(repository().join("examples/edge-gateway")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    let output = Command::new("bash")
        .arg(folder.path().join("demo.sh"))
        .env("THALWEG", env!("CARGO_BIN_EXE_thalweg"))
        .env("LC_ALL", "C")
        .output()
        .expect("bash starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && error.is_empty(), "{error}");
    String::from_utf8(output.stdout).expect("the output is UTF-8")
}

/// A line with single blanks, as the widths of columns vary with their figures, and with a mask for
/// each figure that varies:
///
/// - times and speeds: numbers before a unit and the unit, and an NF's cycles, which stand before its times;
/// - how many packets each layer classified: the exact-match cache and the megaflows turn themselves
///   on and off by the cycles that they measure.
fn masked(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let word = |at: usize| words.get(at).map_or("", |word| word.trim_end_matches(','));
    let is_number = |at| word(at).parse::<f64>().is_ok();
    let is_rate = |at| word(at).ends_with("pps") || word(at).ends_with("bit/s");
    let is_time = |at| matches!(word(at), "ns" | "us" | "ms" | "s") || is_rate(at);
    let is_unit = |at| is_time(at) || word(at) == "cycles";
    let is_layer = |at: usize| at > 0 && matches!(word(at - 1), "cache" | "megaflow" | "table");
    let varies = |at| {
        is_number(at) && (is_unit(at + 1) || is_number(at + 1) && is_time(at + 2) || is_layer(at))
            || is_time(at) && is_number(at - 1)
    };
    let shown = |(at, word)| if varies(at) { MASK } else { word };
    words.iter().copied().enumerate().map(shown).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_demo_prints_what_readme_shows() {
    let readme = read("README.md");
    let shown = block(&readme, "console\n$ make demo\n").strip_prefix("$ make demo\n").unwrap();
    let printed = demo();
    let [shown, now] = [shown, &printed].map(|text| text.lines().map(masked).collect::<Vec<_>>());
    for (shown, now) in shown.iter().zip(&now) {
        assert_eq!(shown, now, "README.md (left) is stale; the demo prints:\n{printed}");
    }
    assert_eq!(shown.len(), now.len(), "README.md is stale; the demo prints:\n{printed}");
}

/// Runs a command line in a folder with the examples, as README's reader does.
fn printed(folder: &Path, line: &str) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_thalweg")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash")
        .args(["-o", "pipefail", "-c", line])
        .current_dir(folder)
        .env("PATH", path)
        .output()
        .expect("bash starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && error.is_empty(), "{line}: {error}");
    String::from_utf8(output.stdout).expect("the output is UTF-8")
}

#[test]
fn commands_without_a_chain_file_print_what_readme_shows() {
    let readme = read("README.md");
    let (_, section) = readme.split_once("\n## Without a chain file\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let examples = repository().join("examples").canonicalize().unwrap();
    std::os::unix::fs::symlink(examples, folder.path().join("examples")).unwrap();
    let mut shown = Vec::new();
    for block in section.split("```console\n").skip(1) {
        let block = block.split("```").next().unwrap();
        for example in block.split("$ ").skip(1) {
            let (line, output) = example.split_once('\n').unwrap();
            assert_eq!(output, printed(folder.path(), line), "README.md is stale: {line}");
            shown.push(line.split(' ').nth(1).unwrap().to_owned());
        }
    }
    assert_eq!(shown, ["ids", "flows", "assets", "nat", "ids"]);
}

/// The drops of all lines of statistics, by reason, and the line of headings.
fn statistics(text: &str) -> (BTreeMap<&str, u64>, &str) {
    let (headings, lines) = text.split_once('\n').expect("there are lines");
    let mut drops = BTreeMap::new();
    for line in lines.lines() {
        // Two blanks or more stand between columns.
        let reasons = line.rsplit("  ").next().unwrap_or_default().split(", ");
        for (reason, count) in reasons.filter_map(|reason| reason.split_once(' ')) {
            if let Ok(count) = count.parse::<u64>() {
                *drops.entry(reason).or_default() += count;
            }
        }
    }
    (drops, headings)
}

#[test]
fn statistics_are_as_readme_shows() {
    let folder = tempfile::tempdir().unwrap();
    let example = "examples/edge-gateway";
    let copied = Command::new("cp")
        .args(["-r", "--parents", example])
        .arg(folder.path())
        .current_dir(repository())
        .status();
    assert!(copied.expect("cp starts").success());
    for page in ["README.md", "docs/reports.md"] {
        let page = read(page);
        let first = format!("console\n$ thalweg run {example}/chain.toml --stats");
        let (line, shown) = block(&page, &first).split_once('\n').unwrap();
        let arguments = line.strip_prefix("$ thalweg ").unwrap().strip_suffix(" > report.txt");
        let output = Command::new(env!("CARGO_BIN_EXE_thalweg"))
            .args(arguments.unwrap().split(' '))
            .current_dir(folder.path())
            .output()
            .unwrap();
        let printed = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{printed}");
        let (now, stale) = (statistics(&printed), "the page is stale");
        assert!(now.0.values().sum::<u64>() > 0);
        assert_eq!(statistics(shown), now, "{stale}; the program prints:\n{printed}");
        assert!(shown.contains("(last ") && folder.path().join("run.html").exists(), "{stale}");
    }
}

#[test]
fn figures_that_vary_are_masked_and_others_are_not() {
    let cases = [
        (
            "98 packets in 0.184 s on 1 worker: 1.09 Mpps, 23 cycles per packet",
            "98 packets in # # on 1 worker: # # # cycles per packet",
        ),
        ("latency p50 25.4 us, max 1.2 ms", "latency p50 # # max # #"),
        (
            "ids  nids  86  21598  0  0  4054  33.5 us  76.1 us  malformed 4",
            "ids nids 86 21598 0 0 # # # # # malformed 4",
        ),
        (
            "classified by exact-match cache 35274, megaflow 164819, rule table 2053",
            "classified by exact-match cache # megaflow # rule table #",
        ),
        ("vpn: protected 31341, opened 86", "vpn: protected 31341, opened 86"),
    ];
    for (line, expected) in cases {
        assert_eq!(masked(line), expected);
    }
}

/// `make test` prints a line for each program with tests: verdict, seconds, tests, crate, target.
#[test]
fn readme_names_test_programs_that_there_are() {
    let readme = read("README.md");
    let quoted = block(&readme, "console\n$ make test");
    let mut found = 0;
    for line in quoted.lines().filter(|line| line.starts_with("ok ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let &["ok", _, "s", _, "tests", name, target] = &words[..] else {
            panic!("README.md shows a line that scripts/test.py does not print: {line}");
        };
        let folders = ["crates", "crates/nfs"].map(|folder| repository().join(folder).join(name));
        let file = if target == "lib" { "src/lib.rs".into() } else { format!("tests/{target}.rs") };
        let is_there = folders.iter().any(|folder| folder.join(&file).is_file());
        assert!(is_there, "README.md names '{name} {target}', which is missing");
        found += 1;
    }
    assert!(found > 0);
}

#[test]
fn the_pages_on_own_kinds_quote_their_examples() {
    for (page, example, file, kind) in [
        ("docs/nf/own.md", "own-nf", "src/main.rs", "rust"),
        ("docs/nf/own.md", "own-nf", "Cargo.toml", "toml"),
        ("docs/nf/own.md", "own-nf", "chain.toml", "toml"),
        ("docs/nf/own.md", "own-nf", "routes.csv", "text"),
        ("docs/own-port.md", "own-port", "src/main.rs", "rust"),
        ("docs/own-port.md", "own-port", "Cargo.toml", "toml"),
        ("docs/own-port.md", "own-port", "chain.toml", "toml"),
    ] {
        let text = read(&format!("examples/{example}/{file}"));
        let quoted = format!("```{kind}\n{text}```\n");
        assert!(read(page).contains(&quoted), "{page} does not quote {file} as it is");
    }
}
