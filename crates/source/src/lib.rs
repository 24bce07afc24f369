//! Files that a user writes, and errors that point into them; files that a run writes.

mod access;
mod excerpt;
mod identity;
mod mistakes;
mod nearest;
pub mod netlink;
mod output;
pub mod outside;
mod patient;
mod place;
pub mod poll;
mod read;
mod replace;
mod rotation;
mod stop;
mod substituted;
mod table;
mod visible;

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use access::{check_folder, check_readable, misplaced};
pub use excerpt::Excerpt;
pub use identity::FileIdentity;
pub use mistakes::{Mistakes, count};
pub use nearest::{names_or, nearest};
pub use output::{Incomplete, OutputFile, lock};
pub use patient::PatientWriter;
pub use place::Place;
pub use replace::{create, end_of_links};
pub use rotation::{Lines, Records, Rotation, renamed};
pub use stop::Stop;
pub use substituted::Substituted;
pub use table::SourceTable;
pub use visible::{VisibleJson, is_visible, message_lines, shortened, visible, visible_lines};

use visible::{QUOTED, abridged};

/// A text file that a user wrote, kept whole so that errors can show its lines.
#[derive(Clone, Debug)]
pub struct Source {
    path: Arc<Path>,
    text: Arc<str>,
    /// The values that messages hide, the longest first.
    substituted: Option<Arc<[Substituted]>>,
}

impl Source {
    /// A source of `text`, reported as `path`.
    pub fn new(path: impl Into<PathBuf>, text: impl Into<Arc<str>>) -> Self {
        Self { path: path.into().into(), text: text.into(), substituted: None }
    }

    /// Where the source was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// A path that the source names: relative to its own folder.
    pub fn resolve(&self, path: impl AsRef<Path>) -> PathBuf {
        self.path.parent().unwrap_or_else(|| Path::new("")).join(path)
    }

    /// The lines with their byte ranges, without line ends.
    pub fn lines(&self) -> impl Iterator<Item = (Range<usize>, &str)> {
        let start = self.text.as_ptr() as usize;
        self.text.lines().map(move |line| {
            let at = line.as_ptr() as usize - start;
            (at..at + line.len(), line)
        })
    }

    /// An error at the bytes `span` of this source.
    pub fn error(
        &self,
        span: Range<usize>,
        message: impl Into<String>,
        expected: impl Into<String>,
    ) -> SourceError {
        let (message, expected) = self.without_values(&span, message.into(), expected.into());
        SourceError(Box::new(Problem {
            source: self.clone(),
            span,
            message: abridged(message, MESSAGE.0, MESSAGE.1),
            expected: abridged(expected, EXPECTED.0, EXPECTED.1),
            count: 1,
        }))
    }
}

/// A part of a source: the place of an item that later checks may find wrong.
#[derive(Clone, Debug)]
pub struct Passage {
    source: Source,
    span: Range<usize>,
}

impl Passage {
    /// The bytes `span` of `source`.
    pub fn new(source: &Source, span: Range<usize>) -> Self {
        Self { source: source.clone(), span }
    }

    /// The source that it is a part of.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The 1-based line that it begins in.
    pub fn line(&self) -> usize {
        self.error("", "").line()
    }

    /// The line, for a message about `other`: with the file if that is another one.
    pub fn seen_from(&self, other: &Self) -> String {
        let (path, line) = (self.source.path(), self.line());
        if path == other.source.path() {
            format!("line {line}")
        } else {
            format!("{}:{line}", path.display())
        }
    }

    /// An error at this place.
    pub fn error(&self, message: impl Into<String>, expected: impl Into<String>) -> SourceError {
        self.source.error(self.span.clone(), message, expected)
    }
}

#[derive(Clone, Debug)]
struct Problem {
    source: Source,
    span: Range<usize>,
    message: String,
    expected: String,
    count: u64,
}

/// The characters at the start and the end of a message that are kept. It may hold values of the
/// file, which no limit bounds.
const MESSAGE: (usize, usize) = (180, 80);

