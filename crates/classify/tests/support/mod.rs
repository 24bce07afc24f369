//! Where test data lies.

use std::path::PathBuf;

/// The folder of shared test data, or `None`, said aloud, when it is not there;
/// a failure when `REQUIRE_PEERS=1`.
pub fn data_folder() -> Option<PathBuf> {
    let near = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let folder = std::env::var_os("THALWEG_DATA").map_or_else(near, PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    let required = std::env::var_os("REQUIRE_PEERS").is_some_and(|v| v == "1");
    assert!(!required, "no data folder at {}", folder.display());
    println!("SKIPPED: no data folder");
    None
}
