//! Where a rule stands in a source.

use std::ops::Range;

use crate::{Passage, Source, SourceError};

/// The place of a rule, or of another short text.
#[derive(Clone)]
pub struct Place<'a> {
    /// The file that holds it.
    source: &'a Source,
    /// The byte it begins at, if it is there verbatim (a string may hold escapes).
    start: Option<usize>,
    /// The span of bytes that holds it.
    whole: Range<usize>,
}

impl<'a> Place<'a> {
    /// The place of the string `text` of a TOML file, whose span with its quotes is `whole`.
    pub fn of_string(source: &'a Source, text: &str, whole: Range<usize>) -> Self {
        let inner = source.text().get(whole.start + 1..whole.end.saturating_sub(1));
        let start = (inner == Some(text)).then_some(whole.start + 1);
        Self { source, start, whole }
    }

    /// The place of the line with the bytes `whole`.
    fn of_line(source: &'a Source, whole: Range<usize>) -> Self {
        Self { source, start: Some(whole.start), whole }
    }

    /// A mistake at the bytes `at` of the rule.
    pub fn error(
        &self,
        at: Range<usize>,
        message: impl Into<String>,
        expected: impl Into<String>,
    ) -> SourceError {
        self.source.error(self.span(at), message, expected)
    }

    /// The passage of the rule `text`, without the blanks around it.
    pub fn passage(&self, text: &str) -> Passage {
        let lead = text.len() - text.trim_start().len();
        Passage::new(self.source, self.span(lead..lead + text.trim().len()))
    }

    /// The bytes of the source that hold the bytes `at` of the rule.
    fn span(&self, at: Range<usize>) -> Range<usize> {
        self.start.map_or(self.whole.clone(), |start| start + at.start..start + at.end)
    }
}

impl Source {
    /// The rules of a file, one per line, with their places; ignores empty lines and comments from
    /// `#` on.
    pub fn rules(&self) -> impl Iterator<Item = (Place<'_>, &str)> {
        self.lines().filter_map(move |(whole, line)| {
            let text = line.split('#').next().unwrap_or("");
            (!text.trim().is_empty()).then_some((Place::of_line(self, whole), text))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_with_escapes_is_shown_whole_and_any_other_in_part() {
        let source = Source::new("chain.toml", "a = ' one two'\nb = \"t\\u0077o\"\n");
        let plain = Place::of_string(&source, " one two", 4..14);
        assert_eq!(plain.error(1..4, "wrong", "").text(), "one");
        assert_eq!(plain.passage(" one two").error("wrong", "").text(), "one two");
        let escaped = Place::of_string(&source, "two", 19..29);
        assert_eq!(escaped.error(0..1, "wrong", "").text(), "\"t\\u0077o\"");
    }

    #[test]
    fn empty_lines_and_comments_are_no_rules() {
        let source = Source::new("rules", "# none\n\n  one # first\ntwo\n");
        let rules: Vec<_> = source.rules().map(|(_, text)| text).collect();
        assert_eq!(rules, ["  one ", "two"]);
        let mut places = source.rules().map(|(place, text)| place.passage(text).error("", ""));
        assert_eq!(places.next().map(|e| (e.line(), e.column())), Some((3, 3)));
    }
}
