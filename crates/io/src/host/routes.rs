//! By which interfaces the kernel sends what has no route of its own, and packets to an address
//! (`linux/rtnetlink.h`, `fib_rules.h`, `nexthop.h`).

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;

use thalweg_source::netlink::{attributes, push_attribute, u32_at};

use super::query::{ask, dump};

/// Types of messages (`RTM_NEWROUTE`, `RTM_GETROUTE`, `RTM_NEWRULE`, `RTM_GETRULE`, `RTM_NEWNEXTHOP`,
/// `RTM_GETNEXTHOP`).
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
const NEW_RULE: u16 = 32;
const GET_RULE: u16 = 34;
const NEW_NEXT_HOP: u16 = 104;
const GET_NEXT_HOP: u16 = 106;
/// The route that would be taken, with all its next hops (`RTM_F_FIB_MATCH`).
const WITH_ALL_HOPS: u32 = 0x2000;
/// A route by which packets are sent (`RTN_UNICAST`).
const UNICAST: u8 = 1;

/// The families whose routes are looked at.
const FAMILIES: [u8; 2] = [libc::AF_INET as u8, libc::AF_INET6 as u8];

/// A route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Route {
    family: u8,
    table: u32,
    len: u8,
    /// The first byte of its prefix.
    first: u8,
    /// Whether packets are sent by it, and not refused, or kept.
    sends: bool,
    /// The interfaces of its next hops.
    links: Vec<u32>,
    /// The number of a next-hop object (ip-nexthop(8)).
    object: Option<u32>,
}

impl Route {
    /// Reads `struct rtmsg` with its attributes; `None` if it is not whole.
    fn read(body: &[u8]) -> Option<Self> {
        let [family, len, _, _, table, _, _, kind] = *body.first_chunk()?;
        let (table, sends) = (table.into(), kind == UNICAST);
        let mut route = Self { family, table, len, sends, ..Self::default() };
        attributes(body, 12, |attribute, value| {
            match attribute {
                1 => route.first = *value.first()?,
                4 => route.links.push(u32_at(value, 0)?),
                9 => hops(value, &mut route.links)?,
                15 => route.table = u32_at(value, 0)?,
                30 => route.object = Some(u32_at(value, 0)?),
                _ => {}
            }
            Some(())
        })?;
        Some(route)
    }

    /// Whether it leads to everywhere, to half of all addresses, or to all that are assigned of IPv6
    /// (2000::/3): such routes stand in for a default route.
    fn is_default(&self) -> bool {
        let is_global =
            i32::from(self.family) == libc::AF_INET6 && (self.len, self.first) == (3, 0x20);
        self.len <= 1 || is_global
    }
}

/// The interfaces of the next hops of a route with several (`struct rtnexthop`).
fn hops(mut bytes: &[u8], links: &mut Vec<u32>) -> Option<()> {
    while !bytes.is_empty() {
        let len = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?)).max(8);
        links.push(u32_at(bytes.get(..len)?, 4)?);
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
    }
    Some(())
}

/// The interfaces of the default routes of all tables that rules lead to.
///
/// # Errors
/// What the kernel refuses.
pub(super) fn of_default_routes() -> io::Result<Vec<u32>> {
    let mut links = Vec::new();
    for family in FAMILIES {
        let mut body = vec![0; 12];
        (body[0], body[7]) = (family, UNICAST);
        let read =
            |body: &[u8]| Route::read(body).filter(|route| route.sends && route.is_default());
        let found = match dump(GET_ROUTE, &body, NEW_ROUTE, read) {
            // A kernel without this family.
            Err(error) if is_unknown(&error) => continue,
            found => found?,
        };
        let tables = if found.is_empty() { Tables::All } else { Tables::read(family) };
        let found = found.into_iter().filter(|route| tables.contain(route.table));
        links.extend(links_of(found.collect())?);
    }
    Ok(links)
}

fn is_unknown(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EAFNOSUPPORT))
}

/// The tables that rules (ip-rule(8)) lead to.
#[derive(Debug, PartialEq, Eq)]
enum Tables {
    /// Any of them: the kernel has no rules, or one by which VRFs have tables.
    All,
    These(Vec<u32>),
}

