//! Netlink messages about routes, neighbours and interfaces, as far as a router needs them
//! (`linux/rtnetlink.h`, `neighbour.h`, `nexthop.h`).
//!
//! Framing and attributes are those of `netlink-packet-core`. What is read of a message is checked
//! for its length; a message that is not understood is [`Message::Other`] or [`Message::Malformed`],
//! and no input panics.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{NLM_F_APPEND, NLM_F_DUMP_INTR, NLM_F_REPLACE};
use thalweg_source::netlink::{Frame, attributes, frames, u32_at};

use super::rib::{Target, Way};
use crate::prefix::{IpPrefix, Prefix};
use crate::table::Mac;

const INET: u8 = 2;
const INET6: u8 = 10;

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    flags: u16,
    /// The number of the request that it answers; 0 for changes.
    pub(crate) sequence: u32,
}

impl Header {
    /// Whether a dump became inconsistent before this message.
    pub(crate) fn is_interrupted(self) -> bool {
        self.flags & NLM_F_DUMP_INTR != 0
    }
}

/// What happened to a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// It was added before others of the same prefix and metric, or dumped.
    Add,
    /// It was added after others.
    Append,
    /// It took the place of another.
    Replace,
    /// It was removed.
    Remove,
}

/// A route of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) table: u32,
    pub(crate) prefix: IpPrefix,
    /// The route with the lowest metric wins.
    pub(crate) metric: u32,
    pub(crate) target: Target,
}

/// A next-hop object (ip-nexthop(8)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    /// A next hop.
    One(Target),
    /// Others, by their numbers and weights.
    Group(Vec<(u32, u16)>),
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Route {
        verb: Verb,
        route: Route,
    },
    /// A neighbour; its MAC address if it can be used.
    Neighbor {
        link: u32,
        address: IpAddr,
        mac: Option<Mac>,
    },
    /// An interface: its name, and whether it is up and connected; `None` if it is gone.
    Link {
        link: u32,
        state: Option<(String, bool)>,
    },
    /// An address of the kernel's own.
    Address {
        link: u32,
        address: IpAddr,
        is_gone: bool,
    },
    /// A next-hop object; `None` if it is gone.
    Object {
        id: u32,
        object: Option<Object>,
    },
    /// The end of a dump, or its error.
    Done(i32),
    /// The answer to a request that failed.
    Failed(i32),
    /// A message that ends before its length or in the middle of a field.
    Malformed,
    /// A message of no concern.
    Other,
}

/// The messages of a datagram.
pub(crate) fn messages(datagram: &[u8]) -> impl Iterator<Item = (Header, Message)> + '_ {
    frames(datagram).map(|frame| {
        let Some(Frame { kind, flags, sequence, body }) = frame else {
            return (Header { flags: 0, sequence: 0 }, Message::Malformed);
        };
        (Header { flags, sequence }, read(kind, flags, body).unwrap_or(Message::Malformed))
    })
}

fn read(kind: u16, flags: u16, body: &[u8]) -> Option<Message> {
    match kind {
        // NLMSG_ERROR; error 0 is an acknowledgement.
        2 => match i32_at(body, 0)?.wrapping_neg() {
            0 => Some(Message::Other),
            error => Some(Message::Failed(error)),
        },
        3 => Some(Message::Done(i32_at(body, 0).map_or(0, i32::wrapping_neg))),
        16 | 17 => link(kind == 17, body),
        20 | 21 => address(kind == 21, body),
        24 | 25 => {
            let verb = match flags {
                _ if kind == 25 => Verb::Remove,
                flags if flags & NLM_F_REPLACE != 0 => Verb::Replace,
                flags if flags & NLM_F_APPEND != 0 => Verb::Append,
                _ => Verb::Add,
            };
            route(verb, body)
        }
        28 | 29 => neighbor(kind == 29, body),
        104 | 105 => object(kind == 105, body),
        _ => Some(Message::Other),
    }
}

fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    bytes.get(at..)?.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

/// An IP address of a family.
fn ip(family: u8, bytes: &[u8]) -> Option<IpAddr> {
    match family {
        INET => <[u8; 4]>::try_from(bytes).ok().map(|bytes| Ipv4Addr::from(bytes).into()),
        INET6 => <[u8; 16]>::try_from(bytes).ok().map(|bytes| Ipv6Addr::from(bytes).into()),
        _ => None,
    }
}

