//! Reads TOML into the parts of a [`ChainFile`], each on its own.

use std::collections::HashMap;
use std::ops::Range;

use serde::de::DeserializeOwned;
use thalweg_source::{Passage, Source, SourceError};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue, ValueDeserializer};

use super::file::{ChainFile, NfSection, Placed, PortSection, Route};
use super::include::{self, Texts, TomlFile};
use super::ports::{INPUT, OUTPUT};
use super::served::Served;
use crate::kinds::Kinds;

/// Reads the chain file `root`, and the files that it includes.
///
/// # Errors
/// When a text cannot be read, is not TOML, or has variables without a value; mistakes in single
/// parts are in the file's `errors`.
pub(super) fn read<'a>(
    root: &'a Source,
    texts: &'a Texts,
    kinds: &Kinds,
) -> Result<ChainFile<'a>, Vec<SourceError>> {
    let files = include::read(root, texts)?;
    let sources: Vec<Source> = files.iter().map(|file| file.source.clone()).collect();
    let (source, included) = sources.split_last().expect("the chain file is the last");
    let mut parts = Parts { root: source.clone(), files, errors: Vec::new() };
    parts.check_routes();
    let file = ChainFile {
        run: parts.section(
            "run",
            "[run] with: workers, cores, seed, poll_us, user, merge = \"time\" or \"turn\"",
        ),
        memory: parts.section(
            "memory",
            "[memory] with: frame_size, frames, large_frames, huge_pages, device, launches",
        ),
        classify: parts.section("classify", "the keys of [classify]"),
        inputs: parts.ports(INPUT.name, &INPUT.expected(&kinds.ports)),
        outputs: parts.ports(OUTPUT.name, &OUTPUT.expected(&kinds.ports)),
        nfs: parts.nfs(&kinds.nfs),
        default_type: parts.part("default_type", "the name of a packet type"),
        classes: parts.array("class", "[[class]] with: type, rules, file, classbench"),
        routes: parts.part("routes", "routes = \"FILE\""),
        paths: parts.paths(),
        errors: Vec::new(),
        source: source.clone(),
        included: included.iter().map(|source| source.path().to_owned()).collect(),
    };
    Ok(ChainFile { errors: parts.finish(), ..file })
}

/// A key of a file and its value.
type Entry<'a> = (Spanned<DeString<'a>>, Spanned<DeValue<'a>>);

struct Parts<'a> {
    /// The chain file itself.
    root: Source,
    /// All files, the chain file last.
    files: Vec<TomlFile<'a>>,
    errors: Vec<SourceError>,
}

