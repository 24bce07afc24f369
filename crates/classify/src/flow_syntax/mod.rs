//! Rules in the flow syntax of `ovs-ofctl` (see ovs-fields(7)).
//!
//! `priority=100,tcp,nw_dst=10.1.0.0/16,tp_dst=443`: fields and their values,
//! joined by commas; a protocol name stands for its EtherType and IP protocol.
//! A field needs the fields that make it meaningful (`tp_dst` needs `tcp`,
//! `udp` or `sctp`; `nw_dst` needs `ip` or `arp`).

mod fields;
mod parse;
mod print;
mod value;

pub use parse::{
    DEFAULT_PRIORITY, Flow, FlowError, parse, parse_pattern, parse_without_port, place_of,
};
pub(crate) use print::print;

#[cfg(test)]
mod tests;
