//! One option after the other.

use super::condition::{Condition, What};
use super::content::{self, ByteJump, ByteTest, Content, Order, PayloadTest};
use super::text::{Fault, Piece};
use super::{FlowBit, Rule};

/// Options that say something about the rule, not about packets.
const REMARKS: &[&str] = &["reference", "metadata", "target", "requires"];

/// Reads the option `name` with its value, if it has one, into `rule`.
pub(super) fn option(
    rule: &mut Rule,
    name: Piece<'_>,
    value: Option<Piece<'_>>,
) -> Result<(), Fault> {
    let needed =
        || value.ok_or_else(|| name.fault(format!("'{}' without value", name.text), "a value"));
    match name.text {
        "msg" => rule.message = unescape(needed()?.unquoted().text),
        "sid" => rule.sid = needed()?.number()?,
        "gid" => rule.gid = needed()?.number()?,
        "rev" => rule.rev = needed()?.number()?,
        "classtype" => {
            let severity;
            (rule.category, severity) = classification(needed()?.text);
            // A priority of the rule's own counts, wherever it stands.
            if !rule.prioritised {
                rule.severity = severity;
            }
        }
        "priority" => {
            rule.severity = needed()?.number()?;
            rule.prioritised = true;
        }
        "noalert" => rule.no_alert = true,
        "flow" => flow(rule, needed()?)?,
        "flowbits" => flow_bits(rule, needed()?)?,
        "content" => rule.payload.push(new_content(needed()?)?),
        "pcre" => rule.payload.push(PayloadTest::Regex(content::regex(needed()?)?)),
        "byte_test" => rule.payload.push(PayloadTest::ByteTest(byte_test(needed()?)?)),
        "byte_jump" => rule.payload.push(PayloadTest::ByteJump(byte_jump(needed()?)?)),
        "isdataat" => rule.payload.push(is_data_at(needed()?)?),
        "sameip" => rule.conditions.push(Condition::SameAddress),
        "flags" | "tcp.flags" => rule.conditions.push(tcp_flags(needed()?)?),
        "fragbits" => rule.conditions.push(fragment_bits(needed()?)?),
        "rawbytes" => {}
        remark if REMARKS.contains(&remark) => {}
        _ => {
            if let Some(what) = header_field(name.text) {
                rule.conditions.push(range(what, needed()?)?);
                return Ok(());
            }
            return modifier(rule, name, value);
        }
    }
    Ok(())
}

/// Options that change the content before them.
fn modifier(rule: &mut Rule, name: Piece<'_>, value: Option<Piece<'_>>) -> Result<(), Fault> {
    const MODIFIERS: &[&str] = &[
        "nocase",
        "offset",
        "depth",
        "distance",
        "within",
        "fast_pattern",
        "startswith",
        "endswith",
    ];
    if !MODIFIERS.contains(&name.text) {
        return Err(Fault::unsupported(name.span(), format!("option '{}'", name.text)));
    }
    let Some(PayloadTest::Content(content)) = rule.payload.last_mut() else {
        let message = format!("'{}' without a content before it", name.text);
        return Err(name.fault(message, "a content before it"));
    };
    let needed =
        || value.ok_or_else(|| name.fault(format!("'{}' without value", name.text), "a value"));
    // A variable of byte_extract may stand for a number.
    let signed = || {
        let value = needed()?;
        let variable = value.text.starts_with(|c: char| c.is_ascii_alphabetic());
        if variable {
            Err(Fault::unsupported(value.span(), "a variable"))
        } else {
            value.number::<i64>()
        }
    };
    let length =
        || usize::try_from(signed()?).map_err(|_| name.fault("a negative number", "0 and more"));
    match name.text {
        "nocase" => {
            content.nocase = true;
            content.bytes.make_ascii_lowercase();
        }
        "offset" => content.offset = Some(length()?),
        "depth" => content.depth = Some(length()?),
        "distance" => content.distance = Some(signed()?),
        "within" => content.within = Some(signed()?),
        "startswith" => {
            content.offset = Some(0);
            content.depth = Some(content.bytes.len());
        }
        "endswith" => content.ends_with = true,
        // `only` and `offset,length` say what the prefilter may do, which does
        // not change what matches.
        _ => content.fast_pattern = true,
    }
    Ok(())
}

fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut escaped = false;
    for c in text.chars() {
        if c == '\\' && !escaped {
            escaped = true;
        } else {
            out.push(c);
            escaped = false;
        }
    }
    out
}

fn new_content(value: Piece<'_>) -> Result<PayloadTest, Fault> {
    let (value, negated) = match value.strip('!') {
        Some(rest) => (rest, true),
        None => (value, false),
    };
    let bytes = content::bytes(value)?;
    Ok(PayloadTest::Content(Content { bytes, negated, ..Content::default() }))
}

fn flow(rule: &mut Rule, value: Piece<'_>) -> Result<(), Fault> {
    for part in value.split(',') {
        match part.text {
            "to_server" | "from_client" => rule.flow.to_server = Some(true),
            "to_client" | "from_server" => rule.flow.to_server = Some(false),
            "established" => rule.flow.established = Some(true),
            "not_established" => rule.flow.established = Some(false),
            "stateless" => {}
            "no_stream" | "only_stream" | "no_frag" | "only_frag" => {
                return Err(Fault::unsupported(part.span(), format!("flow '{}'", part.text)));
            }
            _ => {
                let expected = "to_server, to_client, established, not_established, stateless";
                return Err(part.fault("bad flow", expected));
            }
        }
    }
    Ok(())
}

fn flow_bits(rule: &mut Rule, value: Piece<'_>) -> Result<(), Fault> {
    let (command, names) = match value.split_once(',') {
        Some((command, names)) => (command.trim(), names.trim().text),
        None => (value.trim(), ""),
    };
    let list = || names.split('|').map(|n| n.trim().to_owned()).collect::<Vec<_>>();
    let one = || names.to_owned();
    let bit = match command.text {
        "noalert" => {
            rule.no_alert = true;
            return Ok(());
        }
        _ if names.is_empty() => {
            return Err(value.fault("flowbits without name", "set,NAME or the like"));
        }
        "set" => FlowBit::Set(one()),
        "unset" => FlowBit::Unset(one()),
        "toggle" => FlowBit::Toggle(one()),
        "isset" => FlowBit::IsSet(list()),
        "isnotset" => FlowBit::IsNotSet(list()),
        _ => {
            let expected = "set, unset, toggle, isset, isnotset or noalert";
            return Err(command.fault("bad flowbits", expected));
        }
    };
    rule.bits.push(bit);
    Ok(())
}

fn header_field(name: &str) -> Option<What> {
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

/// Reads `5`, `!5`, `>5`, `>=5`, `<5`, `<=5`, `5<>9` (without the ends), `5-9`.
fn range(what: What, value: Piece<'_>) -> Result<Condition, Fault> {
    let (value, negated) = match value.unquoted().trim().strip('!') {
        Some(rest) => (rest, true),
        None => (value.unquoted().trim(), false),
    };
    let number = |piece: Piece<'_>| -> Result<u64, Fault> {
        let piece = piece.trim();
        let hex = piece.text.strip_prefix("0x").and_then(|h| u64::from_str_radix(h, 16).ok());
        let name = if what == What::IpProtocol { protocol_number(piece.text) } else { None };
        hex.or(name).map_or_else(|| piece.number(), Ok)
    };
    let compared = |at: usize| number(value.from(at));
    let (low, high) = match value.text.as_bytes() {
        [b'>', b'=', ..] => (compared(2)?, u64::MAX),
        [b'<', b'=', ..] => (0, compared(2)?),
        [b'>', ..] => (compared(1)?.saturating_add(1), u64::MAX),
        [b'<', ..] => match compared(1)? {
            0 => return Err(value.fault("nothing is below 0", "a number above 0")),
            n => (0, n - 1),
        },
        [b'=', ..] => (compared(1)?, compared(1)?),
        _ => {
            if let Some(at) = value.text.find("<>") {
                let (low, high) = (number(value.to(at))?, number(value.from(at + 2))?);
                if high <= low.saturating_add(1) && what != What::Tos {
                    return Err(value.fault("an empty range", "low<>high, without the ends"));
                }
                (low.saturating_add(1), high.saturating_sub(1))
            } else if let Some((low, high)) = value.split_once('-') {
                (number(low)?, number(high)?)
            } else {
                (number(value)?, number(value)?)
            }
        }
    };
    Ok(Condition::Range { what, low, high, negated })
}

