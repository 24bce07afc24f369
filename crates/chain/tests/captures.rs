//! Inputs of several captures: a list, a folder, a pattern.

mod common;

use common::{Folder, Tag};
use thalweg_chain::Plan;
use thalweg_packet::Nanoseconds;

/// A chain whose input has this `capture`, and whose output is `out`.
fn chain(capture: &str, out: &str) -> String {
    format!(
        "routes = \"routes.csv\"\n[input.in]\ncapture = {capture}\n[output.out]\n\
         capture = \"{out}\"\n[nf.a]\nkind = \"test\"\nnumber = 0\n"
    )
}

/// A folder with three captures, the last of which begins first, in `traffic/`.
fn folder(capture: &str) -> Folder {
    let folder = Folder::new();
    std::fs::create_dir_all(folder.path("traffic/old")).unwrap();
    for (name, start) in [("a.pcap", 2), ("b.pcap", 3), ("c.pcap", 1), ("old/d.pcap", 4)] {
        let tag = Tag { flow: start, back: false, lineage: 0, sequence: 0 };
        let packet = (Nanoseconds(u64::from(start)), tag.packet());
        folder.timed_capture(&format!("traffic/{name}"), [packet]);
    }
    folder.write("routes.csv", "*,ingress,a\n*,a,egress\n");
    folder.write("chain.toml", &chain(capture, "out.pcap"));
    folder
}

/// The files of the input, in the order in which they are read.
fn files(folder: &Folder, plan: &Plan) -> Vec<String> {
    let base = folder.path("");
    let files = plan.inputs[0].files.iter();
    files.map(|path| path.strip_prefix(&base).unwrap().display().to_string()).collect()
}

fn warnings(folder: &Folder) -> Vec<String> {
    let base = folder.path("").display().to_string();
    let warnings = folder.load().unwrap().warnings();
    warnings.iter().map(|warning| warning.to_string().replace(&base, "")).collect()
}

#[test]
fn names_of_several_files_are_those_that_are_read_in_the_order_of_time() {
    let [a, b, c, d] = ["a.pcap", "b.pcap", "c.pcap", "old/d.pcap"].map(|n| format!("traffic/{n}"));
    let of_folder = vec![c.clone(), a.clone(), b.clone()];
    let all = vec![c.clone(), a.clone(), b.clone(), d.clone()];
    for (capture, expected) in [
        ("\"traffic\"", of_folder.clone()),
        ("\"traffic/\"", of_folder.clone()),
        ("\"traffic/*.pcap\"", of_folder.clone()),
        ("\"traffic/**/*.pcap\"", all.clone()),
        ("\"tr?ffic/[ac].pcap\"", vec![c.clone(), a.clone()]),
        ("[\"traffic/b.pcap\", \"traffic/a.pcap\"]", vec![a.clone(), b.clone()]),
        ("[\"traffic/old\", \"traffic/*.pcap\", \"traffic/a.pcap\"]", all),
        ("[\"traffic/b.pcap\"]", vec![b]),
    ] {
        let folder = folder(capture);
        let plan = folder.load().unwrap();
        assert_eq!(files(&folder, &plan), expected, "{capture}");
        let count = expected.len();
        let what = format!(": {count} file{}", if count == 1 { "" } else { "s" });
        assert!(plan.graph().to_mermaid().contains(&what), "{}", plan.graph().to_mermaid());
    }
}

#[test]
fn a_name_that_looks_like_a_pattern_is_first_of_all_a_name() {
    let folder = folder("\"traffic/[x].pcap\"");
    std::fs::rename(folder.path("traffic/a.pcap"), folder.path("traffic/[x].pcap")).unwrap();
    let plan = folder.load().unwrap();
    assert_eq!(files(&folder, &plan), ["traffic/[x].pcap"]);
}

#[test]
fn other_files_of_a_folder_are_skipped_with_a_warning_and_hidden_ones_without() {
    let folder = folder("\"traffic\"");
    folder.write("traffic/notes.txt", "seen on Monday").write("traffic/x.pcap", "");
    folder.write("traffic/.hidden", "x");
    let plan = folder.load().unwrap();
    assert_eq!(files(&folder, &plan).len(), 3);
    assert_eq!(
        warnings(&folder),
        [
            "chain.toml:3:11: skipped 'traffic/notes.txt': not a pcap or pcapng capture: it begins \
             with 73 65 65 6e: '\"traffic\"'; expected a folder of captures",
            "chain.toml:3:11: skipped 'traffic/x.pcap': the file is empty; expected a pcap or \
             pcapng capture: '\"traffic\"'; expected a folder of captures",
        ]
    );
    for n in 0..30 {
        folder.write(&format!("traffic/{n}.txt"), "text");
    }
    let warnings = warnings(&folder);
    assert_eq!(warnings.len(), 21);
    assert!(warnings[20].contains("skipped 12 more files"), "{}", warnings[20]);
}

