//! Reading one value with its mask.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::fields::{Definition, Form, TCP_FLAGS};
use thalweg_packet::field::{FRAG_ANY, FRAG_LATER, VLAN_PRESENT};

/// A value and its mask, right-aligned; or what was expected instead.
pub(super) type Masked = Result<(u128, u128), String>;

/// Reads `text` as a value of the field `definition`.
pub(super) fn read(definition: &Definition, text: &str) -> Masked {
    let (max, maskable) = (definition.ones(), definition.maskable);
    match definition.form {
        Form::Number | Form::Hex => masked(text, maskable, max, |t| number(t, max)),
        Form::Octet => number(text, 255).map(|n| (n, max)),
        Form::Mac => masked(text, maskable, max, mac),
        Form::Ipv4 => prefix(text, 32, |t| {
            t.parse::<Ipv4Addr>().map(|a| u128::from(u32::from(a))).map_err(|_| {
                "an IPv4 address such as 10.0.0.1, 10.0.0.0/8 or 10.0.0.0/255.0.0.0".into()
            })
        }),
        Form::Ipv6 => prefix(text, 128, |t| {
            t.parse::<Ipv6Addr>()
                .map(u128::from)
                .map_err(|_| "an IPv6 address such as 2001:db8::1 or 2001:db8::/32".into())
        }),
        Form::TcpFlags => tcp_flags(text, max),
        Form::Fragment => fragment(text),
        Form::Port => number(text, max - 1).map(|port| (port + 1, max)),
        Form::Vid if matches!(text, "0xffff" | "65535") => Ok((0, max)),
        Form::Vid => number(text, 0xfff).map(|vid| (vid | PRESENT, 0xfff | PRESENT)),
        Form::Pcp => number(text, 7).map(|pcp| (pcp << 13 | PRESENT, 0xe000 | PRESENT)),
        Form::PresentVid => tag(text, 0xfff | PRESENT),
        Form::Tci => tag(text, max),
    }
}

/// The bit of a TCI that marks the tag as present.
const PRESENT: u128 = VLAN_PRESENT as u128;

/// Parses bits of a VLAN tag; `all` are allowed.
fn tag(text: &str, all: u128) -> Masked {
    let (value, mask) = masked(text, true, all, |t| number(t, all))?;
    // No packet has a tag without the present bit.
    if !text.contains('/') && value != 0 && value & PRESENT == 0 {
        let present = value | PRESENT;
        return Err(format!(
            "0 for untagged, or a value with bit 0x1000 set, such as {present:#06x}"
        ));
    }
    Ok((value, mask))
}

fn masked(
    text: &str,
    maskable: bool,
    all: u128,
    one: impl Fn(&str) -> Result<u128, String>,
) -> Masked {
    match text.split_once('/') {
        Some(_) if !maskable => Err("a value without a mask: this field supports none".into()),
        Some((value, mask)) => Ok((one(value)?, one(mask)?)),
        None => Ok((one(text)?, all)),
    }
}

/// A number up to `max`, decimal or hexadecimal with `0x`.
pub(super) fn number(text: &str, max: u128) -> Result<u128, String> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let signed = text.starts_with('+') || digits.is_some_and(|d| d.starts_with('+'));
    // Open vSwitch reads 010 as octal; refuse it rather than guess.
    let octal = digits.is_none() && text.len() > 1 && text.starts_with('0');
    let value = match digits {
        Some(hex) => u128::from_str_radix(hex, 16),
        None => text.parse(),
    };
    value
        .ok()
        .filter(|v| *v <= max && !signed && !octal)
        .ok_or_else(|| format!("a number from 0 to {max}, decimal or with 0x"))
}

fn mac(text: &str) -> Result<u128, String> {
    let wrong = || "a MAC address such as 02:00:00:00:00:01".to_owned();
    let mut address = 0;
    let mut parts = 0;
    for part in text.split(':') {
        let byte = u8::from_str_radix(part, 16).ok().filter(|_| part.len() <= 2);
        let byte = byte.filter(|_| !part.starts_with('+')).ok_or_else(wrong)?;
        address = address << 8 | u128::from(byte);
        parts += 1;
    }
    if parts == 6 { Ok(address) } else { Err(wrong()) }
}

/// An address with an optional prefix length or mask of the address's own form.
fn prefix(text: &str, bits: u32, address: impl Fn(&str) -> Result<u128, String>) -> Masked {
    let all = u128::MAX >> (128 - bits);
    let Some((value, mask)) = text.split_once('/') else {
        return Ok((address(text)?, all));
    };
    let value = address(value)?;
    if mask.contains(['.', ':']) {
        return Ok((value, address(mask)?));
    }
    let length = mask.parse::<u32>().ok().filter(|l| *l <= bits && !mask.starts_with('+'));
    let length = length.ok_or_else(|| format!("a prefix length from 0 to {bits}"))?;
    let mask = if length == 0 { 0 } else { all << (bits - length) & all };
    Ok((value, mask))
}

fn tcp_flags(text: &str, all: u128) -> Masked {
    let named = || format!("flags such as +syn-ack or syn|ack, from {}", TCP_FLAGS.join(", "));
    let bit = |name: &str| TCP_FLAGS.iter().position(|f| *f == name).map(|i| 1u128 << i);
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return masked(text, true, all, |t| number(t, all));
    }
    let (mut value, mut mask) = (0, 0);
    if !text.starts_with(['+', '-']) {
        for name in text.split('|') {
            value |= bit(name).ok_or_else(named)?;
        }
        return Ok((value, all));
    }
    let mut rest = text;
    while let Some(sign) = rest.chars().next() {
        let end = rest[1..].find(['+', '-']).map_or(rest.len(), |i| i + 1);
        let bit = bit(&rest[1..end]).filter(|b| mask & b == 0).ok_or_else(named)?;
        mask |= bit;
        value |= if sign == '+' { bit } else { 0 };
        rest = &rest[end..];
    }
    Ok((value, mask))
}

/// Which fragments `text` names, over the bits of `NW_FRAG`.
fn fragment(text: &str) -> Masked {
    let (any, later) = (u128::from(FRAG_ANY), u128::from(FRAG_LATER));
    match text {
        "no" => Ok((0, any | later)),
        "yes" => Ok((any, any)),
        "first" => Ok((any, any | later)),
        "later" => Ok((any | later, any | later)),
        "not_later" => Ok((0, later)),
        _ => Err("no, yes, first, later or not_later".into()),
    }
}
