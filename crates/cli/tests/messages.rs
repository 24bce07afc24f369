//! Messages about files, packets and arguments: visible, bounded, counted in full, each file named
//! once, and as JSON.

mod support;

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Output;

use serde_json::Value;
use support::{command, succeeds, thalweg, write};

const CHAIN: &str = "routes = 'routes.csv'\n[input.a]\ngenerate = { packets = 100 }\n\
    [output.o]\ndiscard = true\n";

/// Characters that a terminal obeys, that reorder text, or that nobody sees.
const ODD: &str =
    "\u{1b}[31m\u{7}\r\u{8}\u{7f}\u{9b}2J\u{85}\u{202e}\u{2066}\u{2028}\u{200b}\u{feff}";

/// The text in escapes of TOML.
fn escaped(text: &str) -> String {
    text.chars().fold(String::new(), |out, c| out + &format!("\\u{:04X}", c as u32))
}

/// A folder with a chain of one NF.
fn folder(nf: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "routes.csv", "*, ingress, n\n*, n, egress\n");
    write(folder.path(), "chain.toml", &format!("{CHAIN}[nf.n]\n{nf}"));
    folder
}

fn told(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("messages are UTF-8")
}

/// Everything that a command printed, which must be visible.
fn visible(output: &Output) -> String {
    let all = String::from_utf8(output.stdout.clone()).unwrap() + &told(output);
    let hidden: Vec<char> =
        all.chars().filter(|c| *c != '\n' && !thalweg_source::is_visible(*c)).collect();
    assert_eq!(hidden, [], "{all:?}");
    all
}

/// The messages of a chain that must have mistakes, and their number.
fn mistakes(folder: &Path, arguments: &[&str]) -> (String, u64) {
    let output = thalweg(folder, arguments);
    assert_eq!(output.status.code(), Some(78), "{arguments:?}: {}", told(&output));
    let text = visible(&output);
    let last = text.lines().rfind(|line| line.starts_with("error: ")).unwrap_or_default();
    let count = last.strip_prefix("error: ").and_then(|rest| rest.split(' ').next()?.parse().ok());
    (text.clone(), count.unwrap_or_else(|| panic!("{text}")))
}

/// For each kind of file, the section that names it, its name, and a line that is wrong, in which
/// `@` stands for the wrong text.
const FILES: [(&str, &str, &str); 8] = [
    ("kind = 'acl'\nfiles = ['f']\n", "f", "permit tcp,tp_dst=@"),
    ("kind = 'acl'\nclassbench = [{ file = 'f', action = 'permit' }]\n", "f", "@ is no rule"),
    ("kind = 'filter'\nfile = 'f'\n", "f", "drop @"),
    (
        "kind = 'nids'\nrules = ['f']\n",
        "f",
        "alert tcp any any -> any any (msg:\"x\"; @:1; sid:1;)",
    ),
    ("kind = 'nids'\nrules = ['f']\n", "f", "alert tcp any @ -> any any (sid:1;)"),
    (
        "kind = 'router'\nroutes = 'f'\n[nf.n.ports.o]\nmac = '02:00:00:00:00:01'\n\
         ip = '10.0.0.1'\n",
        "f",
        "10.0.0.0/8 @ o",
    ),
    ("kind = 'refrag'\n[[class]]\ntype = 'web'\nfile = 'f'\n", "f", "tcp,tp_dst=@"),
    ("kind = 'refrag'\n", "routes.csv", "*, @, egress"),
];