#[test]
fn files_that_are_named_or_match_must_be_captures() {
    for (capture, column) in
        [("\"traffic/*\"", 11), ("[\"traffic/a.pcap\", \"traffic/x.pcap\"]", 30)]
    {
        let folder = folder(capture);
        folder.write("traffic/x.pcap", "");
        let mistakes = folder.mistakes();
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        let expected = format!(
            "chain.toml:3:{column}: cannot read 'traffic/x.pcap': the file is empty; expected a pcap"
        );
        assert!(mistakes[0].starts_with(&expected), "{mistakes:?}");
    }
}

#[test]
fn what_names_no_captures_is_pointed_at() {
    for (capture, column, expected) in [
        ("[]", 11, "an empty list: '[]'; expected at least one capture"),
        (
            "\"traffic/*.gz\"",
            11,
            "no file matches this pattern: '\"traffic/*.gz\"'; expected a pattern",
        ),
        ("\"traffic/[.pcap\"", 11, "bad pattern: Pattern syntax error near position"),
        ("\"traffic/none.pcap\"", 11, "cannot read this capture: No such file"),
        ("[\"traffic/none.pcap\"]", 12, "cannot read 'traffic/none.pcap': No such file"),
        ("[\"traffic/a.pcap\", 7]", 30, "invalid type: integer `7`, expected a string"),
        ("7", 11, "invalid type: integer `7`, expected the name of a file, a folder or a pattern"),
    ] {
        let mistakes = folder(capture).mistakes();
        assert_eq!(mistakes.len(), 1, "{capture}: {mistakes:?}");
        let place = format!("chain.toml:3:{column}: ");
        assert!(mistakes[0].starts_with(&place), "{capture}: {mistakes:?}");
        assert!(mistakes[0].contains(expected), "{capture}: {mistakes:?}");
    }
    let folder = folder("\"empty\"");
    std::fs::create_dir(folder.path("empty")).unwrap();
    assert!(folder.mistakes()[0].contains("this folder has no files"));
    let mistakes = folder.write("chain.toml", &chain("[\"/dev/null\"]", "out.pcap")).mistakes();
    assert!(mistakes[0].contains("cannot read '/dev/null': it is not a file"), "{mistakes:?}");
}

/// Neither one that is there, nor one that the next run would find there.
#[test]
fn no_file_that_is_written_is_among_those_that_are_read() {
    for (capture, out, expected) in [
        ("\"traffic\"", "traffic/a.pcap", "this would overwrite the file that input 'in' reads"),
        ("[\"traffic/a.pcap\"]", "traffic/a.pcap", "this would overwrite the file that input 'in'"),
        ("\"traffic\"", "traffic/out.pcap", "this file would be among those that input 'in' reads"),
        ("\"traffic\"", "traffic/old/../out.pcap", "this file would be among those that input"),
        ("\"traffic/*.pcap\"", "traffic/out.pcap", "this file would be among those that input"),
        ("\"traffic/**/*.pcap\"", "traffic/old/out.pcap", "this file would be among those"),
    ] {
        let folder = folder(capture);
        let mistakes = folder.write("chain.toml", &chain(capture, out)).mistakes();
        assert_eq!(mistakes.len(), 1, "{capture} {out}: {mistakes:?}");
        assert!(mistakes[0].starts_with("chain.toml:5:11: "), "{mistakes:?}");
        assert!(mistakes[0].contains(expected), "{capture} {out}: {mistakes:?}");
    }
    for (capture, out) in [
        ("\"traffic\"", "traffic/old/out.pcap"),
        ("\"traffic/*.pcap\"", "traffic/old/out.pcap"),
        ("\"traffic/*.pcap\"", "traffic/out.pcapng"),
    ] {
        let folder = folder(capture);
        assert!(folder.write("chain.toml", &chain(capture, out)).load().is_ok(), "{capture} {out}");
    }
}

