//! ClassBench filter files.
//!
//! One rule a line, the first line of highest priority:
//! `@src/len dst/len sport : sport dport : dport proto/mask [flags/mask]`,
//! parted by blanks or tabs. A rule matches IPv4 packets; its port fields are
//! compared as numbers whatever the protocol, and a full range (0 : 65535) is
//! no condition. Port ranges are split into prefixes, so that a rule becomes
//! several patterns. The flags column is read and not matched: the header
//! traces that go with these files do not satisfy it.

use std::ops::Range;

use thalweg_packet::wire::ethertype;
use thalweg_packet::{FlowKey, PacketType, field};

use crate::rule::{Match, Rule, RuleId};
use thalweg_source::{Mistakes, Source, SourceError};

/// Reads the rules of a filter file. They are numbered from `first`; the first
/// line gets the priority `top` and each further line one less.
///
/// # Errors
/// The lines that are no rules.
pub fn parse(
    source: &Source,
    first: RuleId,
    top: u32,
    packet_type: PacketType,
) -> Result<Vec<Rule>, Vec<SourceError>> {
    let (mut rules, mut errors) = (Vec::new(), Mistakes::default());
    for (span, line) in source.lines() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let place = rules.len() as u32;
        let matches = Line { source, base: span.start, text: line }.matches();
        match matches {
            Ok(matches) => rules.push(Rule {
                id: RuleId(first.0.saturating_add(place)),
                priority: top.saturating_sub(place),
                matches,
                packet_type,
                text: line.trim().to_owned(),
            }),
            Err(e) => errors.push(e),
        }
    }
    if errors.is_empty() { Ok(rules) } else { Err(errors.into_vec()) }
}

struct Line<'a> {
    source: &'a Source,
    base: usize,
    text: &'a str,
}

