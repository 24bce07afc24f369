//! Messages of DPDK: into our log, and the last errors into messages of ours.

use std::sync::{Mutex, PoisonError};

/// Levels from this one up are no errors (`RTE_LOG_WARNING`).
const WARNING: u32 = 5;
/// `RTE_LOG_NOTICE`.
const NOTICE: u32 = 6;
/// `RTE_LOG_DEBUG`.
const DEBUG: u32 = 8;
/// Errors that are kept.
const MOST: usize = 16;

/// The errors since messages are kept.
static KEPT: Mutex<Option<Vec<String>>> = Mutex::new(None);

/// Takes a message of DPDK, which may have several lines.
pub(super) fn take(level: u32, text: &str) {
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        match (level, &mut *kept) {
            // It shows in the error of the port.
            (..WARNING, Some(errors)) => {
                if errors.len() < MOST {
                    errors.push(line.to_owned());
                }
                log::debug!("DPDK: {line}");
            }
            (..WARNING, None) => log::warn!("DPDK: {line}"),
            (WARNING..NOTICE, _) => log::info!("DPDK: {line}"),
            (NOTICE..DEBUG, _) => log::debug!("DPDK: {line}"),
            (DEBUG.., _) => log::trace!("DPDK: {line}"),
        }
    }
}

/// Does `work`; returns its outcome, and with an error what DPDK reports of its cause.
pub(super) fn keeping<T, E>(work: impl FnOnce() -> Result<T, E>) -> Result<T, (E, Option<String>)> {
    let kept = || KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    *kept() = Some(Vec::new());
    let outcome = work();
    let errors = kept().take().unwrap_or_default();
    outcome.map_err(|error| (error, cause(errors)))
}

/// The first error of a driver, or else of what has called it.
fn cause(errors: Vec<String>) -> Option<String> {
    let is_of_driver = |line: &&String| !line.starts_with("EAL: ");
    let found = errors.iter().find(is_of_driver).or(errors.first());
    found.map(|line| line.strip_prefix("EAL: ").unwrap_or(line).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_the_first_error_of_a_driver() {
        let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
        assert_eq!(cause(Vec::new()), None);
        assert_eq!(cause(lines(&["EAL: a", "EAL: b"])).as_deref(), Some("a"));
        assert_eq!(cause(lines(&["EAL: a", "open(): no", "b"])).as_deref(), Some("open(): no"));
    }
}
