//! Files that NFs write, whole lines at a time.

use std::io::{self, BufWriter, Write};

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use thalweg_source::{PatientWriter, VisibleJson};

use crate::function::NfError;

pub use thalweg_source::OutputFile;

/// A file to which an NF appends lines. The run creates it at its start.
#[derive(Clone, Debug, PartialEq)]
pub struct LineFile(Option<OutputFile>);

impl LineFile {
    /// The file that [`Section::output`](crate::Section::output) returned; without one nothing is
    /// written.
    pub fn new(file: Option<OutputFile>) -> Self {
        Self(file)
    }

    /// Whether lines are written at all.
    pub fn is_wanted(&self) -> bool {
        self.0.is_some()
    }

    /// Appends `lines`; creates the file if it does not exist yet. After an error the file ends
    /// with the last line that it accepted whole.
    pub fn write(&mut self, lines: &[u8]) -> Result<(), NfError> {
        let Some(file) = &self.0 else { return Ok(()) };
        let whole = |n: usize| lines[..n].iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        file.append(lines, whole).map_err(|e| failed(file, e.error))
    }
}

/// The error of writing `file`.
pub fn failed(file: &OutputFile, source: io::Error) -> NfError {
    NfError::Write { path: file.path().to_owned(), source }
}

/// Writes `value` as a line of JSON, without characters that a terminal would obey.
pub fn json_line(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(VisibleJson(&mut *out), value)?;
    out.write_all(b"\n")
}

/// The same as a part of a line.
///
/// # Panics
/// When `value` has no form in JSON.
pub fn json_text(value: &impl Serialize) -> String {
    let mut text = Vec::new();
    serde_json::to_writer(VisibleJson(&mut text), value).expect("the value has a form in JSON");
    String::from_utf8(text).expect("JSON is UTF-8")
}

/// The JSON Schema of what `T` is written as.
pub fn schema_of<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    settings.into_generator().into_root_schema_for::<T>()
}

/// Replaces the content of `file` as a whole, so that a reader never sees a part of it.
pub fn replace(
    file: &OutputFile,
    write: impl FnOnce(&mut BufWriter<PatientWriter>) -> io::Result<()>,
) -> Result<(), NfError> {
    file.replace(write).map_err(|source| failed(file, source))
}
