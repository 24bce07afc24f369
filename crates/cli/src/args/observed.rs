//! Options that observe a run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};

use super::duration;

/// The shortest interval of statistics: a snapshot of a long chain takes a millisecond.
const SHORTEST: Duration = Duration::from_millis(10);

/// The longest interval of statistics.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// What is recorded of a run while it lasts, and at its end.
#[derive(Debug, Args)]
pub struct Observed {
    /// Print a line of statistics on standard error each INTERVAL, such as 1s or 500ms
    #[arg(long, value_name = "INTERVAL", value_parser = interval)]
    pub stats: Option<Duration>,
    /// The form of the statistics
    #[arg(long, value_enum, requires = "stats", default_value_t = StatsFormat::Text,
        value_name = "FORMAT")]
    pub stats_format: StatsFormat,
    /// Write the statistics to FILE instead of to standard error
    #[arg(long, requires = "stats", value_name = "FILE")]
    pub stats_file: Option<PathBuf>,
    /// Write the report, with what happened over time, to FILE: .json, .md or .html; several times
    /// for several files
    #[arg(long, value_name = "FILE", action = ArgAction::Append)]
    pub report: Vec<PathBuf>,
    /// The format of the files of --report, whatever their endings
    #[arg(long, value_enum, requires = "report", value_name = "FORMAT")]
    pub report_format: Option<ReportFormat>,
}

/// The form of statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StatsFormat {
    /// Aligned columns
    Text,
    /// Lines of JSON (schema thalweg.stats/1)
    Json,
}

/// The format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// JSON (schema thalweg.run/1)
    Json,
    /// Markdown: tables for a ticket
    #[value(name = "md")]
    Markdown,
    /// One HTML page with plots, which needs neither scripts nor a network
    Html,
}

impl ReportFormat {
    /// The format that the ending of a file's name stands for.
    pub fn of(file: &Path) -> Option<Self> {
        match file.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "json" => Some(Self::Json),
            "md" | "markdown" => Some(Self::Markdown),
            "html" | "htm" => Some(Self::Html),
            _ => None,
        }
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    if (SHORTEST..=LONGEST).contains(&interval) {
        Ok(interval)
    } else {
        Err("expected 10ms to 24h".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_neither_too_short_nor_too_long() {
        assert_eq!(interval("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(interval("24h"), Ok(LONGEST));
        for wrong in ["0", "9ms", "25h", "x"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_ending_of_a_report_is_its_format() {
        let format = |name: &str| ReportFormat::of(Path::new(name));
        assert_eq!(format("a/b.json"), Some(ReportFormat::Json));
        assert_eq!(format("b.MD"), Some(ReportFormat::Markdown));
        assert_eq!(format("b.htm"), Some(ReportFormat::Html));
        for unknown in ["b", "json", ".html", "b.pdf", "b.html.gz"] {
            assert_eq!(format(unknown), None, "{unknown}");
        }
    }
}
