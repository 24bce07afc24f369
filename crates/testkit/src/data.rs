//! The folder of real rule sets and captures, for tests that use it when it is there.

use std::path::{Path, PathBuf};

use crate::peer;

/// The folder: `THALWEG_DATA`, or the one beside the checkout. `None`, reported on standard
/// output, when there is none.
///
/// # Panics
/// When there is none and peers are required.
pub fn data_folder() -> Option<PathBuf> {
    let near = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let folder = std::env::var_os("THALWEG_DATA").map_or_else(near, PathBuf::from);
    let found = folder.is_dir();
    if !found {
        peer::missing(&format!("data folder at {}", folder.display()));
    }
    found.then_some(folder)
}

/// All captures below `folder`, sorted, compressed ones too.
///
/// # Panics
/// When a folder cannot be read.
pub fn captures(folder: &Path) -> Vec<PathBuf> {
    const ENDS: [&str; 3] = [".pcap", ".pcapng", ".cap"];
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the folder can be read").flatten() {
            let path = entry.path();
            let name = path.to_string_lossy();
            let name = name.trim_end_matches(".gz");
            if path.is_dir() {
                folders.push(path);
            } else if ENDS.iter().any(|end| name.ends_with(end)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
