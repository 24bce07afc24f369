//! `thalweg sim sweep`: every combination of some settings.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use serde::Deserialize;
use thalweg_sim::config::Config;
use thalweg_sim::experiment;

use super::load;
use crate::args;
use crate::errors::Failure;

/// What is read of a line that an earlier sweep wrote.
#[derive(Deserialize)]
struct Written {
    config: Config,
}

/// Simulates every combination that the output does not hold yet.
pub(super) fn sweep(options: &args::SimSweep, quiet: bool) -> Result<(), Failure> {
    let points = points(options)?;
    let done = read(&options.output)?;
    let open: Vec<&Config> =
        points.iter().filter(|config| !done.contains(&config.to_toml())).collect();
    if !quiet && open.len() < points.len() {
        let held = points.len() - open.len();
        log::info!("{}: {held} of {} are there", options.output.display(), points.len());
    }
    let wrong = |e: std::io::Error| Failure::Run(format!("{}: {e}", options.output.display()));
    let output =
        OpenOptions::new().create(true).append(true).open(&options.output).map_err(wrong)?;
    let threads = options
        .threads
        .map_or_else(|| thread::available_parallelism().map_or(1, usize::from), usize::from);
    let progress = Progress { all: open.len(), start: Instant::now(), quiet };
    let (next, written) = (AtomicUsize::new(0), Mutex::new((output, 0)));
    let work = || {
        while let Some(config) = open.get(next.fetch_add(1, Ordering::Relaxed)) {
            let report = experiment::run(config).map_err(|e| Failure::Simulation(e.to_string()))?;
            let mut line = serde_json::to_vec(&report).map_err(|e| Failure::Run(e.to_string()))?;
            line.push(b'\n');
            let mut written = written.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            // A line in one piece, so that a stopped sweep leaves whole lines.
            written.0.write_all(&line).map_err(wrong)?;
            written.1 += 1;
            progress.show(written.1);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| {
            worker.join().unwrap_or_else(|_| Err(Failure::Run("a simulation panicked".into())))
        })
    })
}

/// All combinations, each checked before anything runs.
fn points(options: &args::SimSweep) -> Result<Vec<Config>, Failure> {
    let mut combinations = vec![options.settings.clone()];
    for over in &options.over {
        let (key, values) = over.split_once('=').ok_or_else(|| {
            Failure::Usage(format!("'{over}' is no setting; expected table.key=value,value"))
        })?;
        let with = |settings: &Vec<String>, value: &str| {
            let mut settings = settings.clone();
            settings.push(format!("{key}={value}"));
            settings
        };
        combinations = combinations
            .iter()
            .flat_map(|settings| values.split(',').map(move |value| with(settings, value)))
            .collect();
    }
    combinations.iter().map(|settings| load(options.config.as_deref(), settings)).collect()
}

/// The configurations of which `path` has reports, as text. A last line that was cut is
/// taken off.
fn read(path: &Path) -> Result<HashSet<String>, Failure> {
    let wrong = |e: std::io::Error| Failure::Run(format!("{}: {e}", path.display()));
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(HashSet::new()),
        Err(e) => return Err(wrong(e)),
    };
    let (mut done, mut whole, mut line, mut number) = (HashSet::new(), 0, String::new(), 0);
    let mut reader = BufReader::new(&file);
    while reader.read_line(&mut line).map_err(wrong)? > 0 {
        number += 1;
        if !line.ends_with('\n') {
            truncate(&file, whole).map_err(wrong)?;
            break;
        }
        let written: Written = serde_json::from_str(&line).map_err(|e| {
            Failure::Run(format!("{} line {number} is no report of a sweep: {e}", path.display()))
        })?;
        done.insert(written.config.to_toml());
        whole += line.len() as u64;
        line.clear();
    }
    Ok(done)
}

fn truncate(file: &File, bytes: u64) -> std::io::Result<()> {
    file.set_len(bytes)
}

/// The line that says how far a sweep is.
struct Progress {
    all: usize,
    start: Instant,
    quiet: bool,
}

impl Progress {
    fn show(&self, done: usize) {
        if self.quiet || !std::io::stderr().is_terminal() {
            return;
        }
        let left = self.start.elapsed().as_secs_f64() / done as f64 * (self.all - done) as f64;
        let end = if done == self.all { "\n" } else { "" };
        eprint!("\r\x1b[K{done} of {} simulated, about {left:.0} s left{end}", self.all);
    }
}
