//! Values that take the place of text in a file, such as those of environment variables: messages
//! show the text, since a value may be a secret.

use std::fmt;
use std::ops::Range;

use crate::Source;

/// The bytes from which on a value is distinctive: messages about other places hide it too.
const DISTINCTIVE: usize = 8;

/// A value in the place of a text.
#[derive(Clone, PartialEq, Eq)]
pub struct Substituted {
    /// The bytes of the file that hold the text; for a part of a string, the whole string.
    pub span: Range<usize>,
    /// The text of the file.
    pub text: String,
    /// The value in its place.
    pub value: String,
}

impl Source {
    /// The same source, whose mistakes show the texts instead of these values.
    #[must_use]
    pub fn with_substituted(mut self, mut values: Vec<Substituted>) -> Self {
        values.retain(|value| !value.value.is_empty());
        // Values that contain others first.
        values.sort_by_key(|value| std::cmp::Reverse(value.value.len()));
        self.substituted = (!values.is_empty()).then(|| values.into());
        self
    }

    /// The message and the expectation of a mistake at the bytes `span`, without the values that
    /// are substituted there, as a whole or in part, and without distinctive values from elsewhere.
    pub(crate) fn without_values(
        &self,
        span: &Range<usize>,
        message: String,
        expected: String,
    ) -> (String, String) {
        let Some(values) = &self.substituted else { return (message, expected) };
        let is_here =
            |value: &&Substituted| value.span.start <= span.end && span.start <= value.span.end;
        let here: Vec<_> = values.iter().filter(is_here).collect();
        let shown = |text: &str, hides: &dyn Fn(&&Substituted) -> bool| {
            let hidden = values.iter().filter(hides);
            let forms = hidden.flat_map(|value| value.forms().map(|form| (form, &*value.text)));
            without_parts(&without_words(text, &forms.collect::<Vec<_>>()), &here)
        };
        let is_distinctive = |value: &&Substituted| value.value.len() >= DISTINCTIVE;
        // A short value may be a word of what is expected, such as the least number.
        let expected = shown(&expected, &is_distinctive);
        (shown(&message, &|value| is_here(value) || is_distinctive(value)), expected)
    }
}

impl fmt::Debug for Substituted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { span, text, .. } = self;
        f.debug_struct("Substituted")
            .field("span", span)
            .field("text", text)
            .finish_non_exhaustive()
    }
}

impl Substituted {
    /// The value as it is, and as Rust quotes it.
    fn forms(&self) -> impl Iterator<Item = String> {
        [self.value.clone(), self.value.escape_debug().to_string()].into_iter()
    }

    /// Whether a piece of text is in the value, but not in the file.
    fn reveals(&self, piece: &str) -> bool {
        // Between two words in quotes there is a piece with blanks around it.
        let is_word = !piece.is_empty() && piece.trim() == piece;
        is_word && !self.text.contains(piece) && self.forms().any(|form| form.contains(piece))
    }
}

/// The message with the first of `forms` that is found at a place replaced by its text.
fn without_words(message: &str, forms: &[(String, &str)]) -> String {
    let mut shown = String::with_capacity(message.len());
    let mut at = 0;
    while let Some(next) = message[at..].chars().next() {
        let is_start = !message[..at].ends_with(is_word);
        let found = forms.iter().find(|(value, _)| {
            let rest = message[at..].strip_prefix(value.as_str());
            is_start && rest.is_some_and(|rest| !rest.starts_with(is_word))
        });
        if let Some((value, text)) = found {
            shown.push_str(text);
            at += value.len();
        } else {
            shown.push(next);
            at += next.len_utf8();
        }
    }
    shown
}

/// The message with each piece in quotes that reveals a part of a value replaced by its text: a
/// parser quotes the word that it does not know.
fn without_parts(message: &str, values: &[&Substituted]) -> String {
    let mut shown = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(start) = rest.find(['\'', '`', '"']) {
        let (before, quoted) = rest.split_at(start + 1);
        shown.push_str(before);
        rest = quoted;
        let mark = &before[start..];
        let Some((piece, _)) = quoted.split_once(mark) else { continue };
        // A long one ends with an ellipsis.
        let known = piece.trim_end_matches('…');
        if let Some(value) = values.iter().find(|value| value.reveals(known)) {
            shown.push_str(&value.text);
            rest = &quoted[piece.len()..];
        }
    }
    shown.push_str(rest);
    shown
}

/// Whether a character belongs to a word: a value within a longer word is another word.
fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> Source {
        let text = "key = '0x${KEY}'\nport = '${PORT}'\n";
        let of = |span, text: &str, value: &str| Substituted {
            span,
            text: text.into(),
            value: value.into(),
        };
        Source::new("chain.toml", text).with_substituted(vec![
            of(6..16, "${KEY}", "s3cret-\"key\""),
            of(6..16, "0x${KEY}", "0xs3cret-\"key\""),
            of(24..33, "${PORT}", "e1"),
            of(24..33, "${NONE}", ""),
        ])
    }

    #[test]
    fn a_message_shows_the_text_of_the_file_and_not_the_value() {
        let source = source();
        assert!(!format!("{source:?}").contains("s3cret"));
        for (message, shown) in [
            ("bad key '0xs3cret-\"key\"'", "bad key '0x${KEY}'"),
            ("invalid type: string \"0xs3cret-\\\"key\\\"\"", "invalid type: string \"0x${KEY}\""),
            ("no hexadecimal digits: s3cret-\"key\", e1", "no hexadecimal digits: ${KEY}, e1"),
        ] {
            let error = source.error(6..16, message, message);
            assert_eq!((error.message(), error.expected()), (shown, shown));
            assert_eq!(error.text(), "'0x${KEY}'");
        }
    }

    #[test]
    fn a_part_of_a_value_is_hidden_in_quotes() {
        let text = "rules = ['drop x${RULE}']";
        let (span, value) = (9..24, "drop xudp,correct horse");
        let whole = Substituted { span, text: "drop x${RULE}".into(), value: value.into() };
        let source = Source::new("chain.toml", text).with_substituted(vec![whole]);
        for (message, shown) in [
            ("unknown protocol 'xudp'; it isn't 'drop'", "'drop x${RULE}'; it isn't 'drop'"),
            ("unknown protocol `correct h…`", "`drop x${RULE}`"),
            ("unknown protocol \"tcp\" or 'horse", "\"tcp\" or 'horse"),
        ] {
            let shown = format!("unknown protocol {shown}");
            assert_eq!(source.error(10..11, message, "").message(), shown);
        }
    }

    #[test]
    fn a_short_value_is_hidden_at_its_place_and_as_a_word_only() {
        let source = source();
        let message = |span| {
            let message = "there is no interface 'e1', only pe1 and e10";
            let error = source.error(span, message, "one of e1, e10, not 'e1'");
            let expected = error.expected();
            assert!(expected.starts_with("one of e1, e10, not '"), "{expected}");
            assert_eq!(expected.ends_with("'${PORT}'"), error.message().contains("${PORT}"));
            error.message().to_owned()
        };
        assert_eq!(message(24..33), "there is no interface '${PORT}', only pe1 and e10");
        assert_eq!(message(30..30), message(24..33));
        assert_eq!(message(0..3), "there is no interface 'e1', only pe1 and e10");
        let secret = source.error(0..3, "a rule with s3cret-\"key\"", "");
        assert_eq!(secret.message(), "a rule with ${KEY}");
    }
}
