//! One NF's section of the chain file.

use std::cell::RefCell;
use std::fmt::Display;
use std::hash::{DefaultHasher, Hasher};
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use thalweg_source::{OutputFile, Rotation, Source, SourceError, SourceTable, misplaced, renamed};
use toml::Spanned;
use toml::de::DeValue;

use crate::Environment;
use crate::toolkit::output::Rotate;

/// The options of one NF, with their places in the chain file.
///
/// The keys that every NF may have (`kind`, `pinned`, `core`, `on_overload`, `overload_after_ms`) are
/// already removed.
#[derive(Clone, Debug)]
pub struct Section<'a> {
    name: &'a str,
    table: SourceTable<'a>,
    files: RefCell<NamedFiles>,
}

/// The files that the options of an NF name.
#[derive(Clone, Debug, Default)]
pub struct NamedFiles {
    /// Files that are read.
    pub read: Vec<ReadFile>,
    /// Files that are written, and the spans of their options.
    pub written: Vec<(OutputFile, Range<usize>)>,
    /// For each written file that rotates, the paths to which it is renamed, and the span of its
    /// option.
    pub renamed: Vec<(Vec<PathBuf>, Range<usize>)>,
}

/// A file that an NF reads.
#[derive(Clone, Debug)]
pub struct ReadFile {
    /// Its path.
    pub path: PathBuf,
    /// A hash of the text that was read, if [`Section::read`] read it.
    pub hash: Option<u64>,
}

impl<'a> Section<'a> {
    /// The section of the NF `name`, whose options are the TOML table `value`
    /// in `source`.
    pub fn new(name: &'a str, value: Spanned<DeValue<'a>>, source: &'a Source) -> Self {
        Self { name, table: SourceTable::new(value, source), files: RefCell::default() }
    }

    /// The NF's name in the chain.
    pub fn name(&self) -> &str {
        self.name
    }

    /// The chain file.
    pub fn source(&self) -> &Source {
        self.table.source()
    }

    /// The section's span in the chain file.
    pub fn span(&self) -> Range<usize> {
        self.table.span()
    }

