//! Reads the options of a rule one by one.

use super::super::buffer::{Buffer, Protocol};
use super::classes::classification;
use super::condition::{Condition, What};
use super::content::{self, Content, Number, PayloadTest, Transform};
use super::draft::Draft;
use super::header;
use super::number;
use super::text::{Fault, Piece};
use super::{Filter, FilterKind, FlowBit, Rule, Track, UniqueOn, View};

/// Options that describe the rule, not packets.
const REMARKS: &[&str] = &["reference", "metadata", "target", "requires", "prefilter", "rawbytes"];

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
    let needed =
        || value.ok_or_else(|| name.fault(format!("'{}' needs a value", name.text), "a value"));
    let is_buffer = || Buffer::sticky(name.text).is_some() || Buffer::modifier(name.text).is_some();
    if let Some(value) = value
        && (ALONE.contains(&name.text) || is_buffer())
    {
        return Err(value.fault(format!("'{}' takes no value", name.text), "the name alone"));
    }
    let rule = &mut draft.rule;
    match name.text {
        "msg" => rule.message = unescape(needed()?.unquoted().text),
        "sid" => {
            let value = needed()?;
            rule.sid = value.number()?;
            draft.places.sid = value.span();
        }
        "gid" => rule.gid = needed()?.number()?,
        "rev" => rule.rev = needed()?.number()?,
        "classtype" => {
            let severity;
            (rule.category, severity) = classification(needed()?.text);
            // The rule's own priority takes precedence, wherever it stands.
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
        "flowbits" => flow_bits(draft, needed()?)?,
        "threshold" => rule.filters.push(filter(needed()?, false)?),
        "detection_filter" => rule.filters.push(filter(needed()?, true)?),
        "app-layer-protocol" => application(rule, needed()?)?,
        "stream_size" => rule.stream_sizes.push(header::stream_size(needed()?)?),
        "ipopts" => rule.conditions.push(header::ip_option(needed()?)?),
        "decode-event" => rule.conditions.push(header::event(needed()?)?),
        "sameip" => rule.conditions.push(Condition::SameAddress),
        "flags" | "tcp.flags" => rule.conditions.push(header::tcp_flags(needed()?)?),
        "fragbits" => rule.conditions.push(header::fragment_bits(needed()?)?),
        remark if REMARKS.contains(&remark) => {}
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

/// Reads an option that tests the payload or a buffer, or selects the buffer; returns `false` for
/// any other option.
fn payload_test(
    draft: &mut Draft,
    name: Piece<'_>,
    value: Option<Piece<'_>>,
) -> Result<bool, Fault> {
    let needed =
        || value.ok_or_else(|| name.fault(format!("'{}' needs a value", name.text), "a value"));
    match name.text {
        "content" => draft.test(new_content(needed()?)?),
        "uricontent" => draft.test_of(Buffer::HttpUri, new_content(needed()?)?),
        "pcre" => match content::regex(needed()?)? {
            (regex, Some(buffer)) => draft.test_of(buffer, PayloadTest::Regex(regex)),
            (regex, None) => draft.test(PayloadTest::Regex(regex)),
        },
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
            if !draft.stick_to_decoded() {
                let expected = "a base64_decode before it";
                return Err(name.fault("'base64_data' without base64_decode", expected));
            }
        }
        "bsize" if draft.is_stuck() => {
            let value = needed()?;
            draft.test(size(value)?);
            draft.note_size(value.span());
        }
        "urilen" => {
            let value = needed()?;
            let (value, raw) = match value.split_once(',') {
                Some((value, form)) => (value.trim(), form.trim().text == "raw"),
                None => (value, false),
            };
            let buffer = if raw { Buffer::HttpRawUri } else { Buffer::HttpUri };
            draft.test_of(buffer, size(value)?);
            draft.note_size(value.span());
        }
        "to_lowercase" => draft.transform(Transform::ToLowercase),
        "to_uppercase" => draft.transform(Transform::ToUppercase),
        "strip_whitespace" => draft.transform(Transform::StripWhitespace),
        "compress_whitespace" => draft.transform(Transform::CompressWhitespace),
        "dotprefix" => draft.transform(Transform::DotPrefix),
        text => match Buffer::sticky(text) {
            Some(buffer) => draft.stick_to(buffer),
            None => return Ok(false),
        },
    }
    Ok(true)
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
        None => Err(Fault::unsupported(value.span(), format!("protocol '{}'", value.text))),
    }
}

/// Reads an option that modifies the content before it.
fn modifier(draft: &mut Draft, name: Piece<'_>, value: Option<Piece<'_>>) -> Result<(), Fault> {
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
    let without = || {
        let message = format!("'{}' needs a content to modify", name.text);
        name.fault(message, "a content before it")
    };
    if let Some(buffer) = Buffer::modifier(name.text) {
        return if draft.move_content(buffer) { Ok(()) } else { Err(without()) };
    }
    if !MODIFIERS.contains(&name.text) {
        return Err(Fault::unsupported(name.span(), format!("option '{}'", name.text)));
    }
    let needed =
        || value.ok_or_else(|| name.fault(format!("'{}' needs a value", name.text), "a value"));
    let variables = std::mem::take(&mut draft.variables);
    let signed = || {
        let value = needed()?;
        match number::variable(value, &variables)? {
            Some(variable) => Ok(variable),
            None => Ok(Number::Literal(value.number()?)),
        }
    };
    let length = || match signed()? {
        Number::Literal(..0) => Err(name.fault("a negative number", "0 or more")),
        number => Ok(number),
    };
    let content = draft.content().ok_or_else(without)?;
    let least = content.bytes.len() as i64;
    let room = |number: Number| match number {
        Number::Literal(n) if n < least => {
            let message = format!("'{}' is shorter than its content", name.text);
            Err(value.unwrap_or(name).fault(message, format!("{least} or more")))
        }
        number => Ok(number),
    };
    match name.text {
        "nocase" => {
            content.nocase = true;
            content.bytes.make_ascii_lowercase();
        }
        "offset" => content.offset = Some(length()?),
        "depth" => content.depth = Some(room(length()?)?),
        "distance" => content.distance = Some(signed()?),
        "within" => content.within = Some(room(signed()?)?),
        "startswith" => {
            content.offset = Some(Number::Literal(0));
            content.depth = Some(Number::Literal(least));
        }
        "endswith" => content.ends_with = true,
        // `only` and `offset,length` control the prefilter, which does not change
        // what matches.
        _ => content.fast_pattern = true,
    }
    draft.variables = variables;
    Ok(())
}

