//! Packet classification: which rule, and so which packet type, a packet meets.
//!
//! Three layers as in Open vSwitch: an exact-match cache, the megaflow layer
//! (tuple-space search: one hash table a mask), and the rule table with
//! priorities. A miss in a layer falls to the next and installs above. A
//! megaflow's mask is the union of all bits that the search in the rule table
//! looked at, so that a cached answer is right for every packet it covers
//! (Pfaff et al., "The Design and Implementation of Open vSwitch", NSDI 2015).
//!
//! Rules are written in `ovs-ofctl` flow syntax ([`flow_syntax`]) or as
//! ClassBench filter files ([`classbench`]).

pub mod bloom;
pub mod classbench;
mod classifier;
mod coverage;
pub mod cuckoo;
mod emc;
mod emc_control;
mod flow_register;
pub mod flow_syntax;
mod hash;
mod linear;
mod lookup;
mod megaflow;
mod megaflow_budget;
mod random;
mod rule;
mod rules;
pub mod secret;
pub mod sfh;
mod shared;
mod stages;

// The name that the layers above know it by.
use rules as rule_table;

pub use classifier::{Classifier, Config};
pub use coverage::Passages;
pub use hash::Signatures;
pub use linear::LinearTable;
pub use lookup::{Explanation, LayerStats, Lookup, MatchLayer};
pub use megaflow::{Megaflow, MegaflowStats};
pub use rule::{Match, Rule, RuleId};
pub use rules::{Found, RuleTable};
pub use shared::SharedRules;
pub use stages::LayerCycles;
