//! PRADS's files: handshakes in p0f 2's notation, services in PADS's, DHCP, hardware vendors.

use thalweg_source::{Mistakes, Source};

use super::super::attributes::Attributes;
use super::super::handshake::{option, quirk};
use super::super::text::Text;
use super::dhcp::DhcpSignature;
use super::pattern::{Pattern, Reading, Template};
use super::signature::{Number, Signature, Size, Window};
use super::{Fingerprints, Handshake, p0f};

/// A file of PRADS's folder: its name and the parser of its lines.
type File = (&'static str, fn(&str, &mut Fingerprints) -> Result<(), Mistake>);

/// What is wrong in a line, and what was expected.
type Mistake = (String, &'static str);

/// The files of the folder that are read.
pub(super) const FILES: [File; 7] = [
    ("tcp-syn.fp", |line, into| handshake(line, Handshake::Syn, into)),
    ("tcp-synack.fp", |line, into| handshake(line, Handshake::SynAck, into)),
    ("tcp-service.sig", |line, into| service(line, Text::TcpServer, into)),
    ("tcp-clients.sig", |line, into| service(line, Text::TcpClient, into)),
    ("udp-service.sig", |line, into| service(line, Text::Udp, into)),
    ("dhcp.fp", dhcp),
    ("mac.sig", vendor),
];

/// Reads `source` line by line with `reads`.
pub(super) fn read(
    source: &Source,
    reads: fn(&str, &mut Fingerprints) -> Result<(), Mistake>,
    into: &mut Fingerprints,
    problems: &mut Mistakes,
) {
    for (span, line) in source.lines() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        if let Err((message, expected)) = reads(line, into) {
            problems.push_with(|| source.error(span, message, expected));
        }
    }
}

/// `window:ttl:df:size:options:quirks:system:details`.
fn handshake(line: &str, kind: Handshake, into: &mut Fingerprints) -> Result<(), Mistake> {
    const FORM: &str = "window:ttl:df:size:options:quirks:system:details";
    let parts: Vec<_> = line.trim().splitn(8, ':').collect();
    let &[window, ttl, df, size, options, quirks, system, details] = &parts[..] else {
        return Err((format!("{} fields instead of 8", parts.len()), FORM));
    };
    let read = || -> Result<Signature, String> {
        let (layout, mss, scale, no_time) = self::options(options)?;
        let df = match df {
            "0" => 0,
            "1" => quirk::DF,
            _ => return Err(format!("bad 'do not fragment' '{df}'")),
        };
        Ok(Signature {
            version: 0,
            ttl: ttl.parse().map_err(|_| format!("bad TTL '{ttl}'"))?,
            any_distance: false,
            ip_options: Number::Any,
            mss,
            window: self::window(window)?,
            scale,
            layout,
            quirks: self::quirks(quirks)? | df | no_time,
            asked: quirk::P0F2,
            payload: None,
            size: match size {
                "*" => Size::Big,
                _ => Size::Exactly(size.parse().map_err(|_| format!("bad size '{size}'"))?),
            },
            generic: system.starts_with('@'),
            says: self::system(system, details),
        })
    };
    into.handshakes[kind as usize].push(read().map_err(|e| (e, FORM))?);
    Ok(())
}

fn system(name: &str, details: &str) -> Attributes {
    let name = name.trim_start_matches(['@', '*', '-']);
    [("os.product", name), ("os.version", details)]
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .collect()
}

fn window(text: &str) -> Result<Window, String> {
    let count = |digits: &str| digits.parse().map_err(|_| format!("bad window '{text}'"));
    Ok(match text.as_bytes().first() {
        Some(b'S' | b's') => Window::Segments(count(&text[1..])?),
        Some(b'T' | b't') => Window::Packets(count(&text[1..])?),
        _ => Window::Plain(p0f::value("window", text)?),
    })
}

type Options = (Vec<u8>, Number, Number, u32);

/// The layout, the maximum segment size, the window scale, and whether the timestamp is 0.
fn options(text: &str) -> Result<Options, String> {
    let (mut layout, mut padding) = (Vec::new(), 0);
    let (mut mss, mut scale, mut no_time) = (Number::Any, Number::Any, 0);
    for word in text.split([',', ' ']).filter(|word| !word.is_empty() && *word != ".") {
        let bad = || format!("bad TCP option '{word}'");
        let (letter, rest) = word.split_at_checked(1).ok_or_else(bad)?;
        let kind = match letter.to_ascii_uppercase().as_str() {
            // Further end options after the first are padding.
            "E" if layout.contains(&option::EOL) => {
                padding += 1;
                continue;
            }
            "E" => option::EOL,
            "N" => option::NOP,
            "M" => {
                mss = p0f::value("maximum segment size", rest)?;
                option::MSS
            }
            "W" => {
                scale = p0f::value("window scale", rest)?;
                option::SCALE
            }
            "S" => option::SACK_OK,
            "T" => {
                no_time = if rest == "0" { quirk::NO_OWN_TIME } else { 0 };
                option::TIMESTAMPS
            }
            "?" => rest.parse().map_err(|_| bad())?,
            _ => return Err(bad()),
        };
        layout.push(kind);
    }
    if layout.last() == Some(&option::EOL) {
        layout.push(padding);
    }
    Ok((layout, mss, scale, no_time))
}

fn quirks(text: &str) -> Result<u32, String> {
    let mut quirks = 0;
    for letter in text.trim().chars() {
        quirks |= match letter {
            '.' => 0,
            'P' => quirk::PAST_EOL,
            'Z' => quirk::ID_ZERO,
            'I' => quirk::IP_OPTIONS,
            'U' => quirk::URG_POINTER,
            'X' => quirk::RESERVED,
            'A' => quirk::ACK_NUMBER,
            'T' => quirk::PEER_TIME_ANY,
            'F' => quirk::ODD_FLAGS,
            'D' => quirk::DATA,
            'Q' => quirk::SEQUENCE_IS_ACK,
            '0' => quirk::NO_SEQUENCE,
            'L' => quirk::FLOW,
            '!' => quirk::BAD_OPTIONS,
            _ => return Err(format!("unknown quirk '{letter}'")),
        };
    }
    Ok(quirks)
}

/// `service,v/product/version/info/,expression`.
fn service(line: &str, text: Text, into: &mut Fingerprints) -> Result<(), Mistake> {
    const FORM: &str = "service,v/product/version/info/,expression";
    let wrong = |what: String| (what, FORM);
    let parts: Vec<_> = line.splitn(3, ',').collect();
    let &[name, title, expression] = &parts[..] else {
        return Err(wrong(format!("{} fields instead of 3", parts.len())));
    };
    let mut set = vec![("service.name".to_owned(), Template::with_groups(name))];
    let keys = ["service.product", "service.version", "service.info"];
    for (key, value) in keys.into_iter().zip(title.split('/').skip(1)) {
        if !value.is_empty() {
            set.push((key.to_owned(), Template::with_groups(value)));
        }
    }
    let reading = Reading { octal: true, ..Reading::default() };
    into.texts[text as usize].push(Pattern::new(expression, reading, set).map_err(wrong)?);
    Ok(())
}

/// `message:ttl:options:parameters:vendor class:system:details`.
fn dhcp(line: &str, into: &mut Fingerprints) -> Result<(), Mistake> {
    const FORM: &str = "message:ttl:options:parameters:vendor class:system:details";
    let parts: Vec<_> = line.trim().splitn(7, ':').collect();
    let &[message, _, options, parameters, class, system, details] = &parts[..] else {
        return Err((format!("{} fields instead of 7", parts.len()), FORM));
    };
    let numbers = |text: &str| -> Result<Vec<u8>, Mistake> {
        let words = text.split(',').filter(|word| !word.is_empty() && *word != ".");
        words.map(|w| w.parse().map_err(|_| (format!("bad option '{w}'"), FORM))).collect()
    };
    let message = message.parse().map_err(|_| (format!("bad message '{message}'"), FORM))?;
    let mut options = numbers(options)?;
    options.retain(|option| *option != 255);
    into.dhcp.push(
        numbers(parameters)?,
        DhcpSignature {
            message: Some(message),
            options: Some(options),
            vendor_class: (class != ".").then(|| class.to_owned()),
            says: self::system(system, details),
        },
    );
    Ok(())
}

/// `00:00:0c  Vendor  # whole name`.
fn vendor(line: &str, into: &mut Fingerprints) -> Result<(), Mistake> {
    const FORM: &str = "'00:00:0c Vendor', the prefix with '/28' if it is not whole bytes";
    let text = line.split('#').next().unwrap_or(line).trim();
    let (prefix, name) =
        text.split_once(char::is_whitespace).ok_or_else(|| ("missing vendor".to_owned(), FORM))?;
    let (bytes, bits) = match prefix.split_once('/') {
        Some((bytes, bits)) => (bytes, bits.parse().ok()),
        None => (prefix, Some(prefix.split([':', '-']).count() as u32 * 8)),
    };
    let mut value = 0u64;
    let mut count = 0;
    for byte in bytes.split([':', '-']) {
        let byte = u8::from_str_radix(byte, 16);
        value = value << 8 | u64::from(byte.map_err(|_| (format!("bad prefix '{prefix}'"), FORM))?);
        count += 1;
    }
    let bits = bits.filter(|bits| (1..=48).contains(bits) && count <= 6);
    let bits = bits.ok_or_else(|| (format!("bad prefix '{prefix}'"), FORM))?;
    into.vendors.insert(value << (48 - 8 * count.min(6)), bits, name.trim());
    Ok(())
}
