//! Files that NFs write, whole lines at a time.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::function::NfError;

/// A file to which all workers append lines. The first write creates it.
#[derive(Debug)]
pub struct LineFile {
    path: Option<PathBuf>,
    file: Option<File>,
}

impl LineFile {
    /// A file at `path`; without a path nothing is written.
    pub fn new(path: Option<PathBuf>) -> Self {
        Self { path, file: None }
    }

    /// Whether lines are written at all.
    pub fn is_wanted(&self) -> bool {
        self.path.is_some()
    }

    /// Appends `lines`; creates the file if it does not exist yet.
    pub fn write(&mut self, lines: &[u8]) -> Result<(), NfError> {
        let Some(path) = &self.path else { return Ok(()) };
        let failed = |source| NfError::Write { path: path.clone(), source };
        if self.file.is_none() {
            self.file = Some(File::create(path).map_err(failed)?);
        }
        match &mut self.file {
            Some(file) if !lines.is_empty() => file.write_all(lines).map_err(failed),
            _ => Ok(()),
        }
    }
}

/// Writes `value` as a line of JSON.
pub fn json_line(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

/// Replaces the file at `path` as a whole, so that a reader never sees a part of it.
pub fn replace(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), NfError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    let replaced = || -> io::Result<()> {
        let mut out = BufWriter::new(File::create(&new)?);
        write(&mut out)?;
        out.into_inner().map_err(io::IntoInnerError::into_error)?;
        fs::rename(&new, path)
    };
    replaced().map_err(|source| NfError::Write { path: path.to_owned(), source })
}
