//! Files that a chain file includes: their sections belong to the chain, paths in them are relative
//! to their own folder, and every mistake in them is reported where it stands.

mod common;

use std::fs;
use std::os::unix::fs::symlink;

use common::{Folder, Tag};

/// The chain file; it includes [`PORTS`], which includes [`NFS`].
const CHAIN: &str = r#"include = ["parts/ports.toml"]
[[class]]
type = "web"
rules = ["tcp,tp_dst=80"]
[[route]]
path = ["b", "egress"]
"#;

const PORTS: &str = r#"include = ["nfs/all.toml"]
default_type = "rest"
[run]
workers = 2
[input.in]
capture = "in.pcap"
[output.out]
capture = "out.pcap"
[[class]]
type = "dns"
file = "dns.flows"
"#;

const NFS: &str = r#"[nf.a]
kind = "acl"
files = ["a.rules"]
hits = "hits.json"
[nf.b]
kind = "test"
number = 0
[[route]]
path = ["ingress", "a", "b"]
"#;

const NAMES: [&str; 3] = ["chain.toml", "parts/ports.toml", "parts/nfs/all.toml"];

/// The chain, with `from` replaced by `to` in one of its files.
fn folder(file: usize, from: &str, to: &str) -> Folder {
    let folder = Folder::new();
    fs::create_dir_all(folder.path("parts/nfs")).unwrap();
    let tag = Tag { flow: 1, back: false, lineage: 0, sequence: 0 };
    folder.capture("parts/in.pcap", &[tag]);
    folder.write("parts/dns.flows", "udp,tp_dst=53\n");
    folder.write("parts/nfs/a.rules", "permit ip\n");
    for (number, (name, text)) in NAMES.into_iter().zip([CHAIN, PORTS, NFS]).enumerate() {
        let is_whole = number != file || from.is_empty();
        assert!(is_whole || text.matches(from).count() == 1, "{from}");
        folder.write(name, &if is_whole { text.to_owned() } else { text.replace(from, to) });
    }
    folder
}

#[track_caller]
fn is_told(file: usize, from: &str, to: &str, expected: &str) {
    let mistakes = folder(file, from, to).mistakes();
    assert_eq!(mistakes.len(), 1, "{mistakes:#?}");
    assert!(mistakes[0].starts_with(expected), "{mistakes:#?} instead of {expected}");
}

#[test]
fn included_sections_belong_to_the_chain_in_their_order() {
    let folder = folder(0, "", "");
    let plan = folder.load().unwrap();
    assert!(plan.warnings().is_empty());
    let tree = plan.graph().to_tree().replace(&format!("{}/", folder.path("").display()), "");
    for part in [
        "parts/in.pcap\n",
        "parts/out.pcap\n",
        "2 rules, 3 packet types",
        "rest\n│  └─ a (acl: 1 rule",
        "b (test: test NF 0)",
        "egress",
    ] {
        assert!(tree.contains(part), "{part}: {tree}");
    }
    // Each file comes before the one that includes it.
    assert_eq!(plan.types.iter().collect::<Vec<_>>(), ["rest", "dns", "web"]);
    assert_eq!(plan.workers, 2);
    let hits = folder.path("parts/nfs/hits.json");
    assert_eq!(plan.files.outputs_of_nfs()[0].path(), hits);
    for (file, usage) in [
        ("chain.toml", "the chain file"),
        ("parts/ports.toml", "a file that the chain file includes"),
        ("parts/nfs/all.toml", "a file that the chain file includes"),
        ("parts/dns.flows", "the rules file of type 'dns'"),
    ] {
        assert_eq!(plan.files.usage(&folder.path(file)), Some(usage), "{file}");
    }
}

#[test]
fn a_routes_file_is_beside_the_file_that_names_it() {
    let chain = folder(0, "[[route]]\npath = [\"b\", \"egress\"]\n", "");
    let nfs = NFS.replace(
        "[[route]]\npath = [\"ingress\", \"a\", \"b\"]\n",
        "[memory]\nframe_size = 4096\n",
    );
    chain.write(NAMES[2], &format!("routes = \"r.csv\"\n{nfs}"));
    chain.write("parts/nfs/r.csv", "*,ingress,a\n*,a,b\n*,b,nowhere\n");
    let mistakes = chain.mistakes();
    assert!(mistakes[0].starts_with("parts/nfs/r.csv:3:5: unknown NF or output: "), "{mistakes:?}");
    chain.write("parts/nfs/r.csv", "*,ingress,a\n*,a,b\n*,b,egress\n");
    assert!(chain.load().is_ok());
}

