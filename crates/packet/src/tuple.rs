//! The classic five-tuple, and a hash of flows.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::batch::Batch;
use crate::key::{Field, FlowKey, field};
use crate::wire::{ethertype, ip_proto};

/// Source and destination of a flow, and its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FiveTuple {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// IP protocol.
    pub protocol: u8,
    /// Source port; 0 where the protocol has none. ICMP type.
    pub src_port: u16,
    /// Destination port; 0 where the protocol has none. ICMP code.
    pub dst_port: u16,
}

impl FiveTuple {
    /// The five-tuple of an IPv4 or IPv6 packet's key; `None` for others.
    #[inline]
    pub fn from_key(key: &FlowKey) -> Option<Self> {
        Self::from_fields(|field| key.get(field), |[high, low]| key.get128([high, low]))
    }

    /// The five-tuple of the packet in `lane`, as of the last parse; `None` for what is not IP.
    #[inline]
    pub fn of(batch: &Batch, lane: usize) -> Option<Self> {
        Self::from_fields(|field| batch.field(lane, field), |field| batch.field128(lane, field))
    }

    fn from_fields(get: impl Fn(Field) -> u64, wide: impl Fn([Field; 2]) -> u128) -> Option<Self> {
        let (src, dst): (IpAddr, IpAddr) = match get(field::DL_TYPE) as u16 {
            ethertype::IPV4 => (
                Ipv4Addr::from(get(field::NW_SRC) as u32).into(),
                Ipv4Addr::from(get(field::NW_DST) as u32).into(),
            ),
            ethertype::IPV6 => (
                Ipv6Addr::from(wide(field::IPV6_SRC)).into(),
                Ipv6Addr::from(wide(field::IPV6_DST)).into(),
            ),
            _ => return None,
        };
        Some(Self {
            src,
            dst,
            protocol: get(field::NW_PROTO) as u8,
            src_port: get(field::TP_SRC) as u16,
            dst_port: get(field::TP_DST) as u16,
        })
    }

    /// The five-tuple of the other direction.
    #[must_use]
    #[inline]
    pub fn reversed(self) -> Self {
        Self {
            src: self.dst,
            dst: self.src,
            protocol: self.protocol,
            src_port: self.dst_port,
            dst_port: self.src_port,
        }
    }
}

impl fmt::Display for FiveTuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use std::net::SocketAddr;
        let name = match self.protocol {
            ip_proto::ICMP => "icmp",
            ip_proto::TCP => "tcp",
            ip_proto::UDP => "udp",
            ip_proto::ICMPV6 => "icmp6",
            ip_proto::SCTP => "sctp",
            other => return write!(f, "{} -> {} proto {other}", self.src, self.dst),
        };
        let src = SocketAddr::new(self.src, self.src_port);
        let dst = SocketAddr::new(self.dst, self.dst_port);
        write!(f, "{src} -> {dst} {name}")
    }
}

/// An address as a number, IPv4 mapped to IPv6.
pub fn address_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
    .to_bits()
}

/// The address that [`address_bits`] converted to this number.
pub fn address_of(bits: u128) -> IpAddr {
    Ipv6Addr::from_bits(bits).to_canonical()
}

/// Hash of the flow that `key` belongs to, equal for both of its directions.
///
/// Only the first fragment carries ports and identifiers, so all fragments of a packet are
/// hashed without them. Packets that are not IP are hashed by their MAC addresses.
#[inline]
pub fn symmetric_hash(key: &FlowKey) -> u32 {
    let whole = key.get(field::NW_FRAG) == 0;
    let protocol = key.get(field::NW_PROTO) as u8;
    let mut hash = mix(key.get(field::DL_TYPE) << 8 | u64::from(protocol));
    if whole && matches!(protocol, ip_proto::ICMP | ip_proto::ICMPV6) {
        hash = mix(hash ^ key.get(field::ICMP_ID));
    }
    let has_ports = matches!(protocol, ip_proto::TCP | ip_proto::UDP | ip_proto::SCTP);
    join(hash, ends(key, whole && has_ports))
}

