//! Text files that a chain file names.

use thalweg_source::{Source, SourceError};
use toml::Spanned;

/// Whether a chain file is a text without a file.
pub(super) fn is_in_memory(source: &Source) -> bool {
    source.path().as_os_str().is_empty()
}

/// Reads the text file `name`. An error is reported in that file if its text was read, and
/// otherwise where the chain file names it.
pub(super) fn read_named(
    source: &Source,
    name: &Spanned<String>,
    expected: &str,
    errors: &mut Vec<SourceError>,
) -> Option<Source> {
    let path = source.resolve(name.get_ref());
    match Source::read(&path) {
        Ok(file) => Some(file),
        Err(e) if e.source_file().text().is_empty() => {
            errors.push(source.error(name.span(), e.message(), expected));
            None
        }
        Err(e) => {
            errors.push(e);
            None
        }
    }
}
