//! The ways in which a command fails, and how each is shown.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Write};

use miette::{
    Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError,
    MietteSpanContents, Report, SourceCode, SourceSpan, SpanContents,
};
use schemars::JsonSchema;
use serde::Serialize;
use thalweg_source::{Excerpt, SourceError, count, counted, shortened};

use crate::report::write_json;

use crate::terminal::Messages;

/// The most mistakes that are shown; the rest are only counted.
const SHOWN: usize = 20;

/// The most mistakes in a JSON document.
const SHOWN_AS_JSON: usize = 1000;

/// The most characters of the wrong text in a JSON document, which has its place too.
const QUOTED: usize = 200;

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
    /// A port could not be opened, at this place of a file of the user's.
    #[error("{0}")]
    Port(SourceError),
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
            Self::Run(_) | Self::Port(_) | Self::Told | Self::Output(_) => 1,
            Self::Usage(_) => 2,
            Self::Configuration(_) | Self::Simulation(_) => 78,
        }
    }

    /// Shows the failure on standard error; with `json`, also as a document on standard output,
    /// which has the mistakes in place of standard error.
    pub fn show(&self, json: bool) {
        // That standard output is closed changes nothing about the failure.
        let mut out = io::stdout().lock();
        let _ = match self {
            Self::Configuration(mistakes) if json => write_json(&mut out, &document(mistakes)),
            Self::Usage(_) | Self::Simulation(_) | Self::Run(_) | Self::Port(_) if json => {
                let message = self.to_string();
                write_json(&mut out, &Failed { schema: "thalweg.failure/1", message })
            }
            _ => Ok(()),
        };
        match self {
            Self::Configuration(mistakes) => {
                let shown = if json { 0 } else { SHOWN };
                mistakes.iter().take(shown).for_each(picture);
                let most = if json { SHOWN_AS_JSON } else { SHOWN };
                log::error!("{}; nothing was started", summary(mistakes, most));
            }
            Self::Port(mistake) if !json => {
                picture(mistake);
                log::error!("a port cannot be opened; nothing was started");
            }
            Self::Told => {}
            other => log::error!("{other}"),
        }
    }
}

/// Shows a mistake on standard error, with the lines around it.
fn picture(mistake: &SourceError) {
    let text = format!("{:?}\n", Report::new(Mistake::new(mistake)));
    let _ = Messages.write_all(text.as_bytes());
}

/// The number of mistakes, and of those beyond the first `most` that were kept.
fn summary(mistakes: &[SourceError], most: usize) -> String {
    let unseen = count(mistakes) - mistakes.len().min(most) as u64;
    let unseen = if unseen > 0 { format!(" ({unseen} not shown)") } else { String::new() };
    let (all, files) = (counted(count(mistakes), "mistake"), counted(files(mistakes), "file"));
    format!("{all} in {files}{unseen}")
}

fn files(mistakes: &[SourceError]) -> usize {
    mistakes.iter().map(|m| m.source_file().path()).collect::<BTreeSet<_>>().len()
}

/// The mistakes in the user's files.
#[derive(Serialize, JsonSchema)]
pub struct MistakesFound<'a> {
    #[schemars(extend("const" = "thalweg.mistakes/1"))]
    schema: &'static str,
    /// All mistakes, also those that are not in the list.
    total: u64,
    shown: usize,
    files: usize,
    mistakes: Vec<Entry<'a>>,
}

/// Any other failure.
#[derive(Serialize, JsonSchema)]
pub struct Failed {
    #[schemars(extend("const" = "thalweg.failure/1"))]
    schema: &'static str,
    message: String,
}

/// A mistake.
#[derive(Serialize, JsonSchema)]
struct Entry<'a> {
    /// The path.
    file: Cow<'a, str>,
    line: usize,
    column: usize,
    /// The first wrong byte of the file, and the first after it.
    span: [usize; 2],
    /// The start of what is wrong.
    text: Cow<'a, str>,
    message: &'a str,
    expected: &'a str,
}

impl<'a> Entry<'a> {
    fn new(mistake: &'a SourceError) -> Self {
        Self {
            file: mistake.source_file().path().to_string_lossy(),
            line: mistake.line(),
            column: mistake.column(),
            span: [mistake.span().start, mistake.span().end],
            text: shortened(mistake.text(), QUOTED),
            message: mistake.message(),
            expected: mistake.expected(),
        }
    }
}

fn document(mistakes: &[SourceError]) -> MistakesFound<'_> {
    let list: Vec<_> = mistakes.iter().take(SHOWN_AS_JSON).map(Entry::new).collect();
    MistakesFound {
        schema: "thalweg.mistakes/1",
        total: count(mistakes),
        shown: list.len(),
        files: files(mistakes),
        mistakes: list,
    }
}

/// The handler that draws reports, with or without colour.
pub fn handler(colour: bool) -> Box<dyn miette::ReportHandler> {
    let theme = if colour { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    // The message has the place, and the excerpt its own neighbours.
    let handler = GraphicalReportHandler::new_themed(theme).without_primary_span_start();
    Box::new(handler.with_context_lines(1))
}

/// A mistake as a report: the place in the message, and the lines around it.
#[derive(Debug)]
struct Mistake {
    message: String,
    expected: String,
    excerpt: Option<Lines>,
}

impl Mistake {
    fn new(error: &SourceError) -> Self {
        Self {
            message: format!("{}: {}", error.place(), error.message()),
            expected: format!("expected {}", error.expected()),
            excerpt: error.excerpt().map(Lines),
        }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Mistake {}

impl Diagnostic for Mistake {
    fn help(&self) -> Option<Box<dyn fmt::Display + '_>> {
        Some(Box::new(&self.expected))
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.excerpt.as_ref().map(|lines| lines as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let Lines(excerpt) = self.excerpt.as_ref()?;
        let here = LabeledSpan::new_with_span(Some("here".into()), excerpt.span.clone());
        Some(Box::new(std::iter::once(here)))
    }
}

/// An excerpt, with the numbers that its lines have in their file.
#[derive(Debug)]
struct Lines(Excerpt);

impl SourceCode for Lines {
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        before: usize,
        after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let part = self.0.text.read_span(span, before, after)?;
        Ok(Box::new(MietteSpanContents::new(
            part.data(),
            *part.span(),
            part.line() + self.0.first_line - 1,
            part.column(),
            part.line_count(),
        )))
    }
}
