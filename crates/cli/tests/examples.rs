//! The chain files of the repository pass `thalweg check`, and run, in a copy of what is committed.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{report, succeeds, thalweg, write};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The committed files of `folder`; all of its files where git or its data is missing.
fn committed(folder: &str) -> Vec<PathBuf> {
    let git = Command::new("git")
        .args(["-c", "safe.directory=*", "ls-files", "-z", "--", folder])
        .current_dir(repository())
        .output();
    let listed = git.ok().filter(|git| git.status.success() && !git.stdout.is_empty());
    let Some(listed) = listed else {
        println!("SKIPPED: no git data; files that are not committed count as examples");
        return files_in(&repository().join(folder));
    };
    let listed = String::from_utf8(listed.stdout).unwrap();
    listed.split_terminator('\0').map(PathBuf::from).collect()
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_in(&path));
        } else {
            files.push(path.strip_prefix(repository()).unwrap().to_owned());
        }
    }
    files
}

/// A copy of the committed examples, and the chain files in it.
fn examples() -> (tempfile::TempDir, Vec<PathBuf>) {
    let copy = tempfile::tempdir().unwrap();
    let mut chains = Vec::new();
    for file in committed("examples") {
        let to = copy.path().join(&file);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(repository().join(&file), &to)
            .unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let is_toml = file.extension().is_some_and(|end| end == "toml");
        if is_toml && !file.ends_with("Cargo.toml") {
            chains.push(to);
        }
    }
    (copy, chains)
}

#[test]
fn the_chains_of_the_repository_are_checked_and_run_as_committed() {
    let (copy, chains) = examples();
    let (mut run, mut live, mut own) = (0, 0, 0);
    for chain in &chains {
        let (folder, name) = (chain.parent().unwrap(), chain.file_name().unwrap());
        let name = name.to_str().unwrap();
        let text = fs::read_to_string(chain).unwrap();
        let head: String = text.lines().take_while(|line| line.starts_with('#')).collect();
        if folder.join("Cargo.toml").exists() {
            // tests/run.rs of the example runs it with its own program; others do not know its kind.
            let error = String::from_utf8(thalweg(folder, &["check", name]).stderr).unwrap();
            assert!(error.contains("unknown") && head.contains("cargo run"), "{name}: {error}");
            own += 1;
        } else if text.contains("interface = ") {
            succeeds(folder, &["check", name, "--any-interface", "--strict"]);
            assert!(head.contains("--any-interface"), "{chain:?} does not say what it needs");
            live += 1;
        } else {
            succeeds(folder, &["check", name, "--strict"]);
            let (report, code, error) = report(folder, &["run", name, "--json", "--strict"]);
            assert_eq!((code, &report["conserved"]), (0, &true.into()), "{name}: {error}");
            assert!(report["packets_out"].as_u64() > Some(0), "{name}: {report}");
            run += 1;
        }
    }
    assert_eq!((run, live, own), (2, 1, 2), "{chains:?}");
    drop(copy);
}

#[test]
fn the_committed_tunnel_traffic_is_what_the_branch_office_writes() {
    let (copy, _) = examples();
    let folder = copy.path().join("examples/edge-gateway");
    let vpn = || {
        let (report, ..) = report(&folder, &["run", "chain.toml", "--json"]);
        (report["nfs"][0].clone(), report["types"].clone())
    };
    let (committed, types) = vpn();
    assert_eq!(committed["figures"]["opened"], 86, "{committed}");
    // The initialization vectors are random: the same packets in other bytes.
    succeeds(&folder, &["run", "branch-office.toml"]);
    fs::copy(folder.join("out/branch-esp.pcapng"), folder.join("branch-esp.pcapng")).unwrap();
    let (written, same_types) = vpn();
    assert_eq!((&written["figures"], same_types), (&committed["figures"], types));
}

#[test]
fn interfaces_that_are_missing_are_refused_unless_the_chain_is_for_another_machine() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let chain = "routes = 'r.csv'\n[input.a]\ninterface = 'nowhere0'\n\
        [output.b]\ninterface = 'nowhere1'\n";
    write(f, "chain.toml", chain);
    write(f, "r.csv", "*, ingress, egress\n");
    for arguments in [&["check", "chain.toml"][..], &["run", "chain.toml"]] {
        let output = thalweg(f, arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(78), "{error}");
        assert!(error.contains("nowhere0") && error.contains("nowhere1"), "{error}");
    }
    let shown = succeeds(f, &["check", "chain.toml", "--any-interface"]);
    assert!(shown.contains("input a: interface nowhere0"), "{shown}");
    write(f, "chain.toml", &chain.replace("interface = 'nowhere1'", "interfaces = 'nowhere1'"));
    let output = thalweg(f, &["check", "chain.toml", "--any-interface"]);
    assert_eq!(output.status.code(), Some(78), "other mistakes are still found");
}

/// The fenced block of `page` that begins with `first`.
fn block<'a>(page: &'a str, first: &str) -> &'a str {
    let at = page.find(first).unwrap_or_else(|| panic!("no block '{first}'"));
    page[at..].split_once("```").expect("a block ends").0
}

