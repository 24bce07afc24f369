//! Reloads when a file has changed.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use crate::control::Control;

/// How often files are looked at. A change counts when the next look finds no other one: the file
/// may be being written.
const PERIOD: Duration = Duration::from_millis(250);

/// What changes when a file does: its time, size, device and inode; `None` if there is no file.
type Look = Option<(SystemTime, u64, u64, u64)>;

/// The files of the running generation.
#[derive(Clone, Default)]
pub(super) struct Watched {
    files: Arc<Mutex<Vec<PathBuf>>>,
    end: Arc<AtomicBool>,
}

impl Watched {
    /// Watches these files from now on.
    pub(super) fn set(&self, files: &[PathBuf]) {
        *self.files.lock().unwrap_or_else(PoisonError::into_inner) = files.to_vec();
    }

    /// Ends the watch.
    pub(super) fn end(&self) {
        self.end.store(true, Ordering::Relaxed);
    }

    fn look(&self) -> Vec<(PathBuf, Look)> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let look = |path: PathBuf| {
            let found = path.metadata().ok();
            let look = found.and_then(|f| Some((f.modified().ok()?, f.len(), f.dev(), f.ino())));
            (path, look)
        };
        files.into_iter().map(look).collect()
    }

    /// Requests a reload of `control` whenever a file has changed, until the end.
    pub(super) fn run(&self, control: &Control) {
        let mut loaded = self.look();
        let mut before = loaded.clone();
        while !self.end.load(Ordering::Relaxed) && !control.is_stopping() {
            thread::sleep(PERIOD);
            let now = self.look();
            // Other files are watched after a reload; they are as they were loaded.
            let same_files =
                now.iter().map(|(path, _)| path).eq(loaded.iter().map(|(path, _)| path));
            if !same_files {
                loaded.clone_from(&now);
            } else if now != loaded && now == before {
                control.request_reload();
                loaded.clone_from(&now);
            }
            before = now;
        }
    }
}
