//! Reads the options of a rule one by one.

use super::super::app::Oddity;
use super::super::buffer::{Buffer, Protocol};
use super::super::haystack::Needle;
use super::Rule;
use super::classes;
use super::condition::{Condition, What};
use super::content::{self, Content, PayloadTest, Transform};
use super::draft::Draft;
use super::filter::filter;
use super::flow::{flow, flow_bits};
use super::flow_number::flow_number;
use super::header;
use super::modifier::modifier;
use super::names::{APPLICATION_EVENTS, HTTP_EVENTS, PROTOCOLS, SUPPORTED_PROTOCOLS, suggested};
use super::number;
use super::text::{Fault, Piece};

/// Options that describe the rule, not packets.
const REMARKS: &[&str] = &["reference", "metadata", "requires"];

/// Options that a rule has at most once.
const ONCE: &[&str] = &["msg", "sid", "rev", "flow", "dsize", "app-layer-protocol"];

/// Options without a value, in addition to the names of buffers.
const ALONE: &[&str] = &[
    "nocase",
    "startswith",
    "endswith",
    "rawbytes",
    "noalert",
    "sameip",
    "base64_data",
    "to_lowercase",
    "to_uppercase",
    "strip_whitespace",
    "compress_whitespace",
    "dotprefix",
];

/// Reads the option `name` with its value, if it has one, into `draft`.
pub(super) fn option(
    draft: &mut Draft,
    name: Piece<'_>,
    value: Option<Piece<'_>>,
) -> Result<(), Fault> {
    let needed = || needed(name, value);
    let is_buffer = || Buffer::sticky(name.text).is_some() || Buffer::modifier(name.text).is_some();
    if let Some(value) = value
        && (ALONE.contains(&name.text) || is_buffer())
    {
        return Err(value.fault(format!("'{}' takes no value", name.text), "the name alone"));
    }
    if let Some(once) = ONCE.iter().find(|n| **n == name.text) {
        draft.once(once, name)?;
    }
    let rule = &mut draft.rule;
    match name.text {
        "msg" => rule.message = unescape(needed()?.unquoted().text),
        "sid" => {
            let value = needed()?;
            rule.sid = positive(value)?;
            draft.places.sid = value.span();
        }
        "gid" => rule.gid = needed()?.number()?,
        "rev" => rule.rev = positive(needed()?)?,
        "classtype" => class(draft, needed()?),
        "priority" => priority(draft, needed()?)?,
        "target" => target(draft, needed()?)?,
        "noalert" => rule.no_alert = true,
        "flow" => flow(draft, needed()?)?,
        "flowbits" => flow_bits(draft, needed()?)?,
        "threshold" | "detection_filter" => {
            let filter = filter(needed()?, name.text == "detection_filter")?;
            draft.once("threshold' or 'detection_filter", name)?;
            draft.rule.filters.push(filter);
        }
        "app-layer-protocol" => application(rule, needed()?)?,
        "app-layer-event" => application_event(draft, needed()?)?,
        "flowint" => flow_number(draft, needed()?)?,
        "stream_size" => rule.stream_sizes.push(header::stream_size(needed()?)?),
        "ipopts" => rule.conditions.push(header::ip_option(needed()?)?),
        "decode-event" => rule.conditions.push(header::event(needed()?)?),
        "sameip" => rule.conditions.push(Condition::SameAddress),
        "flags" | "tcp.flags" => rule.conditions.push(header::tcp_flags(needed()?)?),
        "fragbits" => rule.conditions.push(header::fragment_bits(needed()?)?),
        "prefilter" | "rawbytes" => {}
        remark if REMARKS.contains(&remark) => _ = needed()?,
        text => {
            if let Some(what) = header::field(text) {
                let value = needed()?;
                rule.conditions.push(header::range(what, value)?);
                if what == What::PayloadSize {
                    draft.note_size_of_payload(value.span());
                }
            } else if !payload_test(draft, name, value)? {
                modifier(draft, name, value)?;
            }
        }
    }
    Ok(())
}

fn needed<'a>(name: Piece<'_>, value: Option<Piece<'a>>) -> Result<Piece<'a>, Fault> {
    let value = value.filter(|value| !value.text.is_empty());
    value.ok_or_else(|| name.fault(format!("'{}' needs a value", name.text), "a value"))
}

