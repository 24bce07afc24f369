//! The capture files of an input: one file or pipe, or several files as a list, a folder or a
//! pattern.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use glob::{MatchOptions, Pattern, PatternError};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use thalweg_io::{CaptureFiles, CaptureInput, IoError};
use thalweg_source::{
    FileIdentity, Source, SourceError, check_readable, counted, end_of_links, shortened,
};
use toml::Spanned;

use super::ports::InputSource;

/// The most files of a folder that are named as skipped; further ones are counted.
const MOST_NAMED: usize = 20;

/// The most characters of the names in drawings.
const MOST_SHOWN: usize = 60;

/// The characters that make a name a pattern.
const WILD: [char; 3] = ['*', '?', '['];

/// The value of `capture`.
#[derive(Debug)]
pub(super) enum Captures {
    One(String),
    List(Vec<Spanned<String>>),
}

impl<'de> Deserialize<'de> for Captures {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CapturesVisitor)
    }
}

struct CapturesVisitor;

impl<'de> Visitor<'de> for CapturesVisitor {
    type Value = Captures;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a file, a folder or a pattern, or a list of them")
    }

    fn visit_str<E>(self, name: &str) -> Result<Captures, E> {
        Ok(Captures::One(name.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Captures, A::Error> {
        let mut names = Vec::new();
        while let Some(name) = list.next_element()? {
            names.push(name);
        }
        Ok(Captures::List(names))
    }
}

/// Where an input looks for its files.
#[derive(Clone, Debug)]
pub(super) enum Searched {
    Folder(PathBuf),
    Pattern(Pattern),
}

impl Searched {
    /// The files that match the pattern `name` in a folder: by this name, and by the real one of
    /// the folder where the search begins, since other files may name it otherwise.
    fn pattern(folder: &Path, name: &str) -> Result<[Self; 2], PatternError> {
        let parts: Vec<_> = Path::new(name).components().collect();
        let is_wild = |part: &Component<'_>| part.as_os_str().to_string_lossy().contains(WILD);
        let begin = parts.iter().position(is_wild).unwrap_or(parts.len());
        let (fixed, wild) = parts.split_at(begin);
        let start = real_folder(&folder.join(fixed.iter().collect::<PathBuf>()));
        let wild: PathBuf = wild.iter().collect();
        let pattern = |whole: String| Pattern::new(&whole).map(Self::Pattern);
        Ok([pattern(pattern_in(folder, Path::new(name)))?, pattern(pattern_in(&start, &wild))?])
    }

    /// Whether a file that is written to `path` would be found.
    pub(super) fn finds(&self, path: &Path) -> bool {
        let options = MatchOptions { require_literal_separator: true, ..MatchOptions::default() };
        [path, &end_of_links(path)].into_iter().any(|path| {
            let folder = path.parent().unwrap_or_else(|| Path::new(""));
            match self {
                Self::Folder(searched) => {
                    FileIdentity::of(&real_folder(folder)) == FileIdentity::of(searched)
                }
                Self::Pattern(pattern) => {
                    let real = real_folder(folder).join(path.file_name().unwrap_or_default());
                    [path, &real].iter().any(|path| pattern.matches_path_with(path, options))
                }
            }
        })
    }
}

/// The path of a folder without links and `..`, if it exists.
fn real_folder(folder: &Path) -> PathBuf {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    folder.canonicalize().unwrap_or_else(|_| folder.to_owned())
}

/// The pattern `name` relative to a folder, in whose own name nothing is a pattern.
fn pattern_in(folder: &Path, name: &Path) -> String {
    let folder = Pattern::escape(&folder.to_string_lossy());
    Path::new(&folder).join(name).to_string_lossy().into_owned()
}

/// The captures of an input, as they were found.
pub(super) struct Found {
    pub(super) source: InputSource,
    pub(super) searched: Vec<Searched>,
}

/// The mistakes and warnings of a chain file.
pub(super) struct Findings<'a> {
    pub(super) notes: &'a mut Vec<SourceError>,
    pub(super) errors: &'a mut Vec<SourceError>,
}

/// Finds the captures that `captures` names. `passes` is the place of a number of passes other
/// than 1.
pub(super) fn captures(
    source: &Source,
    captures: Spanned<Captures>,
    in_memory: bool,
    passes: Option<Range<usize>>,
    findings: &mut Findings<'_>,
) -> Found {
    let span = captures.span();
    let names = match captures.into_inner() {
        Captures::One(name) => {
            let path = source.resolve(&name);
            if !path.is_dir() && !is_pattern(&path, &name) {
                let source = one(source, &path, span, in_memory, passes, findings.errors);
                return Found { source, searched: Vec::new() };
            }
            vec![Spanned::new(span, name)]
        }
        Captures::List(names) => {
            if names.is_empty() {
                findings.errors.push(source.error(span, "an empty list", "at least one capture"));
            }
            names
        }
    };
    several(source, &names, in_memory, findings)
}

/// Whether `name`, of no existing file at `path`, is a pattern.
fn is_pattern(path: &Path, name: &str) -> bool {
    name.contains(WILD) && path.symlink_metadata().is_err()
}

fn one(
    source: &Source,
    path: &Path,
    span: Range<usize>,
    in_memory: bool,
    passes: Option<Range<usize>>,
    errors: &mut Vec<SourceError>,
) -> InputSource {
    let cannot_read = |e| Some(format!("cannot read this capture: {e}"));
    // A pipe is not opened, since its writer would lose its reader when it is closed again.
    let problem = match path.metadata() {
        Ok(metadata) if !metadata.is_file() => {
            if let Some(span) = passes.filter(|_| !in_memory) {
                let message = "the capture can be read only once, since it is not a file";
                errors.push(source.error(span, message, "loop = 1, or memory = true"));
            }
            check_readable(path).err().and_then(cannot_read)
        }
        Ok(_) => match CaptureInput::open(path, 1) {
            Ok(_) => None,
            Err(IoError::File { source, .. }) => cannot_read(source),
            Err(other) => Some(other.what()),
        },
        Err(e) => cannot_read(e),
    };
    if let Some(message) = problem {
        errors.push(source.error(span, message, "a readable capture"));
    }
    let what = path.display().to_string();
    InputSource::Capture { files: CaptureFiles::one(path), what, in_memory }
}

/// A file that was found, by the name at `span`.
struct Origin {
    span: Range<usize>,
    /// Whether that is a folder, in which other files may stand too.
    is_folder: bool,
}

fn several(
    source: &Source,
    names: &[Spanned<String>],
    in_memory: bool,
    findings: &mut Findings<'_>,
) -> Found {
    let mut origins = HashMap::new();
    let (mut paths, mut searched) = (Vec::new(), Vec::new());
    for name in names {
        let path = source.resolve(name.get_ref());
        let is_folder = path.is_dir();
        let found = if is_folder {
            searched.push(Searched::Folder(path.clone()));
            in_folder(&path)
        } else if is_pattern(&path, name.get_ref()) {
            matches(source, name.get_ref(), &mut searched)
        } else {
            Ok(vec![path])
        };
        let found = found.unwrap_or_else(|(message, expected)| {
            findings.errors.push(source.error(name.span(), message, expected));
            Vec::new()
        });
        for path in &found {
            origins.entry(path.clone()).or_insert(Origin { span: name.span(), is_folder });
        }
        paths.extend(found);
    }
    let (files, failures) = CaptureFiles::several(paths);
    report(source, failures, &origins, findings);
    let names: Vec<_> = names.iter().map(|name| &**name.get_ref()).collect();
    let names = names.join(", ");
    let count = counted(files.paths().len(), "file");
    let what = format!("{}: {count}", shortened(&names, MOST_SHOWN));
    Found { source: InputSource::Capture { files, what, in_memory }, searched }
}

/// What is wrong with a name, and what was expected.
type Mistake = (String, &'static str);

/// The files of a folder, by name, without hidden ones and without those of its folders.
fn in_folder(folder: &Path) -> Result<Vec<PathBuf>, Mistake> {
    let cannot = |e| (format!("cannot read this folder: {e}"), "a readable folder");
    let mut paths = Vec::new();
    for entry in folder.read_dir().map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        let is_hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes()[0] == b'.');
        if !is_hidden && path.is_file() {
            paths.push(path);
        }
    }
    paths.sort_unstable();
    if paths.is_empty() {
        return Err(("this folder has no files".into(), "a folder with captures"));
    }
    Ok(paths)
}

