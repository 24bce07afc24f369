//! Parses rule files into rules.

use thalweg_source::{Mistakes, Source, SourceError};

use super::super::buffer;
use super::address::{Variables, addresses, ports};
use super::condition::Endpoint;
use super::content::PayloadTest;
use super::contents::check_opposites;
use super::contradiction::check_sizes;
use super::draft::Draft;
use super::fixed::fix;
use super::keywords;
use super::names::{ACTIONS, PROTOCOLS, SUPPORTED_PROTOCOLS, suggested};
use super::option::option;
use super::set::Places;
use super::text::{Fault, Piece, options};
use super::{Action, FastPattern, FlowTest, Protocol, Rule, View};

/// The content of a rule file.
#[derive(Debug, Default)]
pub(in super::super) struct Loaded {
    pub(in super::super) rules: Vec<Rule>,
    /// The positions of parts of each rule.
    pub(in super::super) places: Vec<Places>,
    /// Rules that need an unsupported feature, each once.
    pub(in super::super) unsupported: Vec<SourceError>,
    /// Oddities of rules that are taken nevertheless.
    pub(in super::super) oddities: Vec<SourceError>,
    pub(in super::super) errors: Mistakes,
}

impl Loaded {
    /// Whether the file has no rule, not even an invalid one.
    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.unsupported.is_empty() && self.errors.is_empty()
    }
}

/// Reads the rules of `source`. Rules that need an unsupported feature are skipped, or are errors
/// with `refuse`.
pub(in super::super) fn load(source: &Source, variables: &Variables, refuse: bool) -> Loaded {
    let mut loaded = Loaded::default();
    let error = |fault: Fault| source.error(fault.span, fault.message, fault.expected);
    for piece in rule_texts(source) {
        match rule(piece, variables) {
            Ok((rule, places, oddities)) => {
                loaded.rules.push(rule);
                loaded.places.push(places);
                loaded.oddities.extend(oddities.into_iter().map(error));
            }
            Err(fault) if fault.unsupported && !refuse => loaded.unsupported.push(error(fault)),
            Err(fault) => loaded.errors.push_with(|| error(fault)),
        }
    }
    loaded
}

/// The texts of the rules: one line each, or several lines continued by backslashes.
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

fn rule(piece: Piece<'_>, variables: &Variables) -> Result<(Rule, Places, Vec<Fault>), Fault> {
    let shape = "ACTION PROTOCOL ADDRESS PORT -> ADDRESS PORT (OPTIONS)";
    let open = piece.text.find('(').ok_or_else(|| piece.fault("not a rule", shape))?;
    let list = piece.from(open + 1);
    let close = list.text.rfind(')').filter(|at| list.text[at + 1..].trim().is_empty());
    let close =
        close.ok_or_else(|| piece.fault("unterminated options", "a closing parenthesis"))?;
    let list = list.to(close);
    let options = options(list)?;
    // A typo is an error even in a rule that is not supported.
    options.iter().try_for_each(|option| keywords::check(*option))?;
    let words = words(piece.to(open));
    let [action, protocol, source, sports, arrow, destination, dports] = &words[..] else {
        return Err(piece.to(open).fault("bad rule header", shape));
    };
    let both_ways = match arrow.text {
        "->" => false,
        "<>" => true,
        "=>" => return Err(Fault::unsupported(arrow.span(), "a transactional rule ('=>')")),
        _ => return Err(arrow.fault("bad direction", "-> or <>")),
    };
    let (protocol, application) = read_protocol(*protocol)?;
    let rule = Rule {
        action: read_action(*action)?,
        protocol,
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
        numbers: Vec::new(),
        no_alert: false,
        conditions: Vec::new(),
        stream_sizes: Vec::new(),
        filters: Vec::new(),
        application,
        parts: Vec::new(),
        view: None,
        fast_pattern: FastPattern::default(),
    };
    let mut draft = Draft::new(rule);
    read_options(&mut draft, &options)?;
    draft.check_tested()?;
    check_opposites(&draft, list)?;
    let Draft { mut rule, sized, places, warnings, .. } = draft;
    if rule.sid == 0 {
        return Err(piece.to(open).fault("a rule without a sid", "sid:NUMBER;"));
    }
    rule.view.get_or_insert(view(&rule));
    check_sizes(&rule, &sized, piece.to(open))?;
    rule.parts.retain(|p| !p.tests.is_empty());
    rule.parts.iter_mut().for_each(|part| fix(&mut part.tests));
    settle_direction(&mut rule, piece.to(open))?;
    Ok((rule, places, warnings))
}

