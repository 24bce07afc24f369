//! From pattern to text.

use std::fmt::{self, Formatter};
use std::net::{Ipv4Addr, Ipv6Addr};

use thalweg_packet::{FlowKey, field};

use super::fields::{Definition, FIELDS, Form, PROTOCOLS, TCP_FLAGS};
use crate::rule::Match;

/// Writes `pattern` so that parsing gives it back. Bits that the syntax has no
/// field for follow as `word<i>=value/mask`, which no parser takes.
pub(crate) fn print(pattern: &Match, f: &mut Formatter<'_>) -> fmt::Result {
    let mut left = *pattern.mask();
    let mut parts = Vec::new();
    protocol(pattern, &mut left, &mut parts);
    for definition in FIELDS {
        if definition.needs.met(pattern.value(), pattern.mask()) {
            parts.extend(one(definition, pattern.value(), &mut left));
        }
    }
    for (i, mask) in left.words.iter().enumerate().filter(|(_, m)| **m != 0) {
        parts.push(format!("word{i}={:#x}/{mask:#x}", pattern.value().words[i] & mask));
    }
    f.write_str(&parts.join(","))
}

/// The protocol name that says EtherType and IP protocol in one word.
fn protocol(pattern: &Match, left: &mut FlowKey, parts: &mut Vec<String>) {
    let exact = |f| pattern.mask().get(f) == f.max();
    if !exact(field::DL_TYPE) {
        return;
    }
    let proto = exact(field::NW_PROTO).then(|| pattern.value().get(field::NW_PROTO));
    let ether_type = pattern.value().get(field::DL_TYPE);
    let of_type = || PROTOCOLS.iter().filter(|(_, t, _)| *t == ether_type);
    let name = of_type()
        .find(|(_, _, p)| p.is_some() && *p == proto)
        .or_else(|| of_type().find(|(_, _, p)| p.is_none()));
    if let Some((name, _, p)) = name {
        parts.push((*name).to_owned());
        left.set(field::DL_TYPE, 0);
        if p.is_some() {
            left.set(field::NW_PROTO, 0);
        }
    }
}

/// The field as text, when its bits are left to print; takes those bits.
fn one(definition: &Definition, value: &FlowKey, left: &mut FlowKey) -> Option<String> {
    let name = definition.names[0];
    let (v, m) = match definition.place {
        [high, low] => (value.get128([*high, *low]), left.get128([*high, *low])),
        [place, ..] => (u128::from(value.get(*place)), u128::from(left.get(*place))),
        [] => return None,
    };
    let (shift, taken) = match (definition.part, definition.form) {
        (Some((shift, bits)), _) => (shift, (u128::MAX >> (128 - u32::from(bits))) << shift),
        (None, Form::Vid) => (0, if m & 0xffff == 0xffff { 0 } else { 0x1fff }),
        (None, Form::Pcp) => (0, 0xf000),
        _ => (0, m),
    };
    let whole = m & taken == taken;
    if taken == 0 || !whole {
        return None;
    }
    let (v, m) = ((v & taken) >> shift, taken >> shift);
    let text = text(definition, v, m)?;
    clear(definition, left, taken);
    Some(format!("{name}={text}"))
}

fn clear(definition: &Definition, left: &mut FlowKey, taken: u128) {
    match definition.place {
        [high, low] => {
            left.set(*high, left.get(*high) & !((taken >> 64) as u64));
            left.set(*low, left.get(*low) & !(taken as u64));
        }
        [place, ..] => left.set(*place, left.get(*place) & !(taken as u64)),
        [] => {}
    }
}

/// The value under its mask, or `None` when this form cannot say it.
fn text(definition: &Definition, v: u128, m: u128) -> Option<String> {
    let bits: u32 = match definition.part {
        Some((_, bits)) => bits.into(),
        None => definition.place.iter().map(|f| u32::from(f.bits)).sum(),
    };
    let all = u128::MAX >> (128 - bits);
    let exact = m == all;
    if !exact
        && !definition.maskable
        && !matches!(definition.form, Form::Vid | Form::Pcp | Form::Fragment)
    {
        return None;
    }
    Some(match definition.form {
        Form::Number if exact => v.to_string(),
        Form::Number => format!("{v:#x}/{m:#x}"),
        Form::Hex if exact => format!("{v:#06x}"),
        Form::Hex => format!("{v:#x}/{m:#x}"),
        Form::Tci if definition.names[0] == "vlan_vid" => return None,
        Form::Tci if exact => format!("{v:#06x}"),
        Form::Tci => format!("{v:#06x}/{m:#06x}"),
        Form::Mac if exact => mac(v),
        Form::Mac => format!("{}/{}", mac(v), mac(m)),
        Form::Ipv4 => address(v, m, 32, |a| Ipv4Addr::from(a as u32).to_string()),
        Form::Ipv6 => address(v, m, 128, |a| Ipv6Addr::from(a).to_string()),
        Form::Port => v.checked_sub(1)?.to_string(),
        Form::Vid if v & 0x1000 != 0 => (v & 0xfff).to_string(),
        Form::Pcp if v & 0x1000 != 0 => (v >> 13).to_string(),
        Form::Vid | Form::Pcp => return None,
        Form::TcpFlags => tcp_flags(v, m),
        Form::Fragment => fragment(v, m)?.to_owned(),
    })
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

fn tcp_flags(value: u128, mask: u128) -> String {
    if mask == 0xfff || mask >> TCP_FLAGS.len() != 0 {
        return format!("{value:#x}/{mask:#x}");
    }
    let named = TCP_FLAGS.iter().enumerate().filter(|(i, _)| mask >> i & 1 == 1);
    named.map(|(i, n)| format!("{}{n}", if value >> i & 1 == 1 { '+' } else { '-' })).collect()
}

fn fragment(value: u128, mask: u128) -> Option<&'static str> {
    ["no", "yes", "first", "later", "not_later"]
        .into_iter()
        .find(|name| super::value::read(Form::Fragment, name, 8, false) == Ok((value, mask)))
}
