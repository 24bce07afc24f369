//! Errors that prevent a run.

use thalweg_io::IoError;
use thalweg_source::counted;

use super::state::StateFolderError;
use thalweg_chain::MAX_WORKERS;

/// Why a run did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A port could not be opened.
    #[error(transparent)]
    Io(#[from] IoError),
    /// More workers are requested than the maximum.
    #[error("bad number of workers: {0}; expected 1 to {MAX_WORKERS}")]
    Workers(usize),
    /// The chain file has fewer cores than there are workers.
    #[error("{workers} workers, but {cores} in 'cores' of [run]; expected a core for each worker",
        cores = counted(*cores, "core"))]
    Cores {
        /// The workers that are requested.
        workers: usize,
        /// The number of cores in the chain file.
        cores: usize,
    },
    /// No input can be read several times.
    #[error("--loop applies to none of the inputs; expected an input that is a capture file")]
    Loops,
    /// No input has captured times.
    #[error("--from and --to apply to none of the inputs; expected an input that is a capture")]
    Times,
    /// No input has packets that can be filtered.
    #[error(
        "--filter applies to none of the inputs; expected an input that is a capture or an \
         interface"
    )]
    Filter,
    /// The range of times of the named input is empty.
    #[error("no time is in the range of input '{0}'; expected --from before --to")]
    NoTime(String),
    /// State cannot be imported or exported.
    #[error(transparent)]
    State(#[from] StateFolderError),
    /// The run cannot be confined.
    #[error("sandbox: {0}")]
    Confinement(String),
    /// A device cannot do its part of an NF's work.
    #[error("{0}")]
    Device(String),
    /// The system refuses to start a thread.
    #[error("cannot start a worker: {0}")]
    Thread(std::io::Error),
}