/// An `rtvia`: a family of 16 bits, and an address of it.
fn via(bytes: &[u8]) -> Option<IpAddr> {
    ip(u16_at(bytes, 0)?.try_into().ok()?, &bytes[2..])
}

/// A next hop without its address, or a gateway that is not one: the link has the destination.
fn usable(gateway: IpAddr) -> Option<IpAddr> {
    (!gateway.is_unspecified()).then_some(gateway)
}

fn route(verb: Verb, body: &[u8]) -> Option<Message> {
    let [family, len, from_len, tos, table, _, _, kind] = *body.first_chunk()?;
    // Routes for some senders or services only, and the kernel's own notes on routes.
    let is_cloned = u32_at(body, 8)? & 0x200 != 0;
    if !matches!(family, INET | INET6) || from_len != 0 || tos != 0 || is_cloned {
        return Some(Message::Other);
    }
    let (mut table, mut metric, mut to) = (u32::from(table), 0, None);
    let (mut link, mut gateway, mut object) = (0, None, None);
    let (mut ways, mut is_wrapped) = (None, false);
    attributes(body, 12, |kind, value| {
        match kind {
            1 => to = Some(ip(family, value)?),
            4 => link = u32_at(value, 0)?,
            5 => gateway = usable(ip(family, value)?),
            6 => metric = u32_at(value, 0)?,
            9 => ways = Some(multipath(family, value)?),
            15 => table = u32_at(value, 0)?,
            18 => gateway = usable(via(value)?),
            // RTA_ENCAP_TYPE: a tunnel or label that the router cannot add.
            21 => is_wrapped = u16_at(value, 0)? != 0,
            30 => object = Some(u32_at(value, 0)?),
            _ => {}
        }
        Some(())
    })?;
    let prefix = match (family, to) {
        (INET, None) if len == 0 => Prefix::new(0u32, 0)?.into(),
        (INET6, None) if len == 0 => Prefix::new(0u128, 0)?.into(),
        (_, Some(IpAddr::V4(to))) => Prefix::new(u32::from(to), len)?.into(),
        (_, Some(IpAddr::V6(to))) => Prefix::new(u128::from(to), len)?.into(),
        _ => return None,
    };
    let is_dead = body[8] & DEAD != 0;
    let target = match (kind, object, ways) {
        (1, Some(object), _) => Target::Object(object),
        (1, None, _) if is_wrapped => Target::Unsupported,
        (1, None, Some(ways)) => ways,
        (1, None, None) => Target::Ways(vec![Way { link, gateway, weight: 1, is_dead }]),
        (2 | 4, ..) => Target::Local,
        // A broadcast is for hosts on the link; what cannot be looked up elsewhere has no route.
        (3 | 6, ..) => Target::Blackhole,
        (7 | 9, ..) if family == INET6 || kind == 9 => Target::Unreachable,
        (7, ..) => Target::HostUnreachable,
        (8, ..) => Target::Prohibited,
        _ => return Some(Message::Other),
    };
    Some(Message::Route { verb, route: Route { table, prefix, metric, target } })
}

/// Flag of a next hop that the kernel does not use (`RTNH_F_DEAD`).
const DEAD: u8 = 1;

/// The next hops of a multipath route (`struct rtnexthop`).
fn multipath(family: u8, mut bytes: &[u8]) -> Option<Target> {
    let (mut ways, mut is_wrapped) = (Vec::new(), false);
    while !bytes.is_empty() {
        let len = usize::from(u16_at(bytes, 0)?);
        let hop = bytes.get(..len)?;
        let [_, _, flags, hops, ..] = *hop.first_chunk::<8>()?;
        let (link, mut gateway) = (u32_at(hop, 4)?, None);
        attributes(hop, 8, |kind, value| {
            match kind {
                5 => gateway = usable(ip(family, value)?),
                18 => gateway = usable(via(value)?),
                21 => is_wrapped |= u16_at(value, 0)? != 0,
                _ => {}
            }
            Some(())
        })?;
        let weight = u16::from(hops) + 1;
        ways.push(Way { link, gateway, weight, is_dead: flags & DEAD != 0 });
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
    }
    if ways.is_empty() {
        return None;
    }
    Some(if is_wrapped { Target::Unsupported } else { Target::Ways(ways) })
}

