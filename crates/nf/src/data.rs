//! The folder of real rule sets and captures, for tests that use them if it exists.

use std::path::PathBuf;

/// The folder: `THALWEG_DATA`, or the one beside the checkout.
pub(crate) fn data_folder() -> Option<PathBuf> {
    let near = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let folder = std::env::var_os("THALWEG_DATA").map_or_else(near, PathBuf::from);
    let there = folder.is_dir();
    if !there {
        println!("SKIPPED: no data folder");
    }
    there.then_some(folder)
}