/// The chain with this `capture` in [`PORTS`], and the output `out.1` in the file `out.0`.
fn searching(capture: &str, out: (usize, &str)) -> Folder {
    let output = |path: &str| format!("[output.out]\ncapture = \"{path}\"\n");
    let chain = folder(0, "", "");
    chain.capture("beside-the-chain-file.pcap", &[]);
    let ports = PORTS.replace("\"in.pcap\"", capture).replace(&output("out.pcap"), "");
    let mut texts = [CHAIN.to_owned(), ports, NFS.to_owned()];
    let sections = texts[out.0].find("[[").unwrap();
    texts[out.0].insert_str(sections, &output(out.1));
    for (name, text) in NAMES.into_iter().zip(texts) {
        chain.write(name, &text);
    }
    chain
}

#[test]
fn captures_are_searched_beside_the_file_that_names_them() {
    for capture in ["\"*.pcap\"", "\"nfs/../i?.pcap\"", "\"../*/*.pcap\"", "\".\"", "[\"*.pcap\"]"]
    {
        let chain = searching(capture, (0, "out.pcap"));
        let plan = chain.load().unwrap();
        let files = &plan.inputs[0].files;
        let found: Vec<_> = files.iter().map(|path| path.canonicalize().unwrap()).collect();
        assert_eq!(found, [chain.path("parts/in.pcap").canonicalize().unwrap()], "{capture}");
        // Other files of the folder are skipped; the place of the warning is in that file, too.
        let skipped: Vec<_> = plan.warnings().iter().map(ToString::to_string).collect();
        assert_eq!(skipped.len(), if capture == "\".\"" { 2 } else { 0 }, "{skipped:?}");
        let place = format!("{}:6:11: skipped '", chain.path(NAMES[1]).display());
        assert!(skipped.iter().all(|warning| warning.starts_with(&place)), "{skipped:?}");
    }
    is_told(1, "\"in.pcap\"", "\"*.gz\"", "parts/ports.toml:6:11: no file matches this pattern: ");
    is_told(1, "\"in.pcap\"", "[\"in.pcap\", \"*.flows\"]", "parts/ports.toml:6:23: cannot read '");
    is_told(1, "\"in.pcap\"", "\"[.pcap\"", "parts/ports.toml:6:11: bad pattern: ");
    is_told(1, "\"in.pcap\"", "[]", "parts/ports.toml:6:11: an empty list: ");
}

#[test]
fn no_file_that_is_written_is_searched_for_by_another_file() {
    for capture in ["\"*.pcap\"", "\"nfs/../*.pcap\"", "\"../parts/*.pcap\"", "\".\""] {
        for (out, place) in [
            ((0, "parts/out.pcap"), "chain.toml:3:11: "),
            ((0, "parts/nfs/../out.pcap"), "chain.toml:3:11: "),
            ((0, "link.pcap"), "chain.toml:3:11: "),
            ((1, "out.pcap"), "parts/ports.toml:8:11: "),
            ((2, "../out.pcap"), "parts/nfs/all.toml:9:11: "),
        ] {
            let chain = searching(capture, out);
            symlink("parts/out.pcap", chain.path("link.pcap")).unwrap();
            let mistakes = chain.mistakes();
            assert_eq!(mistakes.len(), 1, "{capture} {out:?}: {mistakes:?}");
            let expected = format!("{place}this file would be among those that input 'in' reads: ");
            assert!(mistakes[0].starts_with(&expected), "{capture} {out:?}: {mistakes:?}");
        }
        assert!(searching(capture, (2, "out.pcap")).load().is_ok(), "{capture}");
    }
}

