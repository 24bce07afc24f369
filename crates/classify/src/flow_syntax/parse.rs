//! From text to pattern.

use std::ops::Range;

use thalweg_packet::{FlowKey, field};
use thalweg_source::{Place, SourceError};

use super::fields::{Definition, FIELDS, FOREIGN, Form, Needs, PROTOCOLS};
use super::value;
use crate::rule::Match;

/// The priority of a rule without one, as in OpenFlow.
pub const DEFAULT_PRIORITY: u32 = 32768;

/// The parts of an `ovs-ofctl` flow other than its match, none of which is supported here.
const NOT_MATCHES: &[&str] = &[
    "table",
    "cookie",
    "idle_timeout",
    "hard_timeout",
    "importance",
    "duration",
    "n_packets",
    "n_bytes",
    "idle_age",
    "hard_age",
    "out_port",
    "out_group",
    "check_overlap",
    "reset_counts",
    "send_flow_rem",
    "actions",
    "action",
];

/// A rule as written: its priority and pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Higher wins; 32768 unless given.
    pub priority: u32,
    /// The packets that it matches.
    pub pattern: Match,
}

/// A mistake in a flow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}; expected {expected}")]
pub struct FlowError {
    /// The bytes of the flow's text that hold the mistake.
    pub span: Range<usize>,
    /// What is wrong.
    pub message: String,
    /// What was expected instead.
    pub expected: String,
}

impl FlowError {
    /// The same mistake in a file, where the flow begins at byte `at` of the rule in `place`.
    pub fn in_rule(self, place: &Place<'_>, at: usize) -> SourceError {
        place.error(at + self.span.start..at + self.span.end, self.message, self.expected)
    }
}

/// Parses a flow. `port` returns the number of a port that `in_port` names.
///
/// # Errors
/// The first mistake.
pub fn parse(text: &str, port: &dyn Fn(&str) -> Option<u16>) -> Result<Flow, FlowError> {
    let mut parser = Parser {
        text,
        port,
        priority: None,
        value: FlowKey::default(),
        mask: FlowKey::default(),
        pending: Vec::new(),
    };
    for token in tokens(text) {
        parser.token(token)?;
    }
    parser.fields()?;
    Ok(Flow {
        priority: parser.priority.unwrap_or(DEFAULT_PRIORITY),
        pattern: Match::new(parser.value, parser.mask),
    })
}

/// Parses a flow for a context without inputs: `in_port` is a mistake.
///
/// # Errors
/// The first mistake.
pub fn parse_without_port(text: &str) -> Result<Flow, FlowError> {
    if let Some(place) = place_of(text, "in_port") {
        let expected = "a pattern without in_port: [[class]] and routes distinguish inputs";
        return Err(error(place, "'in_port' is not supported here", expected));
    }
    parse(text, &|_| None)
}

/// Parses a pattern for a context without inputs, where the order decides: `priority` and
/// `in_port` are mistakes.
///
/// # Errors
/// The first mistake.
pub fn parse_pattern(text: &str) -> Result<Match, FlowError> {
    if let Some(place) = place_of(text, "priority") {
        let expected = "a pattern without priority: the first pattern that matches decides";
        return Err(error(place, "'priority' is not supported here", expected));
    }
    parse_without_port(text).map(|flow| flow.pattern)
}

/// The bytes of a flow's text that set `name`, a field or `priority`.
pub fn place_of(text: &str, name: &str) -> Option<Range<usize>> {
    tokens(text).find(|token| text[token.clone()].split('=').next() == Some(name))
}

/// The parts between commas and blanks, as byte ranges.
fn tokens(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let start = text.as_ptr() as usize;
    text.split([',', ' ', '\t', '\r', '\n']).filter(|t| !t.is_empty()).map(move |t| {
        let at = t.as_ptr() as usize - start;
        at..at + t.len()
    })
}

struct Parser<'a> {
    text: &'a str,
    port: &'a dyn Fn(&str) -> Option<u16>,
    priority: Option<u32>,
    value: FlowKey,
    mask: FlowKey,
    /// Fields with their names and values, read once all protocols are known.
    pending: Vec<(Range<usize>, Range<usize>)>,
}

