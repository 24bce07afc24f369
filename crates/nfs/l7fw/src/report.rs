//! Flows as lines of JSON.

use thalweg_packet::wire::ip_proto;

use super::application::Names;
use super::flows::Flow;
use super::line::Line;
use thalweg_nf::toolkit::output::json_line;

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