#[test]
fn the_chain_of_the_documentation_is_checked_and_run() {
    let page = fs::read_to_string(repository().join("docs/chain-file.md")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let chain = block(&page, "routes = \"routes.csv\"");
    write(f, "routes.csv", block(&page, "packet type, current NF, next NF\n"));
    let rule = "alert tcp any any -> any 80 (msg:\"web\"; flow:to_server; sid:1;)\n";
    write(f, "local.rules", rule);
    succeeds(f, &["gen", "lan.pcapng.gz", "--packets", "500"]);
    // The routes in their file, and in the chain file.
    let (_, rest) = chain.split_once('\n').unwrap();
    let paths = block(&page, "[[route]]\ntype");
    let trees = [chain.to_owned(), format!("{rest}\n{paths}")].map(|chain| {
        write(f, "chain.toml", &chain);
        let tree = succeeds(f, &["check", "chain.toml", "--strict"]);
        let (report, code, error) = report(f, &["run", "chain.toml", "--json"]);
        assert_eq!((code, &report["packets_in"]), (0, &500.into()), "{error}");
        assert!(report["types"]["web"]["packets"].as_u64() > Some(0), "{report}");
        tree
    });
    assert_eq!(trees[0], trees[1]);
}

/// As `gzip` compresses it.
fn gzip(text: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn every_text_file_of_a_chain_may_be_compressed() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let chain = "routes = 'r.csv'\n[input.a]\ngenerate = { packets = 100 }\n\
        [output.o]\ndiscard = true\n[[class]]\ntype = 'x'\nfile = 'x.flows'\n\
        [[class]]\ntype = 'y'\nclassbench = 'y.rules'\n\
        [nf.acl]\nkind = 'acl'\ndefault = 'permit'\nfiles = ['a.acl']\n\
        [[nf.acl.classbench]]\nfile = 'y.rules'\naction = 'permit'\n\
        [nf.wall]\nkind = 'filter'\nfile = 'wall.rules'\n\
        [nf.ids]\nkind = 'nids'\nrules = ['ids.rules']\n\
        [nf.hosts]\nkind = 'assets'\nfingerprints = ['own.toml']\n\
        [nf.edge]\nkind = 'router'\nroutes = 'table.txt'\n\
        [nf.edge.ports.o]\nmac = '02:00:00:00:00:01'\ndefault_mac = '02:00:00:00:00:02'\n";
    // Each with a mistake that its second line may have instead.
    let files = [
        (
            "r.csv",
            "*, ingress, acl\n*, acl, wall\n*, wall, ids\n*, ids, hosts\n*, hosts, edge\n*, edge, egress\n",
            "*, acl, nowhere",
        ),
        ("x.flows", "tcp,tp_dst=80\ntcp,tp_dst=443\n", "tcp,tp_dst=x"),
        (
            "y.rules",
            "@10.0.0.0/8 0.0.0.0/0 0 : 65535 22 : 22 0x06/0xFF\n@10.1.0.0/16 0.0.0.0/0 0 : 65535 25 : 25 0x06/0xFF\n",
            "@10.0.0.0/99",
        ),
        ("a.acl", "deny tcp,tp_dst=25\ndeny udp,tp_dst=25\n", "deny tcp,tp_dst=x"),
        ("wall.rules", "drop tcp,tp_dst=23\ndrop udp,tp_dst=23\n", "drop tcp,tp_dst=x"),
        (
            "ids.rules",
            "alert tcp any any -> any 80 (sid:1;)\nalert udp any any -> any 53 (sid:2;)\n",
            "alert tcp any any -> any 80 (sidd:1;)",
        ),
        ("own.toml", "# own\n[ports]\nssh = { tcp = [22] }\n", "[pots]"),
        ("table.txt", "0.0.0.0/0 direct o\n10.0.0.0/8 direct o\n", "10.0.0.0/99 direct o"),
    ];
    write(f, "chain.toml", chain);
    let fill = |broken: Option<usize>, compressed: bool| {
        for (at, (name, text, mistake)) in files.iter().enumerate() {
            let mut lines: Vec<&str> = text.lines().collect();
            if broken == Some(at) {
                lines[1] = mistake;
            }
            let text = lines.join("\n") + "\n";
            let bytes = if compressed { gzip(text.as_bytes()) } else { text.into_bytes() };
            fs::write(f.join(name), bytes).unwrap();
        }
    };
    let run = || report(f, &["run", "chain.toml", "--json"]).0;
    fill(None, false);
    let plain = run();
    fill(None, true);
    let compressed = run();
    for part in ["packets_out", "drops", "types"] {
        assert_eq!(plain[part], compressed[part], "{part}");
    }
    assert_eq!(plain["conserved"], true);
    for (at, (name, ..)) in files.iter().enumerate() {
        let error = |compressed| {
            fill(Some(at), compressed);
            let output = thalweg(f, &["check", "chain.toml"]);
            assert_eq!(output.status.code(), Some(78), "{name}");
            String::from_utf8(output.stderr).unwrap()
        };
        let (plain, compressed) = (error(false), error(true));
        assert!(plain.contains(&format!("{name}:2:")), "{plain}");
        assert_eq!(plain, compressed, "{name}");
    }
    // A part of a compressed file, and one whose text has no end.
    fill(None, true);
    let whole = fs::read(f.join("ids.rules")).unwrap();
    fs::write(f.join("ids.rules"), &whole[..whole.len() - 4]).unwrap();
    let bomb = gzip(&vec![b'\n'; 16 << 20]).repeat(17);
    fs::write(f.join("wall.rules"), bomb).unwrap();
    let error = String::from_utf8(thalweg(f, &["check", "chain.toml"]).stderr).unwrap();
    assert!(error.contains("cannot decompress the file"), "{error}");
    assert!(error.contains("more than 256 MiB"), "{error}");
}
