//! `--report`: the report of a run as JSON, Markdown and an HTML page.

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use support::{Running, succeeds, thalweg, wait, write};
use thalweg_testkit::peer;

const CHAIN: &str = "[input.a]\ncapture = 'in.pcap'\n[output.o]\ncapture = 'out.pcap'\n\
    [nf.guard]\nkind = 'filter'\nrules = ['drop udp']\n[nf.count]\nkind = 'monitor'\n\
    json = 'flows.json'\n[[route]]\npath = ['ingress', 'guard', 'count', 'egress']\n";

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "chain.toml", CHAIN);
    succeeds(folder.path(), &["gen", "in.pcap", "--packets", "2000"]);
    folder
}

fn text(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Parses a page; writes its elements, its attributes, its text by element, and what is wrong.
const PARSE: &str = "
import json, sys
from html.parser import HTMLParser
VOID = {'meta', 'br', 'line', 'polyline', 'polygon', 'rect'}
class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.wrong, self.elements, self.attributes, self.text = [], [], {}, [], []
    def handle_starttag(self, tag, attributes):
        self.elements[tag] = self.elements.get(tag, 0) + 1
        self.attributes += [[tag, name, value] for name, value in attributes]
        if tag not in VOID:
            self.open.append(tag)
    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()
    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f'</{tag}> at {self.getpos()}')
    def handle_data(self, data):
        if data.strip():
            self.text.append([self.open[-1] if self.open else '', data.strip()])
page = Page()
page.feed(sys.stdin.read())
page.close()
page.wrong += [f'<{tag}> is not closed' for tag in page.open]
print(json.dumps(vars(page), default=str))
";

/// The page as Python's parser reads it; `None` without Python.
fn parsed(page: &str) -> Option<Value> {
    let parsed = peer::python("html.parser", PARSE, page)?;
    let parsed: Value = serde_json::from_str(&parsed).unwrap();
    assert_eq!(parsed["wrong"], Value::Array(Vec::new()));
    Some(parsed)
}

/// The texts of one kind of element.
fn texts<'a>(page: &'a Value, element: &str) -> Vec<&'a str> {
    let all = page["text"].as_array().unwrap().iter();
    all.filter(|pair| pair[0] == element).map(|pair| pair[1].as_str().unwrap()).collect()
}

#[track_caller]
fn loads_nothing(page: &Value) {
    for element in ["script", "link", "img", "iframe", "object", "embed", "base", "form", "use"] {
        assert!(page["elements"].get(element).is_none(), "{element}");
    }
    for attribute in page["attributes"].as_array().unwrap() {
        let (name, value) = (attribute[1].as_str().unwrap(), attribute[2].as_str().unwrap_or(""));
        let is_active = name.starts_with("on") || matches!(name, "src" | "href" | "xlink:href");
        assert!(!is_active && !value.contains("//") && !value.contains("url("), "{attribute}");
    }
    for style in texts(page, "style") {
        assert!(!style.contains("url(") && !style.contains("@import"), "{style}");
    }
}

