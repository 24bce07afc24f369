//! The recorded path of a packet.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::words::Change;

/// The value of [`Trace::schema`].
pub(super) const SCHEMA: &str = "thalweg.trace/1";

/// The path of one packet. Its JSON form is versioned by `schema`, its `Display` form is for a
/// person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Trace {
    /// `thalweg.trace/1`.
    #[schemars(extend("const" = "thalweg.trace/1"))]
    pub schema: Cow<'static, str>,
    /// The packet's number, from 1, in the order received.
    pub packet: u64,
    /// The input that received it.
    pub input: String,
    /// The time of its capture, in nanoseconds.
    pub timestamp_ns: u64,
    /// Its length in bytes.
    pub length: usize,
    /// Its flow key in flow syntax: the fields that are not zero.
    pub flow: String,
    /// How far parsing got, why it ended there, and the positions of the headers.
    pub parsed: String,
    /// The layer of classification that answered.
    pub layer: Cow<'static, str>,
    /// The rule that matched, as written.
    pub rule: Option<String>,
    /// The packets that the megaflow of this answer covers, in flow syntax.
    pub megaflow: String,
    /// Its packet type.
    pub packet_type: String,
    /// The steps of the path, one for each NF.
    pub steps: Vec<Step>,
    /// Its fate: transmitted, or dropped with the reason.
    pub fate: String,
}

/// The effect of one NF on the packet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// The NF.
    pub nf: String,
    /// Its reasons, in the NF's own words.
    pub explanations: Vec<String>,
    /// The bytes it changed.
    pub changes: Vec<Change>,
    /// The packet's length in bytes after it.
    pub length: usize,
    /// The flow key after it, when it changed.
    pub flow: Option<String>,
    /// Packets it generated: their lengths and flow keys.
    pub emitted: Vec<String>,
    /// Forward, or drop with the reason.
    pub verdict: String,
}