/// Reads `type limit, track by_src, count 1, seconds 60`.
fn filter(value: Piece<'_>, detection: bool) -> Result<Filter, Fault> {
    let shape = "type limit|threshold|both, track by_src|by_dst|by_rule|by_both|by_flow, count N, \
                 seconds S (no type for detection_filter)";
    let (mut kind, mut track, mut count, mut seconds, mut unique_on) =
        (detection.then_some(FilterKind::Detection), None, None, None, None);
    for part in value.split(',') {
        let Some((word, what)) = part.split_once(' ') else {
            return Err(part.fault("bad filter", shape));
        };
        let what = what.trim();
        match word.text {
            "type" if !detection => {
                kind = Some(match what.text {
                    "limit" => FilterKind::Limit,
                    "threshold" => FilterKind::Threshold,
                    "both" => FilterKind::Both,
                    "backoff" => return Err(Fault::unsupported(what.span(), "type 'backoff'")),
                    _ => return Err(what.fault("bad type", shape)),
                });
            }
            "track" => {
                track = Some(match what.text {
                    "by_src" => Track::Source,
                    "by_dst" => Track::Destination,
                    "by_rule" => Track::Rule,
                    "by_both" => Track::Both,
                    "by_flow" => Track::Flow,
                    _ => return Err(what.fault("bad track", shape)),
                });
            }
            "count" => count = Some(what.number()?),
            "seconds" => seconds = Some(what.number()?),
            "unique_on" => {
                unique_on = Some(match what.text {
                    "src_port" => UniqueOn::SourcePort,
                    "dst_port" => UniqueOn::DestinationPort,
                    _ => return Err(what.fault("bad unique_on", "src_port or dst_port")),
                });
            }
            _ => return Err(word.fault("bad filter", shape)),
        }
    }
    match (kind, track, count, seconds) {
        (Some(kind), Some(track), Some(count), Some(seconds)) if count > 0 => {
            Ok(Filter { kind, track, count, seconds, unique_on })
        }
        _ => Err(value.fault("bad filter", shape)),
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

fn new_content(value: Piece<'_>) -> Result<PayloadTest, Fault> {
    let (value, negated) = match value.strip('!') {
        Some(rest) => (rest, true),
        None => (value, false),
    };
    let bytes = content::bytes(value)?;
    Ok(PayloadTest::Content(Content { bytes, negated, ..Content::default() }))
}

fn flow(rule: &mut Rule, value: Piece<'_>) -> Result<(), Fault> {
    fn settle<T: PartialEq>(asked: &mut Option<T>, value: T, part: Piece<'_>) -> Result<(), Fault> {
        if asked.as_ref().is_some_and(|before| *before != value) {
            return Err(part.fault("this contradicts an earlier 'flow' keyword", "one of the two"));
        }
        *asked = Some(value);
        Ok(())
    }
    for part in value.split(',') {
        match part.text {
            "to_server" | "from_client" => settle(&mut rule.flow.to_server, true, part)?,
            "to_client" | "from_server" => settle(&mut rule.flow.to_server, false, part)?,
            "established" => settle(&mut rule.flow.established, true, part)?,
            "not_established" => settle(&mut rule.flow.established, false, part)?,
            "stateless" => {}
            "no_stream" => settle(&mut rule.view, View::Packet, part)?,
            "only_stream" => settle(&mut rule.view, View::Stream, part)?,
            "no_frag" | "only_frag" => {
                return Err(Fault::unsupported(part.span(), format!("flow '{}'", part.text)));
            }
            _ => {
                let expected = "to_server, from_client, to_client, from_server, established, \
                                not_established, stateless, no_stream or only_stream";
                return Err(part.fault("bad flow", expected));
            }
        }
    }
    Ok(())
}

fn flow_bits(draft: &mut Draft, value: Piece<'_>) -> Result<(), Fault> {
    let rule = &mut draft.rule;
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
            return Err(value.fault("flowbits without a name", "COMMAND,NAME such as set,NAME"));
        }
        "set" => FlowBit::Set(one()),
        "unset" => FlowBit::Unset(one()),
        "toggle" => FlowBit::Toggle(one()),
        "isset" => {
            draft.places.is_set.push(value.span());
            FlowBit::IsSet(list())
        }
        "isnotset" => FlowBit::IsNotSet(list()),
        _ => {
            let expected = "set, unset, toggle, isset, isnotset or noalert";
            return Err(command.fault("bad flowbits", expected));
        }
    };
    rule.bits.push(bit);
    Ok(())
}