impl<'a> Parts<'a> {
    /// The values of a top-level key, in the order of the files.
    fn take(&mut self, key: &str) -> Vec<Placed<Entry<'a>>> {
        let entry = |file: &mut TomlFile<'a>| {
            let entry = take(&mut file.table, key)?;
            Some(Placed { source: file.source.clone(), part: entry })
        };
        self.files.iter_mut().filter_map(entry).collect()
    }

    /// Checks that the routes are in one place.
    fn check_routes(&mut self) {
        let mut places = [None, None];
        for TomlFile { source, table } in &self.files {
            for (name, value) in table {
                // A list without sections is no place.
                let is_empty = value.get_ref().as_array().is_some_and(|all| all.is_empty());
                let place = match &**name.get_ref() {
                    "routes" => &mut places[0],
                    "route" if !is_empty => &mut places[1],
                    _ => continue,
                };
                place.get_or_insert_with(|| Passage::new(source, name.span()));
            }
        }
        match places {
            [None, None] => {
                let expected = "routes = \"FILE\", or a section [[route]]";
                self.errors.push(self.root.error(0..0, "the chain has no routes", expected));
            }
            [Some(file), Some(paths)] => {
                let place = paths.seen_from(&file);
                let message = format!("the routes are in a file, and in [[route]] in {place}");
                self.errors.push(file.error(message, "either routes = \"FILE\" or [[route]]"));
            }
            _ => {}
        }
    }

    /// The value of a top-level key, which one file may have.
    fn part<T: DeserializeOwned>(&mut self, key: &str, expected: &str) -> Option<Placed<T>> {
        let mut entries = self.take(key).into_iter();
        let first = entries.next()?;
        let at = Passage::new(&first.source, first.0.span());
        for other in entries {
            let other = Passage::new(&other.source, other.0.span());
            let message = format!("'{key}' stands twice, first in {}", at.seen_from(&other));
            self.errors.push(other.error(message, "it in one file"));
        }
        let Placed { source, part: (_, value) } = first;
        let part = self.deserialize(&source, value, expected)?;
        Some(Placed { source, part })
    }

    /// The section `[key]`, which one file may have; the defaults without it.
    fn section<T: DeserializeOwned + Default>(&mut self, key: &str, expected: &str) -> Placed<T> {
        let section = self.part(key, expected);
        section.unwrap_or_else(|| Placed { source: self.root.clone(), part: T::default() })
    }

    fn deserialize<T: DeserializeOwned>(
        &mut self,
        source: &Source,
        value: Spanned<DeValue<'a>>,
        expected: &str,
    ) -> Option<T> {
        let whole = value.span();
        match T::deserialize(ValueDeserializer::from(value)) {
            Ok(part) => Some(part),
            Err(e) => {
                let span = e.span().unwrap_or(whole);
                self.errors.push(source.error(span, e.message(), expected));
                None
            }
        }
    }

    /// The sections `[key.NAME]` of ports, in the order of the files.
    fn ports(&mut self, key: &str, expected: &str) -> Vec<PortSection<'a>> {
        let named = |Placed { source, part: (name, value) }: Placed<Entry<'a>>| {
            let name = Spanned::new(name.span(), name.get_ref().to_string());
            Placed { source, part: (name, value) }
        };
        self.sections(key, expected).into_iter().map(named).collect()
    }

    /// The sections `[key.NAME]`, in the order of the files.
    fn sections(&mut self, key: &str, expected: &str) -> Vec<Placed<Entry<'a>>> {
        let mut all: Vec<Placed<Entry<'a>>> = Vec::new();
        let mut names: HashMap<String, Passage> = HashMap::new();
        for Placed { source, part: (_, value) } in self.take(key) {
            let span = value.span();
            let DeValue::Table(table) = value.into_inner() else {
                let message = format!("'{key}' is not a table");
                self.errors.push(source.error(span, message, expected));
                continue;
            };
            // The parser sorts keys; ports and NFs are numbered in the order of the file.
            let mut sections: Vec<_> = table.into_iter().collect();
            sections.sort_by_key(|(name, _)| name.span().start);
            for section in sections {
                let name = section.0.get_ref().to_string();
                let at = Passage::new(&source, section.0.span());
                if let Some(first) = names.get(&name) {
                    let first = first.seen_from(&at);
                    let what = if key == "nf" { "NF" } else { key };
                    let message = format!("{what} '{name}' is defined twice, first in {first}");
                    self.errors.push(at.error(message, "each name once"));
                    continue;
                }
                names.insert(name, at);
                all.push(Placed { source: source.clone(), part: section });
            }
        }
        all
    }

    /// The sections `[[key]]` of all files.
    fn array<T: DeserializeOwned>(&mut self, key: &str, expected: &str) -> Vec<Placed<Spanned<T>>> {
        let mut sections = Vec::new();
        for Placed { source, part: (_, value) } in self.take(key) {
            let span = value.span();
            let DeValue::Array(array) = value.into_inner() else {
                let message = format!("'{key}' is not a list of sections");
                self.errors.push(source.error(span, message, expected));
                continue;
            };
            for value in array {
                let whole = value.span();
                if let Some(part) = self.deserialize(&source, value, expected) {
                    let part = Spanned::new(whole, part);
                    sections.push(Placed { source: source.clone(), part });
                }
            }
        }
        sections
    }

    /// The sections `[[route]]`; none if one is invalid, since others would seem to miss a route.
    fn paths(&mut self) -> Vec<Placed<Spanned<Route>>> {
        let before = self.errors.len();
        let paths = self.array("route", "[[route]] with: type, path");
        if self.errors.len() == before { paths } else { Vec::new() }
    }

    fn nfs(&mut self, kinds: &thalweg_nf::Kinds) -> Vec<NfSection<'a>> {
        let sections = self.sections("nf", "a section [nf.NAME] for each network function");
        sections.into_iter().map(|section| self.nf(section, kinds)).collect()
    }

    fn nf(&mut self, section: Placed<Entry<'a>>, kinds: &thalweg_nf::Kinds) -> NfSection<'a> {
        let Placed { source, part: (name, value) } = section;
        let mut error = |span: Range<usize>, message: String, expected: String| {
            self.errors.push(source.error(span, message, expected));
        };
        let (span, whole) = (name.span(), value.span());
        let mut table = match value.into_inner() {
            DeValue::Table(table) => table,
            _ => DeTable::new(),
        };
        let kind = match take(&mut table, "kind").map(|(_, v)| (v.span(), v.into_inner())) {
            Some((at, DeValue::String(kind))) => {
                let known = kinds.find(&kind);
                if known.is_none() {
                    let expected = format!("one of {}", kinds.names());
                    error(at, format!("unknown NF kind '{kind}'"), expected);
                }
                known.copied()
            }
            Some((at, _)) => {
                let expected = "kind = \"router\" or another kind";
                error(at, "'kind' is not a string".into(), expected.into());
                None
            }
            None => {
                let expected = format!("kind = \"...\": one of {}", kinds.names());
                error(span.clone(), format!("NF '{}' has no kind", name.get_ref()), expected);
                None
            }
        };
        let served = Served::take(&mut table, kind.as_ref(), &mut error);
        let options = Spanned::new(whole, DeValue::Table(table));
        NfSection { name: name.get_ref().to_string(), kind, served, options, span, source }
    }

    /// Adds an error for each key that is left over, since it is unknown.
    fn finish(mut self) -> Vec<SourceError> {
        let known = "include, run, memory, classify, input, output, nf, default_type, class, routes or route";
        for TomlFile { source, table } in self.files {
            for (key, _) in table {
                let message = format!("unknown key '{}'", key.get_ref());
                self.errors.push(source.error(key.span(), message, known));
            }
        }
        self.errors
    }
}

/// The places of the keys of a table.
pub(super) fn keys(value: &Spanned<DeValue<'_>>) -> Vec<Range<usize>> {
    let table = value.get_ref().as_table();
    table.into_iter().flat_map(|table| table.keys()).map(Spanned::span).collect()
}

/// Takes a key out of a table.
pub(super) fn take<'a>(table: &mut DeTable<'a>, key: &str) -> Option<Entry<'a>> {
    let at = table.keys().find(|k| k.get_ref() == key).cloned()?;
    table.remove_entry(&at)
}
