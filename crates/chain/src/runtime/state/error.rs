//! Why state is not taken over, or not left.

use std::io;
use std::path::{Path, PathBuf};

use thalweg_nf::state::StateError;

/// Why a run cannot take over state, or leave it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateFolderError {
    /// The system refuses.
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// What was to be done.
        doing: &'static str,
        /// With which file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file is damaged, or of another NF.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: StateError,
    },
    /// What the folder holds is not told as it should be.
    #[error("{path}: {source}")]
    Manifest {
        /// The file that should tell.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// No export has come to its end there.
    #[error(
        "{folder}: no whole state is there: state.json is missing, which --export-state writes last"
    )]
    NotWhole {
        /// The folder.
        folder: PathBuf,
    },
    /// The chain has no such NF; it may have got another name.
    #[error(
        "{folder}: '{nf}' of kind '{kind}' left state, and the chain has no NF of this name; \
         to go on without its state, take it out of state.json"
    )]
    Unknown {
        /// The folder.
        folder: PathBuf,
        /// The NF.
        nf: String,
        /// Its kind.
        kind: String,
    },
    /// The NF is another one now.
    #[error("{folder}: '{nf}' left state as '{found}', and is of kind '{expected}' now")]
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
    /// Flows were spread over another number of workers.
    #[error(
        "{folder}: '{nf}' left the state of {found} instances, and has {expected} now; \
         expected as many workers as then, or one"
    )]
    Instances {
        /// The folder.
        folder: PathBuf,
        /// The NF.
        nf: String,
        /// Instances whose state is there.
        found: usize,
        /// Instances that there are.
        expected: usize,
    },
    /// No file can be named after the NF.
    #[error("no state file can be named after NF '{nf}'; expected a name without '/'")]
    Name {
        /// The NF.
        nf: String,
    },
    /// Some instance's state was not written.
    #[error("{folder}: not all state was written; what was there before is there still")]
    Unfinished {
        /// The folder.
        folder: PathBuf,
    },
}

/// What to say when the system refuses `doing` something with `path`.
pub(super) fn cannot(
    doing: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> StateFolderError {
    let path = path.to_owned();
    move |source| StateFolderError::Io { doing, path, source }
}
