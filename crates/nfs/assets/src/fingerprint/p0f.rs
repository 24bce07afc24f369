//! Files of p0f 3, and its notation of signatures.

use thalweg_source::{Mistakes, Source};

use super::super::attributes::Attributes;
use super::super::handshake::{QUIRKS, option, quirk};
use super::signature::{Number, Signature, Size, Window};
use super::{Fingerprints, Handshake};

/// The notation of a signature, for messages.
pub(super) const FORM: &str = "version:ttl:options:mss:window,scale:layout:quirks:payload";

/// Reads `source` into `into`. Skips the sections about HTTP, which match the order of header
/// fields.
pub(super) fn read(source: &Source, into: &mut Fingerprints, problems: &mut Mistakes) {
    let mut reader = Reader { section: Section::Other, label: None, mtu_label: None };
    for (span, line) in source.lines() {
        let line = line.trim();
        if line.is_empty() || line.starts_with(';') {
            continue;
        }
        if let Err((message, expected)) = reader.line(line, into) {
            problems.push_with(|| source.error(span, message, expected));
        }
    }
}

#[derive(Clone, Copy)]
enum Section {
    Mtu,
    Tcp(Handshake),
    Other,
}

struct Reader {
    section: Section,
    label: Option<Label>,
    mtu_label: Option<String>,
}

#[derive(Clone)]
struct Label {
    generic: bool,
    says: Attributes,
}

type Mistake = (String, &'static str);

impl Reader {
    fn line(&mut self, line: &str, into: &mut Fingerprints) -> Result<(), Mistake> {
        if let Some(section) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            self.section = match section {
                "mtu" => Section::Mtu,
                "tcp:request" => Section::Tcp(Handshake::Syn),
                "tcp:response" => Section::Tcp(Handshake::SynAck),
                _ => Section::Other,
            };
            (self.label, self.mtu_label) = (None, None);
            return Ok(());
        }
        let (name, value) =
            line.split_once('=').map(|(name, value)| (name.trim(), value.trim())).ok_or_else(
                || ("not a section or a setting".to_owned(), "'[section]' or 'name = value'"),
            )?;
        match (self.section, name) {
            (Section::Mtu, "label") => self.mtu_label = Some(value.to_owned()),
            (Section::Mtu, "sig") => {
                let mtu = value.parse().map_err(|_| (format!("bad MTU '{value}'"), "bytes"))?;
                let label = self.mtu_label.clone().ok_or_else(no_label)?;
                into.links.entry(mtu).or_insert(label);
            }
            (Section::Tcp(_), "label") => self.label = Some(label(value)?),
            (Section::Tcp(kind), "sig") => {
                let label = self.label.as_ref().ok_or_else(no_label)?;
                let mut signature = signature(value).map_err(|e| (e, FORM))?;
                (signature.generic, signature.says) = (label.generic, label.says.clone());
                into.handshakes[kind as usize].push(signature);
            }
            _ => {}
        }
        Ok(())
    }
}

fn no_label() -> Mistake {
    ("a signature before any label".to_owned(), "'label = ...' before it")
}

/// A label such as `s:unix:Linux:3.11 and newer`.
fn label(text: &str) -> Result<Label, Mistake> {
    let parts: Vec<_> = text.splitn(4, ':').collect();
    let &[kind, class, name, version] = &parts[..] else {
        return Err((format!("bad label '{text}'"), "type:class:name:version"));
    };
    // A program that generates its own packets, unlike a system, has "!" for its class.
    let (product, number) = match class {
        "!" => ("service.product", "service.version"),
        _ => ("os.product", "os.version"),
    };
    let mut says: Attributes = [(product, name)].into_iter().collect();
    if !version.is_empty() {
        says.set(number, version);
    }
    Ok(Label { generic: kind == "g", says })
}