fn read_options(draft: &mut Draft, options: &[Piece<'_>]) -> Result<(), Fault> {
    for part in options {
        let (name, value) = match part.split_once(':') {
            Some((name, value)) => (name.trim(), Some(value.trim())),
            None => (*part, None),
        };
        // Keywords may be in upper case, as in Suricata.
        let lower = name.text.to_ascii_lowercase();
        option(draft, Piece { text: &lower, start: name.start }, value)?;
        if !draft.rule.may_fit_a_packet() {
            let expected = "options compatible with each other and with the rule's protocol";
            let message = "no packet can match this option and the rule before it";
            return Err(part.fault(message, expected));
        }
    }
    Ok(())
}

/// Restricts a rule about one side's messages to their direction and their protocol.
fn settle_direction(rule: &mut Rule, head: Piece<'_>) -> Result<(), Fault> {
    for part in &rule.parts {
        if let Some(protocol) = part.buffer.protocol() {
            if rule.application.is_some_and(|p| p != protocol) {
                let message = format!("{} buffers in a rule for another protocol", protocol.name());
                return Err(head.fault(message, "buffers of one protocol"));
            }
            rule.application = Some(protocol);
        }
        let Some(to_server) = part.buffer.to_server() else { continue };
        if rule.flow.to_server.is_some_and(|d| d != to_server) {
            let message = "buffers of one direction in a rule for the other, or for both";
            return Err(head.fault(message, "a rule for each direction"));
        }
        rule.flow.to_server = Some(to_server);
    }
    Ok(())
}

/// What the rule's payload tests inspect, as Suricata defines it.
fn view(rule: &Rule) -> View {
    let fixed = |test: &PayloadTest| matches!(test, PayloadTest::Content(c) if c.offset.is_some() || c.depth.is_some());
    match rule.protocol {
        Protocol::TcpPacket => View::Packet,
        Protocol::TcpStream => View::Stream,
        _ if !rule.conditions.is_empty() => View::Packet,
        _ if rule.parts.iter().any(|p| p.tests.iter().any(fixed)) => View::Both,
        _ => View::Stream,
    }
}

/// Splits the header into words; a list in brackets is one word.
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
    match word.text.to_ascii_lowercase().as_str() {
        "alert" => Ok(Action::Alert),
        "drop" => Ok(Action::Drop),
        "pass" => Ok(Action::Pass),
        known if ACTIONS.contains(&known) => {
            Err(Fault::unsupported(word.span(), format!("action '{known}'")))
        }
        other => {
            let names = ["alert", "drop", "pass"].iter().chain(ACTIONS).copied();
            Err(word.fault("bad action", suggested("alert, drop or pass", other, names)))
        }
    }
}

/// Reads the protocol; an application protocol implies TCP or UDP.
fn read_protocol(word: Piece<'_>) -> Result<(Protocol, Option<buffer::Protocol>), Fault> {
    let lower = word.text.to_ascii_lowercase();
    if let Some(application) = buffer::Protocol::named(&lower) {
        return Ok((Protocol::Ip, Some(application)));
    }
    let protocol = match lower.as_str() {
        "pkthdr" => Protocol::Any,
        "ip" => Protocol::Ip,
        "ip4" | "ipv4" => Protocol::Ipv4,
        "ip6" | "ipv6" => Protocol::Ipv6,
        "tcp" => Protocol::Tcp,
        "tcp-pkt" => Protocol::TcpPacket,
        "tcp-stream" => Protocol::TcpStream,
        "udp" => Protocol::Udp,
        "sctp" => Protocol::Sctp,
        "icmp" | "icmpv4" => Protocol::Icmp,
        "icmpv6" => Protocol::Icmpv6,
        other => {
            // Suricata 8 may name a state of the protocol, as in `http1:request_started`.
            let name = other.split(':').next().unwrap_or(other);
            let supported = SUPPORTED_PROTOCOLS.contains(&name);
            if PROTOCOLS.contains(&name) || supported && name != other {
                return Err(Fault::unsupported(word.span(), format!("protocol '{other}'")));
            }
            let names = PROTOCOLS.iter().chain(SUPPORTED_PROTOCOLS).copied();
            let expected = suggested("a protocol such as ip, tcp, udp or icmp", name, names);
            return Err(word.fault("unknown protocol", expected));
        }
    };
    Ok((protocol, None))
}
