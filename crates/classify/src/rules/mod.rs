//! The third layer: all rules, by priority.
//!
//! Rules are kept as a tuple space: one hash table (subtable) for each mask,
//! searched from the subtable with the best rule down until no better one can
//! follow. Beside the answer, a search gives the bits of the key that prove it;
//! the fewer they are, the more packets share a megaflow. As in Open vSwitch
//! (Pfaff et al., NSDI 2015, section 5), tries over prefixes show which subtables
//! cannot match (`trie`), and a subtable is searched in stages (`stages`). Unlike
//! there, bits are chosen after the winner is known (`search`).
//!
//! A copy of the table shares nearly all with the original, so that a change to a
//! copy takes microseconds, whatever the number of rules (`hash_trie`, `order`).

mod fields;
mod hash_trie;
mod order;
mod search;
mod signature;
mod stages;
mod subtable;
mod table;
mod trie;

pub use table::{Found, RuleTable};