#[test]
fn no_text_of_a_file_reaches_a_terminal_raw() {
    for (nf, name, line) in FILES {
        let folder = folder(nf);
        let path = folder.path();
        // Not at an end, where some would be blanks around a word; readers of lines end at \r\n.
        write(path, name, &format!("{}\n", line.replace('@', &format!("x{ODD}x"))));
        let (text, count) = mistakes(path, &["check", "chain.toml"]);
        assert_eq!(count, 1, "{text}");
        assert!(text.contains("\\x1b[31m") && text.contains("\\u{202e}"), "{text}");
        assert!(text.contains(&format!("{name}:1:")), "{text}");
        // The mark is under the wrong text.
        let lines: Vec<_> = text.lines().collect();
        let at =
            lines.iter().position(|l| l.contains("╰── here")).unwrap_or_else(|| panic!("{text}"));
        let column = lines[at - 1].chars().position(|c| c == '─' || c == '┬').unwrap();
        let marked: String = lines[at - 2].chars().skip(column).collect();
        let begins = ['x', '\\', '*', 'a']; // the text, or the field or rule that holds it
        assert!(marked.starts_with(begins) || line.starts_with('@'), "{text}");
    }
}

#[test]
fn no_name_option_or_argument_reaches_a_terminal_raw() {
    let odd = escaped(ODD);
    let chains = [
        format!("{CHAIN}[nf.\"n{odd}\"]\nkind = 'refrag'\n"),
        format!("{CHAIN}[nf.n]\nkind = \"{odd}\"\n"),
        format!("{CHAIN}[nf.n]\nkind = 'acl'\n\"{odd}\" = 1\n"),
        format!("{CHAIN}[nf.n]\nkind = 'acl'\ndefault = \"{odd}\"\n"),
        format!("{CHAIN}[nf.n]\nkind = 'nids'\nrules = [\"x{odd}\"]\n"),
        format!("{CHAIN}[nf.n]\nkind = 'monitor'\njson = \"no{odd}/x\"\n"),
        CHAIN.replace("generate = { packets = 100 }", &format!("interface = \"{odd}\"")),
        CHAIN.replace("generate = { packets = 100 }", &format!("capture = \"x{odd}\"")),
        CHAIN.replace("discard = true", &format!("capture = \"no{odd}/x.pcap\"")),
        CHAIN.replace("routes.csv", ODD),
        CHAIN.replace("'routes.csv'", &format!("\"x{odd}\"")),
        format!("\"{odd}\" = 1\n{CHAIN}"),
        format!("{CHAIN}# \u{1b}[2J\n"),
        format!("{CHAIN}[[class]]\ntype = \"web{odd}\"\nrules = ['tcp']\n"),
        format!("default_type = \"{odd}\"\n{CHAIN}"),
    ];
    let folder = folder("kind = 'refrag'\n");
    let path = folder.path();
    for chain in chains {
        write(path, "chain.toml", &chain);
        for command in [&["check"][..], &["run"], &["trace", "--packet", "1"], &["check", "--json"]]
        {
            let output = thalweg(path, &[command, &["chain.toml"]].concat());
            assert_eq!(output.status.code(), Some(78), "{chain}: {}", visible(&output));
            visible(&output);
        }
    }
    let arguments: [&[&str]; 6] = [
        &[ODD],
        &["check", &format!("no{ODD}.toml")],
        &["run", "chain.toml", "--count", ODD],
        &["nf", "show", ODD],
        &["gen", &format!("no/{ODD}.pcap")],
        &["sim", "run", "--set", ODD],
    ];
    for arguments in arguments {
        let output = thalweg(path, arguments);
        assert!(!output.status.success(), "{arguments:?}");
        // Sequences with colours are removed from messages about arguments.
        assert!(visible(&output).contains("\\u{9b}2J"), "{arguments:?}: {}", visible(&output));
    }
    // A path that is not UTF-8, and a line end in one that would look like a message.
    let name = std::ffi::OsStr::from_bytes(b"no\xff\x9b\nerror: forged.toml");
    let output = command(path, &["check"]).arg(name).output().unwrap();
    assert!(!visible(&output).lines().any(|line| line.starts_with("error: forged")));
    // A file that is not UTF-8.
    fs::write(path.join("chain.toml"), b"routes = '\x1b[31m\xff\x9b'\n").unwrap();
    let (text, _) = mistakes(path, &["check", "chain.toml"]);
    assert!(text.contains("chain.toml:1:16: the text is not UTF-8"), "{text}");
}

