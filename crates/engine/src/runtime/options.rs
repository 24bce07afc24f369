//! Options of a run.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use thalweg_io::{Filter, TimeRange};

use crate::guard::Confinement;

/// Options of a run beside the chain file.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Worker threads, in place of the chain file's.
    pub workers: Option<usize>,
    /// Stop after this time.
    pub duration: Option<Duration>,
    /// Stop after this many received packets.
    pub count: Option<u64>,
    /// Passes over each capture (0 = forever), in place of the chain file's.
    pub loops: Option<u64>,
    /// The range of captured times to receive, whose ends are used in place of the chain file's.
    pub times: TimeRange,
    /// The filter of captures and interfaces, in place of the chain file's.
    pub filter: Option<Filter>,
    /// Reload the chain file whenever it, or a file that it names, has changed; captures apart.
    pub watch: bool,
    /// Time each stage; the timing itself takes time.
    pub stages: bool,
    /// A folder with NF state that is imported before the first packet.
    pub import_state: Option<PathBuf>,
    /// A folder to which the NF state is exported after the last packet.
    pub export_state: Option<PathBuf>,
    /// What confines the threads that process packets; nothing if absent.
    pub confinement: Option<Arc<dyn Confinement>>,
}
