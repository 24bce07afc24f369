//! Options that test header fields.

use thalweg_packet::wire::ip_proto;

use super::super::events::Event;
use super::condition::{Condition, What};
use super::names::{EVENTS, suggested};
use super::text::{Fault, Piece};
use super::{Sides, StreamSize};

/// The field that the option `name` tests.
pub(super) fn field(name: &str) -> Option<What> {
    Some(match name {
        "dsize" => What::PayloadSize,
        "ttl" => What::Ttl,
        "tos" => What::Tos,
        "id" => What::IpId,
        "ip_proto" => What::IpProtocol,
        "itype" => What::IcmpType,
        "icode" => What::IcmpCode,
        "icmp_id" => What::IcmpId,
        "icmp_seq" => What::IcmpSequence,
        "seq" | "tcp.seq" => What::TcpSequence,
        "ack" | "tcp.ack" => What::TcpAcknowledgment,
        "window" | "tcp.window" => What::TcpWindow,
        "fragoffset" => What::FragmentOffset,
        _ => return None,
    })
}

/// Reads the name of an IPv4 option.
pub(super) fn ip_option(value: Piece<'_>) -> Result<Condition, Fault> {
    let number = match value.text {
        "any" => None,
        "eol" => Some(0),
        "nop" => Some(1),
        "rr" => Some(7),
        "ts" => Some(68),
        "sec" => Some(130),
        "lsrr" => Some(131),
        "esec" => Some(133),
        "satid" => Some(136),
        "ssrr" => Some(137),
        _ => {
            let expected = "any, eol, nop, rr, ts, sec, esec, lsrr, ssrr or satid";
            return Err(value.fault("bad IP option", expected));
        }
    };
    Ok(Condition::IpOption(number))
}

/// Reads the name of an event.
pub(super) fn event(value: Piece<'_>) -> Result<Condition, Fault> {
    match Event::named(value.text) {
        Some(event) => Ok(Condition::Event(event)),
        None if EVENTS.contains(&value.text) => {
            Err(Fault::unsupported(value.span(), format!("event '{}'", value.text)))
        }
        None => {
            let expected = suggested("an event of Suricata", value.text, EVENTS.iter().copied());
            Err(value.fault("unknown event", expected))
        }
    }
}

/// Reads `server,<,1000`: the number of bytes that a side sent.
pub(super) fn stream_size(value: Piece<'_>) -> Result<StreamSize, Fault> {
    let parts: Vec<Piece<'_>> = value.split(',').collect();
    let [side, operator, number] = &parts[..] else {
        return Err(value.fault("bad stream_size", "SIDE,OPERATOR,NUMBER"));
    };
    let sides = match side.text {
        "client" => Sides::Client,
        "server" => Sides::Server,
        "both" => Sides::Both,
        "either" => Sides::Either,
        _ => return Err(side.fault("bad side", "client, server, both or either")),
    };
    let number: u64 = number.number()?;
    let (low, high, negated) = match operator.text {
        "<" if number == 0 => return Err(value.fault("nothing is below 0", "a number above 0")),
        "<" => (number, u64::MAX, true),
        "<=" => (0, number, false),
        ">" => (0, number, true),
        ">=" => (number, u64::MAX, false),
        "=" => (number, number, false),
        "!=" => (number, number, true),
        _ => return Err(operator.fault("bad operator", "<, <=, >, >=, = or !=")),
    };
    Ok(StreamSize { sides, low, high, negated })
}

/// Reads a field's [`bounds`].
pub(super) fn range(what: What, value: Piece<'_>) -> Result<Condition, Fault> {
    let named = |name: &str| (what == What::IpProtocol).then(|| protocol_number(name)).flatten();
    let (low, high, negated) = bounds(value, named, what.most())?;
    Ok(Condition::Range { what, low, high, negated })
}

