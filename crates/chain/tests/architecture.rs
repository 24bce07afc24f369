//! Who may import whom: the table of section 2 of the architecture, held against the manifests.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A crate, and the crates of the workspace that it may use; `nfs` stands for each crate of a
/// network function.
const ALLOWED: &[(&str, &[&str])] = &[
    ("level", &[]),
    ("cpu", &["level"]),
    ("source", &[]),
    ("packet", &["cpu"]),
    ("classify", &["cpu", "source", "packet"]),
    ("io", &["cpu", "source", "packet"]),
    ("nf", &["cpu", "source", "packet", "classify"]),
    ("nfs", &["cpu", "source", "packet", "classify", "nf"]),
    ("accel", &["cpu", "source", "packet", "classify", "nf"]),
    ("chain", &["cpu", "source", "packet", "classify", "io", "nf"]),
    ("engine", &["cpu", "source", "packet", "classify", "io", "nf", "chain"]),
    ("api", &["source"]),
    ("control", &["cpu", "source", "packet", "classify", "io", "nf", "chain", "engine", "api"]),
    ("sim", &["cpu", "source", "packet", "classify"]),
    (
        "cli",
        &[
            "cpu", "source", "packet", "classify", "io", "nf", "nfs", "accel", "chain", "engine",
            "api", "control", "sim",
        ],
    ),
    // Only tests use it.
    ("testkit", &["packet", "io", "nf"]),
];

/// A manifest: the name of its crate, and the crates of the workspace that it names.
struct Manifest {
    name: String,
    is_nf: bool,
    imports: Vec<String>,
    imports_of_tests: Vec<String>,
}

impl Manifest {
    fn read(folder: &Path, is_nf: bool) -> Self {
        let text = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let table: toml::Table = text.parse().unwrap();
        assert_eq!(table["package"]["name"].as_str(), Some(&*format!("thalweg-{name}")));
        let tables = ["dependencies", "build-dependencies"];
        let imports = tables.into_iter().flat_map(|key| imports_of(&table, key)).collect();
        let imports_of_tests = imports_of(&table, "dev-dependencies");
        Self { name, is_nf, imports, imports_of_tests }
    }
}

/// The crates of the workspace that a table of a manifest names, for every target.
fn imports_of(manifest: &toml::Table, key: &str) -> Vec<String> {
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let by_target = targets.into_iter().flat_map(toml::Table::values).filter_map(|t| t.get(key));
    let tables = manifest.get(key).into_iter().chain(by_target).filter_map(toml::Value::as_table);
    let names = tables.flat_map(toml::Table::keys);
    names.filter_map(|name| name.strip_prefix("thalweg-")).map(str::to_owned).collect()
}

/// What is wrong with the imports of these manifests.
fn mistakes(manifests: &[Manifest]) -> Vec<String> {
    let tiers: BTreeMap<&str, &str> =
        manifests.iter().map(|m| (&*m.name, if m.is_nf { "nfs" } else { &*m.name })).collect();
    let mut mistakes = Vec::new();
    for manifest in manifests {
        let tier = tiers[&*manifest.name];
        let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| *known == tier) else {
            mistakes.push(format!("'{}' is not in the table", manifest.name));
            continue;
        };
        let tier_of = |import: &str| tiers.get(import).copied().unwrap_or("unknown");
        for import in manifest.imports.iter().filter(|import| !allowed.contains(&tier_of(import))) {
            mistakes.push(format!("'{}' may not use '{import}'", manifest.name));
        }
        // Tests may stand on more, but those of one NF not on another NF.
        for import in manifest.imports_of_tests.iter().filter(|import| tier_of(import) == "nfs") {
            if manifest.is_nf {
                mistakes.push(format!("tests of '{}' may not use '{import}'", manifest.name));
            }
        }
    }
    mistakes
}

/// The folders below `folder` that have a manifest.
fn crates_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.join("Cargo.toml").is_file()).collect()
}

fn workspace() -> Vec<Manifest> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let nfs = crates_in(&crates.join("nfs"));
    let others = crates_in(crates);
    let others = others.iter().map(|folder| Manifest::read(folder, false));
    others.chain(nfs.iter().map(|folder| Manifest::read(folder, true))).collect()
}

#[test]
fn every_crate_uses_only_crates_that_the_architecture_allows() {
    let manifests = workspace();
    assert_eq!(mistakes(&manifests), [""; 0]);
    assert_eq!(manifests.iter().filter(|m| m.is_nf).count(), 12);
    for name in [
        "cpu", "source", "packet", "classify", "io", "nf", "chain", "engine", "api", "control",
        "sim", "cli",
    ] {
        assert!(manifests.iter().any(|m| m.name == name), "crate '{name}' was not found");
    }
}

#[test]
fn an_nf_that_imports_another_is_a_mistake() {
    let mut manifests = workspace();
    let nat = manifests.iter_mut().find(|m| m.name == "nat").unwrap();
    nat.imports.push("router".into());
    nat.imports_of_tests.push("nids".into());
    let packet = manifests.iter_mut().find(|m| m.name == "packet").unwrap();
    packet.imports.push("classify".into());
    let mut found = mistakes(&manifests);
    found.sort();
    assert_eq!(
        found,
        [
            "'nat' may not use 'router'",
            "'packet' may not use 'classify'",
            "tests of 'nat' may not use 'nids'",
        ]
    );
}
