//! The files that records are exported to.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::ipfix::Messages;
use super::record::{JsonRecord, Record};
use thalweg_nf::NfError;
use thalweg_nf::toolkit::output::json_line;

/// The record files of one monitor, shared by its instances. The first record or
/// flush creates the files; each write holds whole records only.
#[derive(Debug)]
pub(super) struct Exporter {
    json: Option<Target>,
    ipfix: Option<Target>,
    messages: Messages,
}

#[derive(Debug)]
struct Target {
    path: PathBuf,
    file: Option<File>,
}

impl Target {
    /// The open file, and whether it was just created.
    fn open(&mut self) -> io::Result<(&mut File, bool)> {
        let new = self.file.is_none();
        if new {
            self.file = Some(File::create(&self.path)?);
        }
        self.file.as_mut().map(|file| (file, new)).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Exporter {
    pub(super) fn new(json: Option<PathBuf>, ipfix: Option<PathBuf>) -> Self {
        let target = |path: Option<PathBuf>| path.map(|path| Target { path, file: None });
        Self { json: target(json), ipfix: target(ipfix), messages: Messages::default() }
    }

    /// Appends records.
    pub(super) fn write(&mut self, records: &[Record]) -> Result<(), NfError> {
        if let Some(target) = &mut self.json {
            let lines = lines(records);
            target.open().and_then(|(file, _)| file.write_all(&lines)).map_err(failed(target))?;
        }
        if let Some(target) = &mut self.ipfix {
            let templates = self.messages.templates();
            let data = self.messages.data(records);
            let write = |(file, new): (&mut File, bool)| {
                if new {
                    file.write_all(&templates)?;
                }
                file.write_all(&data)
            };
            target.open().and_then(write).map_err(failed(target))?;
        }
        Ok(())
    }

    /// Creates the files even if there is no record.
    pub(super) fn flush(&mut self) -> Result<(), NfError> {
        self.write(&[])
    }
}

fn failed(target: &Target) -> impl FnOnce(io::Error) -> NfError {
    let path = Path::to_owned(&target.path);
    move |source| NfError::Write { path, source }
}

fn lines(records: &[Record]) -> Vec<u8> {
    let mut lines = Vec::new();
    for record in records {
        // Writing to memory does not fail, and every field has a JSON form.
        let _ = json_line(&mut lines, &JsonRecord::from(record));
    }
    lines
}
