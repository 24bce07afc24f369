//! Packet classification: which rule, and so which packet type, a packet meets.
//!
//! Three layers as in Open vSwitch: an exact-match cache, the megaflow layer
//! (tuple-space search: one hash table a mask), and the rule table with
//! priorities. A miss in a layer falls to the next and installs above.

pub mod source;