fn positive(value: Piece<'_>) -> Result<u32, Fault> {
    match value.number()? {
        0 => Err(value.fault("bad number", "a number above 0")),
        number => Ok(number),
    }
}

/// Reads `classtype`. The most severe of several classes counts.
fn class(draft: &mut Draft, value: Piece<'_>) {
    let again = !draft.is_first("classtype");
    if again {
        let message = "a second 'classtype'; the more severe one counts";
        draft.warnings.push(value.fault(message, "one class for each rule"));
    }
    let Some((category, severity)) = classes::classification(value.text) else {
        let expected = "a class of Suricata's classification.config";
        let expected = suggested(expected, value.text, classes::names());
        let message = format!("unknown class '{}', without a category", value.text);
        draft.warnings.push(value.fault(message, expected));
        return;
    };
    if draft.severity_of_class.is_none_or(|before| severity < before) {
        draft.severity_of_class = Some(severity);
        category.clone_into(&mut draft.rule.category);
        // The rule's own priority takes precedence, wherever it stands.
        if !draft.rule.prioritised {
            draft.rule.severity = severity;
        }
    }
}

/// Reads `priority`. The most severe of several counts.
fn priority(draft: &mut Draft, value: Piece<'_>) -> Result<(), Fault> {
    let severity = value.number()?;
    let rule = &mut draft.rule;
    if rule.prioritised {
        let message = "a second 'priority'; the more severe one counts";
        draft.warnings.push(value.fault(message, "one priority for each rule"));
    }
    rule.severity = if rule.prioritised { rule.severity.min(severity) } else { severity };
    rule.prioritised = true;
    Ok(())
}

/// Reads `target`, which describes the rule.
fn target(draft: &mut Draft, value: Piece<'_>) -> Result<(), Fault> {
    match value.text {
        "src_ip" | "dest_ip" | "none" => draft.once("target", value),
        _ => Err(value.fault("bad target", "src_ip, dest_ip or none")),
    }
}

/// Reads an option that tests the payload or a buffer, or selects the buffer; returns `false` for
/// any other option.
fn payload_test(
    draft: &mut Draft,
    name: Piece<'_>,
    value: Option<Piece<'_>>,
) -> Result<bool, Fault> {
    let needed = || needed(name, value);
    match name.text {
        "content" => {
            let value = needed()?;
            draft.add_content(new_content(value)?, value)?;
        }
        "uricontent" => {
            let value = needed()?;
            draft.test_of(Buffer::HttpUri, PayloadTest::Content(new_content(value)?));
            draft.contents.push(value.span());
        }
        "pcre" => pcre(draft, needed()?)?,
        "byte_test" => {
            let test = number::byte_test(needed()?, &draft.variables)?;
            draft.follow(PayloadTest::ByteTest(test));
        }
        "byte_jump" => {
            let jump = number::byte_jump(needed()?, &draft.variables)?;
            draft.follow(PayloadTest::ByteJump(jump));
        }
        "byte_extract" => {
            let extract = number::byte_extract(needed()?, &mut draft.variables)?;
            draft.follow(PayloadTest::ByteExtract(extract));
        }
        "isdataat" => {
            let value = needed()?;
            draft.follow(number::is_data_at(value, &draft.variables)?);
            draft.note_size(value.span());
        }
        "base64_decode" => draft.follow(number::base64_decode(value)?),
        "base64_data" => {
            draft.check_tested()?;
            if !draft.stick_to_decoded() {
                let expected = "a base64_decode before it";
                return Err(name.fault("'base64_data' without base64_decode", expected));
            }
        }
        "bsize" => {
            let value = needed()?;
            if !draft.is_stuck() {
                let expected = "a buffer such as http.uri before it, or dsize";
                return Err(name.fault("'bsize' needs a buffer to measure", expected));
            }
            draft.test(size(value)?);
            draft.note_size(value.span());
        }
        "urilen" => {
            let value = needed()?;
            let (value, form) = match value.split_once(',') {
                Some((value, form)) => (value.trim(), form.trim()),
                None => (value, value.from(value.text.len())),
            };
            let buffer = match form.text {
                "raw" => Buffer::HttpRawUri,
                "" | "norm" => Buffer::HttpUri,
                _ => return Err(form.fault("bad form of urilen", "norm or raw")),
            };
            draft.test_of(buffer, size(value)?);
            draft.note_size(value.span());
        }
        "to_lowercase" => draft.transform(Transform::ToLowercase, name)?,
        "to_uppercase" => draft.transform(Transform::ToUppercase, name)?,
        "strip_whitespace" => draft.transform(Transform::StripWhitespace, name)?,
        "compress_whitespace" => draft.transform(Transform::CompressWhitespace, name)?,
        "dotprefix" => draft.transform(Transform::DotPrefix, name)?,
        text => match Buffer::sticky(text) {
            Some(buffer) => draft.stick_to(buffer, name)?,
            None => return Ok(false),
        },
    }
    Ok(true)
}

