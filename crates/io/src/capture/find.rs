//! The captures of an input: one file, pipe or connection, or several files as a list, a folder or
//! a pattern.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use glob::{MatchOptions, PatternError};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use thalweg_source::{SourceError, check_readable, counted, shortened};
use toml::Spanned;

use super::files::CaptureFiles;
use super::peer::{Endpoint, Peer};
use super::record::Reader;
use super::standard::{STANDARD, STANDARD_INPUT};
use super::stream::Upkeep;
use crate::kind::Section;
use crate::port::IoError;
use crate::searched::{Searched, WILD, pattern_in};

/// The most files of a folder that are named as skipped; further ones are counted.
const MOST_NAMED: usize = 20;

/// The most characters of the names in drawings.
const MOST_SHOWN: usize = 60;

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

impl JsonSchema for Captures {
    fn schema_name() -> Cow<'static, str> {
        "Captures".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                { "type": "string" },
                { "type": "array", "items": { "type": "string" }, "minItems": 1 },
            ],
        })
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

/// Where the packets of an input come from.
pub(super) enum Origin {
    Files(CaptureFiles),
    Peer(Peer),
}

/// The captures of an input, as they were found.
pub(super) struct Found {
    pub(super) origin: Origin,
    /// The path or address; with several files, their names in the chain file and their number.
    pub(super) what: String,
    /// The format, if one file has been read.
    pub(super) form: Option<String>,
}

/// Finds the captures that `captures` names. `passes` is the place of a number of passes other
/// than 1.
pub(super) fn find(
    section: &Section<'_>,
    captures: Spanned<Captures>,
    in_memory: bool,
    passes: Option<Range<usize>>,
    errors: &mut Vec<SourceError>,
) -> Found {
    let span = captures.span();
    let names = match captures.into_inner() {
        Captures::One(name) if name == STANDARD => {
            let path = Path::new(STANDARD_INPUT);
            return one(section, path, span, passes.filter(|_| !in_memory), errors);
        }
        Captures::One(name) if Endpoint::is_meant(&name) => {
            return connected(section, &name, span, passes.filter(|_| !in_memory), errors);
        }
        Captures::One(name) => {
            let path = section.resolve(&name);
            if !path.is_dir() && !is_pattern(&path, &name) {
                return one(section, &path, span, passes.filter(|_| !in_memory), errors);
            }
            vec![Spanned::new(span, name)]
        }
        Captures::List(names) => {
            if names.is_empty() {
                errors.push(section.error(span, "an empty list", "at least one capture"));
            }
            names
        }
    };
    several(section, &names, errors)
}

/// Whether `name`, of no existing file at `path`, is a pattern.
fn is_pattern(path: &Path, name: &str) -> bool {
    name.contains(WILD) && path.symlink_metadata().is_err()
}

/// What sends packets over a connection. `passes` is the place of a number of passes, for which a
/// connection does not do.
fn connected(
    section: &Section<'_>,
    name: &str,
    span: Range<usize>,
    passes: Option<Range<usize>>,
    errors: &mut Vec<SourceError>,
) -> Found {
    errors.extend(passes.map(|span| only_once(section, span)));
    match Peer::parse(section, name, span) {
        Ok(peer) => Found { what: peer.to_string(), origin: Origin::Peer(peer), form: None },
        Err(error) => {
            errors.push(error);
            let origin = Origin::Files(CaptureFiles::one(name));
            Found { origin, what: name.into(), form: None }
        }
    }
}

/// The mistake of a number of passes at `span`.
fn only_once(section: &Section<'_>, span: Range<usize>) -> SourceError {
    let message = "the capture can be read only once, since it is not a file";
    section.error(span, message, "loop = 1, or memory = true")
}