#[test]
fn no_text_of_a_rule_reaches_the_output_raw() {
    // In a TOML string, a rule may have line ends and others that are blanks.
    let folder = folder("kind = 'acl'\nrules = ['permit ip']\n");
    let path = folder.path();
    let name = format!("out{}.pcap", ODD.replace('\u{2028}', "\n"));
    let odd = escaped(&name);
    let chain = CHAIN.replace("discard = true", &format!("capture = \"{odd}\""));
    let class = "[[class]]\ntype = 'all'\nrules = [\"\\n ip\\t\"]\n";
    write(path, "chain.toml", &format!("{chain}[nf.n]\nkind = 'refrag'\n{class}"));
    let tree = visible(&thalweg(path, &["check", "chain.toml"]));
    assert!(tree.contains("output o: out\\x1b[31m"), "{tree}");
    let trace = thalweg(path, &["trace", "chain.toml", "--packet", "1"]);
    assert!(visible(&trace).contains("type: all"), "{}", visible(&trace));
    // JSON keeps the characters, as escapes.
    let output = thalweg(path, &["check", "chain.toml", "--json"]);
    visible(&output);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["graph"]["outputs"][0]["what"], name);
}

#[test]
fn a_long_line_is_quoted_in_part() {
    for (nf, name, line) in FILES {
        for before in ["", "# comment\n"] {
            let folder = folder(nf);
            let path = folder.path();
            let long = "y".repeat(1 << 20);
            let text = format!("{before}{}\n# {long}\n", line.replace('@', &long));
            write(path, name, &text);
            let (text, count) = mistakes(path, &["check", "chain.toml"]);
            assert_eq!(count, 1, "{text}");
            assert!(text.contains('…') && text.contains("here"), "{text}");
            assert!(text.len() < 3000, "{name}: {} bytes: {}", text.len(), &text[..3000]);
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest < Some(260), "{name}: {widest:?}: {text}");
        }
    }
    // Values and keys of the chain file itself.
    let folder = folder("kind = 'refrag'\n");
    let long = "z".repeat(1 << 20);
    for chain in [
        format!("{CHAIN}[nf.n]\nkind = '{long}'\n"),
        format!("{CHAIN}[nf.n]\nkind = 'acl'\n{long} = 1\n"),
        format!("{CHAIN}[nf.n]\nkind = 'acl'\ndefault = '{long}'\n"),
        format!("{CHAIN}{long} = 1\n"),
        format!("{CHAIN}[nf.n]\nkind = 'acl'\nrules = ['permit {long}']\n"),
        format!("{CHAIN}[nf.n]\nkind = 'acl'\nrules = {{ a = [\n{} ] }}\n", "1,\n".repeat(29_999)),
        CHAIN.replace("discard = true", &format!("interface = '{long}'")),
        CHAIN.replace("routes.csv", &long),
        long.clone(),
    ] {
        write(folder.path(), "chain.toml", &chain);
        let (text, _) = mistakes(folder.path(), &["check", "chain.toml"]);
        assert!(text.len() < 6000, "{} bytes: {}", text.len(), &text[..6000]);
        let output = thalweg(folder.path(), &["check", "chain.toml", "--json"]);
        assert!(output.stdout.len() < 6000, "{}", output.stdout.len());
    }
}

#[test]
fn mistakes_are_counted_in_full() {
    for (at, (nf, name, line)) in FILES.into_iter().enumerate() {
        // As many routes as a user once gave; fewer lines show the same of the other files.
        let many = if at == 5 { 160_147 } else { 20_147 };
        let folder = folder(nf);
        let path = folder.path();
        let lines: String =
            (0..many).map(|n| line.replace('@', &format!("bad{n}")) + "\n").collect();
        write(path, name, &lines);
        let (text, count) = mistakes(path, &["check", "chain.toml"]);
        assert_eq!(count, many as u64, "{name} {line}: {text}");
        let unseen = many - 20;
        let end = format!("{many} mistakes in 1 file ({unseen} not shown); nothing was started");
        assert!(text.ends_with(&format!("error: {end}\n")), "{text}");
        // Each is shown with its own line.
        for line in 1..=20 {
            assert!(text.contains(&format!("{name}:{line}:")), "{line}: {text}");
        }
    }
}

