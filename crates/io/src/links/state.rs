//! The state of an interface as netlink reports it (`linux/rtnetlink.h`, `if_link.h`), and what has
//! changed between two of them.

use std::os::fd::AsFd;
use std::time::Duration;
use std::{io, iter};

use thalweg_source::netlink::{self, Frame, SocketAddr, attributes, u32_at};
use thalweg_source::poll::wait_readable;

use super::events::LinkChange;

/// Types of messages (`RTM_NEWLINK`, `RTM_DELLINK`, `RTM_GETLINK`).
const NEW: u16 = 16;
const DELETED: u16 = 17;
const GET: u16 = 18;
/// The length of `struct ifinfomsg`, in bytes.
const HEADER: usize = 16;
/// Attributes (`IFLA_*`).
const NAME: u16 = 3;
const MTU: u16 = 4;
const PROMISCUITY: u16 = 30;
const NEW_NAMESPACE: u16 = 45;
const ALL_MULTICAST: u16 = 61;
/// Flags (`IFF_UP`, `IFF_ALLMULTI`, `IFF_LOWER_UP`).
const UP: u32 = 1;
const ALL_MULTICAST_FLAG: u32 = 0x200;
const LOWER_UP: u32 = 0x1_0000;

/// The longest wait for an answer.
const ANSWER: Duration = Duration::from_secs(1);

/// The state of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LinkState {
    pub(super) name: String,
    pub(super) mtu: u32,
    pub(super) is_up: bool,
    pub(super) has_carrier: bool,
    pub(super) is_promiscuous: bool,
    pub(super) has_all_multicast: bool,
}

/// A message about an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// It exists, in this state.
    There(u32, LinkState),
    /// It was removed, or `moved` to another network namespace.
    Gone { index: u32, moved: bool },
    /// The request with this number failed.
    Failed(u32),
}

/// Reads a message; `None` if it is of no concern, or not whole.
pub(super) fn read(frame: Frame<'_>) -> Option<Message> {
    match frame.kind {
        NEW | DELETED => {}
        netlink::ERROR if frame.error()? != 0 => return Some(Message::Failed(frame.sequence)),
        _ => return None,
    }
    let body = frame.body;
    // Bridges report their ports by the same messages, with a family.
    if *body.first()? != 0 {
        return None;
    }
    let (index, flags) = (u32_at(body, 4)?, u32_at(body, 8)?);
    let (mut name, mut mtu, mut moved) = (None, 0, false);
    let mut is_promiscuous = false;
    let mut has_all_multicast = flags & ALL_MULTICAST_FLAG != 0;
    attributes(body, HEADER, |kind, value| {
        match kind {
            NAME => name = Some(text(value)),
            MTU => mtu = u32_at(value, 0)?,
            // Counts of those who want it; the flags show only what an administrator has set.
            PROMISCUITY => is_promiscuous = u32_at(value, 0)? > 0,
            ALL_MULTICAST => has_all_multicast = u32_at(value, 0)? > 0,
            NEW_NAMESPACE => moved = true,
            _ => {}
        }
        Some(())
    })?;
    if frame.kind == DELETED {
        return Some(Message::Gone { index, moved });
    }
    let (is_up, has_carrier) = (flags & UP != 0, flags & LOWER_UP != 0);
    let name = name?;
    let state = LinkState { name, mtu, is_up, has_carrier, is_promiscuous, has_all_multicast };
    Some(Message::There(index, state))
}

/// A text that ends with zero.
fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted<'a> {
    Index(u32),
    Name(&'a str),
}

/// The request for the state of an interface, with the number `sequence`.
pub(super) fn request(wanted: Wanted<'_>, sequence: u32) -> Vec<u8> {
    let mut body = vec![0; HEADER];
    match wanted {
        Wanted::Index(index) => body[4..8].copy_from_slice(&index.to_ne_bytes()),
        Wanted::Name(name) => {
            netlink::push_attribute(&mut body, NAME, &[name.as_bytes(), &[0]].concat());
        }
    }
    netlink::request(GET, 0, sequence, &body)
}

/// Whether the interface `name` is up and has a peer at this moment; not if there is none of this name,
/// or it is unknown. The flags of other requests (`IFF_RUNNING`) are up to a second late.
pub(crate) fn has_carrier(name: &str) -> bool {
    let state = state_of(name).ok().flatten();
    state.is_some_and(|state| state.is_up && state.has_carrier)
}

/// The state of the interface `name`; `None` if there is none.
fn state_of(name: &str) -> io::Result<Option<LinkState>> {
    let socket = netlink::open()?;
    socket.send_to(&request(Wanted::Name(name), 1), &SocketAddr::new(0, 0), 0)?;
    wait_readable(iter::once(socket.as_fd()), ANSWER);
    let mut datagram = Vec::new();
    netlink::receive(&socket, &mut datagram)?;
    let message = netlink::frames(&datagram).flatten().find_map(read);
    Ok(match message {
        Some(Message::There(_, state)) => Some(state),
        _ => None,
    })
}