#[test]
fn mistakes_are_reported_in_their_file() {
    is_told(1, "[run]", "[run", "parts/ports.toml:3:5: ");
    is_told(2, "number = 0", "number = 0 0", "parts/nfs/all.toml:7:10: ");
    is_told(1, "[run]", "[color]\n[run]", "parts/ports.toml:3:2: unknown key 'color': 'color'; ");
    is_told(1, "workers = 2", "workers = 0", "parts/ports.toml:4:11: bad number of workers: '0'");
    is_told(1, "\"in.pcap\"", "\"no.pcap\"", "parts/ports.toml:6:11: cannot read this capture: ");
    is_told(1, "\"out.pcap\"", "\"in.pcap\"", "parts/ports.toml:8:11: this would overwrite ");
    is_told(1, "\"dns.flows\"", "\"x.flows\"", "parts/ports.toml:11:8: cannot read the file: ");
    is_told(1, "file = \"dns.flows\"", "", "parts/ports.toml:9:1: this class has no rules");
    is_told(1, "\"rest\"", "\" rest\"", "parts/ports.toml:2:16: the name is empty or has blanks");
    is_told(2, "\"acl\"", "\"alc\"", "parts/nfs/all.toml:2:8: unknown NF kind 'alc'");
    is_told(2, "\"a.rules\"", "\"b.rules\"", "parts/nfs/all.toml:3:10: cannot read the file: ");
    is_told(2, "hits =", "hit =", "parts/nfs/all.toml:4:1: unknown field `hit`");
    is_told(2, "\"a\", \"b\"", "\"a\", \"c\"", "parts/nfs/all.toml:9:25: unknown NF or output: ");
    is_told(
        0,
        "[\"b\", \"egress\"]",
        "[\"a\", \"b\"]",
        "chain.toml:6:9: duplicate route; the first is in ",
    );
    let rule = "['udp,tp_dst=53']\n[[class]]\ntype = 'x'\nrules = ['udp,tp_dst=x']\n";
    is_told(1, "file = \"dns.flows\"", &format!("rules = {rule}"), "parts/ports.toml:14:22: ");
    is_told(
        1,
        "\"out.pcap\"",
        "\"${NO_SUCH_VARIABLE}.pcap\"",
        "parts/ports.toml:8:12: the environment variable 'NO_SUCH_VARIABLE' is not set",
    );
    is_told(
        1,
        "\"in.pcap\"",
        "\"${CARGO_PKG_NAME}\"",
        "parts/ports.toml:6:11: cannot read this capture: No such file or directory (os error 2): \
         '\"${CARGO_PKG_NAME}\"'; ",
    );
    is_told(
        2,
        "\"hits.json\"",
        "\"../ports.toml\"",
        "parts/nfs/all.toml:4:8: this would overwrite a file that the chain file includes: ",
    );
    // All of them at once, the chain file's first.
    let all = folder(2, "\"acl\"", "\"alc\"");
    all.write(NAMES[1], &PORTS.replace("workers = 2", "workers = 0"));
    all.write(NAMES[0], &CHAIN.replace("tp_dst=80", "tp_dst=x80"));
    let places: Vec<_> = all
        .mistakes()
        .iter()
        .map(|mistake| mistake.splitn(3, ':').take(2).collect::<Vec<_>>().join(":"))
        .collect();
    assert_eq!(places, ["chain.toml:4", "parts/nfs/all.toml:2", "parts/ports.toml:4"]);
}

#[test]
fn a_name_that_is_defined_twice_names_both_places() {
    let class = "[[class]]\ntype = \"web\"";
    let twice = |lines: &str, expected: &str| {
        let folder = folder(0, class, &format!("{lines}\n{class}"));
        let mistakes = folder.mistakes();
        let path = folder.path("").display().to_string();
        let found = mistakes.iter().any(|m| m.replace(&path, "").starts_with(expected));
        assert!(found, "{mistakes:#?} instead of {expected}");
    };
    for (lines, what, first, column) in [
        ("[nf.a]\nkind = 'test'\nnumber = 1", "NF 'a' is defined twice", "parts/nfs/all.toml:1", 5),
        ("[input.in]\ngenerate = {}", "input 'in' is defined twice", "parts/ports.toml:5", 8),
        ("[output.out]\ndiscard = true", "output 'out' is defined twice", "parts/ports.toml:7", 9),
        ("[run]\nworkers = 1", "'run' stands twice", "parts/ports.toml:3", 2),
    ] {
        let expected = format!("chain.toml:2:{column}: {what}, first in ");
        twice(lines, &expected);
        let mistakes = folder(0, class, &format!("{lines}\n{class}")).mistakes();
        assert!(mistakes[0].contains(&format!("{first}: ")), "{mistakes:?}");
    }
    twice("default_type = 'x'", "chain.toml:2:1: 'default_type' stands twice, first in ");
    twice("routes = 'r.csv'", "chain.toml:2:1: the routes are in a file, and in [[route]] in ");
    // A packet type may have classes in several files.
    assert!(folder(0, "\"web\"", "\"dns\"").load().is_ok());
}

