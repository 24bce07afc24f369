//! What drivers can do with XDP, by the family `netdev` of generic netlink (Linux 6.3,
//! `Documentation/netlink/specs/netdev.yaml`).

use std::io;
use std::time::Duration;

use thalweg_source::netlink::{self, Socket, SocketAddr, attributes};
use thalweg_source::poll::wait_readable;

/// The type of messages to the family of families (`GENL_ID_CTRL`).
const CONTROL: u16 = 16;
/// Commands (`CTRL_CMD_GETFAMILY`, `NETDEV_CMD_DEV_GET`).
const GET_FAMILY: u8 = 3;
const GET_DEVICE: u8 = 1;
/// Attributes of a family (`CTRL_ATTR_FAMILY_ID`, `_NAME`).
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// Attributes of a device (`NETDEV_A_DEV_IFINDEX`, `_XDP_FEATURES`).
const INDEX: u16 = 1;
const FEATURES: u16 = 3;
/// The length of `struct genlmsghdr`, in bytes.
const HEADER: usize = 4;
/// The longest wait for an answer.
const ANSWER: Duration = Duration::from_secs(1);

/// What a driver can do with XDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpFeatures {
    /// It runs programs that pass packets to sockets.
    pub redirects: bool,
    /// It receives into memory of sockets.
    pub zero_copy: bool,
}

impl XdpFeatures {
    /// Of the bits that the kernel reports (`enum netdev_xdp_act`).
    fn of(bits: u64) -> Self {
        const BASIC: u64 = 1;
        const REDIRECT: u64 = 2;
        const ZERO_COPY: u64 = 8;
        let has = |all: u64| bits & all == all;
        Self { redirects: has(BASIC | REDIRECT), zero_copy: has(BASIC | ZERO_COPY) }
    }
}

/// What the driver of the interface with this index can do; `None` if the kernel does not report it.
pub(super) fn xdp_features(index: u32) -> Option<XdpFeatures> {
    let socket = netlink::open_generic().ok()?;
    let name = (FAMILY_NAME, &b"netdev\0"[..]);
    let family = request(&socket, CONTROL, GET_FAMILY, name, FAMILY_ID).ok().flatten()?;
    let family = u16::from_ne_bytes(*family.first_chunk()?);
    let device = (INDEX, &index.to_ne_bytes()[..]);
    let features = request(&socket, family, GET_DEVICE, device, FEATURES).ok().flatten()?;
    Some(XdpFeatures::of(u64::from_ne_bytes(*features.first_chunk()?)))
}

/// Sends a request with one attribute; returns the attribute `wanted` of the answer.
fn request(
    socket: &Socket,
    family: u16,
    command: u8,
    (kind, value): (u16, &[u8]),
    wanted: u16,
) -> io::Result<Option<Vec<u8>>> {
    let mut body = vec![command, 1, 0, 0];
    netlink::push_attribute(&mut body, kind, value);
    let request = netlink::request(family, 0, 1, &body);
    socket.send_to(&request, &SocketAddr::new(0, 0), 0)?;
    wait_readable(std::iter::once(std::os::fd::AsFd::as_fd(socket)), ANSWER);
    let mut datagram = Vec::new();
    netlink::receive(socket, &mut datagram)?;
    let mut found = None;
    for frame in netlink::frames(&datagram).flatten().filter(|frame| frame.kind == family) {
        let _ = attributes(frame.body, HEADER, |kind, value| {
            if kind == wanted {
                found = Some(value.to_vec());
            }
            Some(())
        });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_those_of_the_bits() {
        let of = |bits| {
            let XdpFeatures { redirects, zero_copy } = XdpFeatures::of(bits);
            (redirects, zero_copy)
        };
        assert_eq!(
            [of(0), of(1), of(3), of(0xb), of(8)].map(|(r, z)| (u8::from(r), u8::from(z))),
            [(0, 0), (0, 0), (1, 0), (1, 1), (0, 0)]
        );
    }

    /// The loopback has a driver of the kernel's own, without XDP.
    #[test]
    fn an_interface_that_is_not_there_has_none() {
        assert_eq!(xdp_features(u32::MAX), None);
        let loopback = xdp_features(1);
        assert!(loopback.is_none_or(|features| !features.zero_copy), "{loopback:?}");
    }
}
