//! One table of a TOML file, with the places of its values.

use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};

use crate::{Source, SourceError};

/// A table of a TOML file: the options of one section.
#[derive(Clone, Debug)]
pub struct SourceTable<'a> {
    value: Spanned<DeValue<'a>>,
    source: &'a Source,
}

impl<'a> SourceTable<'a> {
    /// The table `value` in `source`.
    pub fn new(value: Spanned<DeValue<'a>>, source: &'a Source) -> Self {
        Self { value, source }
    }

    /// The file that holds it.
    pub fn source(&self) -> &'a Source {
        self.source
    }

    /// Its place in the file.
    pub fn span(&self) -> Range<usize> {
        self.value.span()
    }

    /// Reads the table into `T`, which should `deny_unknown_fields`. Fields of type [`Spanned`] keep
    /// their place for later errors. `expected` follows the word *expected* in messages.
    ///
    /// # Errors
    /// The first value that is unknown, missing or of a wrong type.
    pub fn parse<T: DeserializeOwned>(&self, expected: &str) -> Result<T, SourceError> {
        T::deserialize(ValueDeserializer::from(self.value.clone())).map_err(|e| {
            let span = e.span().unwrap_or_else(|| self.span());
            self.source.error(span, e.message(), expected)
        })
    }

    /// A path that a value names: relative to the folder of the file.
    pub fn resolve(&self, path: impl AsRef<Path>) -> PathBuf {
        self.source.resolve(path)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use toml::de::DeTable;

    use super::*;

    fn table(source: &Source) -> SourceTable<'_> {
        let table = DeTable::parse(source.text()).unwrap();
        let span = table.span();
        SourceTable::new(Spanned::new(span, DeValue::Table(table.into_inner())), source)
    }

    type Sizes = BTreeMap<String, Spanned<u8>>;

    #[test]
    fn values_keep_their_places_and_mistakes_name_theirs() {
        let source = Source::new("conf/a.toml", "\nsize = 7");
        let sizes: Sizes = table(&source).parse("a size").unwrap();
        assert_eq!((sizes["size"].span(), *sizes["size"].get_ref()), (8..9, 7));
        let wrong = Source::new("conf/a.toml", "\nsize = 700");
        let error = table(&wrong).parse::<Sizes>("a size").unwrap_err().to_string();
        assert!(error.starts_with("conf/a.toml:2:8: invalid value: "), "{error}");
        assert!(error.ends_with(": '700'; expected a size"), "{error}");
    }

    #[test]
    fn paths_are_relative_to_the_folder_of_the_file() {
        let source = Source::new("conf/a.toml", "");
        assert_eq!(table(&source).resolve("b.txt"), Path::new("conf/b.txt"));
        assert_eq!(table(&source).resolve("/b.txt"), Path::new("/b.txt"));
        assert_eq!(table(&Source::new("", "")).resolve("b.txt"), Path::new("b.txt"));
    }
}
