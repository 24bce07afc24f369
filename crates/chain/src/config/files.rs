//! The files that a chain reads and writes: none may be overwritten that has another use.

use std::ops::Range;
use std::path::{Path, PathBuf};

use thalweg_source::{Source, SourceError};

/// All files that a chain file names.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// Each path, and what it is: "the file that input 'a' reads".
    read: Vec<(PathBuf, String)>,
    written: Vec<Written>,
}

#[derive(Debug)]
struct Written {
    path: PathBuf,
    /// What another writer would overwrite: "the file that output 'a' writes".
    what: String,
    /// The option that names it.
    span: Range<usize>,
}

impl Files {
    pub(super) fn read(&mut self, path: &Path, what: impl Into<String>) {
        self.read.push((same_file(path), what.into()));
    }

    pub(super) fn written(&mut self, path: &Path, span: Range<usize>, what: impl Into<String>) {
        // Devices and pipes lose nothing when they are opened for writing.
        if path.exists() && !path.is_file() {
            return;
        }
        self.written.push(Written { path: same_file(path), what: what.into(), span });
    }

    /// Adds an error for each file that would be overwritten.
    pub(super) fn check(&self, source: &Source, errors: &mut Vec<SourceError>) {
        for (n, Written { path, span, .. }) in self.written.iter().enumerate() {
            let read = self.read.iter().map(|(path, what)| (path, what));
            let written = self.written[..n].iter().map(|before| (&before.path, &before.what));
            if let Some((_, what)) = read.chain(written).find(|(other, _)| *other == path) {
                let message = format!("this would overwrite {what}");
                errors.push(source.error(span.clone(), message, "a file of its own"));
            }
        }
    }
}

/// The canonical path of the file at `path`, whether it exists yet or not.
fn same_file(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| {
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
        let folder = folder.unwrap_or_else(|| Path::new(".")).canonicalize();
        match (folder, path.file_name()) {
            (Ok(folder), Some(name)) => folder.join(name),
            _ => path.to_owned(),
        }
    })
}