fn protocol_number(name: &str) -> Option<u64> {
    Some(match name.to_ascii_lowercase().as_str() {
        "icmp" => 1,
        "igmp" => 2,
        "tcp" => 6,
        "udp" => 17,
        "gre" => 47,
        "esp" => 50,
        "ah" => 51,
        "icmpv6" | "ipv6-icmp" => 58,
        "sctp" => 132,
        _ => return None,
    })
}

/// How the bits are compared, and the letters.
fn letters(value: Piece<'_>) -> (char, &str) {
    let text = value.text;
    match text.chars().next() {
        Some(how @ ('+' | '*' | '!')) => (how, &text[1..]),
        Some('=') => ('=', &text[1..]),
        // The sign may stand behind the letters too.
        _ => match text.chars().last() {
            Some(how @ ('+' | '*' | '!')) => (how, &text[..text.len() - 1]),
            _ => ('=', text),
        },
    }
}

fn tcp_flags(value: Piece<'_>) -> Result<Condition, Fault> {
    let (asked, ignored) = match value.split_once(',') {
        Some((asked, ignored)) => (asked.trim(), ignored.trim().text),
        None => (value.trim(), ""),
    };
    let (how, asked) = letters(asked);
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
                _ => return Err(value.fault("bad TCP flags", "letters of FSRPAUEC, or 0")),
            };
            Ok(bits | bit)
        })
    };
    Ok(Condition::TcpFlags { flags: bits(asked)?, ignored: bits(ignored)?, how })
}

fn fragment_bits(value: Piece<'_>) -> Result<Condition, Fault> {
    let (how, asked) = letters(value.trim());
    let bits = asked.chars().try_fold(0, |bits, letter| match letter {
        'R' => Ok(bits | 4),
        'D' => Ok(bits | 2),
        'M' => Ok(bits | 1),
        _ => Err(value.fault("bad fragment bits", "letters of MDR")),
    })?;
    Ok(Condition::FragmentBits { bits, how })
}

fn is_data_at(value: Piece<'_>) -> Result<PayloadTest, Fault> {
    let (value, negated) = match value.strip('!') {
        Some(rest) => (rest, true),
        None => (value, false),
    };
    let mut parts = value.split(',');
    let first = parts.next().unwrap_or(value);
    if first.text.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err(Fault::unsupported(first.span(), "a variable"));
    }
    let (at, mut relative) = (first.number::<u16>()?, false);
    for part in parts {
        match part.text {
            "relative" => relative = true,
            "rawbytes" => {}
            _ => return Err(part.fault("bad isdataat", "relative or rawbytes")),
        }
    }
    Ok(PayloadTest::IsDataAt { at: i64::from(at), relative, negated })
}

/// A number, decimal or with 0x; a name is a variable.
fn literal(piece: Piece<'_>) -> Result<u64, Fault> {
    if piece.text.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err(Fault::unsupported(piece.span(), "a variable"));
    }
    match piece.text.strip_prefix("0x").or_else(|| piece.text.strip_prefix("0X")) {
        Some(hex) => {
            u64::from_str_radix(hex, 16).map_err(|_| piece.fault("bad number", "a number"))
        }
        None => piece.number(),
    }
}

