//! The contract of network functions, and a toolkit for their writers.
//!
//! A chain file's `[nf.NAME]` section becomes a [`Blueprint`]: checked
//! configuration, and tables that a reload replaces. A run creates one
//! [`NetworkFunction`] from it, which holds per-flow state and processes the
//! batches of all workers, in the order in which they arrived.
//!
//! Each kind of NF is a crate of its own that exports a [`Kind`]; a program
//! gathers the kinds it knows in [`Kinds`]. The [`toolkit`] holds what several
//! kinds need.

mod blueprint;
mod context;
pub mod device;
mod division;
mod emitted;
mod function;
mod grain;
mod kind;
mod section;
mod seed;
pub mod state;
mod steering;
pub mod toolkit;

pub use blueprint::{Blueprint, BuildError, Environment, Renewal};
pub use context::{Context, Verdict, Verdicts};
pub use division::{BucketOf, Division, Note, Part, WholeOf};
pub use emitted::{Emitted, Made};
pub use function::{NetworkFunction, NfError};
pub use grain::Grain;
pub use kind::{
    Build, DEFAULT_FAILED_AFTER_MS, DEFAULT_OVERLOAD_AFTER_MS, FAILED_AFTER_MS, Kind, Kinds,
    MOST_WORK_GROUPS, OVERLOAD_AFTER_MS,
};
pub use section::{NamedFiles, ReadFile, Section};
pub use seed::Seed;
pub use steering::{BUCKETS, Buckets, Steering, Units};