/// The same for what was expected, which may list names.
const EXPECTED: (usize, usize) = (320, 40);

/// The same for a path.
const PATH: (usize, usize) = (160, 160);

/// A mistake in a file that a user wrote: where, what, and what was expected.
///
/// Displays as `file:line:column: message: 'text'; expected ...`, without line ends and other
/// characters that a terminal would obey, and bounded whatever the file holds.
#[derive(Clone, Debug)]
pub struct SourceError(Box<Problem>);

impl SourceError {
    /// The source that holds the mistake.
    pub fn source_file(&self) -> &Source {
        &self.0.source
    }

    /// The bytes that are wrong, clamped to the text and to character bounds.
    pub fn span(&self) -> Range<usize> {
        let text = self.0.source.text();
        let floor = |mut at: usize| {
            at = at.min(text.len());
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            at
        };
        let start = floor(self.0.span.start);
        start..floor(self.0.span.end).max(start)
    }

    /// The 1-based line of the mistake.
    pub fn line(&self) -> usize {
        1 + self.before().matches('\n').count()
    }

    /// The 1-based column of the mistake, in characters.
    pub fn column(&self) -> usize {
        1 + self.before().rsplit('\n').next().unwrap_or("").chars().count()
    }

    /// The number of mistakes that it stands for: 1, unless a reader counted others with it.
    pub fn count(&self) -> u64 {
        self.0.count
    }

    /// The same mistake, which stands for `count`.
    #[must_use]
    pub fn standing_for(mut self, count: u64) -> Self {
        self.0.count = count;
        self
    }

    /// The path, line and column.
    pub fn place(&self) -> String {
        let path = self.0.source.path().to_string_lossy().into_owned();
        let path = abridged(path, PATH.0, PATH.1);
        format!("{path}:{}:{}", self.line(), self.column())
    }

    /// What is wrong.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What was expected instead.
    pub fn expected(&self) -> &str {
        &self.0.expected
    }

    /// The text that is wrong.
    pub fn text(&self) -> &str {
        &self.0.source.text()[self.span()]
    }

    fn before(&self) -> &str {
        &self.0.source.text()[..self.span().start]
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place(), self.message())?;
        let text = self.text().lines().next().unwrap_or("");
        if !text.is_empty() {
            write!(f, ": '{}'", shortened(text, QUOTED))?;
        }
        write!(f, "; expected {}", self.expected())
    }
}

impl std::error::Error for SourceError {}

/// A count with its noun, in the plural unless it is 1: `1 rule`, `2 rules`.
pub fn counted<T: fmt::Display + PartialEq + From<u8>>(count: T, noun: &str) -> String {
    let ending = if count == T::from(1) { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_file_line_column_text_and_expectation() {
        let source = Source::new("a.flows", "tcp\nudp,tp_dst=x\n");
        let (line, _) = source.lines().nth(1).unwrap();
        let error = source.error(line.start + 11..line.end, "bad port", "0 to 65535");
        assert_eq!(error.to_string(), "a.flows:2:12: bad port: 'x'; expected 0 to 65535");
    }

    #[test]
    fn a_message_is_visible_and_short() {
        let value = format!("{}\u{1b}[31m{}", "a".repeat(1 << 20), "b".repeat(1 << 20));
        let source = Source::new("a\nb\u{9b}", value.as_str());
        let message = format!("unknown word '{value}'");
        let error = source.error(0..value.len(), message, value.as_str()).to_string();
        assert!(error.starts_with("a\\nb\\u{9b}:1:1: unknown word 'aaaa"), "{error}");
        assert!(error.chars().all(is_visible) && error.len() < 900, "{error}");
    }

    #[test]
    fn one_is_singular() {
        let texts = [0u64, 1, 2].map(|count| counted(count, "rule"));
        assert_eq!(texts, ["0 rules", "1 rule", "2 rules"]);
    }

    #[test]
    fn a_span_outside_the_text_is_clamped() {
        let error = Source::new("x", "é").error(1..99, "m", "e");
        assert_eq!((error.line(), error.column(), error.text()), (1, 1, "é"));
    }
}