#[test]
fn repeated_routes_are_counted_in_full() {
    let folder = folder(FILES[5].0);
    let path = folder.path();
    let routes = |n: usize| format!("10.0.0.0/8 {}\n", ["blackhole", "unreachable"][n % 2]);
    write(path, "f", &(0..30_000).map(routes).collect::<String>());
    assert_eq!(mistakes(path, &["check", "chain.toml"]).1, 29_999);
    write(path, "f", &"10.0.0.0/8 blackhole\n".repeat(30_000));
    assert_eq!(mistakes(path, &["check", "chain.toml", "--strict"]).1, 29_999);
    write(path, "f", "");
    write(path, "routes.csv", &"*, ingress, n\n".repeat(30_000));
    assert_eq!(mistakes(path, &["check", "chain.toml"]).1, 29_999);
}

#[test]
fn a_message_names_its_file_once() {
    let cases = [
        ("routes.csv", "none.csv"),
        ("generate = { packets = 100 }", "capture = 'none.pcap'"),
        ("discard = true", "capture = 'none/out.pcap'"),
        ("kind = 'refrag'", "kind = 'nids'\nrules = ['none.rules']"),
        ("kind = 'refrag'", "kind = 'acl'\nfiles = ['none.rules']"),
        ("kind = 'refrag'", "kind = 'assets'\nfingerprints = ['none.toml']"),
        ("kind = 'refrag'", "kind = 'monitor'\njson = 'none/x'"),
        ("kind = 'refrag'", "kind = 'unknown'"),
    ];
    let folder = folder("");
    let path = folder.path();
    for (from, to) in cases {
        let text = format!("{CHAIN}[nf.n]\nkind = 'refrag'\n").replace(from, to);
        write(path, "chain.toml", &text);
        let (text, _) = mistakes(path, &["check", "chain.toml"]);
        let names = text.matches("chain.toml").count();
        // Fingerprints are read later, and the mistake is in their own file.
        assert_eq!(names, usize::from(!to.contains("none.toml")), "{text}");
        assert!(text.matches("none").count() <= 1, "{text}");
    }
    write(path, "chain.toml", &format!("{CHAIN}[nf.n]\nkind = 'refrag'\n"));
    write(path, "routes.csv", "*, ingress, n\n*, n, nowhere\n");
    let (text, _) = mistakes(path, &["check", "chain.toml"]);
    assert_eq!(text.matches("routes.csv").count(), 1, "{text}");
    assert!(text.contains("routes.csv:2:7: unknown NF or output"), "{text}");
    let output = thalweg(path, &["check", "none.toml"]);
    assert_eq!(told(&output).matches("none.toml").count(), 1, "{}", told(&output));
}

