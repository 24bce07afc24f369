//! The interfaces of this network namespace, which are made of which, and their addresses
//! (`linux/if_link.h`, `if_addr.h`).

use std::io;
use std::net::IpAddr;

use thalweg_source::netlink::{attributes, u32_at};

use super::query::dump;

/// Types of messages (`RTM_NEWLINK`, `RTM_GETLINK`, `RTM_NEWADDR`, `RTM_GETADDR`).
const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const GET_ADDRESS: u16 = 22;

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) index: u32,
    pub(super) name: String,
    /// The bridge, bond or VRF that it is a port of; 0 if it is none's.
    master: u32,
    /// The interface of this namespace by which its packets pass, such as that of a VLAN; 0 if there is
    /// none.
    lower: u32,
    /// The number of a VLAN.
    vlan: Option<u16>,
}

/// All interfaces.
#[derive(Debug, Default)]
pub(super) struct Links(pub(super) Vec<Link>);

impl Links {
    /// Reads them from the kernel.
    pub(super) fn read() -> io::Result<Self> {
        dump(GET_LINK, &[0; 16], NEW_LINK, link).map(Self)
    }

    /// The interface of a name.
    pub(super) fn named(&self, name: &str) -> Option<&Link> {
        self.0.iter().find(|link| link.name == name)
    }

    /// An interface, those that are made of it, such as its bridge, bond or VLANs, and those that are made
    /// of them: the interface itself first.
    pub(super) fn stack<'a>(&'a self, lowest: &'a Link) -> Vec<&'a Link> {
        let (mut all, mut next) = (vec![lowest], 0);
        while let Some(one) = all.get(next).copied() {
            let is_upper =
                |link: &&Link| link.index == one.master || link.lower == one.index && one.index > 0;
            for upper in self.0.iter().filter(is_upper) {
                if all.iter().all(|known| known.index != upper.index) {
                    all.push(upper);
                }
            }
            next += 1;
        }
        all
    }
}

/// The numbers of the VLANs among interfaces.
pub(super) fn vlans(stack: &[&Link]) -> Vec<u16> {
    stack.iter().filter_map(|link| link.vlan).collect()
}

/// The text of an attribute, which ends with zero.
fn text(value: &[u8]) -> String {
    let text = value.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// Reads `struct ifinfomsg` with its attributes; `None` if it is not whole, or is a bridge's own report
/// of a port.
fn link(body: &[u8]) -> Option<Link> {
    if *body.first()? != 0 {
        return None;
    }
    let mut link = Link { index: u32_at(body, 4)?, ..Link::default() };
    let (mut is_elsewhere, mut kind) = (false, String::new());
    attributes(body, 16, |attribute, value| {
        match attribute {
            3 => link.name = text(value),
            5 => link.lower = u32_at(value, 0)?,
            10 => link.master = u32_at(value, 0)?,
            18 => (kind, link.vlan) = made_as(value)?,
            // IFLA_LINK_NETNSID: the lower interface is in another namespace.
            37 => is_elsewhere = true,
            _ => {}
        }
        Some(())
    })?;
    // The "lower" interface of a veth is its peer.
    if is_elsewhere || kind == "veth" || link.lower == link.index {
        link.lower = 0;
    }
    Some(link)
}

/// What kind of interface IFLA_LINKINFO describes, and the number of a VLAN.
fn made_as(info: &[u8]) -> Option<(String, Option<u16>)> {
    let (mut kind, mut data) = (String::new(), &[][..]);
    attributes(info, 0, |attribute, value| {
        match attribute {
            1 => kind = text(value),
            2 => data = value,
            _ => {}
        }
        Some(())
    })?;
    let mut vlan = None;
    if kind == "vlan" {
        attributes(data, 0, |attribute, value| {
            if attribute == 1 {
                vlan = value.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes));
            }
            Some(())
        })?;
    }
    Some((kind, vlan))
}

/// The kernel's addresses, each with the index of its interface.
pub(super) fn addresses() -> io::Result<Vec<(u32, IpAddr)>> {
    dump(GET_ADDRESS, &[0; 8], NEW_ADDRESS, address)
}

/// Reads `struct ifaddrmsg` with its attributes.
fn address(body: &[u8]) -> Option<(u32, IpAddr)> {
    let (family, index) = (*body.first()?, u32_at(body, 4)?);
    let (mut address, mut local) = (None, None);
    attributes(body, 8, |attribute, value| {
        match attribute {
            1 => address = ip(family, value),
            // The own address of a point-to-point link, whose IFA_ADDRESS is the peer's.
            2 => local = ip(family, value),
            _ => {}
        }
        Some(())
    })?;
    Some((index, local.or(address)?))
}

/// An IP address of a family.
fn ip(family: u8, bytes: &[u8]) -> Option<IpAddr> {
    match i32::from(family) {
        libc::AF_INET => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        libc::AF_INET6 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use thalweg_source::netlink::push_attribute;

    use super::*;

    /// What the kernel reports of an interface, with more attributes.
    fn report(index: u32, name: &str, more: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = vec![0; 16];
        body[4..8].copy_from_slice(&index.to_ne_bytes());
        push_attribute(&mut body, 3, &[name.as_bytes(), &[0]].concat());
        more.iter().for_each(|(kind, value)| push_attribute(&mut body, *kind, value));
        body
    }

    fn nested(attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = Vec::new();
        attributes.iter().for_each(|(kind, value)| push_attribute(&mut body, *kind, value));
        body
    }

    #[test]
    fn a_bridge_over_a_vlan_over_a_bond_is_made_of_its_interfaces() {
        let number = |index: u32| index.to_ne_bytes();
        let vlan = nested(&[(1, b"vlan\0"), (2, &nested(&[(1, &7u16.to_ne_bytes())]))]);
        let veth = nested(&[(1, b"veth\0")]);
        let reports = [
            report(1, "eth0", &[(10, &number(2))]),
            report(2, "bond0", &[]),
            report(3, "bond0.7", &[(5, &number(2)), (18, &vlan), (10, &number(4))]),
            report(4, "br0", &[]),
            report(5, "near", &[(5, &number(6)), (18, &veth)]),
            report(6, "far", &[(5, &number(5)), (18, &veth)]),
            report(7, "moved.8", &[(5, &number(1)), (37, &number(0))]),
        ];
        let links = Links(reports.iter().filter_map(|body| link(body)).collect());
        let stack = |name| {
            let stack = links.stack(links.named(name).unwrap());
            stack.iter().map(|link| &*link.name).collect::<Vec<_>>()
        };
        assert_eq!(stack("eth0"), ["eth0", "bond0", "bond0.7", "br0"]);
        assert_eq!((stack("near"), stack("br0")), (vec!["near"], vec!["br0"]));
        assert_eq!(vlans(&links.stack(&links.0[0])), [7]);
        for end in 0..reports[2].len() - 1 {
            let _ = link(&reports[2][..end]);
        }
    }

    #[test]
    fn the_loopback_has_its_address() {
        let links = Links::read().unwrap();
        let lo = links.named("lo").unwrap().index;
        let found = addresses().unwrap();
        assert!(found.contains(&(lo, Ipv4Addr::LOCALHOST.into())), "{found:?}");
    }
}