impl Line<'_> {
    fn matches(&self) -> Result<Vec<Match>, SourceError> {
        let fields = self.fields()?;
        let [src, dst, sport, dport, proto] = &fields;
        let mut value = FlowKey::default();
        let mut mask = FlowKey::default();
        value.set(field::DL_TYPE, ethertype::IPV4.into());
        mask.set(field::DL_TYPE, field::DL_TYPE.max());
        for (place, span) in [(field::NW_SRC, src), (field::NW_DST, dst)] {
            let (address, bits) = self.prefix(span)?;
            value.set(place, address);
            mask.set(place, bits);
        }
        let (protocol, bits) = self.protocol(proto)?;
        value.set(field::NW_PROTO, protocol);
        mask.set(field::NW_PROTO, bits);
        let mut matches = Vec::new();
        let destinations = prefixes(self.ports(dport)?);
        for (source, source_mask) in prefixes(self.ports(sport)?) {
            for (destination, destination_mask) in &destinations {
                value.set(field::TP_SRC, source.into());
                mask.set(field::TP_SRC, source_mask.into());
                value.set(field::TP_DST, (*destination).into());
                mask.set(field::TP_DST, (*destination_mask).into());
                matches.push(Match::new(value, mask));
            }
        }
        Ok(matches)
    }

    /// Source, destination, source ports, destination ports, protocol.
    fn fields(&self) -> Result<[Range<usize>; 5], SourceError> {
        let whole = 0..self.text.len();
        let shape = "@src/len dst/len sport : sport dport : dport proto/mask [flags/mask]";
        let wrong = || self.error(&whole, "not a ClassBench rule", shape);
        let start = self.text.as_ptr() as usize;
        let words: Vec<Range<usize>> = self
            .text
            .split_whitespace()
            .map(|w| {
                let at = w.as_ptr() as usize - start;
                at..at + w.len()
            })
            .collect();
        let text = |r: &Range<usize>| &self.text[r.clone()];
        match &words[..] {
            [src, dst, s0, c0, s1, d0, c1, d1, proto]
            | [src, dst, s0, c0, s1, d0, c1, d1, proto, _]
                if text(src).starts_with('@') && text(c0) == ":" && text(c1) == ":" =>
            {
                let src = src.start + 1..src.end;
                Ok([src, dst.clone(), s0.start..s1.end, d0.start..d1.end, proto.clone()])
            }
            _ => Err(wrong()),
        }
    }

    fn prefix(&self, span: &Range<usize>) -> Result<(u64, u64), SourceError> {
        let wrong = || self.error(span, "bad prefix", "an IPv4 prefix such as 10.0.0.0/8");
        let (address, length) = self.text[span.clone()].split_once('/').ok_or_else(wrong)?;
        let address: std::net::Ipv4Addr = address.parse().map_err(|_| wrong())?;
        let length: u32 = length.parse().ok().filter(|l| *l <= 32).ok_or_else(wrong)?;
        let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
        Ok((u64::from(u32::from(address) & mask), u64::from(mask)))
    }

    fn ports(&self, span: &Range<usize>) -> Result<(u16, u16), SourceError> {
        let wrong =
            || self.error(span, "bad port range", "a port range low : high, with low <= high");
        let (low, high) = self.text[span.clone()].split_once(':').ok_or_else(wrong)?;
        let port = |text: &str| text.trim().parse::<u16>().map_err(|_| wrong());
        let (low, high) = (port(low)?, port(high)?);
        if low <= high { Ok((low, high)) } else { Err(wrong()) }
    }

    fn protocol(&self, span: &Range<usize>) -> Result<(u64, u64), SourceError> {
        let wrong = || self.error(span, "bad protocol", "proto/mask, such as 0x06/0xFF");
        let (value, mask) = self.text[span.clone()].split_once('/').ok_or_else(wrong)?;
        let byte = |text: &str| {
            let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
            let parsed = hex.map_or_else(|| text.parse(), |h| u8::from_str_radix(h, 16));
            parsed.map(u64::from).map_err(|_| wrong())
        };
        Ok((byte(value)?, byte(mask)?))
    }

    fn error(&self, span: &Range<usize>, message: &str, expected: &str) -> SourceError {
        self.source.error(self.base + span.start..self.base + span.end, message, expected)
    }
}

/// The fewest value/mask pairs that cover the ports `low..=high`.
fn prefixes((low, high): (u16, u16)) -> Vec<(u16, u16)> {
    let (mut low, high) = (u32::from(low), u32::from(high));
    let mut parts = Vec::new();
    while low <= high {
        // The largest aligned block that begins here and ends within the range.
        let aligned = if low == 0 { 16 } else { low.trailing_zeros().min(16) };
        let fits = (high - low + 1).ilog2();
        let bits = aligned.min(fits);
        parts.push((low as u16, (u32::from(u16::MAX) << bits) as u16));
        low += 1 << bits;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_cover_their_range_exactly() {
        for (low, high) in [(0, 65535), (0, 0), (65535, 65535), (1, 65534), (1024, 65535), (7, 9)] {
            let parts = prefixes((low, high));
            for port in 0..=u16::MAX {
                let hits = parts.iter().filter(|(v, m)| port & m == *v).count();
                assert_eq!(hits, usize::from((low..=high).contains(&port)), "{port} {low}-{high}");
            }
        }
        assert_eq!(prefixes((0, 65535)), [(0, 0)]);
    }

    #[test]
    fn a_bad_line_is_named_with_its_column() {
        let text = "@1.0.0.0/8 2.0.0.0/33 0 : 65535 80 : 80 0x06/0xFF 0x0000/0x0200\n";
        let source = Source::new("acl", text);
        let errors = parse(&source, RuleId(0), 10, PacketType(1)).unwrap_err();
        assert_eq!(errors.len(), 1);
        assert_eq!((errors[0].line(), errors[0].column(), errors[0].text()), (1, 12, "2.0.0.0/33"));
    }
}
