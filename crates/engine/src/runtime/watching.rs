//! Reloads when a file has changed.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, SystemTime};

use crate::control::Control;

/// How often files are looked at. A change counts when the next look finds no other one: the file
/// may be being written.
const PERIOD: Duration = Duration::from_millis(250);

/// What changes when a file does: its time, size, device and inode; `None` if there is no file.
type Look = Option<(SystemTime, u64, u64, u64)>;

/// Requests a reload of `control` whenever a file of the plan that packets take has changed, until
/// the other end of `ended` is dropped.
pub(super) fn watch(control: &Control, ended: &Receiver<()>) {
    let mut loaded = look(control);
    let mut before = loaded.clone();
    while ended.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
        let now = look(control);
        // Other files are watched after a reload; they are as they were loaded.
        let same_files = now.iter().map(|(path, _)| path).eq(loaded.iter().map(|(path, _)| path));
        if !same_files {
            loaded.clone_from(&now);
        } else if now != loaded && now == before {
            control.request_reload();
            loaded.clone_from(&now);
        }
        before = now;
    }
}

fn look(control: &Control) -> Vec<(PathBuf, Look)> {
    let look = |path: &PathBuf| {
        let found = path.metadata().ok();
        let look = found.and_then(|f| Some((f.modified().ok()?, f.len(), f.dev(), f.ino())));
        (path.clone(), look)
    };
    control.plan().iter().flat_map(|plan| plan.files.watched()).map(look).collect()
}
