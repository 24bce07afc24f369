//! The ways in which a command fails, and how each is shown.

use std::io::{self, Write};
use std::ops::Range;

use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme, NamedSource, Report};
use thalweg_source::SourceError;

use thalweg_source::counted;

use crate::terminal::Messages;

/// The most mistakes that are shown; the rest are only counted.
const SHOWN: usize = 20;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// An argument is invalid.
    #[error("{0}")]
    Usage(String),
    /// A file of the user's has mistakes.
    #[error("bad configuration")]
    Configuration(Vec<SourceError>),
    /// A simulation's configuration is wrong.
    #[error("{0}; nothing was started")]
    Simulation(String),
    /// The work failed.
    #[error("{0}")]
    Run(String),
    /// The work failed, and the failures were already reported.
    #[error("the run failed")]
    Told,
    /// Standard output could not be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

impl Failure {
    /// The exit code: 1 the run failed, 2 bad usage, 78 bad configuration (as
    /// in `sysexits.h`).
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Run(_) | Self::Told | Self::Output(_) => 1,
            Self::Usage(_) => 2,
            Self::Configuration(_) | Self::Simulation(_) => 78,
        }
    }

    /// Shows the failure on standard error.
    pub fn show(&self) {
        match self {
            Self::Configuration(mistakes) => show_mistakes(mistakes),
            Self::Told => {}
            other => log::error!("{other}"),
        }
    }
}

/// Shows mistakes, each with its line of the file.
fn show_mistakes(mistakes: &[SourceError]) {
    for mistake in mistakes.iter().take(SHOWN) {
        let text = format!("{:?}\n", Report::new(Mistake::new(mistake)));
        let _ = Messages.write_all(text.as_bytes());
    }
    let files: std::collections::BTreeSet<_> =
        mistakes.iter().map(|m| m.source_file().path()).collect();
    let (n, files) = (mistakes.len(), files.len());
    let unseen = n.saturating_sub(SHOWN);
    let unseen = if unseen > 0 { format!(" ({unseen} not shown)") } else { String::new() };
    log::error!(
        "{} in {}{unseen}; nothing was started",
        counted(n, "mistake"),
        counted(files, "file"),
    );
}

/// The handler that draws reports, with or without colour.
pub fn handler(colour: bool) -> Box<dyn miette::ReportHandler> {
    let theme = if colour { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    Box::new(GraphicalReportHandler::new_themed(theme).with_context_lines(1))
}

#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("{message}")]
struct Mistake {
    message: String,
    #[source_code]
    source_code: NamedSource<String>,
    #[label("here")]
    span: Range<usize>,
    #[help]
    expected: String,
}

impl Mistake {
    fn new(error: &SourceError) -> Self {
        let file = error.source_file();
        let place = format!("{}:{}:{}", file.path().display(), error.line(), error.column());
        Self {
            message: format!("{place}: {}", error.message()),
            source_code: NamedSource::new(file.path().display().to_string(), file.text().into()),
            span: error.span(),
            expected: format!("expected {}", error.expected()),
        }
    }
}
