//! Files that NFs write, whole records at a time.

use std::io::{self, BufWriter, Write};

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use thalweg_source::{PatientWriter, VisibleJson};
use toml::Spanned;

use crate::function::NfError;

pub use thalweg_source::{Lines, OutputFile, Records, Rotation};

/// The option `rotate` of an NF that appends records to files: it holds for each of them. A file
/// that would exceed the size is renamed, NAME to NAME.1, and a new one is begun.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rotate {
    /// The most MiB of a file; a larger record has a file of its own.
    #[schemars(with = "u64", range(min = 1, max = 1_048_576))]
    pub(crate) size_mib: Spanned<u64>,
    /// The number of renamed files that are kept: NAME.1, the newest, to NAME.N.
    #[serde(default = "keep")]
    #[schemars(with = "u32", range(min = 1, max = 100))]
    pub(crate) keep: Spanned<u32>,
}

fn keep() -> Spanned<u32> {
    Spanned::new(0..0, 5)
}

/// A file to which an NF appends records of the form `F`. The run creates it at its start.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordFile<F> {
    file: Option<OutputFile>,
    rotation: Option<Rotation>,
    form: F,
}

/// A file to which an NF appends lines.
pub type LineFile = RecordFile<Lines>;

impl<F: Records + Default> RecordFile<F> {
    /// The file that [`Section::output`](crate::Section::output) returned; without one nothing is
    /// written. It is renamed as [`Section::rotation`](crate::Section::rotation) returned.
    pub fn new(file: Option<OutputFile>, rotation: Option<Rotation>) -> Self {
        Self { file, rotation, form: F::default() }
    }

    /// Whether records are written at all.
    pub fn is_wanted(&self) -> bool {
        self.file.is_some()
    }

    /// Whether `other` writes to the same file.
    pub fn is_same_file(&self, other: &Self) -> bool {
        self.file == other.file
    }

    /// Appends whole `records`; creates the file if it does not exist yet. After an error the file
    /// ends with the last record that it accepted whole. A file that cannot be renamed is continued,
    /// with a warning in the log.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&mut self, records: &[u8]) -> Result<(), NfError> {
        let Some(file) = &self.file else { return Ok(()) };
        let appended = file.append_records(records, &self.form, self.rotation);
        if let Some(reason) = appended.map_err(|e| failed(file, e.error))? {
            log::warn!("cannot rotate {}, which is continued: {reason}", file.path().display());
        }
        Ok(())
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
