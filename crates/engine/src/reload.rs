//! Requests to reload the chain file of a run, and their answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::Sender;

use thalweg_chain::Difference;
use thalweg_nf::state::StateError;
use thalweg_source::{SourceError, count, counted};

use crate::runtime::RunError;

/// How the chain file of a run is reloaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reload {
    /// Change nothing: only tell what would change.
    pub dry_run: bool,
    /// Let NFs begin without state that they cannot take over.
    pub accept_loss: bool,
}

/// Why nothing was reloaded. The run goes on as before, unless it has ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// The chain file or a file that it names has mistakes, or changes what cannot change.
    #[error("{}", listed(.0).join("\n"))]
    Mistakes(Vec<SourceError>),
    /// A new port cannot be opened.
    #[error(transparent)]
    Port(#[from] RunError),
    /// An NF cannot take over the state of its predecessor.
    #[error("NF '{nf}' cannot keep its state: {source}; expected to accept this loss")]
    State {
        /// The NF.
        nf: String,
        /// Why.
        source: StateError,
    },
    /// An NF panicked while it was built.
    #[error("the reload panicked: {0}")]
    Panicked(String),
    /// The system refuses to start a thread.
    #[error("cannot start the reload thread: {0}")]
    Thread(std::io::Error),
    /// Others wait already.
    #[error("{MOST_WAITING} reloads wait already; expected fewer at a time")]
    Busy,
    /// The run has ended.
    #[error("the run has ended")]
    Ended,
}

/// The most reloads that wait.
pub(crate) const MOST_WAITING: usize = 16;

/// The most mistakes of a reload that are reported one by one; the rest are counted.
const SHOWN: usize = 20;

/// The mistakes one by one, up to [`SHOWN`].
fn listed(mistakes: &[SourceError]) -> Vec<String> {
    let mut listed: Vec<_> = mistakes.iter().take(SHOWN).map(ToString::to_string).collect();
    let more = count(mistakes) - listed.len() as u64;
    if more > 0 {
        listed.push(counted(more, "more mistake"));
    }
    listed
}

impl ReloadError {
    /// The error in lines, each about one mistake.
    pub fn lines(&self) -> Vec<String> {
        match self {
            Self::Mistakes(mistakes) => listed(mistakes),
            other => vec![other.to_string()],
        }
    }
}

/// What a reload would change or has changed, or why it did not.
pub(crate) type Answer = Result<Difference, ReloadError>;

/// A reload that waits, and who waits for its answer; nobody, if a signal requested it.
pub(crate) struct Waiting {
    pub(crate) reload: Reload,
    pub(crate) asker: Option<Sender<Answer>>,
    /// Set when it begins, unless it changes nothing by request.
    pub(crate) under_way: Option<UnderWay>,
}

impl Waiting {
    pub(crate) fn new(reload: Reload, asker: Option<Sender<Answer>>) -> Self {
        Self { reload, asker, under_way: None }
    }
}

/// A reload that has begun. Dropping it counts the reload as ended, whatever its outcome.
pub(crate) struct UnderWay(pub(crate) Arc<AtomicU64>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}
