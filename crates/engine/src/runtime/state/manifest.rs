//! The manifest of a state folder: `state.json`, which exists only while the state is complete.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use thalweg_source::create;

use super::error::StateFolderError;
use thalweg_chain::MAX_WORKERS;

const SCHEMA: &str = "thalweg.state/1";

/// The NFs whose state the folder holds.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(super) struct Manifest {
    #[schemars(extend("const" = "thalweg.state/1"))]
    schema: String,
    pub(super) nfs: IndexMap<String, Left>,
}

/// The exported state of an NF.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(super) struct Left {
    /// Its kind.
    pub(super) kind: String,
    /// The number of instances, each with its own file.
    pub(super) instances: usize,
}

impl Manifest {
    pub(super) fn new(nfs: impl Iterator<Item = (String, Left)>) -> Self {
        Self { schema: SCHEMA.into(), nfs: nfs.collect() }
    }

    /// Reads the manifest of `folder`.
    pub(super) fn read(folder: &Path) -> Result<Self, StateFolderError> {
        let path = path(folder);
        let text = fs::read(&path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => StateFolderError::NotWhole { folder: folder.into() },
            _ => StateFolderError::Io { doing: "read", path: path.clone(), source },
        })?;
        let parsed = serde_json::from_slice(&text).and_then(Self::check);
        parsed.map_err(|source| StateFolderError::Manifest { path, source })
    }

    fn check(self) -> serde_json::Result<Self> {
        let refuse = |what: String| Err(serde::de::Error::custom(what));
        if self.schema != SCHEMA {
            return refuse(format!("unknown schema '{}'; expected '{SCHEMA}'", self.schema));
        }
        for (name, Left { instances, .. }) in &self.nfs {
            if !can_name(name) {
                return refuse(format!("bad NF name '{name}'; expected a name without '/'"));
            }
            if !(1..=MAX_WORKERS).contains(instances) {
                let expected = format!("expected 1 to {MAX_WORKERS}");
                return refuse(format!("'{name}' has {instances} instances; {expected}"));
            }
        }
        Ok(self)
    }

    /// Writes it next to its final path; returns where.
    pub(super) fn write(&self, folder: &Path) -> io::Result<PathBuf> {
        let partial = path(folder).with_extension("partial");
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        let mut file = create(&partial)?;
        let written = file.write_all(&text).and_then(|()| file.sync_all());
        written.inspect_err(|_| drop(fs::remove_file(&partial)))?;
        Ok(partial)
    }

    /// The names of the files that it lists.
    pub(super) fn files(&self) -> impl Iterator<Item = String> {
        self.nfs.iter().flat_map(|(name, left)| (0..left.instances).map(move |n| file(name, n)))
    }
}

/// The path of the manifest in a folder.
pub(super) fn path(folder: &Path) -> PathBuf {
    folder.join("state.json")
}

/// Whether the NF's name can be part of a file name in the folder, and not lead elsewhere.
pub(super) fn can_name(nf: &str) -> bool {
    !nf.contains(std::path::is_separator)
}

/// The file name of an instance's state.
pub(super) fn file(nf: &str, instance: usize) -> String {
    format!("{nf}.{instance}.state")
}
