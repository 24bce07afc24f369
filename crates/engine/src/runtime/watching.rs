//! Reloads when a file has changed.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, SystemTime};

use crate::control::Control;

/// How often files are looked at. A change counts when the next look finds no other one: the file
/// may be being written.
const PERIOD: Duration = Duration::from_millis(250);

/// How much earlier than a plan began to be loaded a file may seem to have changed, although it did later: the
/// kernel's clock of files has ticks, and the chain file is read first.
const SLACK: Duration = Duration::from_millis(100);

/// What changes when a file does: its time, size, device and inode; `None` if there is no file, or if it is
/// unknown what was loaded.
type Look = Option<(SystemTime, u64, u64, u64)>;

type Looks = Vec<(PathBuf, Look)>;

/// Requests a reload of `control` whenever a file of the plan that packets take has changed, until
/// the other end of `ended` is dropped.
pub(super) fn watch(control: &Control, ended: &Receiver<()>) {
    let (mut before, mut loaded) = look(control);
    while ended.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
        let (now, as_loaded) = look(control);
        // Other files are watched after a reload.
        let same_files = now.iter().map(|(path, _)| path).eq(loaded.iter().map(|(path, _)| path));
        if !same_files {
            loaded = as_loaded;
        } else if now != loaded && now == before {
            control.request_reload();
            loaded.clone_from(&now);
        }
        before = now;
    }
}

/// The files of the plan, as they are, and as they were when it was loaded.
fn look(control: &Control) -> (Looks, Looks) {
    let Some(plan) = control.plan() else { return Default::default() };
    let since = plan.files.began().checked_sub(SLACK).unwrap_or(SystemTime::UNIX_EPOCH);
    let look = |path: &PathBuf| {
        let found = path.metadata().ok();
        let now = found.as_ref().and_then(|found| {
            Some((found.modified().ok()?, found.len(), found.dev(), found.ino()))
        });
        // A file that was moved here has another time of change, and its old one of modification.
        let is_as_loaded = found.and_then(|found| changed(&found)).is_some_and(|at| at < since);
        ((path.clone(), now), (path.clone(), now.filter(|_| is_as_loaded)))
    };
    plan.files.watched().iter().map(look).unzip()
}

/// When the content, the name or the owner of a file has changed; `None` if it is out of range.
fn changed(found: &Metadata) -> Option<SystemTime> {
    let (seconds, nanoseconds) =
        (found.ctime().try_into().ok()?, found.ctime_nsec().try_into().ok()?);
    let since = Duration::from_secs(seconds).checked_add(Duration::from_nanos(nanoseconds))?;
    SystemTime::UNIX_EPOCH.checked_add(since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_changed_when_it_was_written_or_moved() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        let start = SystemTime::now() - SLACK;
        std::fs::write(&from, "text").unwrap();
        let written = changed(&from.metadata().unwrap()).unwrap();
        assert!(written >= start && written <= SystemTime::now());
        let old = SystemTime::UNIX_EPOCH;
        std::fs::File::options().write(true).open(&from).unwrap().set_modified(old).unwrap();
        std::fs::rename(&from, &to).unwrap();
        let moved = to.metadata().unwrap();
        assert_eq!(moved.modified().unwrap(), old);
        assert!(changed(&moved).unwrap() >= written);
    }
}
