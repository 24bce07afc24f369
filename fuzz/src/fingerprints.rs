//! Fingerprint files: whatever they hold, they are read or refused.

use std::fs;
use std::path::PathBuf;

/// Names of the files, by what reads them: the first of a file's own format, then p0f's, then
/// recog's, then those of PRADS's folder.
const FILES: [&str; 8] = [
    "own.toml",
    "p0f.fp",
    "recog.xml",
    "tcp-syn.fp",
    "tcp-service.sig",
    "udp-service.sig",
    "dhcp.fp",
    "mac.sig",
];

thread_local! {
    static FOLDER: PathBuf = {
        let folder = tempfile::tempdir().expect("there is a folder for temporary files");
        folder.keep()
    };
}

/// Reads a fingerprint file; the first byte chooses its format.
pub fn fingerprints(data: &[u8]) {
    let [kind, text @ ..] = data else { return };
    let kind = usize::from(*kind) % FILES.len();
    let folder = FOLDER.with(PathBuf::clone);
    let file = folder.join(FILES[kind]);
    fs::write(&file, text).expect("the file can be written");
    let option = match kind {
        0 => format!("fingerprints = ['{}']", file.display()),
        1 => format!("p0f = '{}'", file.display()),
        2 => format!("recog = ['{}']", file.display()),
        _ => format!("prads = '{}'", folder.display()),
    };
    let options = format!("{option}\nbuilt_in = false");
    match thalweg_assets::KIND.build_alone(&options) {
        Ok(blueprint) => drop(blueprint.instance()),
        Err(e) => assert!(!e.to_string().is_empty()),
    }
    fs::remove_file(&file).expect("the file was written");
}
