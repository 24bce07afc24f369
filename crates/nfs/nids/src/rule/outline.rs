//! What a regular expression demands at least.
//!
//! A call of PCRE costs a hundred cycles even where the first byte is wrong, and a packet can have
//! hundreds of places to try. So a simpler parser reads the expression, too. What it understands bounds
//! PCRE's matches from above: each byte set below has what PCRE accepts there, and perhaps more. Where
//! the two languages differ, or may, nothing is known of the expression.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind, Look};

/// Bytes of a match that are compared.
const FIRST: usize = 8;

/// The most steps to read an expression; of a larger one nothing is known.
const STEPS: u32 = 10_000;

/// The positions from 0 to [`FIRST`], a bit each.
type Positions = u16;

/// What is known of an expression's matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Outline {
    /// They begin where the subject begins.
    pub(in super::super) is_anchored: bool,
    /// They depend on no byte before them.
    pub(in super::super) is_steady: bool,
    /// The maximum number of their bytes.
    pub(in super::super) longest: usize,
    shortest: usize,
    /// For each byte, the positions of a match at which it may be.
    positions: Box<[u8; 256]>,
}

/// The flags of an expression that its outline depends on.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Flags {
    pub(in super::super) caseless: bool,
    pub(in super::super) dot_all: bool,
    pub(in super::super) multi_line: bool,
    pub(in super::super) anchored: bool,
}

impl Outline {
    /// `None` if nothing is known of the expression.
    pub(in super::super) fn new(pattern: &str, flags: Flags) -> Option<Self> {
        if !is_common(pattern) {
            return None;
        }
        let mut parser = ParserBuilder::new();
        parser.utf8(false).unicode(false).case_insensitive(flags.caseless);
        parser.dot_matches_new_line(flags.dot_all).multi_line(flags.multi_line);
        let hir = parser.build().parse(pattern).ok()?;
        let mut walk = Walk { positions: Box::new([0; 256]), left: STEPS };
        let ends = walk.over(&hir, 1)?;
        let Walk { mut positions, .. } = walk;
        let properties = hir.properties();
        let is_end = |look| matches!(look, Look::End | Look::EndLF | Look::EndCRLF);
        // Any byte may follow the end of a match.
        let free = (0..FIRST).filter(|at| ends & ((2 << at) - 1) != 0);
        let free = free.fold(0, |free, at| free | 1 << at);
        positions.iter_mut().for_each(|of_byte| *of_byte |= free);
        Some(Self {
            is_anchored: flags.anchored || properties.look_set_prefix().contains(Look::Start),
            is_steady: properties.look_set().iter().all(is_end) && !flags.anchored,
            longest: properties.maximum_len().unwrap_or(usize::MAX),
            shortest: properties.minimum_len().unwrap_or(0),
            positions,
        })
    }

    /// Whether a match may begin where `subject` does.
    pub(in super::super) fn may_begin(&self, subject: &[u8]) -> bool {
        let mut first = subject.iter().take(FIRST).enumerate();
        subject.len() >= self.shortest
            && first.all(|(at, byte)| self.positions[usize::from(*byte)] >> at & 1 == 1)
    }
}

/// Whether both languages have all constructs of a pattern, with the same meaning.
fn is_common(pattern: &str) -> bool {
    if !pattern.is_ascii() {
        return false;
    }
    let (mut in_class, mut rest) = (false, pattern);
    while let Some(c) = rest.chars().next() {
        let mut length = 1;
        let is_odd = match c {
            '\\' => {
                length = 2;
                // Assertions of one language that are characters in the other.
                rest.len() < 2 || "v<>".contains(&rest[1..2])
            }
            '[' if !in_class => {
                in_class = true;
                // A bracket that closes is the first member.
                length += usize::from(rest[1..].starts_with('^'));
                rest[length..].starts_with(']')
            }
            ']' if in_class => {
                in_class = false;
                false
            }
            '[' => true,
            '&' | '-' | '~' if in_class => rest[1..].starts_with(c),
            '(' if !in_class && rest[1..].starts_with('?') => {
                !["(?:", "(?i)", "(?i:"].iter().any(|known| rest.starts_with(known))
            }
            '{' if !in_class => rest[1..].starts_with(','),
            _ => false,
        };
        if is_odd {
            return false;
        }
        rest = &rest[length..];
    }
    true
}

/// Finds which bytes the first positions of matches may have.
struct Walk {
    positions: Box<[u8; 256]>,
    left: u32,
}