fn offset(piece: Piece<'_>) -> Result<i64, Fault> {
    if piece.text.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err(Fault::unsupported(piece.span(), "a variable"));
    }
    piece.number::<i32>().map(i64::from)
}

/// How the number stands, as far as `part` says so.
fn number_form(
    part: &str,
    order: &mut Order,
    mask: &mut u64,
    text: Piece<'_>,
) -> Result<bool, Fault> {
    match part {
        "big" => *order = Order::Big,
        "little" => *order = Order::Little,
        "string" | "dec" => *order = Order::Digits(10),
        "hex" => *order = Order::Digits(16),
        "oct" => *order = Order::Digits(8),
        "dce" => return Err(Fault::unsupported(text.span(), "'dce'")),
        _ => match part.strip_prefix("bitmask") {
            Some(_) => *mask = literal(text.from(7).trim())?,
            None => return Ok(false),
        },
    }
    Ok(true)
}

fn count(piece: Piece<'_>, order: Order) -> Result<usize, Fault> {
    let most = if matches!(order, Order::Digits(_)) { 23 } else { 8 };
    let n: usize = piece.number()?;
    if (1..=most).contains(&n) {
        Ok(n)
    } else {
        Err(piece.fault("bad byte count", format!("1 to {most}")))
    }
}

fn byte_test(value: Piece<'_>) -> Result<ByteTest, Fault> {
    let parts: Vec<Piece<'_>> = value.split(',').collect();
    let [bytes, operator, compared, at, rest @ ..] = &parts[..] else {
        return Err(value.fault("bad byte_test", "bytes, operator, value, offset"));
    };
    let mut test = ByteTest {
        count: 0,
        operator: '=',
        or_equal: false,
        negated: false,
        value: 0,
        offset: 0,
        relative: false,
        order: Order::Big,
        mask: u64::MAX,
    };
    let sign = operator.strip('!').map_or(operator.text, |rest| {
        test.negated = true;
        rest.text
    });
    (test.operator, test.or_equal) = match sign {
        "<" => ('<', false),
        ">" => ('>', false),
        "<=" => ('<', true),
        ">=" => ('>', true),
        "=" | "" => ('=', false),
        "&" => ('&', false),
        "^" => ('^', false),
        _ => {
            return Err(operator.fault("bad operator", "<, >, =, <=, >=, & or ^, with ! before it"));
        }
    };
    for part in rest {
        if part.text == "relative" {
            test.relative = true;
        } else if !number_form(part.text, &mut test.order, &mut test.mask, *part)? {
            return Err(part
                .fault("bad byte_test", "relative, big, little, string, hex, dec, oct, bitmask"));
        }
    }
    test.count = count(*bytes, test.order)?;
    test.value = literal(*compared)?;
    test.offset = offset(*at)?;
    Ok(test)
}

fn byte_jump(value: Piece<'_>) -> Result<ByteJump, Fault> {
    let parts: Vec<Piece<'_>> = value.split(',').collect();
    let [bytes, at, rest @ ..] = &parts[..] else {
        return Err(value.fault("bad byte_jump", "bytes, offset"));
    };
    let mut jump = ByteJump {
        count: 0,
        offset: 0,
        relative: false,
        order: Order::Big,
        mask: u64::MAX,
        multiplier: 1,
        align: false,
        from_beginning: false,
        post_offset: 0,
    };
    for part in rest {
        let (name, behind) = match part.text.find(' ') {
            Some(at) => (&part.text[..at], part.from(at).trim()),
            None => (part.text, part.from(part.text.len())),
        };
        match name {
            "relative" => jump.relative = true,
            "align" => jump.align = true,
            "from_beginning" => jump.from_beginning = true,
            "multiplier" => jump.multiplier = literal(behind)?,
            "post_offset" => jump.post_offset = offset(behind)?,
            _ if number_form(part.text, &mut jump.order, &mut jump.mask, *part)? => {}
            "from_end" => return Err(Fault::unsupported(part.span(), "'from_end'")),
            _ => return Err(part.fault("bad byte_jump", "an option of byte_jump")),
        }
    }
    jump.count = count(*bytes, jump.order)?;
    jump.offset = offset(*at)?;
    Ok(jump)
}

