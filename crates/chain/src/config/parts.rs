//! Reads TOML into the parts of a [`ChainFile`], each on its own.

use std::ops::Range;

use serde::de::DeserializeOwned;
use thalweg_nf::Kinds;
use thalweg_source::{Mistakes, Source, SourceError};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue, ValueDeserializer};

use super::file::{ChainFile, Named, NfSection};

/// Reads the chain file.
///
/// # Errors
/// When the text is not TOML; mistakes in single parts are in the file's `errors`.
pub(super) fn read<'a>(
    source: &'a Source,
    kinds: &Kinds,
) -> Result<ChainFile<'a>, Vec<SourceError>> {
    let (document, errors) = DeTable::parse_recoverable(source.text());
    if !errors.is_empty() {
        let expected = "TOML 1.0";
        let place =
            |e: &toml::de::Error| source.error(e.span().unwrap_or(0..0), e.message(), expected);
        let mut mistakes = Mistakes::default();
        errors.iter().for_each(|e| mistakes.push_with(|| place(e)));
        return Err(mistakes.into_vec());
    }
    let mut parts = Parts { source, table: document.into_inner(), errors: Vec::new() };
    if !parts.table.contains_key("routes") {
        parts.error(0..0, "the chain has no routes", "a line: routes = \"FILE\"");
    }
    let file = ChainFile {
        run: parts
            .part("run", "[run] with: workers, merge = \"time\" or \"turn\"")
            .unwrap_or_default(),
        memory: parts
            .part("memory", "[memory] with: frame_size, frames, huge_pages")
            .unwrap_or_default(),
        classify: parts.part("classify", "the keys of [classify]").unwrap_or_default(),
        inputs: parts.named(
            "input",
            "[input.NAME] with: interface, promiscuous, capture, generate, loop, memory, from, to, \
             filter",
        ),
        outputs: parts.named("output", "[output.NAME] with: interface, capture, discard"),
        nfs: parts.nfs(kinds),
        default_type: parts.part("default_type", "the name of a packet type"),
        classes: parts.array("class", "[[class]] with: type, rules, file, classbench"),
        routes: parts.part("routes", "routes = \"FILE\""),
        errors: Vec::new(),
    };
    Ok(ChainFile { errors: parts.finish(), ..file })
}

struct Parts<'s, 'a> {
    source: &'s Source,
    table: DeTable<'a>,
    errors: Vec<SourceError>,
}

impl<'a> Parts<'_, 'a> {
    fn take(&mut self, key: &str) -> Option<(Spanned<DeString<'a>>, Spanned<DeValue<'a>>)> {
        take(&mut self.table, key)
    }

    fn error(&mut self, span: Range<usize>, message: impl Into<String>, expected: &str) {
        self.errors.push(self.source.error(span, message, expected));
    }

    fn deserialize<T: DeserializeOwned>(
        &mut self,
        value: Spanned<DeValue<'a>>,
        expected: &str,
    ) -> Option<T> {
        let whole = value.span();
        match T::deserialize(ValueDeserializer::from(value)) {
            Ok(part) => Some(part),
            Err(e) => {
                let message = e.message().to_owned();
                self.error(e.span().unwrap_or(whole), message, expected);
                None
            }
        }
    }

    /// The value of a top-level key.
    fn part<T: DeserializeOwned>(&mut self, key: &str, expected: &str) -> Option<T> {
        let (_, value) = self.take(key)?;
        self.deserialize(value, expected)
    }

    /// The sections `[key.NAME]`, in the order of the file.
    fn named<T: DeserializeOwned>(&mut self, key: &str, expected: &str) -> Vec<Named<T>> {
        let mut sections = Vec::new();
        for (name, value) in self.sections(key, expected) {
            let name = Spanned::new(name.span(), name.get_ref().to_string());
            let whole = value.span();
            let part = self.deserialize(value, expected).map(|part| Spanned::new(whole, part));
            sections.push((name, part));
        }
        sections
    }

    fn sections(
        &mut self,
        key: &str,
        expected: &str,
    ) -> Vec<(Spanned<DeString<'a>>, Spanned<DeValue<'a>>)> {
        let Some((_, value)) = self.take(key) else { return Vec::new() };
        let span = value.span();
        let DeValue::Table(table) = value.into_inner() else {
            self.error(span, format!("'{key}' is not a table"), expected);
            return Vec::new();
        };
        // The parser sorts keys; ports and NFs are numbered in the order of the file.
        let mut sections: Vec<_> = table.into_iter().collect();
        sections.sort_by_key(|(name, _)| name.span().start);
        sections
    }

    /// The sections `[[key]]`.
    fn array<T: DeserializeOwned>(&mut self, key: &str, expected: &str) -> Vec<Spanned<T>> {
        let Some((_, value)) = self.take(key) else { return Vec::new() };
        let span = value.span();
        let DeValue::Array(array) = value.into_inner() else {
            self.error(span, format!("'{key}' is not a list of sections"), expected);
            return Vec::new();
        };
        let mut sections = Vec::new();
        for value in array {
            let whole = value.span();
            if let Some(part) = self.deserialize(value, expected) {
                sections.push(Spanned::new(whole, part));
            }
        }
        sections
    }

    fn nfs(&mut self, kinds: &Kinds) -> Vec<NfSection<'a>> {
        let sections = self.sections("nf", "a section [nf.NAME] for each network function");
        sections.into_iter().map(|(name, value)| self.nf(&name, value, kinds)).collect()
    }

    fn nf(
        &mut self,
        name: &Spanned<DeString<'a>>,
        value: Spanned<DeValue<'a>>,
        kinds: &Kinds,
    ) -> NfSection<'a> {
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
                    self.error(at, format!("unknown NF kind '{kind}'"), &expected);
                }
                known.copied()
            }
            Some((at, _)) => {
                self.error(at, "'kind' is not a string", "kind = \"router\" or another kind");
                None
            }
            None => {
                let expected = format!("kind = \"...\": one of {}", kinds.names());
                let message = format!("NF '{}' has no kind", name.get_ref());
                self.error(span.clone(), message, &expected);
                None
            }
        };
        let pinned = match take(&mut table, "pinned").map(|(_, v)| (v.span(), v.into_inner())) {
            Some((_, DeValue::Boolean(pinned))) => pinned,
            Some((at, _)) => {
                self.error(at, "'pinned' is not a boolean", "true or false");
                false
            }
            None => false,
        };
        let options = Spanned::new(whole, DeValue::Table(table));
        NfSection { name: name.get_ref().to_string(), kind, pinned, options, span }
    }

    /// Adds an error for each key that is left over, since it is unknown.
    fn finish(mut self) -> Vec<SourceError> {
        let known = "run, memory, classify, input, output, nf, default_type, class or routes";
        for (key, _) in std::mem::take(&mut self.table) {
            let message = format!("unknown key '{}'", key.get_ref());
            self.error(key.span(), message, known);
        }
        self.errors
    }
}

fn take<'a>(
    table: &mut DeTable<'a>,
    key: &str,
) -> Option<(Spanned<DeString<'a>>, Spanned<DeValue<'a>>)> {
    let at = table.keys().find(|k| k.get_ref() == key).cloned()?;
    table.remove_entry(&at)
}
