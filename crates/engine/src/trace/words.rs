//! Describes keys, headers and changes as text.

use std::fmt::Write;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thalweg_classify::Match;
use thalweg_packet::wire::{ethertype, ip_proto};
use thalweg_packet::{FlowKey, Headers, Layer, ParseStatus, field};

/// Bytes that an NF changed: those from `offset` on were `before` and are
/// `after`, in hexadecimal. The two differ in length when the packet grew or
/// shrank there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// Bytes from the Ethernet header's first to the first changed.
    pub offset: usize,
    /// The old bytes.
    pub before: String,
    /// The new bytes.
    pub after: String,
}

/// The fields of a key that are not zero, in flow syntax.
pub(super) fn flow(key: &FlowKey) -> String {
    let mut mask = FlowKey::default();
    for place in field::NARROW.into_iter().filter(|place| key.get(*place) != 0) {
        mask.set(place, place.max());
    }
    for place in field::WIDE.into_iter().filter(|place| key.get128(*place) != 0) {
        mask.set128(place, u128::MAX);
    }
    let is_ip = matches!(key.get(field::DL_TYPE) as u16, ethertype::IPV4 | ethertype::IPV6);
    if is_ip && key.get(field::NW_FRAG) & field::FRAG_LATER == 0 {
        use ip_proto::{ICMP, ICMPV6, SCTP, TCP, UDP};
        let protocol = key.get(field::NW_PROTO) as u8;
        // Zero is a value in these: a port, an ICMP type, no flags.
        if matches!(protocol, ICMP | TCP | UDP | ICMPV6 | SCTP) {
            mask.set(field::TP_SRC, field::TP_SRC.max());
            mask.set(field::TP_DST, field::TP_DST.max());
        }
        if protocol == TCP {
            mask.set(field::TCP_FLAGS, field::TCP_FLAGS.max());
        }
    }
    Match::new(*key, mask).to_string()
}

/// Describes how far parsing got, why it ended there, and the positions of the headers.
pub(super) fn parsed(headers: &Headers) -> String {
    let layer = match headers.layer {
        Layer::None => "nothing",
        Layer::Link => "up to the link layer",
        Layer::Network => "up to the network layer",
        Layer::Transport => "up to the transport layer",
    };
    let status = match headers.status {
        ParseStatus::Complete => "complete",
        ParseStatus::Truncated => "the next header is truncated",
        ParseStatus::Inconsistent => {
            "the next header contradicts itself or the header that encloses it"
        }
        ParseStatus::Unknown => "the next header is of an unknown kind",
    };
    let mut text = format!("{layer}, {status}");
    for (name, at) in [("network", headers.l3), ("transport", headers.l4)] {
        if at != 0 {
            let _ = write!(text, ", {name} header at {at}");
        }
    }
    let _ = write!(text, ", payload {} to {}", headers.payload, headers.end);
    text
}

/// The differences between two versions of a packet. For versions of different lengths, the
/// part between their common beginning and their common end.
pub(super) fn changes(before: &[u8], after: &[u8]) -> Vec<Change> {
    let change = |offset: usize, before: &[u8], after: &[u8]| Change {
        offset,
        before: hex(before),
        after: hex(after),
    };
    if before.len() != after.len() {
        let start = before.iter().zip(after).take_while(|(b, a)| b == a).count();
        let (before, after) = (&before[start..], &after[start..]);
        let pairs = before.iter().rev().zip(after.iter().rev());
        let end = pairs.take_while(|(b, a)| b == a).count();
        return vec![change(start, &before[..before.len() - end], &after[..after.len() - end])];
    }
    let mut changes = Vec::new();
    let mut at = 0;
    while let Some(start) = (at..before.len()).find(|i| before[*i] != after[*i]) {
        let end = (start..before.len()).find(|i| before[*i] == after[*i]).unwrap_or(before.len());
        changes.push(change(start, &before[start..end], &after[start..end]));
        at = end;
    }
    changes
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies changes to the old version.
    fn apply(before: &[u8], changes: &[Change]) -> String {
        let mut text = hex(before);
        for c in changes.iter().rev() {
            let at = c.offset * 2;
            assert_eq!(text[at..at + c.before.len()], c.before);
            text.replace_range(at..at + c.before.len(), &c.after);
        }
        text
    }

    #[test]
    fn all_fields_of_a_key_are_named() {
        let mut key = FlowKey::default();
        key.set(field::DL_TYPE, u64::from(ethertype::IPV4));
        key.set(field::NW_PROTO, u64::from(ip_proto::TCP));
        key.set(field::NW_FRAG, field::FRAG_ANY | field::FRAG_LATER);
        assert_eq!(flow(&key), "tcp,ip_frag=later");
        key.set(field::NW_FRAG, field::FRAG_ANY);
        assert_eq!(flow(&key), "tcp,ip_frag=first,tp_src=0,tp_dst=0,tcp_flags=0");
        key.set(field::DL_TYPE, u64::from(ethertype::IPV6));
        key.set(field::NW_FRAG, 0);
        key.set(field::IPV6_LABEL, 0x12345);
        key.set(field::TCP_FLAGS, 0x12);
        let named = "tcp6,ipv6_label=0x12345,tp_src=0,tp_dst=0,tcp_flags=syn|ack";
        assert_eq!(flow(&key), named);
        key.set(field::VLAN_TCI, field::VLAN_PRESENT | 5);
        key.set(field::VLAN2_TCI, field::VLAN_PRESENT | 6);
        assert_eq!(
            flow(&key),
            named.replace("tcp6,", "tcp6,dl_vlan=5,dl_vlan_pcp=0,") + ",vlan_tci1=0x1006"
        );
    }

    #[test]
    fn changes_turn_the_old_bytes_into_the_new() {
        let versions: [&[u8]; 7] =
            [b"", b"a", b"abcdef", b"abXdeY", b"abcXYdef", b"abcabcabc", b"abcabc"];
        for before in versions {
            for after in versions {
                let changes = changes(before, after);
                assert_eq!(apply(before, &changes), hex(after), "{before:?} {after:?}");
                assert_eq!(changes.is_empty(), before == after);
            }
        }
    }

    #[test]
    fn equal_bytes_between_changes_are_not_told() {
        let changes = changes(b"abcdef", b"aXcdYZ");
        let offsets: Vec<_> = changes.iter().map(|c| (c.offset, c.after.len() / 2)).collect();
        assert_eq!(offsets, [(1, 1), (4, 2)]);
    }
}
