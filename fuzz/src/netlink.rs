//! The kernel's messages about routes, which a router follows.

/// Applies the messages of a datagram: no more routes than messages, whatever they hold.
pub fn netlink(data: &[u8]) {
    assert!(thalweg_router::replay_netlink(data) <= data.len() / 16);
}
