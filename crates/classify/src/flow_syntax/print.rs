//! From pattern to text.

use std::fmt::{self, Formatter};
use std::net::{Ipv4Addr, Ipv6Addr};

use thalweg_packet::field::{FRAG_ANY, FRAG_LATER, VLAN_PRESENT, VLAN_TCI};
use thalweg_packet::{FlowKey, field};

use super::fields::{Definition, FIELDS, Form, Needs, ONLY_PRINTED, PROTOCOLS, TCP_FLAGS};
use crate::rule::Match;

/// Writes `pattern` so that parsing returns it, if parsing can produce it at all.
///
/// The pattern of a megaflow can be one that no rule has: a search may have
/// looked at the ports of an ARP packet. Such fields are printed although their
/// prerequisite is missing, and so are fields that rules cannot match; neither
/// is read back. Bits that no field uses are zero in every packet and are not
/// printed.
pub(crate) fn print(pattern: &Match, f: &mut Formatter<'_>) -> fmt::Result {
    let mut printer = Printer { pattern, left: *pattern.mask(), parts: Vec::new() };
    printer.protocol();
    printer.fields(FIELDS, |needs| needs.met(pattern.value(), pattern.mask()));
    printer
        .fields(FIELDS, |needs| matches!(needs, Needs::Ip | Needs::Ipv4OrArp | Needs::Transport));
    printer.fields(FIELDS, |_| true);
    printer.fields(ONLY_PRINTED, |_| true);
    f.write_str(&printer.parts.join(","))
}

struct Printer<'a> {
    pattern: &'a Match,
    /// The bits that are still to be printed.
    left: FlowKey,
    parts: Vec<String>,
}

impl Printer<'_> {
    /// The protocol name that stands for EtherType and IP protocol.
    fn protocol(&mut self) {
        let (value, mask) = (self.pattern.value(), self.pattern.mask());
        let exact = |f| (mask.get(f) == f.max()).then(|| value.get(f));
        let (ether_type, proto) = (exact(field::DL_TYPE), exact(field::NW_PROTO));
        let of_type = || PROTOCOLS.iter().filter(|(_, t, _)| Some(u64::from(*t)) == ether_type);
        let name = of_type()
            .find(|(_, _, p)| p.is_some() && p.map(u64::from) == proto)
            .or_else(|| of_type().find(|(_, _, p)| p.is_none()));
        if let Some((name, _, proto)) = name {
            self.parts.push((*name).to_owned());
            self.left.set(field::DL_TYPE, 0);
            if proto.is_some() {
                self.left.set(field::NW_PROTO, 0);
            }
        }
    }

    /// Prints what is left of those `fields` whose need is `wanted`.
    fn fields(&mut self, fields: &[Definition], wanted: impl Fn(Needs) -> bool) {
        for definition in fields.iter().filter(|d| wanted(d.needs)) {
            if definition.form.is_vlan() {
                self.vlan();
                continue;
            }
            let mask = definition.get(&self.left);
            let value = definition.get(self.pattern.value()) & mask;
            if mask != 0 {
                let text = text(definition, value, mask);
                self.parts.push(format!("{}={text}", definition.names[0]));
                for (place, taken) in definition.split(mask) {
                    self.left.set(place, self.left.get(place) & !taken);
                }
            }
        }
    }

    /// The VLAN tag: by number and priority where they express it, else by bits.
    fn vlan(&mut self) {
        let mask = self.left.get(VLAN_TCI);
        let value = self.pattern.value().get(VLAN_TCI) & mask;
        let (vid, pcp) = (mask & 0xfff, mask & 0xe000);
        let parted = matches!(vid, 0 | 0xfff) && matches!(pcp, 0 | 0xe000) && vid | pcp != 0;
        if mask == 0 {
            return;
        } else if parted && value & mask & VLAN_PRESENT != 0 {
            if vid != 0 {
                self.parts.push(format!("dl_vlan={}", value & 0xfff));
            }
            if pcp != 0 {
                self.parts.push(format!("dl_vlan_pcp={}", value >> 13));
            }
        } else if mask == VLAN_TCI.max() && (value == 0 || value & VLAN_PRESENT != 0) {
            self.parts.push(format!("vlan_tci={value:#06x}"));
        } else {
            self.parts.push(format!("vlan_tci={value:#06x}/{mask:#06x}"));
        }
        self.left.set(VLAN_TCI, 0);
    }
}

/// The value under its mask. A mask that rules cannot set is printed all the same.
fn text(definition: &Definition, v: u128, m: u128) -> String {
    let exact = m == definition.ones();
    match definition.form {
        Form::Fragment => fragment(v, m).to_owned(),
        Form::Mac if exact => mac(v),
        Form::Mac => format!("{}/{}", mac(v), mac(m)),
        Form::Ipv4 => address(v, m, 32, |a| Ipv4Addr::from(a as u32).to_string()),
        Form::Ipv6 => address(v, m, 128, |a| Ipv6Addr::from(a).to_string()),
        Form::TcpFlags => tcp_flags(v, m, exact),
        Form::Port if exact => v.checked_sub(1).map_or("none".to_owned(), |port| port.to_string()),
        Form::Hex if exact && definition.place == [field::DL_TYPE] => format!("{v:#06x}"),
        Form::Hex if exact => format!("{v:#x}"),
        Form::Number | Form::Octet if exact => v.to_string(),
        _ => format!("{v:#x}/{m:#x}"),
    }
}

fn mac(address: u128) -> String {
    let bytes = (address as u64).to_be_bytes();
    let parts: Vec<_> = bytes[2..].iter().map(|b| format!("{b:02x}")).collect();
    parts.join(":")
}

fn address(value: u128, mask: u128, bits: u32, one: impl Fn(u128) -> String) -> String {
    let all = u128::MAX >> (128 - bits);
    let length = (mask << (128 - bits)).leading_ones();
    let prefix = if length == 0 { 0 } else { all << (bits - length) & all };
    match length {
        _ if mask == all => one(value),
        length if mask == prefix => format!("{}/{length}", one(value)),
        _ => format!("{}/{}", one(value), one(mask)),
    }
}

/// `+syn-ack` under a mask, `syn|ack` for all flags, as `ovs-ofctl` prints them.
fn tcp_flags(value: u128, mask: u128, exact: bool) -> String {
    if exact && value == 0 {
        return "0".to_owned();
    }
    let mut text = String::new();
    for (i, name) in TCP_FLAGS.iter().enumerate().filter(|(i, _)| mask >> i & 1 == 1) {
        let set = value >> i & 1 == 1;
        match (exact, set) {
            (true, false) => continue,
            (true, true) if text.is_empty() => {}
            (true, true) => text.push('|'),
            (false, set) => text.push(if set { '+' } else { '-' }),
        }
        text.push_str(name);
    }
    text
}

/// Which fragments match, by the name that Open vSwitch prints. A later fragment is a fragment, so
/// that one bit may decide.
fn fragment(value: u128, mask: u128) -> &'static str {
    let [any, later] = [FRAG_ANY, FRAG_LATER].map(|bit| {
        let bit = u128::from(bit);
        (mask & bit != 0).then_some(value & bit != 0)
    });
    match (any, later) {
        (_, Some(true)) => "later",
        (Some(false), _) => "no",
        (Some(true), Some(false)) => "first",
        (Some(true), None) => "yes",
        (None, _) => "not_later",
    }
}
