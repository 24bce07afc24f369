//! Why packets are not observed.

use thalweg_chain::Plan;
use thalweg_classify::flow_syntax::FlowError;
use thalweg_source::shortened;

use super::{MOST_REQUESTS, Traces};

/// The most characters of names in a message.
const QUOTED: usize = 100;

/// Why a request to observe packets was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObserveError {
    /// The pattern has a mistake.
    #[error(
        "{message} at character {at} of the pattern: '{}'; expected {expected}",
        shortened(.text, QUOTED)
    )]
    Pattern {
        /// The part of the pattern that is wrong.
        text: String,
        /// The place of its first character in the pattern, from 1.
        at: usize,
        /// What is wrong with it.
        message: String,
        /// What was expected instead.
        expected: String,
    },
    /// The chain has no such NF.
    #[error("no NF '{}'; expected {expected}", shortened(.name, QUOTED))]
    Nf {
        /// The name.
        name: String,
        /// What was expected.
        expected: String,
    },
    /// The number of packets is out of range.
    #[error("{0} packets to trace; expected 1 to {most}", most = Traces::MOST)]
    Count(usize),
    /// There are too many requests.
    #[error("{MOST_REQUESTS} requests of this kind are under way; expected fewer at a time")]
    Busy,
    /// The run has ended.
    #[error("the run has ended")]
    Ended,
}

impl ObserveError {
    pub(super) fn in_pattern(pattern: &str, error: FlowError) -> Self {
        let FlowError { span, message, expected } = error;
        let at = pattern.get(..span.start).unwrap_or_default().chars().count() + 1;
        let text = pattern.get(span).unwrap_or_default().to_owned();
        Self::Pattern { text, at, message, expected }
    }

    pub(super) fn unknown_nf(name: &str, plan: &Plan) -> Self {
        let names: Vec<_> = plan.nfs.iter().map(|nf| &*nf.name).collect();
        let expected = match &names[..] {
            [] => "no name: the chain has no NF".to_owned(),
            names => shortened(&names.join(", "), QUOTED).into_owned(),
        };
        Self::Nf { name: name.to_owned(), expected }
    }
}