#[test]
fn times_are_read_in_all_their_forms() {
    let parsed = |keys: &str| {
        let folder = folder("\"traffic\"");
        let chain = chain("\"traffic\"", "out.pcap");
        folder
            .write("chain.toml", &chain.replace("[output.out]", &format!("{keys}\n[output.out]")));
        let times = folder.load().map(|plan| plan.inputs[0].blueprint.times());
        times.map(Option::unwrap).map_err(|_| folder.mistakes())
    };
    let noon = Some(Nanoseconds(1_714_564_800_000_000_000));
    for value in [
        "2024-05-01T12:00:00Z",
        "2024-05-01T14:00:00+02:00",
        "\"2024-05-01T12:00:00Z\"",
        "1714564800",
        "1714564800.0",
        "\"1714564800\"",
    ] {
        let times = parsed(&format!("from = {value}")).unwrap();
        assert_eq!((times.from, times.to), (noon, None), "{value}");
        assert_eq!(parsed(&format!("to = {value}")).unwrap().to, noon, "{value}");
    }
    for value in ["2024-05-01T12:00:00", "2024-05-01", "12:00:00", "\"noon\"", "-5", "true", "[]"] {
        let mistakes = parsed(&format!("to = {value}")).unwrap_err();
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        assert!(mistakes[0].starts_with("chain.toml:4:6: bad time: "), "{mistakes:?}");
        assert!(mistakes[0].ends_with("(RFC 3339), or seconds since 1970"), "{mistakes:?}");
    }
    let mistakes = parsed("from = 20\nto = 20").unwrap_err();
    assert!(mistakes[0].starts_with("chain.toml:5:6: 'to' is not after 'from'"), "{mistakes:?}");
}

#[test]
fn times_are_those_of_captures() {
    let folder = folder("\"traffic\"");
    let chain = chain("\"traffic\"", "out.pcap");
    let generated = chain.replace("capture = \"traffic\"", "generate = {}\nfrom = 5");
    let mistakes = folder.write("chain.toml", &generated).mistakes();
    let expected =
        "chain.toml:4:8: 'from' does not apply to generated traffic: '5'; expected a capture";
    assert_eq!(mistakes, [expected]);
}

#[test]
fn a_pace_is_a_number_above_zero() {
    let folder = folder("\"traffic\"");
    let chain = chain("\"traffic\"", "out.pcap");
    for (input, keys, place) in [
        ("capture = \"traffic\"", "pace = 0", "4:8: bad pace '0'"),
        ("capture = \"traffic\"", "pace = -1.5", "4:8: bad pace '-1.5'"),
        ("capture = \"traffic\"", "pace = nan", "4:8: bad pace 'NaN'"),
        ("generate = {}", "pace = inf", "4:8: bad pace 'inf'"),
    ] {
        let chain = chain.replace("capture = \"traffic\"", &format!("{input}\n{keys}"));
        let mistakes = folder.write("chain.toml", &chain).mistakes();
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        assert!(mistakes[0].starts_with(&format!("chain.toml:{place}")), "{mistakes:?}");
        assert!(
            mistakes[0].ends_with("expected a number above 0; 1.0 is real time"),
            "{mistakes:?}"
        );
    }
    let interface = chain.replace("capture = \"traffic\"", "interface = \"lo\"\npace = 1.0");
    let mistakes = folder.write("chain.toml", &interface).mistakes();
    let expected =
        "'pace' does not apply to an interface: '1.0'; expected a capture or generated traffic";
    assert!(mistakes.iter().any(|mistake| mistake.ends_with(expected)), "{mistakes:?}");
}

#[test]
fn captures_that_are_merged_have_one_pace() {
    let folder = folder("\"traffic\"");
    let chain = chain("\"traffic/a.pcap\"", "out.pcap");
    let with = |first: &str, second: &str, merge: &str| {
        let second = format!("[input.b]\ncapture = \"traffic/b.pcap\"\n{second}\n[output.out]");
        let chain = chain.replace("[output.out]", &format!("{first}\n{second}"));
        folder.write("chain.toml", &format!("{chain}{merge}"));
        folder.load().err().map_or_else(Vec::new, |_| folder.mistakes())
    };
    let turn = "[run]\nmerge = \"turn\"\n";
    for (first, second, merge) in [
        ("", "", ""),
        ("pace = 2", "pace = 2.0", ""),
        ("pace = 2", "pace = 1", turn),
        ("pace = 2", "", turn),
    ] {
        assert_eq!(with(first, second, merge), Vec::<String>::new(), "{first} {second}");
    }
    for (first, second) in [("pace = 2", "pace = 1"), ("pace = 2", ""), ("", "pace = 2")] {
        let mistakes = with(first, second, "");
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        let expected =
            "'pace' of input 'b' is not that of input 'in', with which it is merged by time";
        assert!(mistakes[0].contains(expected), "{mistakes:?}");
        assert!(
            mistakes[0].ends_with("the same pace in both, or merge = \"turn\" in [run]"),
            "{mistakes:?}"
        );
    }
}
