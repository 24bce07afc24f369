//! Patterns of banners: regular expressions with the attributes that a match implies.
//!
//! The expressions have no look-around and no back references, so that the time for a text
//! is linear in its length, also for hostile ones.

use regex::bytes::{Captures, Regex, RegexBuilder, RegexSet, RegexSetBuilder};

use super::super::attributes::{Attributes, Draft};

/// The most bytes of a compiled pattern, and of a compiled set of patterns.
const SIZE: usize = 1 << 20;
const SET_SIZE: usize = 64 << 20;

/// A piece of an attribute's value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// What a group of the expression matched.
    Group(usize),
    /// The value of an attribute before this one.
    Attribute(String),
}

/// The template of an attribute's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template(Vec<Piece>);

impl Template {
    /// What one group of the expression matched.
    pub(super) fn group(number: usize) -> Self {
        Self(vec![Piece::Group(number)])
    }

    /// A text with groups, `$1`.
    pub(super) fn with_groups(text: &str) -> Self {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            let digits = rest[at + 1..].bytes().take_while(u8::is_ascii_digit).count();
            let end = at + 1 + digits;
            match rest[at + 1..end].parse() {
                Ok(number) => pieces.extend([text_of(&rest[..at]), Piece::Group(number)]),
                Err(_) => pieces.push(text_of(&rest[..end])),
            }
            rest = &rest[end..];
        }
        pieces.push(text_of(rest));
        Self(pieces)
    }

    /// A text with other attributes' values, `{service.version}`.
    pub(super) fn with_attributes(text: &str) -> Self {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let Some((name, behind)) = after.split_once('}') else { break };
            pieces.extend([text_of(before), Piece::Attribute(name.to_owned())]);
            rest = behind;
        }
        pieces.push(text_of(rest));
        Self(pieces)
    }

    /// The highest group number that it refers to.
    fn groups(&self) -> usize {
        let numbers = self.0.iter().map(|p| if let Piece::Group(n) = p { *n } else { 0 });
        numbers.max().unwrap_or(0)
    }

    /// The value; `None` if it would only hold groups without a match.
    fn fill(&self, captures: &Captures<'_>, attributes: &Draft) -> Option<String> {
        let mut value = String::new();
        let mut absent = false;
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => value.push_str(text),
                Piece::Group(number) => match captures.get(*number) {
                    Some(group) => value.push_str(&String::from_utf8_lossy(group.as_bytes())),
                    None => absent = true,
                },
                // An unknown version is "-" in a CPE name.
                Piece::Attribute(name) => value.push_str(attributes.get(name).unwrap_or("-")),
            }
        }
        let says = !value.is_empty() || !absent;
        says.then_some(value)
    }
}

fn text_of(text: &str) -> Piece {
    Piece::Text(text.to_owned())
}

/// The dialect of an expression.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reading {
    pub(super) ignore_case: bool,
    pub(super) dot_is_any: bool,
    /// `^` and `$` also match at line boundaries.
    pub(super) lines: bool,
    /// `\0` and `\12` are octal character codes.
    pub(super) octal: bool,
}

/// An expression and the attributes that a match implies.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    expression: String,
    reading: Reading,
    regex: Regex,
    /// Attributes, in the order in which they are set.
    set: Vec<(String, Template)>,
}

impl Pattern {
    /// A pattern that sets the attributes of `set`.
    ///
    /// # Errors
    /// What is wrong with the expression or with a group's number.
    pub(super) fn new(
        expression: &str,
        reading: Reading,
        set: Vec<(String, Template)>,
    ) -> Result<Self, String> {
        let mut builder = RegexBuilder::new(expression);
        builder
            .unicode(false)
            .case_insensitive(reading.ignore_case)
            .dot_matches_new_line(reading.dot_is_any)
            .multi_line(reading.lines)
            .octal(reading.octal)
            .size_limit(SIZE);
        let regex = builder.build().map_err(|e| last_line(&e.to_string()))?;
        let groups = regex.captures_len() - 1;
        let most = set.iter().map(|(_, template)| template.groups()).max().unwrap_or(0);
        if most > groups {
            return Err(format!("there is no group {most}, only {groups}"));
        }
        Ok(Self { expression: expression.to_owned(), reading, regex, set })
    }