#[test]
fn mistakes_are_json_too() {
    let folder = folder("kind = 'nids'\nrules = ['f']\n");
    let path = folder.path();
    write(path, "f", &"alert bad rule\n".repeat(2000));
    for command in [&["check"][..], &["run"], &["trace", "--packet", "1"]] {
        let output = thalweg(path, &[command, &["chain.toml", "--json"]].concat());
        assert_eq!(output.status.code(), Some(78));
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&json["schema"], &json["total"]), (&"thalweg.mistakes/1".into(), &2000.into()));
        let list = json["mistakes"].as_array().unwrap();
        assert_eq!((json["shown"].as_u64(), &json["files"]), (Some(list.len() as u64), &1.into()));
        let expected = serde_json::json!({
            "file": "f", "line": 2, "column": 1, "span": [15, 29], "text": "alert bad rule",
            "message": "not a rule",
            "expected": "ACTION PROTOCOL ADDRESS PORT -> ADDRESS PORT (OPTIONS)",
        });
        assert_eq!(list[1], expected);
        let message = "error: 2000 mistakes in 1 file (1899 not shown); nothing was started\n";
        assert_eq!(told(&output), message, "standard error has no second copy");
    }
    // A run that fails, and mistakes of several files.
    write(path, "f", "alert bad rule\n");
    write(path, "routes.csv", "*, ingress, x\n");
    let output = thalweg(path, &["check", "chain.toml", "--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["total"], &json["files"]), (&2.into(), &2.into()));
    write(path, "routes.csv", "*, ingress, egress\n");
    write(path, "chain.toml", CHAIN);
    let output = thalweg(path, &["run", "chain.toml", "--json", "--import-state", "none"]);
    assert_eq!(output.status.code(), Some(1));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["schema"], "thalweg.failure/1");
    assert!(told(&output).contains(json["message"].as_str().unwrap()), "{json} {}", told(&output));
    let report: Value =
        serde_json::from_str(&succeeds(path, &["run", "chain.toml", "--json"])).unwrap();
    assert_eq!(report["schema"], "thalweg.run/1");
}

/// An environment variable may hold a key or a password.
#[test]
fn no_value_of_a_variable_reaches_a_message() {
    let sa = "kind = 'ipsec'\n[[nf.n.sa]]\nname = 'x'\ndirection = 'out'\nspi = 0x2001\n\
        source = '192.0.2.1'\ndestination = '192.0.2.10'\n";
    let key = "suite = 'aes128-gcm16'\nencryption_key = ";
    let sections = [
        format!("{sa}{key}'${{SECRET}}'\n"),
        format!("{sa}{key}'0x${{SECRET}}${{SECRET}}'\n"),
        format!("{sa}{key}['${{SECRET}}']\n"),
        format!("{sa}encryption_key = ''\nsuite = '${{SECRET}}'\n"),
        "kind = '${SECRET}'\n".into(),
        "kind = 'monitor'\njson = '${SECRET}/x'\n".into(),
        "kind = 'monitor'\nmax_flows = '${SECRET}'\n".into(),
        "kind = 'filter'\nrules = ['drop tcp,tp_dst=${SECRET}', '${SECRET} ip']\n".into(),
        "kind = 'nids'\nrules = ['f']\nvariables = { HOME_NET = '[${SECRET}]' }\n".into(),
        "kind = 'nat'\ninside = ['${SECRET}']\nexternal = ['${SECRET}']\n".into(),
        "kind = 'nat'\ninside = []\nexternal = []\nfiltering = '${SECRET}'\n".into(),
    ];
    for secret in ["5ecret\"\u{1b}key\"", "correct horse battery staple"] {
        for section in &sections {
            let folder = folder(section);
            write(folder.path(), "f", "alert ip any any -> any any (sid:1;)\n");
            for arguments in [&["check", "chain.toml"][..], &["run", "chain.toml", "--json"]] {
                let output = command(folder.path(), arguments).env("SECRET", secret).output();
                let output = output.unwrap();
                assert_eq!(output.status.code(), Some(78), "{section}: {}", told(&output));
                let text = visible(&output);
                assert!(text.contains("SECRET") || section.contains("_key"), "{section}: {text}");
                for part in ["5ecret", "key\\\"", "horse", "battery"] {
                    assert!(!text.contains(part), "{section}: {text}");
                }
            }
        }
    }
    // With a default or a value, the same file is whole.
    let folder = folder("kind = 'filter'\nrules = ['drop ${PROTOCOL:-udp}']\n");
    for (protocol, drops) in [("", "udp"), ("tcp", "tcp")] {
        let output = command(folder.path(), &["run", "chain.toml", "--json"])
            .env("PROTOCOL", protocol)
            .output()
            .unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(report["packets_dropped"].as_u64() > Some(0), "{drops}: {report}");
    }
}
