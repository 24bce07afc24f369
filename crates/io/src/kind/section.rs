//! One port's section of the chain file.

use std::cell::RefCell;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use thalweg_source::{Source, SourceError, SourceTable};

use crate::searched::Searched;

/// What a kind may know about the run when it checks a section.
#[derive(Clone, Copy, Debug, Default)]
pub struct Environment {
    /// Accept devices that this machine does not have: the chain is for another one.
    pub any_device: bool,
    /// The port is opened later, so that whether this is permitted is checked.
    pub opens: bool,
}

/// The section of one port.
#[derive(Debug)]
pub struct Section<'a> {
    name: &'a str,
    table: SourceTable<'a>,
    /// The keys of the section, for messages.
    expected: String,
    environment: Environment,
    found: RefCell<NamedFiles>,
}

/// The files that a section names, and warnings about it.
#[derive(Debug, Default)]
pub struct NamedFiles {
    /// Files that the port reads, in their order, and the spans of their options.
    pub read: Vec<(PathBuf, Range<usize>)>,
    /// Places where it looks for files.
    pub searched: Vec<Searched>,
    /// Files that it writes, and the spans of their options.
    pub written: Vec<(PathBuf, Range<usize>)>,
    /// Warnings.
    pub notes: Vec<SourceError>,
}

impl<'a> Section<'a> {
    /// The section `table` of the port `name`. `expected` names its keys in messages.
    pub fn new(
        name: &'a str,
        table: SourceTable<'a>,
        expected: impl Into<String>,
        environment: Environment,
    ) -> Self {
        Self { name, table, expected: expected.into(), environment, found: RefCell::default() }
    }

    /// The port's name in the chain.
    pub fn name(&self) -> &str {
        self.name
    }

    /// The file that holds it.
    pub fn source(&self) -> &Source {
        self.table.source()
    }

    /// The section's span in its file.
    pub fn span(&self) -> Range<usize> {
        self.table.span()
    }

    /// What is known about the run.
    pub fn environment(&self) -> Environment {
        self.environment
    }

    /// Reads the section into `T`, which should `deny_unknown_fields`. Fields of type
    /// [`Spanned`](toml::Spanned) keep their place for later errors.
    ///
    /// # Errors
    /// The first key that is missing or has a value of a wrong type.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, Vec<SourceError>> {
        self.table.parse(&self.expected).map_err(|e| vec![e])
    }

    /// An error at the bytes `span` of the file.
    pub fn error(
        &self,
        span: Range<usize>,
        message: impl Into<String>,
        expected: impl Into<String>,
    ) -> SourceError {
        self.source().error(span, message, expected)
    }

    /// Adds a warning at the bytes `span` of the file.
    pub fn warn(
        &self,
        span: Range<usize>,
        message: impl Into<String>,
        expected: impl Into<String>,
    ) {
        let note = self.error(span, message, expected);
        self.found.borrow_mut().notes.push(note);
    }

    /// The path that an option names: relative to the folder of the file that holds the section.
    pub fn resolve(&self, path: impl AsRef<Path>) -> PathBuf {
        self.table.resolve(path)
    }

    /// Adds a file that the port reads, by the option at `span`, so that no part of the chain
    /// overwrites it, and no other reads it if it is a pipe.
    pub fn reads(&self, path: &Path, span: Range<usize>) {
        self.found.borrow_mut().read.push((path.to_owned(), span));
    }

    /// Adds a place where the port looks for files, so that no part of the chain writes one there.
    pub fn searches(&self, place: Searched) {
        self.found.borrow_mut().searched.push(place);
    }

    /// Adds the file that the port writes, by the option at `span`, so that nothing else of the
    /// chain has it.
    pub fn writes(&self, path: &Path, span: Range<usize>) {
        self.found.borrow_mut().written.push((path.to_owned(), span));
    }

    /// The files that were named, and the warnings.
    pub fn into_files(self) -> NamedFiles {
        self.found.into_inner()
    }
}