/// The files that match the pattern `name`, by name.
fn matches(
    source: &Source,
    name: &str,
    searched: &mut Vec<Searched>,
) -> Result<Vec<PathBuf>, Mistake> {
    let expected = "a pattern with *, ?, [...] or **/, such as traffic/*.pcap";
    let folder = source.path().parent().unwrap_or_else(|| Path::new(""));
    let bad = |e: PatternError| (format!("bad pattern: {e}"), expected);
    searched.extend(Searched::pattern(folder, name).map_err(bad)?);
    let whole = pattern_in(folder, Path::new(name));
    let options = MatchOptions { require_literal_leading_dot: true, ..Default::default() };
    let mut paths = Vec::new();
    for found in glob::glob_with(&whole, options).map_err(bad)? {
        let path =
            found.map_err(|e| (format!("cannot read a folder of this pattern: {e}"), expected))?;
        if path.is_file() {
            paths.push(path);
        }
    }
    if paths.is_empty() {
        return Err(("no file matches this pattern".into(), "a pattern that captures match"));
    }
    Ok(paths)
}

/// Reports the files that are no captures: as skipped if they were found in a folder.
fn report(
    source: &Source,
    failures: Vec<IoError>,
    origins: &HashMap<PathBuf, Origin>,
    findings: &mut Findings<'_>,
) {
    let mut skipped = 0;
    let mut last = 0..0;
    for failure in failures {
        let Some(path) = failure.path() else { continue };
        let Some(Origin { span, is_folder }) = origins.get(path) else { continue };
        let (name, what) = (path.display(), failure.what());
        if *is_folder && matches!(failure, IoError::Format { .. }) {
            skipped += 1;
            last = span.clone();
            if skipped <= MOST_NAMED {
                let message = format!("skipped '{name}': {what}");
                findings.notes.push(source.error(span.clone(), message, "a folder of captures"));
            }
        } else {
            let message = format!("cannot read '{name}': {what}");
            findings.errors.push(source.error(span.clone(), message, "readable captures"));
        }
    }
    if let Some(more) = skipped.checked_sub(MOST_NAMED).filter(|more| *more > 0) {
        let message = format!("skipped {}", counted(more, "more file"));
        findings.notes.push(source.error(last, message, "a folder of captures"));
    }
}
