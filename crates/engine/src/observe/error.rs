//! Why packets are not observed.

use std::borrow::Cow;
use std::fmt::{self, Display, Formatter};

use thalweg_chain::Plan;
use thalweg_classify::flow_syntax::FlowError;
use thalweg_source::{names_or, shortened};

use super::{MOST_REQUESTS, Traces};

/// The most characters of names in a message.
const QUOTED: usize = 100;

/// Why a request to observe packets was refused.
#[derive(Debug)]
#[non_exhaustive]
pub enum ObserveError {
    /// The pattern has a mistake.
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
    Nf {
        /// The name.
        name: String,
        /// What was expected.
        expected: String,
    },
    /// The number of packets is out of range.
    Count(usize),
    /// There are too many requests.
    Busy,
    /// The run has ended.
    Ended,
}

impl std::error::Error for ObserveError {}

impl Display for ObserveError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())?;
        self.expected().map_or(Ok(()), |expected| write!(f, "; expected {expected}"))
    }
}

impl ObserveError {
    /// What is wrong.
    pub fn message(&self) -> String {
        match self {
            Self::Pattern { text, at, message, .. } => {
                let text = shortened(text, QUOTED);
                format!("{message} at character {at} of the pattern: '{text}'")
            }
            Self::Nf { name, .. } => format!("no NF '{}'", shortened(name, QUOTED)),
            Self::Count(count) => format!("{count} packets to trace"),
            Self::Busy => format!("{MOST_REQUESTS} requests of this kind are under way"),
            Self::Ended => "the run has ended".to_owned(),
        }
    }

    /// What was expected instead, if anything would be accepted.
    pub fn expected(&self) -> Option<Cow<'_, str>> {
        Some(match self {
            Self::Pattern { expected, .. } | Self::Nf { expected, .. } => expected.into(),
            Self::Count(_) => format!("1 to {}", Traces::MOST).into(),
            Self::Busy => "fewer at a time".into(),
            Self::Ended => return None,
        })
    }

    pub(super) fn in_pattern(pattern: &str, error: FlowError) -> Self {
        let FlowError { span, message, expected } = error;
        let at = pattern.get(..span.start).unwrap_or_default().chars().count() + 1;
        let text = pattern.get(span).unwrap_or_default().to_owned();
        Self::Pattern { text, at, message, expected }
    }

    pub(super) fn unknown_nf(name: &str, plan: &Plan) -> Self {
        let names: Vec<_> = plan.nfs.iter().map(|nf| &*nf.name).collect();
        let expected = names_or(&names, "no name: the chain has no NF");
        Self::Nf { name: name.to_owned(), expected }
    }
}