    /// Reads the options into `T`, which should `deny_unknown_fields`. Fields
    /// of type [`Spanned`] keep their place for later errors.
    ///
    /// # Errors
    /// The first option that is unknown, missing or of a wrong type.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, SourceError> {
        self.table.parse(&format!("the options of NF '{}'", self.name))
    }

    /// An error at the bytes `span` of the chain file.
    pub fn error(
        &self,
        span: Range<usize>,
        message: impl Into<String>,
        expected: impl Into<String>,
    ) -> SourceError {
        self.source().error(span, message, expected)
    }

    /// The value of an option that must be within `range`; a mistake is added to `errors`.
    pub fn in_range<T: PartialOrd + Copy + Display>(
        &self,
        value: &Spanned<T>,
        range: RangeInclusive<T>,
        errors: &mut Vec<SourceError>,
    ) -> T {
        if !range.contains(value.get_ref()) {
            let expected = format!("{} to {}", range.start(), range.end());
            errors.push(self.error(value.span(), "out of range", expected));
        }
        *value.get_ref()
    }

    /// The path of a file that is read: relative to the chain file's folder.
    pub fn resolve(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = self.table.resolve(path);
        self.add_read(path.clone(), None);
        path
    }

    /// The output file that `option` names, which a run opens before its first packet, or has open;
    /// `None` without the option, or in a dry run.
    ///
    /// # Errors
    /// When no file can be written there.
    pub fn output(
        &self,
        option: Option<&Spanned<String>>,
        environment: &Environment<'_>,
    ) -> Result<Option<OutputFile>, SourceError> {
        self.output_file(option, environment, false)
    }

    /// The same for a file whose content is replaced as a whole.
    ///
    /// # Errors
    /// When no file can be written there.
    pub fn replaced_output(
        &self,
        option: Option<&Spanned<String>>,
        environment: &Environment<'_>,
    ) -> Result<Option<OutputFile>, SourceError> {
        self.output_file(option, environment, true)
    }

    /// How the files rotate to which the NF appends records, by its option `rotate`; `files` are
    /// the options that name them. Mistakes are added to `errors`.
    pub fn rotation(
        &self,
        rotate: Option<&Spanned<Rotate>>,
        files: &[Option<&Spanned<String>>],
        errors: &mut Vec<SourceError>,
    ) -> Option<Rotation> {
        let option = rotate?;
        let Rotate { size_mib, keep } = option.get_ref();
        let before = errors.len();
        let size = self.in_range(size_mib, 1..=1 << 20, errors) << 20;
        let keep = self.in_range(keep, 1..=100, errors);
        if errors.len() > before {
            return None;
        }
        let named: Vec<_> = files.iter().flatten().collect();
        if named.is_empty() {
            let expected = "a file for records, or no 'rotate'";
            errors.push(self.error(option.span(), "there is no file to rotate", expected));
        }
        for file in named {
            let path = self.table.resolve(file.get_ref());
            if !OutputFile::new(&path).is_rotatable() {
                let message = "pipes, devices and standard output cannot be rotated";
                errors.push(self.error(file.span(), message, "a file, or no 'rotate'"));
                continue;
            }
            let paths = (1..=keep).map(|number| renamed(&path, number)).collect();
            self.files.borrow_mut().renamed.push((paths, file.span()));
        }
        Some(Rotation { size, keep })
    }

    fn output_file(
        &self,
        option: Option<&Spanned<String>>,
        environment: &Environment<'_>,
        is_replaced: bool,
    ) -> Result<Option<OutputFile>, SourceError> {
        let Some(option) = option else { return Ok(None) };
        let path = self.table.resolve(option.get_ref());
        if let Some((message, expected)) = misplaced(&path) {
            return Err(self.error(option.span(), message, expected));
        }
        let file = environment.open_file(&path, is_replaced).cloned().unwrap_or_else(|| {
            let file = OutputFile::new(path);
            if is_replaced { file.replaced() } else { file }
        });
        self.files.borrow_mut().written.push((file.clone(), option.span()));
        Ok((!environment.dry_run).then_some(file))
    }

    /// The files that were requested.
    pub fn into_files(self) -> NamedFiles {
        self.files.into_inner()
    }

    /// Reads a file that the option at `span` names.
    ///
    /// # Errors
    /// When the file cannot be read; the error points at the option.
    pub fn read(&self, span: Range<usize>, path: impl AsRef<Path>) -> Result<Source, SourceError> {
        let path = self.table.resolve(path);
        let read = Source::read(&path);
        let hash = |source: &Source| {
            let mut hasher = DefaultHasher::new();
            hasher.write(source.text().as_bytes());
            hasher.finish()
        };
        self.add_read(path, read.as_ref().ok().map(hash));
        read.map_err(|e| {
            if e.source_file().text().is_empty() {
                self.error(span, e.message(), "a readable file")
            } else {
                e
            }
        })
    }

    fn add_read(&self, path: PathBuf, hash: Option<u64>) {
        self.files.borrow_mut().read.push(ReadFile { path, hash });
    }

    /// Runs `use_it` on the section whose options are the TOML `text`, named
    /// `nf` in a `chain.toml`: for tests, which have no chain file.
    ///
    /// # Panics
    /// When `text` is not TOML.
    pub fn parse_text<R>(text: &str, use_it: impl FnOnce(&Section<'_>) -> R) -> R {
        let source = Source::new("chain.toml", text);
        let table = toml::de::DeTable::parse(source.text()).expect("the caller gives TOML");
        let span = table.span();
        let value = Spanned::new(span, DeValue::Table(table.into_inner()));
        use_it(&Section::new("nf", value, &source))
    }
}