fn neighbor(is_gone: bool, body: &[u8]) -> Option<Message> {
    const PROXY: u8 = 8;
    let (family, link) = (*body.first()?, u32_at(body, 4)?);
    let (state, flags) = (u16_at(body, 8)?, *body.get(10)?);
    if !matches!(family, INET | INET6) || flags & PROXY != 0 {
        return Some(Message::Other);
    }
    let (mut address, mut mac) = (None, None);
    attributes(body, 12, |kind, value| {
        match kind {
            1 => address = Some(ip(family, value)?),
            // That of another medium is no MAC address.
            2 => mac = Mac::try_from(value).ok(),
            _ => {}
        }
        Some(())
    })?;
    // NUD_REACHABLE, STALE, DELAY, PROBE, PERMANENT.
    let is_usable = state & (0x02 | 0x04 | 0x08 | 0x10 | 0x80) != 0 && !is_gone;
    let mac = mac.filter(|mac| is_usable && crate::config::is_station(*mac));
    Some(Message::Neighbor { link, address: address?, mac })
}

fn link(is_gone: bool, body: &[u8]) -> Option<Message> {
    const BRIDGE: u8 = 7;
    if *body.first()? == BRIDGE {
        return Some(Message::Other);
    }
    let (link, flags) = (u32_at(body, 4)?, u32_at(body, 8)?);
    let mut name = None;
    attributes(body, 16, |kind, value| {
        if kind == 3 {
            let text = value.split(|byte| *byte == 0).next()?;
            name = Some(String::from_utf8_lossy(text).into_owned());
        }
        Some(())
    })?;
    // IFF_UP and IFF_LOWER_UP.
    let is_up = flags & 0x1_0001 == 0x1_0001;
    let state = if is_gone { None } else { Some((name?, is_up)) };
    Some(Message::Link { link, state })
}

fn address(is_gone: bool, body: &[u8]) -> Option<Message> {
    let (family, link) = (*body.first()?, u32_at(body, 4)?);
    if !matches!(family, INET | INET6) {
        return Some(Message::Other);
    }
    let (mut address, mut local) = (None, None);
    attributes(body, 8, |kind, value| {
        match kind {
            1 => address = Some(ip(family, value)?),
            // The own address of a point-to-point link, whose IFA_ADDRESS is the peer's.
            2 => local = Some(ip(family, value)?),
            _ => {}
        }
        Some(())
    })?;
    Some(Message::Address { link, address: local.or(address)?, is_gone })
}

fn object(is_gone: bool, body: &[u8]) -> Option<Message> {
    let (family, flags) = (*body.first()?, u32_at(body, 4)?);
    let (mut id, mut link, mut gateway, mut group) = (None, 0, None, None);
    let (mut is_blackhole, mut is_other) = (false, false);
    attributes(body, 8, |kind, value| {
        match kind {
            1 => id = Some(u32_at(value, 0)?),
            2 => {
                let entries = value.as_chunks::<8>().0.iter();
                let weight =
                    |e: &[u8; 8]| (u16::from(e[5]) << 8 | u16::from(e[4])).saturating_add(1);
                group = Some(entries.filter_map(|e| Some((u32_at(e, 0)?, weight(e)))).collect());
            }
            4 => is_blackhole = true,
            5 => link = u32_at(value, 0)?,
            6 => gateway = usable(ip(family, value)?),
            // NHA_ENCAP_TYPE and NHA_FDB.
            7 | 11 => is_other = true,
            _ => {}
        }
        Some(())
    })?;
    let is_dead = flags & u32::from(DEAD) != 0;
    let object = match group {
        Some(group) => Object::Group(group),
        None if is_other => Object::One(Target::Unsupported),
        None if is_blackhole => Object::One(Target::Blackhole),
        None => Object::One(Target::Ways(vec![Way { link, gateway, weight: 1, is_dead }])),
    };
    Some(Message::Object { id: id?, object: (!is_gone).then_some(object) })
}
