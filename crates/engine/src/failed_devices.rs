//! The devices that have failed in a run whose NFs go on without them, for those who observe it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// The most failures that are remembered.
const MOST: usize = 100;

/// A device of an NF has failed.
#[derive(Clone, Debug)]
pub struct DeviceFailure {
    /// Its number in the run, from 1.
    pub number: u64,
    /// When it was noticed.
    pub time: SystemTime,
    /// The NF.
    pub nf: String,
    /// The device, by its name in the chain file.
    pub at: String,
    /// What it did.
    pub text: Arc<str>,
}

/// The failures of a run.
#[derive(Debug, Default)]
pub(crate) struct FailedDevices(Mutex<Failures>);

#[derive(Debug, Default)]
struct Failures {
    /// How many there were.
    count: u64,
    last: VecDeque<DeviceFailure>,
    /// The NFs whose devices have failed and were not started again.
    nfs: Vec<String>,
}

impl FailedDevices {
    pub(crate) fn add(&self, nf: &str, at: &str, text: &Arc<str>) {
        let mut failures = self.lock();
        failures.count += 1;
        let (number, time, text) = (failures.count, SystemTime::now(), text.clone());
        let (nf, at) = (nf.to_owned(), at.to_owned());
        if !failures.nfs.contains(&nf) {
            failures.nfs.push(nf.clone());
        }
        failures.last.push_back(DeviceFailure { number, time, nf, at, text });
        if failures.last.len() > MOST {
            failures.last.pop_front();
        }
    }

    /// The failures after number `last`, at most the newest hundred.
    pub(crate) fn since(&self, last: u64) -> Vec<DeviceFailure> {
        let failures = self.lock();
        // Most calls find nothing new.
        if failures.count <= last {
            return Vec::new();
        }
        failures.last.iter().filter(|failure| failure.number > last).cloned().collect()
    }

    /// The NFs whose devices have failed and were not started again.
    pub(crate) fn nfs(&self) -> Vec<String> {
        self.lock().nfs.clone()
    }

    /// Forgets NFs that have another device now, or none.
    pub(crate) fn retain(&self, has_same_device: impl Fn(&str) -> bool) {
        self.lock().nfs.retain(|nf| has_same_device(nf));
    }

    fn lock(&self) -> MutexGuard<'_, Failures> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_failures_are_remembered_with_their_numbers() {
        let failed = FailedDevices::default();
        for number in 0..150 {
            failed.add(if number % 2 == 0 { "even" } else { "odd" }, "soft", &"it burns".into());
        }
        let numbers = |last| failed.since(last).iter().map(|f| f.number).collect::<Vec<_>>();
        assert_eq!(numbers(0), (51..=150).collect::<Vec<_>>());
        assert_eq!(numbers(148), [149, 150]);
        assert_eq!(numbers(150), [0; 0]);
        assert_eq!(failed.nfs(), ["even", "odd"]);
        failed.retain(|nf| nf == "odd");
        assert_eq!(failed.nfs(), ["odd"]);
    }
}