#[test]
fn all_formats_of_a_report_agree() {
    let folder = folder();
    let path = folder.path();
    let arguments = ["run", "chain.toml", "--json", "--loop", "0", "--duration", "700ms"];
    let reports = ["--report", "r.json", "--report", "r.md", "--report", "r.html"];
    let printed = succeeds(path, &[&arguments[..], &reports].concat());
    assert_eq!(text(path, "r.json"), printed);
    let report: Value = serde_json::from_str(&printed).unwrap();
    let series = report["series"]["intervals"].as_array().unwrap();
    let sum = |name: &str| series.iter().map(|i| i[name].as_u64().unwrap()).sum::<u64>();
    for name in ["packets_in", "bytes_in", "packets_out", "bytes_out", "packets_dropped"] {
        assert_eq!(Some(sum(name)), report[name].as_u64(), "{name}");
    }
    let markdown = text(path, "r.md");
    let row = |cells: &[&str]| format!("| {} |", cells.join(" | "));
    let number = |name: &str| report[name].to_string();
    for (name, field) in [
        ("packets received", "packets_in"),
        ("bytes transmitted", "bytes_out"),
        ("packets dropped", "packets_dropped"),
    ] {
        assert!(markdown.contains(&row(&[name, &number(field)])), "{name}: {markdown}");
    }
    let drops = report["drops"]["filter-drop"].to_string();
    assert!(markdown.contains(&format!("| guard | filter-drop | {drops} | ")), "{markdown}");
    assert!(markdown.contains("- command: `thalweg run chain.toml --json --loop 0 "), "{markdown}");
    let Some(page) = parsed(&text(path, "r.html")) else { return };
    loads_nothing(&page);
    let cells = texts(&page, "td");
    let wanted = [number("packets_in"), number("bytes_out"), drops, "guard".into(), "count".into()];
    for wanted in wanted {
        assert!(cells.contains(&wanted.as_str()), "{wanted}: {cells:?}");
    }
    let plots = texts(&page, "figcaption");
    let expected = [
        "Packets per second by port",
        "Bits per second by port",
        "Packets dropped per second by reason",
        "Time from receive to transmit",
        "Cycles per packet by NF",
    ];
    assert_eq!(plots, expected);
    assert_eq!(page["elements"]["svg"], 5);
}

#[test]
fn a_report_of_a_run_without_packets_is_whole() {
    let folder = folder();
    let path = folder.path();
    let reports = ["--report", "r.json", "--report", "r.md", "--report", "r.html"];
    succeeds(path, &[&["run", "chain.toml", "--count", "0"], &reports[..]].concat());
    let report: Value = serde_json::from_str(&text(path, "r.json")).unwrap();
    assert_eq!(report["series"]["intervals"].as_array().unwrap().len(), 1);
    assert!(text(path, "r.md").contains("No packets were received."));
    let Some(page) = parsed(&text(path, "r.html")) else { return };
    loads_nothing(&page);
    assert!(page["elements"].get("svg").is_none() && texts(&page, "td").contains(&"guard"));
}

#[test]
fn hostile_names_stay_text() {
    let folder = folder();
    let path = folder.path();
    let names = ["<script>alert(1)</script>", "<img/src=x/onerror=x>|`*[a](http://b)", "&lt;b&gt;"];
    let chain = CHAIN
        .replace("[input.a]", &format!("[input.\"{}\"]", names[0]))
        .replace("nf.guard", &format!("nf.\"{}\"", names[1]))
        .replace("'guard'", &format!("\"{}\"", names[1]))
        .replace("[output.o]", &format!("[output.\"{}\"]", names[2]));
    let file = "<b onclick='x'>&.toml";
    write(path, file, &chain);
    succeeds(path, &["run", file, "--report", "r.html", "--report", "r.md"]);
    let markdown = text(path, "r.md");
    // In code, nothing but a bar is special.
    let as_code = [
        "`<script>alert(1)</script>`",
        "``<img/src=x/onerror=x>\\|`*[a](http://b)``",
        "`&lt;b&gt;`",
        "`thalweg run '<b onclick='\\''x'\\''>&.toml' ",
    ];
    let mut rest = markdown.clone();
    for code in as_code {
        assert!(rest.contains(code), "{code}: {markdown}");
        rest = rest.replace(code, "");
    }
    assert!(!rest.contains(['<', '&', '*', '[']) && !rest.contains("http"), "{rest}");
    let Some(page) = parsed(&text(path, "r.html")) else { return };
    loads_nothing(&page);
    let cells = texts(&page, "td");
    for name in names {
        assert!(cells.contains(&name), "{name}: {cells:?}");
    }
    assert!(page["elements"].get("b").is_none());
    assert!(texts(&page, "code")[0].contains("<b onclick="), "{:?}", texts(&page, "code"));
}