/// Reads a signature in p0f 3's notation.
///
/// # Errors
/// Which field is wrong.
pub(super) fn signature(text: &str) -> Result<Signature, String> {
    let parts: Vec<_> = text.split(':').map(str::trim).collect();
    let &[version, ttl, ip_options, mss, window, layout, quirks, payload] = &parts[..] else {
        return Err(format!("{} fields instead of 8", parts.len()));
    };
    let (window, scale) =
        window.split_once(',').ok_or_else(|| format!("bad window '{window}': no ',scale'"))?;
    let bad = |what: &str, text: &str| format!("bad {what} '{text}'");
    let any_distance = ttl.ends_with('-');
    // A raw signature, as p0f prints one, has the distance after a '+'.
    let first = ttl.trim_end_matches('-').split('+').next().unwrap_or(ttl);
    let distance = ttl.split_once('+').map_or(Ok(0), |(_, d)| d.parse::<u8>());
    let ttl = first.parse::<u8>().ok().filter(|_| distance.is_ok());
    Ok(Signature {
        version: match version {
            "*" => 0,
            "4" => 4,
            "6" => 6,
            _ => return Err(bad("IP version", version)),
        },
        ttl: ttl.filter(|ttl| *ttl != 0).ok_or_else(|| bad("TTL", parts[1]))?,
        any_distance,
        ip_options: Number::Exactly(number("length of IP options", ip_options)?),
        mss: value("maximum segment size", mss)?,
        window: match window.split_once('*') {
            Some(("mss", count)) => Window::Segments(number("window", count)?),
            Some(("mtu", count)) => Window::Packets(number("window", count)?),
            _ => Window::Plain(value("window", window)?),
        },
        scale: value("window scale", scale)?,
        layout: self::layout(layout)?,
        quirks: self::quirks(quirks, version)?,
        asked: quirk::P0F3,
        payload: match payload {
            "*" => None,
            "0" => Some(false),
            "+" => Some(true),
            _ => return Err(bad("payload class", payload)),
        },
        size: Size::Any,
        generic: false,
        says: Attributes::default(),
    })
}

fn number(what: &str, text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("bad {what} '{text}'"))
}

/// `*`, a number or `%` and a number.
pub(super) fn value(what: &str, text: &str) -> Result<Number, String> {
    Ok(match text.strip_prefix('%') {
        _ if text == "*" => Number::Any,
        Some(of) => match number(what, of)? {
            0 => return Err(format!("bad {what} '{text}'")),
            of => Number::Of(of),
        },
        None => Number::Exactly(number(what, text)?),
    })
}

fn layout(text: &str) -> Result<Vec<u8>, String> {
    let mut layout = Vec::new();
    for name in text.split(',').filter(|name| !name.is_empty()) {
        let bad = || format!("bad TCP option '{name}'");
        let kind = match name {
            "nop" => option::NOP,
            "mss" => option::MSS,
            "ws" => option::SCALE,
            "sok" => option::SACK_OK,
            "sack" => option::SACK,
            "ts" => option::TIMESTAMPS,
            _ => {
                if let Some(padding) = name.strip_prefix("eol+") {
                    layout.push(option::EOL);
                    padding.parse().map_err(|_| bad())?
                } else {
                    name.strip_prefix('?').and_then(|n| n.parse().ok()).ok_or_else(bad)?
                }
            }
        };
        layout.push(kind);
    }
    Ok(layout)
}

fn quirks(text: &str, version: &str) -> Result<u32, String> {
    let mut quirks = 0;
    for name in text.split(',').filter(|name| !name.is_empty()) {
        let known = QUIRKS.iter().find(|(known, _)| *known == name);
        let (_, bit) = known.ok_or_else(|| format!("unknown quirk '{name}'"))?;
        let of_other_version = match version {
            "4" => *bit == quirk::FLOW,
            "6" => bit & (quirk::DF | quirk::ID_WITH_DF | quirk::NO_ID | quirk::MUST_BE_ZERO) != 0,
            _ => false,
        };
        if of_other_version {
            return Err(format!("quirk '{name}' cannot be with IPv{version}"));
        }
        quirks |= bit;
    }
    Ok(quirks)
}