impl Tables {
    fn read(family: u8) -> Self {
        let mut body = vec![0; 12];
        body[0] = family;
        // Without CONFIG_IP_MULTIPLE_TABLES there are none.
        dump(GET_RULE, &body, NEW_RULE, table_of_rule).map_or(Self::All, Self::of)
    }

    fn of(found: Vec<Leads>) -> Self {
        let table = |leads| if let Leads::To(table) = leads { Some(table) } else { None };
        found.into_iter().map(table).collect::<Option<_>>().map_or(Self::All, Self::These)
    }

    fn contain(&self, table: u32) -> bool {
        match self {
            Self::All => true,
            Self::These(tables) => tables.contains(&table),
        }
    }
}

/// Where a rule leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leads {
    To(u32),
    /// To the table of the VRF that a packet belongs to.
    ToVrf,
}

/// Where a rule (`struct fib_rule_hdr`) leads; `None` for one that leads to no table.
fn table_of_rule(body: &[u8]) -> Option<Leads> {
    const TO_TABLE: u8 = 1;
    let [_, _, _, _, table, _, _, action] = *body.first_chunk()?;
    let (mut table, mut is_of_vrf) = (u32::from(table), false);
    attributes(body, 12, |attribute, value| {
        match attribute {
            15 => table = u32_at(value, 0)?,
            19 => is_of_vrf = value.first().is_some_and(|on| *on != 0),
            _ => {}
        }
        Some(())
    })?;
    (action == TO_TABLE).then_some(if is_of_vrf { Leads::ToVrf } else { Leads::To(table) })
}

/// The interfaces of routes: where they only name next-hop objects, of those.
fn links_of(routes: Vec<Route>) -> io::Result<Vec<u32>> {
    let is_open = |route: &&Route| route.links.is_empty() && route.object.is_some();
    let objects = if routes.iter().any(|route| is_open(&route)) {
        let all = dump(GET_NEXT_HOP, &[0; 8], NEW_NEXT_HOP, NextHop::read)?;
        all.into_iter().map(|one| (one.id, one)).collect()
    } else {
        HashMap::new()
    };
    let of_object = |id: &u32| {
        let one = objects.get(id);
        let group = one.into_iter().flat_map(|one| one.group.iter());
        let members = group.filter_map(|id| objects.get(id));
        members.chain(one).filter_map(|one| one.link).collect::<Vec<_>>()
    };
    let of = |route: Route| match &route.object {
        Some(id) if route.links.is_empty() => of_object(id),
        _ => route.links,
    };
    Ok(routes.into_iter().flat_map(of).collect())
}

/// A next-hop object.
#[derive(Debug, Default, PartialEq, Eq)]
struct NextHop {
    id: u32,
    link: Option<u32>,
    /// The numbers of the objects of a group.
    group: Vec<u32>,
}

impl NextHop {
    /// Reads `struct nhmsg` with its attributes.
    fn read(body: &[u8]) -> Option<Self> {
        let mut one = Self::default();
        attributes(body, 8, |attribute, value| {
            match attribute {
                1 => one.id = u32_at(value, 0)?,
                2 => {
                    let entries = value.as_chunks::<8>().0.iter();
                    one.group = entries.filter_map(|entry| u32_at(entry, 0)).collect();
                }
                5 => one.link = Some(u32_at(value, 0)?),
                _ => {}
            }
            Some(())
        })?;
        Some(one)
    }
}

/// The interfaces by which packets from `local` to `peer` may leave: that of the route which the kernel
/// takes, and those of its other next hops. None if the kernel has no route.
pub(super) fn towards(peer: IpAddr, local: IpAddr) -> Vec<u32> {
    let lookup = |flags, with_source| {
        let answer = ask(GET_ROUTE, &lookup(peer, local, flags, with_source), NEW_ROUTE).ok()?;
        links_of(vec![Route::read(&answer)?]).ok()
    };
    let taken = lookup(0, true).or_else(|| lookup(0, false)).unwrap_or_default();
    let all = lookup(WITH_ALL_HOPS, true).unwrap_or_default();
    [taken, all].concat()
}

