//! Network functions, and the trait they share.
//!
//! A chain file's `[nf.NAME]` section becomes a [`Blueprint`]: checked
//! configuration and tables shared by all workers. Each worker creates its own
//! [`NetworkFunction`] from it, which holds per-flow state and processes
//! batches.

mod blueprint;
mod context;
mod conversation;
#[cfg(test)]
mod data;
#[cfg(test)]
mod drive;
mod emitted;
mod eviction;
mod flow_table;
mod fragment;
mod function;
mod kind;
mod outer;
mod output;
mod rule_line;
#[cfg(test)]
mod scapy;
mod section;
pub mod state;
mod view;

pub mod acl;
pub mod assets;
pub mod defrag;
pub mod filter;
pub mod icmp_error;
pub mod ipsec;
pub mod l7fw;
pub mod monitor;
pub mod nat;
pub mod nids;
pub mod refrag;
pub mod router;
pub mod tunnel;

pub use blueprint::{Blueprint, BuildError, Environment, Sharing};
pub use context::{Context, Verdict};
pub use emitted::{Emitted, Made};
pub use function::{NetworkFunction, NfError};
pub use kind::{KINDS, Kind, build};
pub use section::{NamedFiles, Section, unwritable};