#[test]
fn files_that_cannot_be_written_are_refused_before_the_run() {
    let folder = folder();
    let path = folder.path();
    fs::create_dir(path.join("kept")).unwrap();
    fs::create_dir(path.join("folder.html")).unwrap();
    symlink("chain.toml", path.join("link.json")).unwrap();
    let in_use = |file: &str, what: &str| format!("{file}: this would overwrite {what}");
    let cases: [(&[&str], String); 11] = [
        (&["--report", "r.pdf"], "r.pdf: unknown ending; expected .json, .md or .html".into()),
        (&["--report", "-"], "-: this is not the name of a file".into()),
        (
            &["--stats", "1s", "--stats-file", "s.txt", "--report", "none/r.md"],
            "none/r.md: cannot write this file: No such file".into(),
        ),
        (&["--report", "folder.html"], "folder.html: cannot write this file: is a dir".into()),
        (
            &["--report", "in.pcap", "--report-format", "md"],
            in_use("in.pcap", "the file that input"),
        ),
        (
            &["--report", "out.pcap", "--report-format", "md"],
            in_use("out.pcap", "the file that out"),
        ),
        (&["--report", "flows.json"], in_use("flows.json", "the file that NF 'count' writes")),
        (&["--report", "link.json"], in_use("link.json", "the chain file")),
        (
            &["--report", "r.md", "--report", "./r.md"],
            in_use("./r.md", "the file of another --rep"),
        ),
        (
            &["--stats", "1s", "--stats-file", "r.md", "--report", "r.md"],
            in_use("r.md", "the file of another --stats-file"),
        ),
        (
            &["--report", "kept/state.json", "--export-state", "kept"],
            in_use("kept/state.json", "the state of an NF"),
        ),
    ];
    for (arguments, expected) in cases {
        let output = thalweg(path, &[&["run", "chain.toml"], arguments].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(&expected), "{arguments:?}: {error}");
        assert!(output.stdout.is_empty() && !path.join("out.pcap").exists(), "{arguments:?}");
        assert_eq!(text(path, "chain.toml"), CHAIN);
        assert!(!path.join("s.txt").exists(), "{arguments:?}");
    }
}

#[test]
fn the_format_can_be_chosen_and_an_old_report_is_replaced_at_the_end() {
    let folder = folder();
    let path = folder.path();
    write(path, "report.txt", "old");
    let options = ["--report", "report.txt", "--report-format", "md"];
    let refused =
        thalweg(path, &[&["run", "chain.toml", "--workers", "999"], &options[..]].concat());
    assert!(!refused.status.success() && text(path, "report.txt") == "old");
    succeeds(path, &[&["run", "chain.toml"], &options[..]].concat());
    assert!(text(path, "report.txt").starts_with("# Report of a run\n\nThe run succeeded: 2000 "));
}

#[test]
fn interrupted_and_failed_runs_write_their_reports() {
    let folder = folder();
    let path = folder.path();
    let run = Running::start(path, &["--loop", "0", "--report", "r.html"], Stdio::null());
    wait(|| fs::metadata(path.join("out.pcap")).is_ok_and(|file| file.len() > 1_000_000));
    run.signal("TERM");
    let ended = run.end();
    assert!(ended.status.success(), "{}", ended.error);
    let packets = ended.report()["packets_in"].to_string();
    assert!(text(path, "r.html").contains(&format!("<td class=\"n\">{packets}</td>")));
    let whole = fs::read(path.join("in.pcap")).unwrap();
    fs::write(path.join("in.pcap"), &whole[..whole.len() - 5]).unwrap();
    let output = thalweg(path, &["run", "chain.toml", "--report", "r.md"]);
    let markdown = text(path, "r.md");
    assert_eq!(output.status.code(), Some(1));
    let failure = markdown.split("## Failures\n\n- `").nth(1).expect("the report has the failure");
    assert!(failure.contains("in.pcap: at byte "), "{markdown}");
    assert!(markdown.contains("\nThe run failed: 1999 packets "), "{markdown}");
}