/// The request for the route to an address.
fn lookup(peer: IpAddr, local: IpAddr, flags: u32, with_source: bool) -> Vec<u8> {
    let octets = |address| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let (to, from) = (octets(peer), octets(local));
    let (to_len, from_len) = (to.len() as u8 * 8, from.len() as u8 * 8);
    let mut body = vec![0; 12];
    (body[0], body[1]) = (if peer.is_ipv4() { FAMILIES[0] } else { FAMILIES[1] }, to_len);
    body[8..].copy_from_slice(&flags.to_ne_bytes());
    push_attribute(&mut body, 1, &to);
    if with_source && from.len() == to.len() {
        body[2] = from_len;
        push_attribute(&mut body, 2, &from);
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(len: u8, kind: u8, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = vec![0; 12];
        (body[0], body[1], body[4], body[7]) = (FAMILIES[0], len, 254, kind);
        attributes.iter().for_each(|(kind, value)| push_attribute(&mut body, *kind, value));
        body
    }

    #[test]
    fn a_route_has_the_interfaces_of_all_its_next_hops() {
        let mut ways = Vec::new();
        for link in [3u32, 4] {
            ways.extend([16, 0, 0, 0]);
            ways.extend(link.to_ne_bytes());
            push_attribute(&mut ways, 5, &[192, 0, 2, 1]);
        }
        let table = 1000u32.to_ne_bytes();
        let body = route(0, UNICAST, &[(15, &table), (9, &ways)]);
        let read = Route::read(&body).unwrap();
        assert_eq!((&*read.links, read.table), (&[3, 4][..], 1000));
        assert!(read.sends && read.is_default());
        for end in 0..body.len() {
            let _ = Route::read(&body[..end]);
        }
        // A hop whose length is 0, and one that is truncated.
        assert_eq!(Route::read(&route(0, UNICAST, &[(9, &[0; 4])])), None);
        assert_eq!(Route::read(&route(0, UNICAST, &[(9, &[9, 0, 0, 0, 1, 0, 0, 0])])), None);
        assert!(!Route::read(&route(0, 7, &[])).unwrap().sends, "an unreachable default");
    }

    #[test]
    fn halves_of_all_addresses_and_the_assigned_ones_are_defaults() {
        let is = |family, len, first| Route { family, len, first, ..Route::default() }.is_default();
        let [v4, v6] = FAMILIES;
        assert!(is(v4, 0, 0) && is(v4, 1, 0) && is(v4, 1, 128) && is(v6, 1, 0x80));
        assert!(is(v6, 3, 0x20) && !is(v4, 3, 0x20) && !is(v6, 3, 0x40) && !is(v4, 8, 10));
    }

    #[test]
    fn tables_are_those_of_rules() {
        let rule = |action: u8, attributes: &[(u16, &[u8])]| {
            let mut body = vec![2, 0, 0, 0, 254, 0, 0, action, 0, 0, 0, 0];
            attributes.iter().for_each(|(kind, value)| push_attribute(&mut body, *kind, value));
            table_of_rule(&body)
        };
        let (main, other) = (rule(1, &[]), rule(1, &[(15, &1000u32.to_ne_bytes())]));
        let (vrf, prohibit) = (rule(1, &[(19, &[1])]), rule(8, &[]));
        assert_eq!((main, other), (Some(Leads::To(254)), Some(Leads::To(1000))));
        assert_eq!((vrf, prohibit), (Some(Leads::ToVrf), None));
        let tables = Tables::of([main, other].into_iter().flatten().collect());
        assert!(tables.contain(1000) && !tables.contain(100));
        assert_eq!(Tables::of([main, vrf].into_iter().flatten().collect()), Tables::All);
    }

    #[test]
    fn next_hop_objects_have_an_interface_or_members() {
        let mut body = vec![0; 8];
        push_attribute(&mut body, 1, &7u32.to_ne_bytes());
        push_attribute(&mut body, 2, &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        let read = NextHop::read(&body).unwrap();
        assert_eq!(read, NextHop { id: 7, link: None, group: vec![1, 2] });
    }

    #[test]
    fn the_kernel_knows_the_way_to_itself() {
        let loopback = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(towards(loopback, loopback).first(), Some(&1));
        of_default_routes().unwrap();
    }
}
