//! A flow as a line of JSON: the form of `flows`, which is published without the library too.

use std::borrow::Cow;
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::Serialize;

use super::application::Action;

/// A flow as a line of JSON.
#[derive(Serialize, JsonSchema)]
pub(super) struct Line<'a> {
    #[schemars(extend("const" = "thalweg.l7fw/2"))]
    pub(super) schema: &'static str,
    /// The five-tuple of the first packet.
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    pub(super) protocol: Cow<'static, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) src_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dst_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) vlan: Option<u16>,
    pub(super) application: String,
    pub(super) category: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) host: Option<&'a str>,
    /// Whether it is inferred from ports and addresses alone.
    pub(super) guessed: bool,
    /// Whether packets are still inspected.
    pub(super) undecided: bool,
    pub(super) verdict: Action,
    /// The number of the rule that decided, from 1; none for the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rule: Option<u32>,
    /// The packets so far, and how many of them were dropped.
    pub(super) packets: u64,
    pub(super) dropped: u64,
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
}