    fn attributes(&self, text: &[u8]) -> Option<Attributes> {
        let captures = self.regex.captures(text)?;
        let mut attributes = Draft::default();
        for (name, template) in &self.set {
            if let Some(value) = template.fill(&captures, &attributes) {
                attributes.set(name, &value);
            }
        }
        Some(attributes.finish())
    }

    /// The expression with its flags inline, for a set of several.
    fn inline(&self) -> String {
        let Reading { ignore_case, dot_is_any, lines, .. } = self.reading;
        let flags: String = [(ignore_case, 'i'), (dot_is_any, 's'), (lines, 'm')]
            .into_iter()
            .filter_map(|(on, flag)| on.then_some(flag))
            .collect();
        let flags = if flags.is_empty() { flags } else { format!("(?{flags})") };
        format!("{flags}{}", self.expression)
    }
}

/// The message of an expression's error, without the excerpt above it.
fn last_line(message: &str) -> String {
    let last = message.lines().last().unwrap_or(message);
    last.trim_start_matches("error: ").to_owned()
}

/// All patterns for one kind of text; the first match decides.
#[derive(Clone, Debug, Default)]
pub(super) struct Patterns {
    list: Vec<Pattern>,
    /// All patterns as one set; `None` before `build`, or if they are too many.
    together: Option<RegexSet>,
}

impl Patterns {
    pub(super) fn push(&mut self, pattern: Pattern) {
        self.list.push(pattern);
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Compiles all patterns into one set.
    pub(super) fn build(&mut self) {
        let mut builder = RegexSetBuilder::new(self.list.iter().map(Pattern::inline));
        // Octal codes are safe for all: no pattern has back references.
        builder.unicode(false).octal(true).size_limit(SET_SIZE);
        self.together = builder.build().ok();
    }

    /// The attributes of the first pattern that matches `text`.
    pub(super) fn find(&self, text: &[u8]) -> Option<Attributes> {
        match &self.together {
            Some(all) => {
                let first = all.matches(text).into_iter().next()?;
                self.list[first].attributes(text)
            }
            None => self.list.iter().find_map(|pattern| pattern.attributes(text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(expression: &str, set: &[(&str, Template)]) -> Pattern {
        let set = set.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        Pattern::new(expression, Reading::default(), set).unwrap()
    }

    #[test]
    fn groups_and_attributes_fill_values() {
        let set = [
            ("service.version", Template::group(1)),
            ("service.info", Template::with_groups("$2 costs $")),
            ("service.cpe23", Template::with_attributes("cpe:/a:x:{service.version}:{os.version}")),
        ];
        let found = pattern(r"^X_(\d+)(?: (\w+))?", &set).attributes(b"X_7 y").unwrap();
        assert_eq!(found.get("service.version"), Some("7"));
        assert_eq!(found.get("service.info"), Some("y costs $"));
        assert_eq!(found.get("service.cpe23"), Some("cpe:/a:x:7:-"));
    }

    #[test]
    fn a_group_without_a_match_sets_nothing() {
        let found = pattern("^X(_y)?", &[("a", Template::group(1))]).attributes(b"X").unwrap();
        assert_eq!(found.get("a"), None);
    }

    #[test]
    fn the_first_of_several_counts_alone_and_together() {
        let mut patterns = Patterns::default();
        for (expression, name) in [("no", "a"), ("(?i)ye", "b"), ("yes", "c")] {
            patterns.push(pattern(expression, &[(name, Template::with_groups("1"))]));
        }
        let alone = patterns.find(b"YES yes").unwrap();
        patterns.build();
        assert_eq!(patterns.find(b"YES yes").unwrap(), alone);
        assert_eq!(alone.get("b"), Some("1"));
        assert!(patterns.find(b"maybe").is_none());
    }

    #[test]
    fn mistakes_are_told() {
        let wrong = Pattern::new("(", Reading::default(), Vec::new()).unwrap_err();
        assert_eq!(wrong, "unclosed group");
        let set = vec![("a".to_owned(), Template::group(2))];
        let wrong = Pattern::new("(x)", Reading::default(), set).unwrap_err();
        assert_eq!(wrong, "there is no group 2, only 1");
    }
}
