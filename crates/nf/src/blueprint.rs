//! From a section of the chain file to network functions.

use std::any::Any;
use std::path::Path;

use thalweg_packet::DEFAULT_FRAME_SIZE;
use thalweg_source::{OutputFile, SourceError};

use crate::device::DeviceWork;
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
    /// The system's network interface of each output, by port index; empty for one without.
    pub interfaces: &'a [String],
    /// Names of the chain's packet types, by number.
    pub types: &'a [String],
    /// Write no files: the chain is only checked or traced.
    pub dry_run: bool,
    /// Where random bytes come from.
    pub seed: Seed,
    /// The hash that divides flows.
    pub steering: Steering,
    /// The files that the NFs of the running chain write, which this one will replace.
    pub open_files: &'a [OutputFile],
}

impl Environment<'_> {
    /// The file at `path` that the running chain writes, to go on writing it.
    pub(crate) fn open_file(&self, path: &Path, is_replaced: bool) -> Option<&OutputFile> {
        let is_same = |file: &&OutputFile| file.path() == path && file.is_replaced() == is_replaced;
        self.open_files.iter().find(is_same)
    }
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

/// A checked NF configuration, with its tables.
pub trait Blueprint: Any + Send + Sync {
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

    /// What a device can do for its instances, which are [`OnDevice`](crate::device::OnDevice) then;
    /// `None` if that is nothing, for this configuration at least.
    fn device_work(&self) -> Option<DeviceWork> {
        None
    }

    /// Whether the first half of the work on later packets may come before the second half of that on
    /// earlier ones, while a device has these ([`OnDevice`](crate::device::OnDevice)). If so, a device
    /// has thousands of packets at a time; if not, those of one batch.
    fn overlaps_on_device(&self) -> bool {
        false
    }

    /// One line for `thalweg check`: what was configured and loaded.
    fn describe(&self) -> String;

    /// The frame size in bytes that its packets need. The frames of a chain have the largest size
    /// that one of its NFs needs, unless the chain file sets another.
    fn frame_size(&self) -> usize {
        DEFAULT_FRAME_SIZE
    }

    /// The bytes that the tables of an instance take when they have reached the limits of the
    /// options, for a check before a start or a reload that they fit into memory. What is loaded
    /// already, such as rules and routes, and a fixed part of a few MiB do not count.
    fn memory(&self) -> u64 {
        0
    }

    /// Parts of the configuration that were understood but are not supported, have no
    /// effect, or are probably a mistake, each reported once, with its place.
    fn warnings(&self) -> &[SourceError] {
        &[]
    }

    /// Lets the running instance of `old`, the configuration before this one, work on with this
    /// one: so it keeps all its state, and nobody waits. `None` if it cannot, or if that is a
    /// configuration of another kind: then an instance of this one takes its place, with the state
    /// that it [exports](NetworkFunction::export_state).
    ///
    /// Until the renewal is carried out, the running instance stays as it is.
    fn renew(&mut self, old: &dyn Blueprint) -> Option<Renewal> {
        let _ = old;
        None
    }
}

/// Carries a renewal out, between two batches, on the instance or on the
/// [whole](crate::Division::whole) of a divided one; cheap, whatever the size of tables. Returns
/// what is no longer in use, to be dropped where no packet waits.
pub type Renewal = Box<dyn FnOnce(&mut dyn NetworkFunction) -> Option<Box<dyn Any + Send>> + Send>;

impl dyn Blueprint {
    /// This configuration as one of type `B`, if it is.
    pub fn downcast<B: Blueprint>(&self) -> Option<&B> {
        (self as &dyn Any).downcast_ref()
    }
}
