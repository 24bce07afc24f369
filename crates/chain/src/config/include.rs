//! The files of a chain: the chain file, and those that it includes.

use std::cell::OnceCell;

use serde::Deserialize;
use thalweg_source::{FileIdentity, Mistakes, Passage, Source, SourceError};
use toml::Spanned;
use toml::de::{DeTable, ValueDeserializer};

use super::parts::take;
use super::paths::is_in_memory;
use super::variables;

/// The most files that a chain file includes, directly or not.
const MOST_FILES: usize = 256;

/// The most bytes of text in all of them together.
const MOST_BYTES: u64 = 16 << 20;

/// The most files that include each other in a row, the chain file included.
const DEEPEST: usize = 16;

const EXPECTED: &str = "include = [\"FILE\", ...]";

/// The texts of included files, from which their tables borrow.
pub(super) struct Texts(Vec<OnceCell<Source>>);

impl Texts {
    pub(super) fn new() -> Self {
        Self((0..MOST_FILES).map(|_| OnceCell::new()).collect())
    }
}

/// A file of a chain, with the values of its variables.
pub(super) struct TomlFile<'a> {
    pub(super) source: Source,
    pub(super) table: DeTable<'a>,
}

/// Reads the chain file and all files that it includes, each after those that it includes itself:
/// the chain file is the last.
///
/// # Errors
/// Files that cannot be read or are not TOML, variables without a value, and files that are
/// included twice or in a circle.
pub(super) fn read<'a>(
    root: &'a Source,
    texts: &'a Texts,
) -> Result<Vec<TomlFile<'a>>, Vec<SourceError>> {
    let mut reader = Reader {
        texts: texts.0.iter(),
        bytes_left: MOST_BYTES,
        files: Vec::new(),
        open: Vec::new(),
        included: Vec::new(),
        errors: Mistakes::default(),
    };
    if !is_in_memory(root) {
        reader.open.push((FileIdentity::of(root.path()), root.path().display().to_string()));
    }
    reader.file(root);
    if reader.errors.is_empty() { Ok(reader.files) } else { Err(reader.errors.into_vec()) }
}

struct Reader<'a> {
    /// Places for further texts.
    texts: std::slice::Iter<'a, OnceCell<Source>>,
    bytes_left: u64,
    files: Vec<TomlFile<'a>>,
    /// The files that are being read, each included by the one before it; and their paths.
    open: Vec<(FileIdentity, String)>,
    /// All included files, and where they are.
    included: Vec<(FileIdentity, Passage)>,
    errors: Mistakes,
}

impl<'a> Reader<'a> {
    fn file(&mut self, text: &'a Source) {
        let mut table = match parse(text) {
            Ok(table) => table,
            Err(errors) => return self.errors.extend(errors),
        };
        let source = match variables::substitute(text, &mut table) {
            Ok(source) => source,
            Err(errors) => return self.errors.extend(errors),
        };
        if let Some((_, value)) = take(&mut table, "include") {
            let whole = value.span();
            match Vec::<Spanned<String>>::deserialize(ValueDeserializer::from(value)) {
                Ok(names) => names.iter().for_each(|name| self.include(&source, name)),
                Err(e) => {
                    let span = e.span().unwrap_or(whole);
                    self.errors.push(source.error(span, e.message(), EXPECTED));
                }
            }
        }
        self.files.push(TomlFile { source, table });
    }

    /// Reads the file that `source` includes by a name.
    fn include(&mut self, source: &Source, name: &Spanned<String>) {
        let at = Passage::new(source, name.span());
        let path = source.resolve(name.get_ref());
        let identity = FileIdentity::of(&path);
        if let Some(error) = self.objection(&identity, &path.display().to_string(), &at) {
            return self.errors.push(error);
        }
        let Some(place) = self.texts.next() else {
            let message = format!("the chain file includes more than {MOST_FILES} files");
            return self.errors.push(at.error(message, "at most that"));
        };
        let text = match Source::read_at_most(&path, MOST_BYTES) {
            Ok(text) => text,
            Err(e) if e.source_file().text().is_empty() => {
                return self.errors.push(at.error(e.message(), "a readable file of TOML"));
            }
            Err(e) => return self.errors.push(e),
        };
        let Some(bytes_left) = self.bytes_left.checked_sub(text.text().len() as u64) else {
            let message = format!("the included files have more than {} MiB", MOST_BYTES >> 20);
            return self.errors.push(at.error(message, "at most that in all files"));
        };
        self.bytes_left = bytes_left;
        let text = place.get_or_init(|| text);
        self.included.push((identity.clone(), at));
        self.open.push((identity, path.display().to_string()));
        self.file(text);
        self.open.pop();
    }

    /// Why a file is not included at a place.
    fn objection(&self, identity: &FileIdentity, path: &str, at: &Passage) -> Option<SourceError> {
        if let Some(first) = self.open.iter().position(|(open, _)| open == identity) {
            let circle: Vec<_> = self.open[first..].iter().map(|(_, path)| &**path).collect();
            let message = format!("a file includes itself: {} -> {path}", circle.join(" -> "));
            return Some(at.error(message, "files that do not include each other"));
        }
        if let Some((_, first)) = self.included.iter().find(|(other, _)| other == identity) {
            let message = format!("this file is included twice, first in {}", first.seen_from(at));
            return Some(at.error(message, "each file once"));
        }
        (self.open.len() >= DEEPEST).then(|| {
            let message = format!("more than {DEEPEST} files include each other in a row");
            at.error(message, "a file without further includes")
        })
    }
}

/// Parses the text of a file.
///
/// # Errors
/// When it is not TOML.
fn parse(source: &Source) -> Result<DeTable<'_>, Vec<SourceError>> {
    let (document, errors) = DeTable::parse_recoverable(source.text());
    if errors.is_empty() {
        return Ok(document.into_inner());
    }
    let expected = "TOML 1.0";
    let place = |e: &toml::de::Error| source.error(e.span().unwrap_or(0..0), e.message(), expected);
    let mut mistakes = Mistakes::default();
    errors.iter().for_each(|e| mistakes.push_with(|| place(e)));
    Err(mistakes.into_vec())
}