#[test]
fn files_that_include_each_other_end() {
    let circle = |text: &str, expected: &str| {
        let folder = folder(2, "[nf.a]", &format!("include = [{text}]\n[nf.a]"));
        let mistakes = folder.mistakes();
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        assert!(mistakes[0].starts_with(expected), "{mistakes:?} instead of {expected}");
        mistakes.into_iter().next().unwrap()
    };
    let own = circle("'all.toml'", "parts/nfs/all.toml:1:12: a file includes itself: ");
    assert!(own.ends_with("''all.toml''; expected files that do not include each other"), "{own}");
    let long = circle("'../../chain.toml'", "parts/nfs/all.toml:1:12: a file includes itself: ");
    assert!(long.contains("chain.toml -> parts/ports.toml -> parts/nfs/all.toml -> "), "{long}");
    let twice = folder(0, "include = [", "include = [\"parts/nfs/all.toml\", ");
    let mistakes = twice.mistakes();
    assert!(
        mistakes[0].starts_with("parts/ports.toml:1:12: this file is included twice, first in ")
    );
    assert!(mistakes[0].contains("chain.toml:1: "), "{mistakes:?}");
    // By another name.
    symlink(twice.path("parts/nfs/all.toml"), twice.path("link.toml")).unwrap();
    twice.write(NAMES[0], &CHAIN.replace("include = [", "include = [\"link.toml\", "));
    assert!(twice.mistakes()[0].contains("this file is included twice"));
}

#[test]
fn files_without_end_are_refused() {
    let chain = folder(0, "include = [\"parts/ports.toml\"]", "include = [\"0.toml\"]");
    for number in 0..40 {
        chain.write(&format!("{number}.toml"), &format!("include = [\"{}.toml\"]\n", number + 1));
    }
    let mistakes = chain.mistakes();
    assert_eq!(mistakes.len(), 1, "{mistakes:?}");
    let expected = "14.toml:1:12: more than 16 files include each other in a row: ";
    assert!(mistakes[0].starts_with(expected), "{mistakes:?}");
    let names: Vec<_> = (0..300).map(|number| format!("{number}.toml")).collect();
    for name in &names {
        chain.write(name, "# nothing\n");
    }
    chain.write(NAMES[0], &format!("include = {names:?}\n"));
    let mistakes = chain.mistakes();
    assert_eq!(mistakes.len(), 44, "{mistakes:?}");
    assert!(mistakes[0].contains("the chain file includes more than 256 files: '\"256.toml\"'"));
    chain.write("0.toml", &"# a comment\n".repeat(1 << 20));
    chain.write("1.toml", &"# a comment\n".repeat(1 << 19));
    chain.write(NAMES[0], &CHAIN.replace("parts/ports.toml", "0.toml\", \"1.toml"));
    let mistakes = chain.mistakes();
    let expected = "chain.toml:1:22: the included files have more than 16 MiB: '\"1.toml\"'; ";
    assert!(mistakes.len() == 1 && mistakes[0].starts_with(expected), "{mistakes:?}");
    is_told(
        0,
        "parts/ports.toml",
        "/dev/zero",
        "chain.toml:1:12: the file has more than 16 MiB: '\"/dev/zero\"'; expected a readable file",
    );
}

#[test]
fn an_include_is_a_list_of_readable_files() {
    is_told(0, "parts/ports.toml", "none.toml", "chain.toml:1:12: cannot read the file: No such");
    is_told(0, "parts/ports.toml", "parts", "chain.toml:1:12: cannot read the file: Is a dir");
    is_told(
        0,
        "[\"parts/ports.toml\"]",
        "\"parts/ports.toml\"",
        "chain.toml:1:11: invalid type: string",
    );
    let odd = folder(0, "", "");
    fs::write(odd.path(NAMES[1]), b"[run]\n# \xff\n").unwrap();
    let mistakes = odd.mistakes();
    assert!(mistakes[0].starts_with("parts/ports.toml:2:3: the text is not UTF-8"), "{mistakes:?}");
    // Each that is missing, with a variable in its name.
    let missing = "a.toml\", \"${NO_SUCH_VARIABLE:-b}.toml";
    let mistakes = folder(0, "parts/ports.toml", missing).mistakes();
    assert_eq!(mistakes.len(), 2, "{mistakes:?}");
}

#[test]
fn a_reload_reads_included_files_again() {
    let folder = folder(0, "", "");
    let plan = folder.load().unwrap();
    folder.write(NAMES[1], &PORTS.replace("file = \"dns.flows\"", "rules = ['udp,tp_dst=x']"));
    let mistakes = plan.succession().err().unwrap();
    assert!(mistakes[0].to_string().contains("parts/ports.toml:11:"), "{mistakes:?}");
    folder.write(NAMES[1], &PORTS.replace("file = \"dns.flows\"", "rules = ['udp']"));
    let difference = plan.succession().unwrap().difference.to_string();
    assert_eq!(difference, "~ class: 2 rules -> 2 rules");
    folder.write(NAMES[1], &PORTS.replace("[[class]]\ntype = \"dns\"\nfile = \"dns.flows\"", ""));
    let difference = plan.succession().unwrap().difference.to_string();
    assert!(difference.contains("- class 'dns'"), "{difference}");
}
