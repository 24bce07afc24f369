//! Where test data lies.

use std::path::PathBuf;

/// The folder of shared test data, or `None`, said aloud, when it is not there.
pub fn data_folder() -> Option<PathBuf> {
    let near = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let folder = std::env::var_os("THALWEG_DATA").map_or_else(near, PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    println!("SKIPPED: no data folder");
    None
}
