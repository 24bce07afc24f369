//! The allowed imports between crates: the table of section 2 of the architecture, checked
//! against the manifests.

use std::path::Path;

/// A crate, and the crates of the workspace that it may use.
const ALLOWED: &[(&str, &[&str])] = &[
    ("packet", &[]),
    ("classify", &["packet"]),
    ("io", &["packet"]),
    ("nf", &["packet", "classify"]),
    ("accel", &["packet", "nf"]),
    ("chain", &["packet", "classify", "io", "nf", "accel"]),
    ("openflow", &[]),
    ("switch", &["packet", "classify", "io", "nf", "accel", "chain", "openflow"]),
    ("oneswitch", &["openflow"]),
    ("agent", &["openflow", "nf"]),
    ("sim", &["packet", "classify"]),
    (
        "cli",
        &[
            "packet",
            "classify",
            "io",
            "nf",
            "accel",
            "chain",
            "openflow",
            "switch",
            "oneswitch",
            "agent",
            "sim",
        ],
    ),
];

/// The crates of the workspace that a manifest's dependencies name.
fn imports(manifest: &toml::Table) -> Vec<String> {
    let tables = ["dependencies", "build-dependencies"].map(|key| manifest.get(key));
    let tables = tables.into_iter().flatten().filter_map(toml::Value::as_table);
    let names = tables.flat_map(|table| table.keys());
    names.filter_map(|name| name.strip_prefix("thalweg-")).map(str::to_owned).collect()
}

#[test]
fn every_crate_uses_only_crates_that_the_architecture_allows() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut seen = Vec::new();
    for entry in std::fs::read_dir(crates).unwrap() {
        let folder = entry.unwrap().path();
        let Ok(text) = std::fs::read_to_string(folder.join("Cargo.toml")) else { continue };
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let manifest: toml::Table = text.parse().unwrap();
        assert_eq!(manifest["package"]["name"].as_str(), Some(&*format!("thalweg-{name}")));
        let allowed = ALLOWED.iter().find(|(n, _)| *n == name);
        let (_, allowed) = allowed.unwrap_or_else(|| panic!("'{name}' is not in the table"));
        for import in imports(&manifest) {
            assert!(allowed.contains(&&*import), "'{name}' may not use '{import}'");
        }
        seen.push(name);
    }
    for name in ["packet", "classify", "io", "nf", "chain", "sim", "cli"] {
        assert!(seen.iter().any(|s| s == name), "crate '{name}' was not found");
    }
}
