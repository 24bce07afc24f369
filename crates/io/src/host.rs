//! What the host itself does with an interface: its addresses, its default route, and the sessions of
//! SSH by which it is administered.
//!
//! `unsafe` here: the list of getifaddrs(3).
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::{fs, io, ptr};

use crate::interface::link_of;
use crate::kind::Refusal;
use crate::port::IoError;

/// The tables of the network namespace of this thread.
const TABLES: &str = "/proc/thread-self/net";
/// Where Linux reports interfaces.
const INTERFACES: &str = "/sys/class/net";

/// The addresses that the kernel has on each interface, with its name.
pub(crate) fn addresses() -> io::Result<Vec<(String, IpAddr)>> {
    let mut first = ptr::null_mut();
    // SAFETY: a place for the list is passed.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let (mut addresses, mut next) = (Vec::new(), first);
    while !next.is_null() {
        // SAFETY: it is an entry of the list, which is not changed.
        let entry = unsafe { &*next };
        // SAFETY: the name of an entry ends with zero.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) };
        if let Some(address) = address(entry.ifa_addr) {
            addresses.push((name.to_string_lossy().into_owned(), address));
        }
        next = entry.ifa_next;
    }
    // SAFETY: it is the list that was returned, and nothing refers to it any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(addresses)
}

/// The IP address at a place of the list; `None` if it is of another kind, or there is none.
fn address(at: *const libc::sockaddr) -> Option<IpAddr> {
    if at.is_null() {
        return None;
    }
    // SAFETY: it is an address of the list, which begins with its family.
    let family = unsafe { (*at).sa_family };
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: the family shows that it is one of IPv4; unaligned, because only the C library
            // answers for its place.
            let address = unsafe { at.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes()).into())
        }
        libc::AF_INET6 => {
            // SAFETY: likewise, one of IPv6.
            let address = unsafe { at.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

/// Refuses an interface by which the host is reached, unless `force`: a port that takes its packets from
/// the kernel, or sends others by it, could cut the host off.
///
/// # Errors
/// [`IoError::Refused`] with what the host has it for.
pub(crate) fn check(name: &str, force: bool) -> Result<(), IoError> {
    match needs(name).filter(|_| !force) {
        None => Ok(()),
        Some(use_) => {
            let message = format!("it has {use_}");
            let refusal = Refusal::new(&["force"], message, "force = true to take it nevertheless");
            Err(refusal.of(format!("interface {name}")))
        }
    }
}

/// What the host needs an interface for: itself, or one that is made of it, such as its bridge, bond or
/// VLAN. `None` if nothing shows that it does.
pub(crate) fn needs(name: &str) -> Option<String> {
    if let Some(use_) = needs_itself(name) {
        return Some(use_.to_owned());
    }
    let all = uppers(name);
    all.iter().find_map(|upper| Some(format!("{}, by {upper}", needs_itself(upper)?)))
}

/// The interfaces that are made of an interface, and those that are made of them.
fn uppers(name: &str) -> Vec<String> {
    let mut all = vec![name.to_owned()];
    let mut next = 0;
    while let Some(one) = all.get(next) {
        // The file system may be that of another network namespace.
        let folder = link_of(one).and_then(|_| fs::read_dir(format!("{INTERFACES}/{one}")).ok());
        let entries = folder.into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut found: Vec<_> =
            names.filter_map(|name| Some(name.strip_prefix("upper_")?.to_owned())).collect();
        found.retain(|upper| !all.contains(upper));
        all.extend(found);
        next += 1;
    }
    all.split_off(1)
}

/// What the host needs this very interface for.
fn needs_itself(name: &str) -> Option<&'static str> {
    let table = |file| fs::read_to_string(format!("{TABLES}/{file}")).unwrap_or_default();
    if has_default_route(name, &table("route"), &table("ipv6_route")) {
        return Some("the host's default route");
    }
    let own: Vec<_> = addresses()
        .unwrap_or_default()
        .into_iter()
        .filter_map(|(of, address)| (of == name).then_some(address))
        .collect();
    let sessions = ["tcp", "tcp6"].map(table).concat();
    let connection = std::env::var("SSH_CONNECTION").unwrap_or_default();
    let mut all = ssh_sessions(&sessions).chain(own_session(&connection));
    all.any(|at| own.contains(&at)).then_some("a session of SSH to this host")
}

/// The local address of the session of SSH that has started this program, of its `SSH_CONNECTION`: the
/// server may listen on another port than 22.
fn own_session(connection: &str) -> Option<IpAddr> {
    let local = connection.split_whitespace().nth(2)?;
    // A link-local address has the interface's name after it.
    let address = local.split('%').next()?.parse::<IpAddr>().ok()?;
    Some(address.to_canonical())
}

/// Whether a default route of the tables `route` or `ipv6_route` leads to an interface.
fn has_default_route(name: &str, v4: &str, v6: &str) -> bool {
    // The kernel's own routes to nowhere lead to the loopback (RTF_REJECT).
    let is_used =
        |flags: &str| u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & 0x200 == 0);
    let is_default_v4 = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [of, destination, _, flags, _, _, _, mask, ..] = fields[..] else { return false };
        of == name && destination == "00000000" && mask == "00000000" && is_used(flags)
    };
    let is_default_v6 = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [destination, length, _, _, _, _, _, _, flags, of] = fields[..] else { return false };
        let is_all = length == "00" && destination.bytes().all(|digit| digit == b'0');
        of == name && is_all && is_used(flags)
    };
    v4.lines().any(is_default_v4) || v6.lines().any(is_default_v6)
}

