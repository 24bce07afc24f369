//! The state of the link of an interface, as sysfs reports it.

use std::fs;
use std::path::Path;
use std::str::FromStr;

use super::socket::index_of;
use crate::kind::Link;

/// Where Linux reports them (`Documentation/ABI/testing/sysfs-class-net`).
const INTERFACES: &str = "/sys/class/net";

/// The flag of an interface that is set up (`IFF_UP`).
const UP: u64 = 1;

/// The state of the link of an interface; `None` if the system reports nothing of it.
pub(crate) fn link_of(name: &str) -> Option<Link> {
    link_in(Path::new(INTERFACES), name, index_of(name)?)
}

/// The state of the interface `name`, whose index is `index`.
fn link_in(interfaces: &Path, name: &str, index: i32) -> Option<Link> {
    // A chain for another machine may hold any text as a name.
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return None;
    }
    let folder = interfaces.join(name);
    let attribute = |name: &str| fs::read_to_string(folder.join(name)).ok();
    // The file system may be that of another network namespace, with another interface of this name.
    if number(&attribute("ifindex")?) != Some(index) {
        return None;
    }
    let flags = attribute("flags")?;
    let flags = flags.trim().strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok());
    let link = Link {
        up: flags.map(|flags| flags & UP != 0),
        // Cannot be read while the interface is down.
        carrier: attribute("carrier").and_then(|text| number::<u8>(&text)).map(|one| one == 1),
        // -1, or cannot be read, where there is none.
        speed_mbps: attribute("speed").and_then(|text| number(&text)).filter(|speed| *speed > 0),
        mtu: attribute("mtu").and_then(|text| number(&text)),
    };
    Some(link)
}

fn number<T: FromStr>(text: &str) -> Option<T> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(attributes: &[(&str, &str)]) -> Option<Link> {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("eth0")).unwrap();
        for (name, text) in [&[("ifindex", "7\n")], attributes].concat() {
            fs::write(folder.path().join("eth0").join(name), text).unwrap();
        }
        link_in(folder.path(), "eth0", 7)
    }

    #[test]
    fn the_state_is_what_the_attributes_hold() {
        let of_card =
            [("flags", "0x1003\n"), ("carrier", "1\n"), ("speed", "10000\n"), ("mtu", "9000\n")];
        let expected =
            Link { up: Some(true), carrier: Some(true), speed_mbps: Some(10_000), mtu: Some(9000) };
        assert_eq!(link(&of_card), Some(expected));
        let of_virtual = [("flags", "0x1002"), ("speed", "-1\n"), ("mtu", "1500\n")];
        let expected = Link { up: Some(false), mtu: Some(1500), ..Link::default() };
        assert_eq!(link(&of_virtual), Some(expected));
        assert_eq!(link(&[("flags", "odd"), ("mtu", "-")]), Some(Link::default()));
    }

    #[test]
    fn what_is_no_interface_has_no_link() {
        assert_eq!(link(&[]), None);
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ifindex"), "7").unwrap();
        fs::write(folder.path().join("flags"), "0x1").unwrap();
        for name in ["", ".", "..", "eth0/..", "none"] {
            assert_eq!(link_in(folder.path(), name, 7), None, "{name}");
        }
    }

    #[test]
    fn an_interface_of_another_namespace_is_another_one() {
        assert_eq!(link(&[("ifindex", "8\n"), ("flags", "0x1003"), ("mtu", "1500")]), None);
    }

    #[test]
    fn the_loopback_has_an_mtu() {
        let link = link_of("lo").expect("each Linux has it");
        assert!(link.mtu > Some(0), "{link}");
    }
}