/// Reads `5`, `!5`, `>5`, `>=5`, `<5`, `<=5`, `5<>9` (without the ends), `5-9` for numbers up to
/// `most`; returns the minimum, the maximum, and whether the range is negated.
pub(super) fn bounds(
    value: Piece<'_>,
    named: impl Fn(&str) -> Option<u64>,
    most: u64,
) -> Result<(u64, u64, bool), Fault> {
    let (value, negated) = match value.unquoted().trim().strip('!') {
        Some(rest) => (rest, true),
        None => (value.unquoted().trim(), false),
    };
    let number = |piece: Piece<'_>| -> Result<u64, Fault> {
        let piece = piece.trim();
        let hex = piece.text.strip_prefix("0x").and_then(|h| u64::from_str_radix(h, 16).ok());
        let number = hex.or(named(piece.text)).map_or_else(|| piece.number(), Ok)?;
        if number > most {
            return Err(piece.fault("bad number", format!("0 to {most}")));
        }
        Ok(number)
    };
    let compared = |at: usize| number(value.from(at));
    let (low, high) = match value.text.as_bytes() {
        [b'>', b'=', ..] => (compared(2)?, most),
        [b'<', b'=', ..] => (0, compared(2)?),
        [b'>', ..] => match compared(1)? {
            n if n == most => {
                let expected = format!("a number below {most}");
                return Err(value.fault(format!("nothing is above {most}"), expected));
            }
            n => (n + 1, most),
        },
        [b'<', ..] => match compared(1)? {
            0 => return Err(value.fault("nothing is below 0", "a number above 0")),
            n => (0, n - 1),
        },
        [b'=', ..] => (compared(1)?, compared(1)?),
        _ => {
            if let Some(at) = value.text.find("<>") {
                let (low, high) = (number(value.to(at))?, number(value.from(at + 2))?);
                if high <= low.saturating_add(1) {
                    let expected = "LOW<>HIGH with a number between the two";
                    return Err(value.fault("an empty range", expected));
                }
                (low + 1, high - 1)
            } else if let Some((low, high)) = value.split_once('-') {
                (number(low)?, number(high)?)
            } else {
                (number(value)?, number(value)?)
            }
        }
    };
    if low > high || negated && (low, high) == (0, most) {
        return Err(value.fault("an empty range", "a range that contains a number"));
    }
    Ok((low, high, negated))
}

fn protocol_number(name: &str) -> Option<u64> {
    let number = match name.to_ascii_lowercase().as_str() {
        "icmp" => ip_proto::ICMP,
        "igmp" => ip_proto::IGMP,
        "tcp" => ip_proto::TCP,
        "udp" => ip_proto::UDP,
        "gre" => ip_proto::GRE,
        "esp" => ip_proto::ESP,
        "ah" => ip_proto::AH,
        "icmpv6" | "ipv6-icmp" => ip_proto::ICMPV6,
        "sctp" => ip_proto::SCTP,
        _ => return None,
    };
    Some(number.into())
}

/// Splits the value into the comparison and the letters.
fn letters(value: Piece<'_>) -> (char, &str) {
    let text = value.text;
    match text.chars().next() {
        Some(how @ ('+' | '*' | '!')) => (how, &text[1..]),
        Some('=') => ('=', &text[1..]),
        // The sign may follow the letters, too.
        _ => match text.chars().last() {
            Some(how @ ('+' | '*' | '!')) => (how, &text[..text.len() - 1]),
            _ => ('=', text),
        },
    }
}

pub(super) fn tcp_flags(value: Piece<'_>) -> Result<Condition, Fault> {
    let (asked, ignored) = match value.split_once(',') {
        Some((asked, ignored)) => (asked.trim(), ignored.trim().text),
        None => (value.trim(), ""),
    };
    let (how, asked) = letters(asked);
    if asked.is_empty() {
        return Err(value.fault("bad TCP flags", "letters from FSRPAUEC, or 0"));
    }
    let bits = |text: &str| {
        text.chars().try_fold(0u8, |bits, letter| {
            let bit = match letter.to_ascii_uppercase() {
                'F' => 1,
                'S' => 2,
                'R' => 4,
                'P' => 8,
                'A' => 16,
                'U' => 32,
                'E' | '2' => 64,
                'C' | '1' => 128,
                '0' => 0,
                _ => return Err(value.fault("bad TCP flags", "letters from FSRPAUEC, or 0")),
            };
            Ok(bits | bit)
        })
    };
    Ok(Condition::TcpFlags { flags: bits(asked)?, ignored: bits(ignored)?, how })
}

pub(super) fn fragment_bits(value: Piece<'_>) -> Result<Condition, Fault> {
    let (how, asked) = letters(value.trim());
    let bits = asked.chars().try_fold(0, |bits, letter| match letter {
        'R' => Ok(bits | 4),
        'D' => Ok(bits | 2),
        'M' => Ok(bits | 1),
        _ => Err(value.fault("bad fragment bits", "letters from MDR")),
    })?;
    if asked.is_empty() {
        return Err(value.fault("bad fragment bits", "letters from MDR"));
    }
    Ok(Condition::FragmentBits { bits, how })
}
