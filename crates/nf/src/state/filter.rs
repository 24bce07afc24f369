//! Which flows a stream holds.

use std::net::IpAddr;

use thalweg_classify::Match;
use thalweg_classify::flow_syntax::{self, FlowError};
use thalweg_packet::wire::ethertype;
use thalweg_packet::{FiveTuple, FlowKey, address_bits, field};

/// Selects flows by a pattern in flow syntax, such as `tcp,nw_src=10.0.0.0/8`, on the fields that
/// identify flows: protocols, addresses and ports. A flow matches if one of its two directions
/// does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowFilter(Match);

impl FlowFilter {
    /// Parses a pattern.
    ///
    /// # Errors
    /// The first mistake, or a field that does not identify a flow.
    pub fn parse(text: &str) -> Result<Self, FlowError> {
        let pattern = flow_syntax::parse_pattern(text)?;
        let known = all_ones();
        let outside = pattern.mask().words.iter().zip(known.words).any(|(m, k)| m & !k != 0);
        if outside {
            return Err(FlowError {
                span: 0..text.len(),
                message: "not all of these fields identify a flow".into(),
                expected: "IP protocols, addresses and ports".into(),
            });
        }
        Ok(Self(pattern))
    }

    /// Whether the flow matches, in either direction.
    pub fn has(&self, flow: &FiveTuple) -> bool {
        self.0.covers(&key(flow)) || self.0.covers(&key(&flow.reversed()))
    }
}

/// The key of a packet of which only the five-tuple is known.
fn key(flow: &FiveTuple) -> FlowKey {
    let mut key = FlowKey::default();
    match (flow.src, flow.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            key.set(field::DL_TYPE, ethertype::IPV4.into());
            key.set(field::NW_SRC, src.to_bits().into());
            key.set(field::NW_DST, dst.to_bits().into());
        }
        (src, dst) => {
            key.set(field::DL_TYPE, ethertype::IPV6.into());
            key.set128(field::IPV6_SRC, address_bits(src));
            key.set128(field::IPV6_DST, address_bits(dst));
        }
    }
    key.set(field::NW_PROTO, flow.protocol.into());
    key.set(field::TP_SRC, flow.src_port.into());
    key.set(field::TP_DST, flow.dst_port.into());
    key
}

/// All bits of the fields that identify flows.
fn all_ones() -> FlowKey {
    let mut key = FlowKey::default();
    for one in [
        field::DL_TYPE,
        field::NW_PROTO,
        field::NW_SRC,
        field::NW_DST,
        field::TP_SRC,
        field::TP_DST,
    ] {
        key.set(one, u64::MAX);
    }
    key.set128(field::IPV6_SRC, u128::MAX);
    key.set128(field::IPV6_DST, u128::MAX);
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(src: [u8; 4], dst: [u8; 4]) -> FiveTuple {
        FiveTuple { src: src.into(), dst: dst.into(), protocol: 6, src_port: 1000, dst_port: 80 }
    }

    #[test]
    fn a_flow_is_had_in_either_direction() {
        let flow = flow([10, 0, 0, 1], [192, 0, 2, 1]);
        let has = |text: &str| FlowFilter::parse(text).unwrap().has(&flow);
        assert!(has("") && has("tcp") && has("ip,nw_src=10.0.0.0/8") && has("tcp,tp_dst=80"));
        assert!(has("ip,nw_dst=10.0.0.0/8") && has("tcp,nw_src=192.0.2.1,tp_src=80"));
        assert!(!has("udp") && !has("ip,nw_src=10.0.0.2") && !has("ipv6"));
        assert!(!has("tcp,nw_src=10.0.0.1,tp_src=80"), "no direction has both");
        let v6 = "2001:db8::1".parse().unwrap();
        let flow = FiveTuple { src: v6, dst: v6, ..flow };
        assert!(FlowFilter::parse("tcp6,ipv6_src=2001:db8::/32").unwrap().has(&flow));
    }

    #[test]
    fn what_flows_are_not_known_by_is_refused() {
        for text in
            ["dl_src=02:00:00:00:00:01", "dl_vlan=7", "ip,nw_tos=4", "priority=32768,ip", "x"]
        {
            assert!(FlowFilter::parse(text).is_err(), "{text}");
        }
    }
}