/// One file or pipe. `passes` is the place of a number of passes for which a pipe does not do.
fn one(
    section: &Section<'_>,
    path: &Path,
    span: Range<usize>,
    passes: Option<Range<usize>>,
    errors: &mut Vec<SourceError>,
) -> Found {
    let cannot_read = |e| format!("cannot read this capture: {e}");
    // A pipe is not opened, since its writer would lose its reader when it is closed again.
    let form = match path.metadata() {
        Ok(metadata) if !metadata.is_file() => {
            errors.extend(passes.map(|span| only_once(section, span)));
            check_readable(path).map(|()| None).map_err(cannot_read)
        }
        Ok(_) => match Reader::open(path, Upkeep::Full) {
            Ok(reader) => Ok(reader.form()),
            Err(IoError::File { source, .. }) => Err(cannot_read(source)),
            Err(other) => Err(other.what()),
        },
        Err(e) => Err(cannot_read(e)),
    };
    let form = form.unwrap_or_else(|message| {
        errors.push(section.error(span.clone(), message, "a readable capture"));
        None
    });
    section.reads(path, span);
    let origin = Origin::Files(CaptureFiles::one(path));
    Found { origin, what: path.display().to_string(), form }
}

/// A file that was found, by the name at `span`.
struct Named {
    span: Range<usize>,
    /// Whether that is a folder, in which other files may stand too.
    is_folder: bool,
}

fn several(
    section: &Section<'_>,
    names: &[Spanned<String>],
    errors: &mut Vec<SourceError>,
) -> Found {
    let mut origins = HashMap::new();
    let mut paths = Vec::new();
    for name in names {
        if name.get_ref() == STANDARD || Endpoint::is_meant(name.get_ref()) {
            let message = "neither standard input nor a connection can be one of several captures";
            errors.push(section.error(name.span(), message, "an input of its own for it"));
            continue;
        }
        let path = section.resolve(name.get_ref());
        let is_folder = path.is_dir();
        let found = if is_folder {
            section.searches(Searched::Folder(path.clone()));
            in_folder(&path)
        } else if is_pattern(&path, name.get_ref()) {
            matches(section, name.get_ref())
        } else {
            Ok(vec![path])
        };
        let found = found.unwrap_or_else(|(message, expected)| {
            errors.push(section.error(name.span(), message, expected));
            Vec::new()
        });
        for path in &found {
            origins.entry(path.clone()).or_insert(Named { span: name.span(), is_folder });
        }
        paths.extend(found);
    }
    let (files, failures) = CaptureFiles::several(paths);
    report(section, failures, &origins, errors);
    for path in files.paths() {
        section.reads(path, origins[path].span.clone());
    }
    let names: Vec<_> = names.iter().map(|name| &**name.get_ref()).collect();
    let names = names.join(", ");
    let count = counted(files.paths().len(), "file");
    let what = format!("{}: {count}", shortened(&names, MOST_SHOWN));
    Found { origin: Origin::Files(files), what, form: None }
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
fn matches(section: &Section<'_>, name: &str) -> Result<Vec<PathBuf>, Mistake> {
    let expected = "a pattern with *, ?, [...] or **/, such as traffic/*.pcap";
    let folder = section.source().path().parent().unwrap_or_else(|| Path::new(""));
    let bad = |e: PatternError| (format!("bad pattern: {e}"), expected);
    let places = Searched::pattern(folder, name).map_err(bad)?;
    places.into_iter().for_each(|place| section.searches(place));
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
    section: &Section<'_>,
    failures: Vec<IoError>,
    origins: &HashMap<PathBuf, Named>,
    errors: &mut Vec<SourceError>,
) {
    let mut skipped = 0;
    let mut last = 0..0;
    for failure in failures {
        let Some(path) = failure.path() else { continue };
        let Some(Named { span, is_folder }) = origins.get(path) else { continue };
        let (name, what) = (path.display(), failure.what());
        if *is_folder && matches!(failure, IoError::Format { .. }) {
            skipped += 1;
            last = span.clone();
            if skipped <= MOST_NAMED {
                let message = format!("skipped '{name}': {what}");
                section.warn(span.clone(), message, "a folder of captures");
            }
        } else {
            let message = format!("cannot read '{name}': {what}");
            errors.push(section.error(span.clone(), message, "readable captures"));
        }
    }
    if let Some(more) = skipped.checked_sub(MOST_NAMED).filter(|more| *more > 0) {
        let message = format!("skipped {}", counted(more, "more file"));
        section.warn(last, message, "a folder of captures");
    }
}