/// Category and severity of a class, by Suricata's classification.config. A
/// class that is not there has no category and severity 3.
fn classification(class: &str) -> (String, u8) {
    let found = CLASSES.iter().find(|(name, ..)| *name == class);
    found.map_or((String::new(), 3), |(_, category, severity)| ((*category).to_owned(), *severity))
}

const CLASSES: &[(&str, &str, u8)] = &[
    ("not-suspicious", "Not Suspicious Traffic", 3),
    ("unknown", "Unknown Traffic", 3),
    ("bad-unknown", "Potentially Bad Traffic", 2),
    ("attempted-recon", "Attempted Information Leak", 2),
    ("successful-recon-limited", "Information Leak", 2),
    ("successful-recon-largescale", "Large Scale Information Leak", 2),
    ("attempted-dos", "Attempted Denial of Service", 2),
    ("successful-dos", "Denial of Service", 2),
    ("attempted-user", "Attempted User Privilege Gain", 1),
    ("unsuccessful-user", "Unsuccessful User Privilege Gain", 1),
    ("successful-user", "Successful User Privilege Gain", 1),
    ("attempted-admin", "Attempted Administrator Privilege Gain", 1),
    ("successful-admin", "Successful Administrator Privilege Gain", 1),
    ("rpc-portmap-decode", "Decode of an RPC Query", 2),
    ("shellcode-detect", "Executable code was detected", 1),
    ("string-detect", "A suspicious string was detected", 3),
    ("suspicious-filename-detect", "A suspicious filename was detected", 2),
    ("suspicious-login", "An attempted login using a suspicious username was detected", 2),
    ("system-call-detect", "A system call was detected", 2),
    ("tcp-connection", "A TCP connection was detected", 4),
    ("trojan-activity", "A Network Trojan was detected", 1),
    ("unusual-client-port-connection", "A client was using an unusual port", 2),
    ("network-scan", "Detection of a Network Scan", 3),
    ("denial-of-service", "Detection of a Denial of Service Attack", 2),
    ("non-standard-protocol", "Detection of a non-standard protocol or event", 2),
    ("protocol-command-decode", "Generic Protocol Command Decode", 3),
    ("web-application-activity", "access to a potentially vulnerable web application", 2),
    ("web-application-attack", "Web Application Attack", 1),
    ("misc-activity", "Misc activity", 3),
    ("misc-attack", "Misc Attack", 2),
    ("icmp-event", "Generic ICMP event", 3),
    ("inappropriate-content", "Inappropriate Content was Detected", 1),
    ("policy-violation", "Potential Corporate Privacy Violation", 1),
    ("default-login-attempt", "Attempt to login by a default username and password", 2),
    ("targeted-activity", "Targeted Malicious Activity was Detected", 1),
    ("exploit-kit", "Exploit Kit Activity Detected", 1),
    ("external-ip-check", "Device Retrieving External IP Address Detected", 2),
    ("domain-c2", "Domain Observed Used for C2 Detected", 1),
    ("pup-activity", "Possibly Unwanted Program Detected", 2),
    ("credential-theft", "Successful Credential Theft Detected", 1),
    ("social-engineering", "Possible Social Engineering Attempted", 2),
    ("coin-mining", "Crypto Currency Mining Activity Detected", 2),
    ("command-and-control", "Malware Command and Control Activity Detected", 1),
];
