//! Many simulations, on all processors, kept in a file as they end.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::config::{Config, ConfigError};

use super::{Prepared, Report};

/// Why reports could not be stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The file cannot be read or written.
    #[error("{path}: {source}", path = .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A line of the file is not a report.
    #[error("{path}:{line}: not a report of a simulation: {message}", path = .path.display())]
    Line {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// A configuration cannot be simulated.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// Reports by configuration, in memory and, as lines of JSON, in a file.
#[derive(Debug)]
pub struct Store {
    file: Option<(PathBuf, File)>,
    reports: HashMap<String, Report>,
    wanted: Option<Wanted>,
}

/// The configurations requested, and the report returned for each of them.
#[derive(Debug)]
struct Wanted {
    configs: RefCell<Vec<Config>>,
    answer: Report,
}

/// How every line begins.
const START: &str = "{\"schema\":\"thalweg.sim.";

/// Simulations that share their tables and warm caches.
type Group<'a> = Vec<&'a Config>;

impl Store {
    /// Reports in memory only.
    pub fn in_memory() -> Self {
        Self { file: None, reports: HashMap::new(), wanted: None }
    }

    /// The reports of the file at `path`, to which others are appended; the file may not exist. A
    /// truncated last line is removed.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let wrong = |source| StoreError::File { path: path.to_owned(), source };
        let file = OpenOptions::new().read(true).append(true).create(true).open(path);
        let file = file.map_err(wrong)?;
        let (mut reports, mut whole, mut number) = (HashMap::new(), 0, 0);
        let (mut reader, mut line) = (BufReader::new(&file), String::new());
        while reader.read_line(&mut line).map_err(wrong)? > 0 {
            number += 1;
            let cut = !line.ends_with('\n');
            if cut && (number > 1 || line.starts_with(START)) {
                file.set_len(whole).map_err(wrong)?;
                break;
            }
            let report: Report = serde_json::from_str(&line).map_err(|e| StoreError::Line {
                path: path.to_owned(),
                line: number,
                message: e.to_string(),
            })?;
            reports.insert(report.config.to_toml(), report);
            whole += line.len() as u64;
            line.clear();
        }
        Ok(Self { file: Some((path.to_owned(), file)), reports, wanted: None })
    }

    /// The configurations whose reports `read` requests from a store. Nothing is simulated: it
    /// gets the same report for all, and its requests must not depend on the contents.
    pub fn wanted_by(read: impl FnOnce(&Self)) -> Vec<Config> {
        let mut short = Config::default();
        (short.workload.entries, short.sim.warmup_lookups) = (8, 0);
        (short.sim.measured_lookups, short.sim.batches) = (2, 2);
        let answer = Prepared::new(&short).run(&short);
        let mut store = Self::in_memory();
        store.wanted = Some(Wanted { configs: RefCell::default(), answer });
        read(&store);
        store.wanted.map_or_else(Vec::new, |wanted| wanted.configs.into_inner())
    }

    /// The report of a configuration that was simulated.
    pub fn get(&self, config: &Config) -> Option<&Report> {
        if let Some(wanted) = &self.wanted {
            wanted.configs.borrow_mut().push(config.clone());
            return Some(&wanted.answer);
        }
        self.reports.get(&config.to_toml())
    }

    /// Simulates those of `configs` that are not there yet, `threads` at a time;
    /// calls `progress` with how many of how many are done.
    ///
    /// # Errors
    /// When a configuration cannot be simulated, before any is; or when a report cannot
    /// be kept.
    pub fn simulate(
        &mut self,
        configs: &[Config],
        threads: usize,
        progress: impl Fn(usize, usize) + Sync,
    ) -> Result<(), StoreError> {
        configs.iter().try_for_each(Config::check)?;
        let mut groups: Vec<(String, Group<'_>)> = Vec::new();
        for config in configs.iter().filter(|config| self.get(config).is_none()) {
            let key = config.prepared().to_toml();
            match groups.iter_mut().find(|(other, _)| *other == key) {
                Some((_, group)) if group.contains(&config) => {}
                Some((_, group)) => group.push(config),
                None => groups.push((key, vec![config])),
            }
        }
        // The longest first, so that no processor is left with them at the end.
        groups.sort_by_key(|(_, group)| {
            let work = &group[0].workload;
            std::cmp::Reverse(work.entries * work.tuples)
        });
        let all = groups.iter().map(|(_, group)| group.len()).sum();
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let store = Mutex::new(self);
        let work = || {
            while let Some((_, group)) = groups.get(next.fetch_add(1, Ordering::Relaxed)) {
                let prepared = Prepared::new(group[0]);
                for config in group {
                    let report = prepared.clone().run(config);
                    let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
                    store.keep(report)?;
                    drop(store);
                    progress(done.fetch_add(1, Ordering::Relaxed) + 1, all);
                }
            }
            Ok(())
        };
        thread::scope(|scope| {
            let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
            workers.into_iter().try_for_each(|worker| match worker.join() {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })
    }

    fn keep(&mut self, report: Report) -> Result<(), StoreError> {
        if let Some((path, file)) = &mut self.file {
            let mut line = serde_json::to_vec(&report).expect("a report has a form in JSON");
            line.push(b'\n');
            // One write per line, so that an interrupted process leaves whole lines.
            let wrong = |source| StoreError::File { path: path.clone(), source };
            file.write_all(&line).map_err(wrong)?;
        }
        self.reports.insert(report.config.to_toml(), report);
        Ok(())
    }
}