/// The local addresses of established connections to port 22, of the tables `tcp` and `tcp6`.
fn ssh_sessions(table: &str) -> impl Iterator<Item = IpAddr> {
    const ESTABLISHED: &str = "01";
    const SSH: &str = "0016";
    table.lines().filter_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [_, local, _, state, ..] = fields[..] else { return None };
        let (address, port) = local.split_once(':')?;
        if state != ESTABLISHED || port != SSH {
            return None;
        }
        // Words of 32 bits in the byte order of this machine.
        let words = address.as_bytes().chunks(8).map(|word| {
            let word = std::str::from_utf8(word).ok()?;
            Some(u32::from_str_radix(word, 16).ok()?.to_ne_bytes())
        });
        let bytes = words.collect::<Option<Vec<_>>>()?.concat();
        match bytes.len() {
            4 => Some(IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?)),
            16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).to_canonical()),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_has_its_address() {
        let found = addresses().unwrap();
        assert!(found.contains(&("lo".into(), Ipv4Addr::LOCALHOST.into())), "{found:?}");
    }

    #[test]
    fn a_default_route_is_found_in_both_tables() {
        let v4 = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
            eth0\t00000000\t0102000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
            eth1\t0000010A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        let v6 = "fd020000000000000000000000000000 40 00000000000000000000000000000000 00 \
            00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0\n\
            00000000000000000000000000000000 00 00000000000000000000000000000000 00 \
            fe800000000000000000000000000001 00000400 00000001 00000000 00000003     eth2\n\
            00000000000000000000000000000000 00 00000000000000000000000000000000 00 \
            00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo\n";
        let found =
            ["eth0", "eth1", "eth2", "eth3", "lo"].map(|name| has_default_route(name, v4, v6));
        assert_eq!(found, [true, false, true, false, false]);
        assert!(!has_default_route("eth0", "eth0 00000000", "0 0 eth0"), "lines that are cut off");
    }

    #[test]
    fn the_own_session_is_that_of_the_environment() {
        let found = |text| own_session(text).map(|at| at.to_string());
        assert_eq!(found("192.0.2.1 50000 192.0.2.9 2222").as_deref(), Some("192.0.2.9"));
        assert_eq!(found("fe80::1%eth0 5 fe80::2%eth0 22").as_deref(), Some("fe80::2"));
        assert_eq!(found("::1 5 ::ffff:192.0.2.9 22").as_deref(), Some("192.0.2.9"));
        for wrong in ["", "192.0.2.1 50000", "a b c d", "1 2 %eth0 4"] {
            assert_eq!(found(wrong), None, "{wrong}");
        }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn sessions_of_ssh_are_found() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n\
            0: 0100007F:0016 00000000:0000 0A 00000000:00000000 00:00000000\n\
            1: 0202000A:0016 0102000A:C350 01 00000000:00000000 00:00000000\n\
            2: 0202000A:0050 0102000A:C350 01 00000000:00000000 00:00000000\n\
            3: 000080FE000000000000000002000000:0016 0:0 01 0\n\
            4: 0000000000000000FFFF00000302000A:0016 0:0 01 0\n\
            5: zz:0016 0:0 01 0\n";
        let found: Vec<_> = ssh_sessions(table).map(|at| at.to_string()).collect();
        assert_eq!(found, ["10.0.2.2", "fe80::2", "10.0.2.3"]);
    }
}
