//! Sets a network interface up by netlink: its state, MTU, MAC address and IP addresses (rtnetlink(7)).

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};
use thalweg_source::netlink::{self, push_attribute};

/// The types of messages.
const NEW_LINK: u16 = 16;
const NEW_ADDRESS: u16 = 20;
const DELETE_ADDRESS: u16 = 21;
/// Flags: the request is to be answered, and what it makes may be there.
const ANSWER: u16 = 0x04;
const CREATE: u16 = 0x100 | 0x400;
/// Attributes of links (`IFLA_*`) and of addresses (`IFA_*`).
const LINK_MAC: u16 = 1;
const LINK_MTU: u16 = 4;
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;
/// The flag of an interface that is up, and that of an address without duplicate address detection.
const UP: u32 = 1;
const NO_DETECTION: u8 = 0x02;

/// An address of a host with the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HostAddress {
    pub(super) address: IpAddr,
    pub(super) prefix: u8,
}

impl HostAddress {
    /// Reads `192.0.2.1/24` or `2001:db8::1/64`.
    pub(super) fn read(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let is_number = !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit());
        let prefix = prefix.parse().ok().filter(|prefix| is_number && *prefix <= most)?;
        Some(Self { address, prefix })
    }
}

/// A connection to the kernel.
pub(super) struct Setup {
    socket: OwnedFd,
    /// The index of the interface.
    index: u32,
}

impl Setup {
    pub(super) fn of(index: u32) -> io::Result<Self> {
        // Without a number, the protocol is that of routes and links.
        let (family, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC);
        let socket = socket_with(family, SocketType::RAW, flags, None)?;
        Ok(Self { socket, index })
    }

    /// Sets the interface up, with this MTU and MAC address if there is one.
    pub(super) fn link(&self, mtu: Option<u32>, mac: Option<[u8; 6]>) -> io::Result<()> {
        // struct ifinfomsg: family, type, index, flags, and which flags change.
        let mut body = vec![0; 4];
        body.extend(self.index.to_ne_bytes());
        body.extend(UP.to_ne_bytes());
        body.extend(UP.to_ne_bytes());
        if let Some(mtu) = mtu {
            push_attribute(&mut body, LINK_MTU, &mtu.to_ne_bytes());
        }
        if let Some(mac) = mac {
            push_attribute(&mut body, LINK_MAC, &mac);
        }
        self.request(NEW_LINK, 0, &body)
    }

    /// Gives the interface an address; one that it has already stays.
    pub(super) fn add(&self, address: HostAddress) -> io::Result<()> {
        match self.request(NEW_ADDRESS, CREATE, &self.of_address(address)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            result => result,
        }
    }

    /// Takes an address from the interface.
    pub(super) fn remove(&self, address: HostAddress) -> io::Result<()> {
        self.request(DELETE_ADDRESS, 0, &self.of_address(address))
    }

    /// `struct ifaddrmsg` with its attributes.
    fn of_address(&self, HostAddress { address, prefix }: HostAddress) -> Vec<u8> {
        let (family, flags, bytes) = match address {
            IpAddr::V4(v4) => (libc::AF_INET, 0, v4.octets().to_vec()),
            IpAddr::V6(v6) => (libc::AF_INET6, NO_DETECTION, v6.octets().to_vec()),
        };
        let mut body = vec![family as u8, prefix, flags, 0];
        body.extend(self.index.to_ne_bytes());
        push_attribute(&mut body, LOCAL, &bytes);
        push_attribute(&mut body, ADDRESS, &bytes);
        body
    }

    /// Sends a message, and waits for the kernel's answer.
    fn request(&self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        let message = netlink::request(kind, ANSWER | flags, 0, body);
        let kernel = SocketAddrNetlink::new(0, 0);
        sendto(&self.socket, &message, SendFlags::empty(), &kernel)?;
        let mut answer = [0; 1024];
        let (len, _) = recv(&self.socket, &mut answer, RecvFlags::empty())?;
        outcome(&answer[..len])
    }
}

/// The outcome that the kernel's answer reports.
fn outcome(answer: &[u8]) -> io::Result<()> {
    match netlink::frames(answer).next().flatten().and_then(|frame| frame.error()) {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(code)),
        None => Err(io::Error::other("an unknown answer of the kernel")),
    }
}

#[cfg(test)]
mod tests {
    use thalweg_source::netlink::ERROR;

    use super::*;

    /// The length of a message's header, in bytes.
    const MESSAGE: usize = 16;

    #[test]
    fn an_address_has_a_prefix_that_fits() {
        let read =
            |text| HostAddress::read(text).map(|read| (read.address.to_string(), read.prefix));
        assert_eq!(read("192.0.2.1/24"), Some(("192.0.2.1".into(), 24)));
        assert_eq!(read("2001:db8::1/128"), Some(("2001:db8::1".into(), 128)));
        for wrong in
            ["192.0.2.1", "192.0.2.1/33", "192.0.2.1/", "192.0.2.1/+4", "::1/129", "x/8", "/8"]
        {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn only_the_kernel_s_acknowledgement_is_success() {
        let answer = |kind: u16, code: i32| {
            let mut answer = [0; MESSAGE + 4];
            answer[..4].copy_from_slice(&(MESSAGE as u32 + 4).to_ne_bytes());
            answer[4..6].copy_from_slice(&kind.to_ne_bytes());
            answer[MESSAGE..].copy_from_slice(&code.to_ne_bytes());
            outcome(&answer)
        };
        assert!(answer(ERROR, 0).is_ok());
        assert_eq!(answer(ERROR, -1).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert!(answer(ERROR, i32::MIN).is_err() && answer(NEW_LINK, 0).is_err());
        assert!(outcome(&[]).is_err() && outcome(&[0; MESSAGE]).is_err());
    }
}