impl LinkState {
    /// What distinguishes this state from the earlier one, in words.
    pub(super) fn since(&self, before: &Self) -> Vec<(LinkChange, String)> {
        let mut changes = Vec::new();
        let mut add = |change, text: String| changes.push((change, text));
        if self.name != before.name {
            add(LinkChange::Renamed, format!("it was {}, and is followed", before.name));
        }
        if self.mtu != before.mtu {
            let text = format!("its MTU is {}, and was {}", self.mtu, before.mtu);
            add(LinkChange::Mtu, text);
        }
        match (before.is_up, self.is_up) {
            (false, true) if self.has_carrier => add(LinkChange::Up, "it is up".into()),
            (false, true) => add(LinkChange::Up, "it is up, without carrier".into()),
            (true, false) => add(LinkChange::Down, "it is down".into()),
            // The carrier of an interface that is down means nothing.
            (false, false) => {}
            (true, true) if self.has_carrier == before.has_carrier => {}
            (true, true) if self.has_carrier => {
                add(LinkChange::Carrier, "it has a carrier".into());
            }
            (true, true) => add(LinkChange::NoCarrier, "it has no carrier".into()),
        }
        if self.is_promiscuous != before.is_promiscuous {
            let which = if self.is_promiscuous { "entered" } else { "left" };
            add(LinkChange::Promiscuous, format!("it has {which} promiscuous mode"));
        }
        if self.has_all_multicast != before.has_all_multicast {
            let which = if self.has_all_multicast { "receives" } else { "no longer receives" };
            add(LinkChange::AllMulticast, format!("it {which} all multicast packets"));
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> LinkState {
        LinkState {
            name: "eth1".into(),
            mtu: 1500,
            is_up: true,
            has_carrier: true,
            is_promiscuous: false,
            has_all_multicast: false,
        }
    }

    fn message(kind: u16, family: u8, flags: u32, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = vec![0; HEADER];
        body[0] = family;
        body[4..8].copy_from_slice(&7u32.to_ne_bytes());
        body[8..12].copy_from_slice(&flags.to_ne_bytes());
        attributes
            .iter()
            .for_each(|(kind, value)| netlink::push_attribute(&mut body, *kind, value));
        netlink::request(kind, 0, 3, &body)
    }

    fn read_first(datagram: &[u8]) -> Option<Message> {
        read(netlink::frames(datagram).next().flatten()?)
    }

    #[test]
    fn a_state_is_read_whole_or_not_at_all() {
        let one = 1u32.to_ne_bytes();
        let attributes: [(u16, &[u8]); 4] =
            [(NAME, b"eth1\0"), (MTU, &1500u32.to_ne_bytes()), (PROMISCUITY, &one), (99, b"x")];
        let whole = message(NEW, 0, UP | LOWER_UP, &attributes);
        let expected = LinkState { is_promiscuous: true, ..state() };
        assert_eq!(read_first(&whole), Some(Message::There(7, expected)));
        for end in 1..whole.len() {
            assert_eq!(read_first(&whole[..end]), None, "{end}");
        }
        assert_eq!(read_first(&message(NEW, 7, UP, &attributes)), None, "of a bridge");
        assert_eq!(read_first(&message(NEW, 0, UP, &[])), None, "without a name");
        assert_eq!(read_first(&message(NEW, 0, UP, &[(NAME, b"a"), (MTU, b"1")])), None);
        let gone = message(DELETED, 0, 0, &[(NEW_NAMESPACE, &one)]);
        assert_eq!(read_first(&gone), Some(Message::Gone { index: 7, moved: true }));
        let refusal = netlink::request(netlink::ERROR, 0, 4, &(-19i32).to_ne_bytes());
        assert_eq!(read_first(&refusal), Some(Message::Failed(4)));
        assert_eq!(read_first(&netlink::request(netlink::ERROR, 0, 4, &[0; 4])), None);
    }

    #[test]
    fn the_kernel_answers_by_name() {
        assert_eq!(state_of("nowhere0").unwrap(), None);
        let lo = state_of("lo").unwrap().unwrap();
        assert!(lo.name == "lo" && lo.mtu > 0, "{lo:?}");
        assert!(!has_carrier("nowhere0"));
    }

    #[test]
    fn each_change_is_named_once() {
        let names = |after: LinkState| -> Vec<_> {
            after.since(&state()).iter().map(|(change, _)| change.name()).collect()
        };
        assert_eq!(names(state()), [""; 0]);
        assert_eq!(names(LinkState { is_up: false, has_carrier: false, ..state() }), ["down"]);
        assert_eq!(names(LinkState { has_carrier: false, ..state() }), ["no-carrier"]);
        let other = LinkState {
            name: "lan".into(),
            mtu: 9000,
            is_promiscuous: true,
            has_all_multicast: true,
            ..state()
        };
        let all = ["renamed", "mtu", "promiscuous", "all-multicast"];
        assert_eq!(names(other.clone()), all);
        assert_eq!(other.since(&state())[1].1, "its MTU is 9000, and was 1500");
        let down = LinkState { is_up: false, has_carrier: false, ..state() };
        assert_eq!(state().since(&down)[0].1, "it is up");
        let waiting = LinkState { has_carrier: false, ..state() };
        assert_eq!(waiting.since(&down)[0].1, "it is up, without carrier");
        assert_eq!(state().since(&waiting)[0].0, LinkChange::Carrier);
    }
}
