//! Writing headers: whole packets, and single fields in place.

mod build;
mod set;

pub use build::{IcmpEcho, PacketBuilder, TcpSegment};
pub use set::{
    decrement_ttl, set_dst_port, set_ethernet, set_icmp_id, set_ipv4_dst, set_ipv4_src,
    set_src_port,
};