impl Walk {
    /// Adds the bytes of matches of `hir` that begin at positions `from`; returns where they end, or
    /// `None` if that takes too many steps.
    fn over(&mut self, hir: &Hir, from: Positions) -> Option<Positions> {
        self.left = self.left.checked_sub(1)?;
        match hir.kind() {
            HirKind::Empty | HirKind::Look(_) => Some(from),
            HirKind::Literal(literal) => {
                Some(literal.0.iter().fold(from, |from, byte| self.byte(*byte, from)))
            }
            HirKind::Class(class) => {
                let class = match class {
                    Class::Bytes(class) => class.clone(),
                    Class::Unicode(class) => class.to_byte_class()?,
                };
                let bytes = class.ranges().iter().flat_map(|range| range.start()..=range.end());
                Some(bytes.fold(0, |ends, byte| ends | self.byte(byte, from)))
            }
            HirKind::Capture(capture) => self.over(&capture.sub, from),
            HirKind::Concat(parts) => {
                parts.iter().try_fold(from, |from, part| self.over(part, from))
            }
            HirKind::Alternation(ways) => {
                ways.iter().try_fold(0, |ends, way| Some(ends | self.over(way, from)?))
            }
            HirKind::Repetition(repetition) => {
                let mut ends = if repetition.min == 0 { from } else { 0 };
                let (mut now, most) = (from, repetition.max.unwrap_or(u32::MAX));
                for count in 1..=most {
                    let next = self.over(&repetition.sub, now)?;
                    let is_new = next != now && next & !ends != 0;
                    now = next;
                    ends |= if count >= repetition.min || !is_new { now } else { 0 };
                    if !is_new {
                        break;
                    }
                }
                Some(ends)
            }
        }
    }

    /// Adds a byte at positions; returns those after it.
    fn byte(&mut self, byte: u8, at: Positions) -> Positions {
        self.positions[usize::from(byte)] |= at as u8;
        at << 1 & ((2 << FIRST) - 1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Expressions over few bytes, some of which only one of the two languages has.
    fn pattern() -> impl Strategy<Value = String> {
        let atom = prop_oneof![
            8 => "[ab{$]",
            2 => r"\\x(61|7b)|\\[.$<>{}v]|\\[wWdsS]",
            2 => r"\.|\^|\$|\\b|\\A",
            3 => r"\[\^?[ab{]{1,3}(b-z|&|~|-|\\d)?\]",
        ];
        atom.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                4 => proptest::collection::vec(inner.clone(), 1..4).prop_map(|all| all.concat()),
                2 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("(?:{a}|{b})")),
                1 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("(?:(?i){a}|{b})")),
                1 => inner.clone().prop_map(|a| format!("(?={a})")),
                2 => (inner, r"[*+?]|\{[0-3]\}|\{,?[12],?\}", "[?+]?")
                    .prop_map(|(a, count, kind)| format!("({a}){count}{kind}")),
            ]
        })
    }

    fn subject() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![8 => prop::sample::select(&b"abAB{}$"[..]), 1 => any::<u8>()];
        proptest::collection::vec(byte, 0..12)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
        #[test]
        fn an_outline_holds_for_all_matches_of_pcre(
            pattern in pattern(),
            subjects in proptest::collection::vec(subject(), 1..6),
            flags in any::<[bool; 4]>(),
        ) {
            let [caseless, dot_all, multi_line, anchored] = flags;
            let known = Flags { caseless, dot_all, multi_line, anchored };
            let mut builder = pcre2::bytes::RegexBuilder::new();
            builder.caseless(caseless).dotall(dot_all).multi_line(multi_line);
            let prefix = if anchored { r"\A" } else { "" };
            let Ok(regex) = builder.build(&format!("{prefix}(?:{pattern})")) else { return Ok(()) };
            let Some(outline) = Outline::new(&pattern, known) else { return Ok(()) };
            for subject in &subjects {
                let mut earlier = true;
                for at in 0..=subject.len() {
                    let found = regex.find(&subject[at..]).unwrap();
                    if let Some(found) = &found {
                        let there = &subject[at + found.start()..];
                        prop_assert!(outline.may_begin(there), "{outline:?}");
                        prop_assert!(!outline.is_anchored || found.start() == 0);
                        prop_assert!(found.end() - found.start() <= outline.longest);
                        prop_assert!(earlier || !outline.is_steady, "no match before {at}");
                    }
                    earlier = found.is_some();
                }
            }
        }
    }

    #[test]
    fn what_cannot_begin_a_match_is_known() {
        let of = |pattern| Outline::new(pattern, Flags { caseless: true, ..Flags::default() });
        let jndi = of(r"^(l|r|\x24\x7b(lower|upper)\x3a(l|r)\x7d)(d|m)(a|i)(p|s?q)").unwrap();
        for (subject, may) in [
            ("${jndi:", false),
            ("ldap:", true),
            ("${LOWER:l}dap", true),
            ("rmi", false),
            ("lxap", false),
        ] {
            assert_eq!(jndi.may_begin(subject.as_bytes()), may, "{subject}");
        }
        assert!(jndi.is_anchored && !jndi.is_steady && jndi.longest == 14);
        let plain = of("a[^\r\n]*b$").unwrap();
        assert!(!plain.is_anchored && plain.is_steady && plain.longest == usize::MAX);
        // Lookaround, references, and what means other things in the two languages.
        for other in ["(?=a)b", r"(a)\1", r"\<a", r"a\v", "[a[b]]", "[a&&b]", "a{,3}", "é"] {
            assert_eq!(of(other), None, "{other}");
        }
        assert_eq!(of(&"a?".repeat(10_000)), None);
    }
}