impl Parser<'_> {
    fn token(&mut self, token: Range<usize>) -> Result<(), FlowError> {
        let text = &self.text[token.clone()];
        let Some(equals) = text.find('=') else {
            return self.protocol(token);
        };
        let name = token.start..token.start + equals;
        let value = token.start + equals + 1..token.end;
        match &text[..equals] {
            "priority" => {
                if self.priority.is_some() {
                    return Err(error(token, "duplicate priority", "one priority per rule"));
                }
                let number = value::number(&self.text[value.clone()], 65535);
                self.priority = Some(number.map_err(|e| error(value, "bad priority", e))? as u32);
                Ok(())
            }
            other if NOT_MATCHES.contains(&other) => Err(error(
                name,
                format!("'{other}' is not a match field"),
                "only match fields and priority",
            )),
            // These are prerequisites of other fields, so they are parsed first.
            "dl_type" | "eth_type" => self.field(&name, &value),
            _ => {
                self.pending.push((name, value));
                Ok(())
            }
        }
    }

    fn protocol(&mut self, token: Range<usize>) -> Result<(), FlowError> {
        let name = &self.text[token.clone()];
        // Matches Ethernet packets: all of them.
        if name == "eth" {
            return Ok(());
        }
        let Some((_, ether_type, proto)) = PROTOCOLS.iter().find(|(n, ..)| *n == name) else {
            if NOT_MATCHES.contains(&name) {
                return self.not_a_match(token);
            }
            if FIELDS.iter().any(|d| d.names.contains(&name)) {
                let expected = format!("{name}=value, without spaces");
                return Err(error(token, format!("field '{name}' has no value"), expected));
            }
            let names: Vec<_> = PROTOCOLS.iter().map(|(n, ..)| *n).collect();
            let expected = format!("field=value, or a protocol: {}", names.join(", "));
            return Err(error(token, format!("unknown protocol '{name}'"), expected));
        };
        self.put(&token, field::DL_TYPE, (*ether_type).into(), field::DL_TYPE.max())?;
        match proto {
            Some(proto) => {
                self.put(&token, field::NW_PROTO, (*proto).into(), field::NW_PROTO.max())
            }
            None => Ok(()),
        }
    }

    fn not_a_match(&self, token: Range<usize>) -> Result<(), FlowError> {
        let message = format!("'{}' is not a match field", &self.text[token.clone()]);
        Err(error(token, message, "only match fields and priority"))
    }

    /// Parses the fields, the prerequisites of other fields first.
    fn fields(&mut self) -> Result<(), FlowError> {
        let mut pending = std::mem::take(&mut self.pending);
        let rank = |name: &str| match name {
            "nw_proto" | "ip_proto" | "ip_frag" | "nw_frag" => 0,
            "icmp_type" | "icmpv6_type" => 1,
            _ => 2,
        };
        pending.sort_by_key(|(name, _)| rank(&self.text[name.clone()]));
        pending.iter().try_for_each(|(name, value)| self.field(name, value))
    }

    fn field(&mut self, name: &Range<usize>, value: &Range<usize>) -> Result<(), FlowError> {
        let text = &self.text[name.clone()];
        // OpenFlow 1.0's nw_tos is the DSCP in the upper six bits.
        if text == "nw_tos" {
            return self.nw_tos(name, value);
        }
        let mut named = FIELDS.iter().filter(|d| d.names.contains(&text)).peekable();
        let Some(first) = named.peek().copied() else {
            let expected = if FOREIGN.iter().any(|f| text.starts_with(f)) {
                "a field of the flow key: Open vSwitch has this field, Thalweg does not"
            } else {
                "a match field of ovs-fields(7) that Thalweg supports"
            };
            return Err(error(name.clone(), format!("unknown field '{text}'"), expected));
        };
        let Some(definition) = named.find(|d| d.needs.met(&self.value, &self.mask)) else {
            let message = format!("'{text}' lacks its prerequisite");
            return Err(error(name.clone(), message, first.needs.hint()));
        };
        let later = self.value.get(field::NW_FRAG) & self.mask.get(field::NW_FRAG);
        if definition.needs.is_transport() && later & field::FRAG_LATER != 0 {
            let message = format!("'{text}' cannot match a later fragment");
            return Err(error(name.clone(), message, "'ip_frag=first', 'not_later' or 'no'"));
        }
        self.define(definition, name, value)
    }

    fn define(
        &mut self,
        definition: &Definition,
        name: &Range<usize>,
        span: &Range<usize>,
    ) -> Result<(), FlowError> {
        let text = &self.text[span.clone()];
        let named = if definition.form == Form::Port { (self.port)(text) } else { None };
        let (value, mask) = match named {
            Some(port) => Ok((u128::from(port) + 1, definition.ones())),
            None => value::read(definition, text),
        }
        .map_err(|expected| {
            let field = &self.text[name.clone()];
            error(span.clone(), format!("bad value of '{field}'"), expected)
        })?;
        for ((place, value), (_, mask)) in definition.split(value).zip(definition.split(mask)) {
            self.put(name, place, value, mask)?;
        }
        Ok(())
    }

    fn nw_tos(&mut self, name: &Range<usize>, span: &Range<usize>) -> Result<(), FlowError> {
        let wrong = |expected| error(span.clone(), "bad value of 'nw_tos'", expected);
        let tos = value::number(&self.text[span.clone()], 255).map_err(wrong)?;
        if tos & 3 != 0 {
            return Err(wrong("a multiple of 4: the lower two bits are ECN".into()));
        }
        if !Needs::Ip.met(&self.value, &self.mask) {
            let hint = Needs::Ip.hint();
            return Err(error(name.clone(), "'nw_tos' lacks its prerequisite", hint));
        }
        self.put(name, field::NW_TOS, tos as u64, 0xfc)
    }

    /// Requires `value` on the bits of `mask`; contradictions are mistakes.
    fn put(
        &mut self,
        span: &Range<usize>,
        place: thalweg_packet::Field,
        value: u64,
        mask: u64,
    ) -> Result<(), FlowError> {
        let (old_value, old_mask) = (self.value.get(place), self.mask.get(place));
        if (old_value ^ value) & old_mask & mask != 0 {
            let message = "this contradicts another part of the rule";
            return Err(error(span.clone(), message, "each field at most once"));
        }
        self.value.set(place, old_value | value & mask);
        self.mask.set(place, old_mask | mask);
        Ok(())
    }
}

fn error(span: Range<usize>, message: impl Into<String>, expected: impl Into<String>) -> FlowError {
    FlowError { span, message: message.into(), expected: expected.into() }
}
