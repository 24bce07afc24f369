//! Flows as lines of JSON.

use std::borrow::Cow;
use std::net::IpAddr;

use serde::Serialize;
use thalweg_packet::wire::ip_proto;

use super::application::{Action, Names};
use super::flows::Flow;
use thalweg_nf::toolkit::output::json_line;

#[derive(Serialize)]
struct Line<'a> {
    schema: &'static str,
    /// The five-tuple of the first packet.
    src: IpAddr,
    dst: IpAddr,
    protocol: Cow<'static, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    src_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dst_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vlan: Option<u16>,
    application: String,
    category: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'a str>,
    /// Whether it is inferred from ports and addresses alone.
    guessed: bool,
    /// Whether packets are still inspected.
    undecided: bool,
    verdict: Action,
    /// The number of the rule that decided, from 1; none for the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<u32>,
    /// The packets so far, and how many of them were dropped.
    packets: u64,
    dropped: u64,
    first_ns: u64,
    last_ns: u64,
}

/// Appends the line of a flow to `lines`.
pub(super) fn line(names: &Names, vlan: u16, flow: &Flow, undecided: bool, lines: &mut Vec<u8>) {
    let tuple = &flow.tuple;
    let has_ports = matches!(tuple.protocol, ip_proto::TCP | ip_proto::UDP | ip_proto::SCTP);
    let port = |port| has_ports.then_some(port);
    let line = Line {
        schema: "thalweg.l7fw/2",
        src: tuple.src,
        dst: tuple.dst,
        protocol: ip_proto::name(tuple.protocol),
        src_port: port(tuple.src_port),
        dst_port: port(tuple.dst_port),
        vlan: (vlan != 0).then_some(vlan),
        application: names.application(flow.seen),
        category: names.category(flow.seen),
        host: flow.hosts.first().map(|host| &**host),
        guessed: flow.seen.guessed,
        undecided,
        verdict: flow.action,
        rule: flow.rule.map(|rule| rule + 1),
        packets: flow.packets,
        dropped: flow.dropped,
        first_ns: flow.first.0,
        last_ns: flow.last.0,
    };
    // Writing to memory does not fail, and every field has a JSON form.
    let _ = json_line(lines, &line);
}
