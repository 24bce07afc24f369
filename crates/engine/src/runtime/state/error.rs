//! Errors of importing and exporting state.

use std::io;
use std::path::{Path, PathBuf};

use thalweg_nf::state::StateError;

/// Why a run cannot import or export state.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateFolderError {
    /// The system reports an error.
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// The operation that failed.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file is damaged, or belongs to another kind of NF.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: StateError,
    },
    /// The manifest of the folder is invalid.
    #[error("{path}: {source}")]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The folder has no complete export.
    #[error(
        "{folder}: no complete state: state.json, which --export-state writes last, is missing"
    )]
    NotWhole {
        /// The folder.
        folder: PathBuf,
    },
    /// The chain has no such NF; it may have been renamed.
    #[error(
        "{folder}: holds state of NF '{nf}' of kind '{kind}', and the chain has no NF of this \
         name; to run without this state, remove it from state.json"
    )]
    Unknown {
        /// The folder.
        folder: PathBuf,
        /// The NF.
        nf: String,
        /// Its kind.
        kind: String,
    },
    /// The NF is of another kind now.
    #[error(
        "{folder}: holds state of NF '{nf}' of kind '{found}', but its kind is '{expected}' now"
    )]
    Kind {
        /// The folder.
        folder: PathBuf,
        /// The NF.
        nf: String,
        /// The kind it had.
        found: String,
        /// The kind it has.
        expected: String,
    },
    /// The name of the NF cannot be part of a file name.
    #[error("no state file can be named after NF '{nf}'; expected a name without '/'")]
    Name {
        /// The NF.
        nf: String,
    },
    /// The chain reads or writes the file itself.
    #[error("{path}: this state file is also {what}; expected a folder of its own")]
    InUse {
        /// The state file.
        path: PathBuf,
        /// What the chain uses it for.
        what: String,
    },
}

/// Returns a function that wraps the system's error of `doing` something with `path`.
pub(super) fn cannot(
    doing: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> StateFolderError {
    let path = path.to_owned();
    move |source| StateFolderError::Io { doing, path, source }
}
