//! Observing a run: statistics while it lasts, and reports at its end.

use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use thalweg_chain::Plan;
use thalweg_engine::{Control, Interval, Pace, Report, RunOptions, Sampler};
use thalweg_source::{OutputFile, end_of_links, visible};

use crate::args::{Observed, ReportFormat};
use crate::errors::Failure;
use crate::reports;
use crate::stats::Stats;
use crate::terminal::Messages;

/// The first intervals of a series that only reports show. Ten snapshots a second cost less than 1 %
/// of a processor for chains of few NFs, and become rarer after a minute.
const FINEST: Duration = Duration::from_millis(100);

/// What observes a run.
pub struct Observing {
    sampler: Option<Sampler>,
    stats_file: Option<StatsFile>,
    reports: Vec<(OutputFile, ReportFormat)>,
}

/// A file of statistics, and the first failure to write it.
#[derive(Clone)]
struct StatsFile {
    file: OutputFile,
    failure: Arc<Mutex<Option<io::Error>>>,
}

impl Observing {
    /// Prepares to observe the run of `plan`: opens the files, and starts to take snapshots.
    ///
    /// # Errors
    /// A file that cannot be written, or that has another use in this run.
    pub fn start(
        options: &Observed,
        plan: &Plan,
        run: &RunOptions,
        control: &Arc<Control>,
    ) -> Result<Self, Failure> {
        let mut files = Files { plan, run, control, taken: Vec::new() };
        let stats_file = options.stats_file.as_ref().map(OutputFile::new);
        if let Some(file) = &stats_file {
            files.add("--stats-file", file)?;
        }
        let mut reports = Vec::new();
        for path in &options.report {
            let file = OutputFile::new(path).replaced();
            files.add("--report", &file)?;
            reports.push((file, format_of(path, options.report_format)?));
        }
        files.claim()?;
        let stats_file = stats_file.map(|file| StatsFile { file, failure: Arc::default() });
        let pace = match options.stats {
            Some(interval) => Some(Pace::Steady(interval)),
            None => (!reports.is_empty()).then_some(Pace::Slowing(FINEST)),
        };
        let observe = observer(options, stats_file.clone());
        let start = |pace| Sampler::start(control.clone(), pace, observe);
        let sampler = pace.map(start).transpose();
        let sampler = sampler.map_err(|e| Failure::Run(format!("statistics: {e}")))?;
        Ok(Self { sampler, stats_file, reports })
    }

    /// Ends the statistics with the report of the run, which gets the series, and writes the files.
    /// Those that cannot be written become failures of the report.
    pub fn finish(self, report: &mut Report) {
        report.series = self.sampler.map(|sampler| sampler.finish(report));
        let failed = |file: &OutputFile, error: &io::Error| {
            format!("cannot write {}: {error}", shown(file.path()))
        };
        if let Some(StatsFile { file, failure }) = self.stats_file {
            let failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
            report.failures.extend(failure.iter().map(|error| failed(&file, error)));
        }
        for (file, format) in &self.reports {
            if let Err(error) = reports::write(file, *format, report) {
                report.failures.push(failed(file, &error));
            }
        }
    }
}

/// Writes the statistics of each interval, if there are any.
fn observer(
    options: &Observed,
    file: Option<StatsFile>,
) -> impl FnMut(&Interval, bool) + Send + 'static {
    let mut stats = options.stats.map(|interval| Stats::new(options.stats_format, interval));
    move |interval, last| {
        let Some(stats) = &mut stats else { return };
        let lines = stats.lines(interval, last);
        match &file {
            Some(file) => file.append(&lines),
            // Statistics that cannot be shown change nothing about the run.
            None => drop(Messages.write_all(&lines)),
        }
    }
}

impl StatsFile {
    /// Appends whole lines, unless that has failed before.
    fn append(&self, lines: &[u8]) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        let whole = |most: usize| {
            lines[..most].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1)
        };
        if failure.is_none() {
            *failure = self.file.append(lines, whole).err().map(|incomplete| incomplete.error);
        }
    }
}

fn format_of(path: &Path, chosen: Option<ReportFormat>) -> Result<ReportFormat, Failure> {
    chosen.or_else(|| ReportFormat::of(path)).ok_or_else(|| {
        let expected = "expected .json, .md or .html, or --report-format";
        refusal("--report", path, &format!("unknown ending; {expected}"))
    })
}

fn refusal(option: &str, path: &Path, why: &str) -> Failure {
    Failure::Usage(format!("{option} {}: {why}", shown(path)))
}

fn shown(path: &Path) -> String {
    visible(&path.to_string_lossy()).into_owned()
}

fn unwritable(option: &str, path: &Path, error: &io::Error) -> Failure {
    refusal(option, path, &format!("cannot write this file: {error}"))
}

/// The files that are written, none of which may have another use in the run.
struct Files<'a> {
    plan: &'a Plan,
    run: &'a RunOptions,
    control: &'a Control,
    /// The options so far, and their files.
    taken: Vec<(&'static str, OutputFile)>,
}

impl Files<'_> {
    /// Adds a file that `option` names, after a check that changes nothing.
    fn add(&mut self, option: &'static str, file: &OutputFile) -> Result<(), Failure> {
        let path = file.path();
        if path == Path::new("-") {
            let why = "this is not the name of a file; expected one, or /dev/stdout";
            return Err(refusal(option, path, why));
        }
        if let Some(what) = self.usage(path) {
            let why = format!("this would overwrite {what}; expected a file of its own");
            return Err(refusal(option, path, &why));
        }
        file.check().map_err(|e| unwritable(option, path, &e))?;
        file.stop_with(&self.control.stop_request().after(self.run.duration));
        self.taken.push((option, file.clone()));
        Ok(())
    }

    /// Opens and locks all files; their content stays until the first write.
    fn claim(&self) -> Result<(), Failure> {
        let claim = |(option, file): &(&str, OutputFile)| {
            file.claim().map_err(|e| unwritable(option, file.path(), &e))
        };
        self.taken.iter().try_for_each(claim)
    }

    /// What else the run uses the file at `path` for.
    fn usage(&self, path: &Path) -> Option<String> {
        let found = path.metadata();
        if found.as_ref().is_ok_and(|found| found.file_type().is_char_device()) {
            return None; // a terminal, or /dev/null
        }
        if let Some(what) = self.plan.files.usage(path) {
            return Some(what.to_owned());
        }
        let path = place(path)?;
        let is_state = path.extension().is_some_and(|end| end == "state")
            || path.file_name().is_some_and(|name| name == "state.json");
        let mut folders = [&self.run.import_state, &self.run.export_state].into_iter().flatten();
        if is_state && folders.any(|folder| folder.canonicalize().ok().as_deref() == path.parent())
        {
            return Some("the state of an NF".into());
        }
        let taken =
            self.taken.iter().find(|(_, other)| place(other.path()).as_ref() == Some(&path));
        taken.map(|(option, _)| format!("the file of another {option}"))
    }
}

/// The path of a file without links, whether it exists or not; `None` in a folder that does not
/// exist, and for a pipe without a name.
fn place(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok().or_else(|| {
        let path = end_of_links(path);
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or_else(|| Path::new(".")).canonicalize().ok()?;
        Some(folder.join(path.file_name()?))
    })
}