/// Hashes of source and destination.
#[inline]
fn ends(key: &FlowKey, with_ports: bool) -> (u64, u64) {
    let port = |place| if with_ports { key.get(place) } else { 0 };
    let (src_port, dst_port) = (port(field::TP_SRC), port(field::TP_DST));
    match key.get(field::DL_TYPE) as u16 {
        ethertype::IPV4 => (
            mix(key.get(field::NW_SRC) << 16 | src_port),
            mix(key.get(field::NW_DST) << 16 | dst_port),
        ),
        ethertype::IPV6 => {
            let end = |place, port| {
                let address = key.get128(place);
                mix(mix((address >> 64) as u64) ^ address as u64 ^ port << 48)
            };
            (end(field::IPV6_SRC, src_port), end(field::IPV6_DST, dst_port))
        }
        _ => (mix(key.get(field::DL_SRC)), mix(key.get(field::DL_DST))),
    }
}

/// Joins the hashes of both ends by operations that do not depend on their order.
#[inline]
fn join(hash: u64, (a, b): (u64, u64)) -> u32 {
    let joined = mix(hash ^ a.wrapping_add(b) ^ (a ^ b).rotate_left(32));
    (joined >> 32) as u32
}

/// The finaliser of MurmurHash3 (64 bits).
#[inline]
fn mix(mut x: u64) -> u64 {
    x ^= x >> 33;
    x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
    x ^= x >> 33;
    x = x.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ x >> 33
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(src: u32, dst: u32, src_port: u16, dst_port: u16) -> FlowKey {
        let mut key = FlowKey::default();
        key.set(field::DL_TYPE, ethertype::IPV4.into());
        key.set(field::NW_PROTO, ip_proto::TCP.into());
        key.set(field::NW_SRC, src.into());
        key.set(field::NW_DST, dst.into());
        key.set(field::TP_SRC, src_port.into());
        key.set(field::TP_DST, dst_port.into());
        key
    }

    #[test]
    fn both_directions_hash_alike() {
        let hash = symmetric_hash(&key(0x0a00_0001, 0xc000_0201, 1234, 80));
        assert_eq!(hash, symmetric_hash(&key(0xc000_0201, 0x0a00_0001, 80, 1234)));
        assert_ne!(hash, symmetric_hash(&key(0x0a00_0001, 0xc000_0201, 80, 1234)));
    }

    #[test]
    fn fragments_hash_without_ports() {
        let mut first = key(1, 2, 3, 4);
        first.set(field::NW_FRAG, field::FRAG_ANY);
        let mut later = key(1, 2, 0, 0);
        later.set(field::NW_FRAG, field::FRAG_ANY | field::FRAG_LATER);
        assert_eq!(symmetric_hash(&first), symmetric_hash(&later));
        // An echo's identifier too is only in the first fragment.
        for key in [&mut first, &mut later] {
            key.set(field::NW_PROTO, ip_proto::ICMP.into());
        }
        first.set(field::ICMP_ID, 77);
        assert_eq!(symmetric_hash(&first), symmetric_hash(&later));
    }

    #[test]
    fn sequential_flows_spread_evenly_over_workers() {
        for workers in [2, 3, 4, 8] {
            let mut load = vec![0u32; workers];
            for host in 0..64 {
                for port in 0..64 {
                    let hash =
                        symmetric_hash(&key(0x0a00_0000 + host, 0x0a01_0001, 1024 + port, 80));
                    load[hash as usize % workers] += 1;
                }
            }
            let fair = 64 * 64 / workers as u32;
            assert!(load.iter().all(|&n| n > fair * 8 / 10 && n < fair * 12 / 10), "{load:?}");
        }
    }

    #[test]
    fn a_tuple_reads_like_a_flow() {
        let tuple = FiveTuple::from_key(&key(0x0a00_0001, 0x0a00_0002, 80, 5000)).unwrap();
        assert_eq!(tuple.to_string(), "10.0.0.1:80 -> 10.0.0.2:5000 tcp");
        assert_eq!(tuple.reversed().reversed(), tuple);
        assert_eq!(FiveTuple::from_key(&FlowKey::default()), None);
    }
}
