//! From a section of the chain file to network functions.

use thalweg_packet::DEFAULT_FRAME_SIZE;
use thalweg_source::SourceError;

use crate::division::Division;
use crate::function::NetworkFunction;
use crate::seed::Seed;
use crate::steering::Steering;

/// What an NF may know about its chain.
#[derive(Clone, Copy, Debug, Default)]
pub struct Environment<'a> {
    /// Names of the chain's inputs, by port index.
    pub inputs: &'a [String],
    /// Names of the chain's outputs, by port index.
    pub outputs: &'a [String],
    /// Names of the chain's packet types, by number.
    pub types: &'a [String],
    /// Write no files: the chain is only checked or traced.
    pub dry_run: bool,
    /// Where random bytes come from.
    pub seed: Seed,
    /// The hash that divides flows.
    pub steering: Steering,
}

/// The mistakes that kept an NF from being built; at least one.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct BuildError(pub Vec<SourceError>);

impl From<SourceError> for BuildError {
    fn from(error: SourceError) -> Self {
        Self(vec![error])
    }
}

/// A checked NF configuration, with the tables that a reload replaces under a running instance.
pub trait Blueprint: Send + Sync {
    /// Creates an instance. A run has one, which serves all packets in the order in which they
    /// arrived, whatever the number of workers.
    fn instance(&self) -> Box<dyn NetworkFunction>;

    /// Creates an instance in `parts` parts (a power of two), for a run with several workers; `None`
    /// for an NF that is not divided. Parts are worth their while for an NF that takes thousands of
    /// cycles a packet.
    fn divide(&self, parts: usize) -> Option<Division> {
        let _ = parts;
        None
    }

    /// One line for `thalweg check`: what was configured and loaded.
    fn describe(&self) -> String;

    /// The frame size in bytes that its packets need. The frames of a chain have the largest size
    /// that one of its NFs needs, unless the chain file sets another.
    fn frame_size(&self) -> usize {
        DEFAULT_FRAME_SIZE
    }

    /// Parts of the configuration that were understood but are not supported, have no
    /// effect, or are probably a mistake, each reported once, with its place.
    fn warnings(&self) -> &[SourceError] {
        &[]
    }

    /// Reloads the NF's files and applies the changes to the running instance; on an
    /// error everything stays as it was.
    ///
    /// # Errors
    /// The mistakes in the new files.
    fn reload(&self) -> Result<(), BuildError> {
        Ok(())
    }
}
