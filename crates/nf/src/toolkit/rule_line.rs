//! Lines of rules: an action, then a pattern in flow syntax.

use std::ops::Range;

use thalweg_classify::flow_syntax::FlowError;
use thalweg_source::{Passage, Source, SourceError};

/// The place of a rule.
#[derive(Clone)]
pub struct Place<'a> {
    /// The file that holds it.
    pub source: &'a Source,
    /// The byte it begins at, if it is there verbatim (a string may hold escapes).
    pub start: Option<usize>,
    /// The span of bytes that holds it.
    pub whole: Range<usize>,
}

impl<'a> Place<'a> {
    /// The place of the string `text` of a chain file, whose span with its quotes is `whole`.
    pub fn of_string(source: &'a Source, text: &str, whole: Range<usize>) -> Self {
        let inner = source.text().get(whole.start + 1..whole.end.saturating_sub(1));
        let start = (inner == Some(text)).then_some(whole.start + 1);
        Self { source, start, whole }
    }

    /// A mistake at the bytes `at` of the rule.
    pub fn error(&self, at: Range<usize>, message: &str, expected: &str) -> SourceError {
        let span = self.start.map_or(self.whole.clone(), |s| s + at.start..s + at.end);
        self.source.error(span, message, expected)
    }

    /// A mistake in the rule's pattern, which begins at byte `at` of the rule.
    pub fn flow_error(&self, at: usize, e: &FlowError) -> SourceError {
        self.error(at + e.span.start..at + e.span.end, &e.message, &e.expected)
    }

    /// The passage of the rule `text`, without the blanks around it.
    pub fn passage(&self, text: &str) -> Passage {
        let lead = text.len() - text.trim_start().len();
        let inner = |s: usize| s + lead..s + lead + text.trim().len();
        Passage::new(self.source, self.start.map_or(self.whole.clone(), inner))
    }
}

/// The rules of a file, one per line; ignores empty lines and comments from `#` on.
pub fn lines(source: &Source) -> impl Iterator<Item = (Place<'_>, &str)> {
    source.lines().filter_map(move |(whole, line)| {
        let text = line.split('#').next().unwrap_or("");
        let place = Place { source, start: Some(whole.start), whole };
        (!text.trim().is_empty()).then_some((place, text))
    })
}

/// Parses a rule: the index in `actions` of its action, and its pattern, by `parse`.
///
/// # Errors
/// The first word that is wrong.
pub fn read<T>(
    place: &Place<'_>,
    text: &str,
    actions: &[&str],
    parse: impl FnOnce(&str) -> Result<T, FlowError>,
) -> Result<(usize, T), SourceError> {
    let lead = text.len() - text.trim_start().len();
    let end = text[lead..].find([' ', '\t', ',']).map_or(text.len(), |i| lead + i);
    let Some(action) = actions.iter().position(|action| *action == &text[lead..end]) else {
        let (last, others) = actions.split_last().unwrap_or((&"", &[]));
        let names = format!("{} or {last}", others.join(", "));
        let expected = format!("{names}, then a pattern such as tcp,tp_dst=23");
        return Err(place.error(lead..end, "unknown action", &expected));
    };
    let pattern = parse(&text[end..]).map_err(|e| place.flow_error(end, &e))?;
    Ok((action, pattern))
}