/// Reads `pcre`, which a flag may direct to another buffer than the current one.
fn pcre(draft: &mut Draft, value: Piece<'_>) -> Result<(), Fault> {
    let (regex, buffer) = content::regex(value)?;
    let relative = regex.relative;
    match buffer {
        Some(buffer) if draft.is_stuck() && draft.current_buffer() != buffer => {
            let message = "a flag for another buffer than the one selected before";
            return Err(value.fault(message, "pkt_data before it, or no such flag"));
        }
        Some(buffer) => draft.test_of(buffer, PayloadTest::Regex(regex)),
        None => draft.test(PayloadTest::Regex(regex)),
    }
    if !relative {
        draft.regexes.push((draft.last_part(), value.span()));
    }
    Ok(())
}

fn size(value: Piece<'_>) -> Result<PayloadTest, Fault> {
    let (low, high, negated) = header::bounds(value, |_| None, u64::MAX)?;
    Ok(PayloadTest::Size { low, high, negated })
}

/// Reads `app-layer-protocol:http`.
fn application(rule: &mut Rule, value: Piece<'_>) -> Result<(), Fault> {
    match Protocol::named(value.text) {
        Some(protocol) if rule.application.is_some_and(|p| p != protocol) => {
            Err(value.fault("a rule for two protocols", "the protocol that the rule already has"))
        }
        Some(protocol) => {
            rule.application = Some(protocol);
            Ok(())
        }
        None => {
            let (name, _) = content::negation(value.split(',').next().unwrap_or(value));
            let known = PROTOCOLS.contains(&name.text)
                || Protocol::named(name.text).is_some()
                || matches!(name.text, "failed" | "unknown");
            if known {
                return Err(Fault::unsupported(value.span(), format!("protocol '{}'", value.text)));
            }
            let names = PROTOCOLS.iter().chain(SUPPORTED_PROTOCOLS).copied();
            Err(value.fault("unknown protocol", suggested("a protocol", name.text, names)))
        }
    }
}

/// Reads `app-layer-event:http.missing_host_header`.
fn application_event(draft: &mut Draft, value: Piece<'_>) -> Result<(), Fault> {
    let unsupported = || Fault::unsupported(value.span(), format!("event '{}'", value.text));
    let Some((protocol, name)) = value.split_once('.') else {
        // An event of any protocol, such as applayer_mismatch_protocol_both_directions.
        let known = APPLICATION_EVENTS.contains(&value.text);
        let expected = || {
            let names = APPLICATION_EVENTS.iter().copied();
            suggested("PROTOCOL.EVENT", value.text, names)
        };
        let unknown = || value.fault("unknown event", expected());
        return Err(if known { unsupported() } else { unknown() });
    };
    match Protocol::named(protocol.text) {
        Some(Protocol::Http) if Oddity::NAMES.contains(&name.text) => {
            draft.event(name.text);
            Ok(())
        }
        Some(Protocol::Http) if !HTTP_EVENTS.contains(&name.text) => {
            let names = Oddity::NAMES.iter().chain(HTTP_EVENTS).copied();
            Err(name.fault("unknown event", suggested("an event of http", name.text, names)))
        }
        None if !PROTOCOLS.contains(&protocol.text) => {
            let names = PROTOCOLS.iter().chain(SUPPORTED_PROTOCOLS).copied();
            let expected = suggested("a protocol", protocol.text, names);
            Err(protocol.fault("unknown protocol", expected))
        }
        _ => Err(unsupported()),
    }
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

fn new_content(value: Piece<'_>) -> Result<Content, Fault> {
    let (value, negated) = content::negation(value);
    let bytes = Needle::new(&content::bytes(value)?);
    Ok(Content { bytes, negated, ..Content::default() })
}
