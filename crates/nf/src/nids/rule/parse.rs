//! From rule files to rules.

use thalweg_classify::source::{Source, SourceError};

use super::address::{Variables, addresses, ports};
use super::condition::Endpoint;
use super::content::PayloadTest;
use super::option::option;
use super::text::{Fault, Piece, options};
use super::{Action, FlowTest, Protocol, Rule};

/// What a rule file holds.
#[derive(Debug, Default)]
pub(in super::super) struct Loaded {
    pub(in super::super) rules: Vec<Rule>,
    /// Rules that ask for what is not supported, each once.
    pub(in super::super) unsupported: Vec<SourceError>,
    pub(in super::super) errors: Vec<SourceError>,
}

/// Reads the rules of `source`.
pub(in super::super) fn load(source: &Source, variables: &Variables) -> Loaded {
    let mut loaded = Loaded::default();
    for piece in rule_texts(source) {
        match rule(piece, variables) {
            Ok(rule) => loaded.rules.push(rule),
            Err(fault) => {
                let error = source.error(fault.span, fault.message, fault.expected);
                if fault.unsupported {
                    loaded.unsupported.push(error);
                } else {
                    loaded.errors.push(error);
                }
            }
        }
    }
    loaded
}

/// The rules' texts: a line each, or several that end in backslashes.
fn rule_texts(source: &Source) -> Vec<Piece<'_>> {
    let text = source.text();
    let mut pieces = Vec::new();
    let mut start = None;
    for (span, line) in source.lines() {
        let trimmed = line.trim();
        let begin = match start.take() {
            Some(begin) => begin,
            None if trimmed.is_empty() || trimmed.starts_with('#') => continue,
            None => span.start,
        };
        if trimmed.ends_with('\\') {
            start = Some(begin);
        } else {
            pieces.push(Piece { text: &text[begin..span.end], start: begin }.trim());
        }
    }
    if let Some(begin) = start {
        pieces.push(Piece { text: &text[begin..], start: begin }.trim());
    }
    pieces
}

fn rule(piece: Piece<'_>, variables: &Variables) -> Result<Rule, Fault> {
    let shape = "ACTION PROTOCOL ADDRESS PORT -> ADDRESS PORT (OPTIONS)";
    let open = piece.text.find('(').ok_or_else(|| piece.fault("this is no rule", shape))?;
    let list = piece.from(open + 1);
    let close = list.text.rfind(')').filter(|at| list.text[at + 1..].trim().is_empty());
    let close =
        close.ok_or_else(|| piece.fault("the options have no end", "a closing parenthesis"))?;
    let words = words(piece.to(open));
    let [action, protocol, source, sports, arrow, destination, dports] = &words[..] else {
        return Err(piece.to(open).fault("bad rule header", shape));
    };
    let both_ways = match arrow.text {
        "->" => false,
        "<>" => true,
        "=>" => return Err(Fault::unsupported(arrow.span(), "a rule over both directions ('=>')")),
        _ => return Err(arrow.fault("bad direction", "-> or <>")),
    };
    let mut rule = Rule {
        action: read_action(*action)?,
        protocol: read_protocol(*protocol)?,
        source: Endpoint {
            addresses: addresses(*source, variables)?,
            ports: ports(*sports, variables)?,
        },
        destination: Endpoint {
            addresses: addresses(*destination, variables)?,
            ports: ports(*dports, variables)?,
        },
        both_ways,
        message: String::new(),
        sid: 0,
        gid: 1,
        rev: 0,
        category: String::new(),
        severity: 3,
        prioritised: false,
        flow: FlowTest::default(),
        bits: Vec::new(),
        no_alert: false,
        conditions: Vec::new(),
        payload: Vec::new(),
        fast_pattern: None,
    };
    for part in options(list.to(close))? {
        let (name, value) = match part.split_once(':') {
            Some((name, value)) => (name.trim(), Some(value.trim())),
            None => (part, None),
        };
        option(&mut rule, name, value)?;
    }
    if rule.sid == 0 {
        return Err(piece.to(open).fault("a rule without sid", "sid:NUMBER;"));
    }
    rule.fast_pattern = fast_pattern(&rule);
    Ok(rule)
}

/// The words of the header; a list in brackets is one word.
fn words(header: Piece<'_>) -> Vec<Piece<'_>> {
    let (mut words, mut start, mut depth) = (Vec::new(), None, 0usize);
    for (at, c) in header.text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        let blank = c.is_whitespace() || c == '\\';
        match start {
            Some(from) if blank && depth == 0 => {
                words.push(header.from(from).to(at - from));
                start = None;
            }
            None if !blank => start = Some(at),
            _ => {}
        }
    }
    if let Some(from) = start {
        words.push(header.from(from));
    }
    words
}

fn read_action(word: Piece<'_>) -> Result<Action, Fault> {
    match word.text {
        "alert" => Ok(Action::Alert),
        "drop" => Ok(Action::Drop),
        "pass" => Ok(Action::Pass),
        "reject" | "rejectsrc" | "rejectdst" | "rejectboth" | "log" | "sdrop" | "config" => {
            Err(Fault::unsupported(word.span(), format!("action '{}'", word.text)))
        }
        _ => Err(word.fault("bad action", "alert, drop or pass")),
    }
}

fn read_protocol(word: Piece<'_>) -> Result<Protocol, Fault> {
    Ok(match word.text.to_ascii_lowercase().as_str() {
        "ip" => Protocol::Ip,
        "ip4" | "ipv4" => Protocol::Ipv4,
        "ip6" | "ipv6" => Protocol::Ipv6,
        "tcp" | "tcp-pkt" => Protocol::Tcp,
        "udp" => Protocol::Udp,
        "sctp" => Protocol::Sctp,
        "icmp" | "icmpv4" => Protocol::Icmp,
        "icmpv6" => Protocol::Icmpv6,
        other if other.starts_with(|c: char| c.is_ascii_alphabetic()) => {
            return Err(Fault::unsupported(word.span(), format!("protocol '{other}'")));
        }
        _ => return Err(word.fault("bad protocol", "ip, tcp, udp, icmp or the like")),
    })
}

/// The content to look for first: the one the rule names, else the longest that
/// must be there.
fn fast_pattern(rule: &Rule) -> Option<Vec<u8>> {
    let contents = || {
        rule.payload.iter().filter_map(|test| match test {
            PayloadTest::Content(c) if !c.negated => Some(c),
            _ => None,
        })
    };
    let chosen = contents().find(|c| c.fast_pattern);
    chosen.or_else(|| contents().max_by_key(|c| c.bytes.len())).map(|c| c.bytes.clone())
}
