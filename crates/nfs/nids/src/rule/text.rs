//! Splits a rule's text into its parts and keeps their positions.

use std::ops::Range;

/// An error in a rule.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) span: Range<usize>,
    pub(super) message: String,
    pub(super) expected: String,
    /// The rule is valid but needs an unsupported feature.
    pub(super) unsupported: bool,
}

impl Fault {
    pub(super) fn new(
        span: Range<usize>,
        message: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        Self { span, message: message.into(), expected: expected.into(), unsupported: false }
    }

    pub(super) fn unsupported(span: Range<usize>, what: impl std::fmt::Display) -> Self {
        Self {
            span,
            message: format!("{what} is not supported"),
            expected: "a feature that docs/nf/nids.md lists".into(),
            unsupported: true,
        }
    }
}

/// A piece of a rule with its position in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'a> {
    pub(super) text: &'a str,
    pub(super) start: usize,
}

impl Piece<'_> {
    pub(super) fn span(self) -> Range<usize> {
        self.start..self.start + self.text.len()
    }

    /// Without blanks and line-continuing backslashes at both ends.
    pub(super) fn trim(self) -> Self {
        let mut text = self.text.trim_start();
        while let Some(rest) = text.strip_prefix("\\\n").or_else(|| text.strip_prefix("\\\r\n")) {
            text = rest.trim_start();
        }
        let lead = self.text.len() - text.len();
        let mut text = text.trim_end();
        while let Some(rest) = continued(self.from(lead).text, text) {
            text = rest.trim_end();
        }
        Self { text, start: self.start + lead }
    }

    pub(super) fn from(self, at: usize) -> Self {
        Self { text: &self.text[at..], start: self.start + at }
    }

    pub(super) fn to(self, end: usize) -> Self {
        Self { text: &self.text[..end], start: self.start }
    }

    /// The part before and the part after the first `separator`.
    pub(super) fn split_once(self, separator: char) -> Option<(Self, Self)> {
        let at = self.text.find(separator)?;
        Some((self.to(at), self.from(at + separator.len_utf8())))
    }

    /// The parts between `separator`s, trimmed.
    pub(super) fn split(self, separator: char) -> impl Iterator<Item = Self> {
        let mut rest = Some(self);
        std::iter::from_fn(move || {
            let now = rest?;
            if let Some((part, behind)) = now.split_once(separator) {
                rest = Some(behind);
                Some(part.trim())
            } else {
                rest = None;
                Some(now.trim())
            }
        })
    }

    /// The text after its first character, if that is `lead`.
    pub(super) fn strip(self, lead: char) -> Option<Self> {
        self.text.starts_with(lead).then(|| self.from(lead.len_utf8()).trim())
    }

    /// The text between quotes, or all of it if it is not quoted.
    pub(super) fn unquoted(self) -> Self {
        let inner = self.text.strip_prefix('"').and_then(|t| t.strip_suffix('"'));
        inner.map_or(self, |text| Self { text, start: self.start + 1 })
    }

    pub(super) fn fault(self, message: impl Into<String>, expected: impl Into<String>) -> Fault {
        Fault::new(self.span(), message, expected)
    }

    /// The text as a number.
    pub(super) fn number<T: std::str::FromStr>(self) -> Result<T, Fault> {
        self.text.parse().map_err(|_| self.fault("bad number", "an integer in range"))
    }
}

/// `text`, a prefix of `whole`, without the backslash at its end, if a line end follows the
/// backslash.
fn continued<'a>(whole: &str, text: &'a str) -> Option<&'a str> {
    let behind = &whole[text.len()..];
    let ends = behind.starts_with('\n') || behind.starts_with("\r\n");
    text.strip_suffix('\\').filter(|_| ends)
}

/// The parts of an option list, separated by semicolons that are neither escaped by a backslash
/// nor quoted.
pub(super) fn options(list: Piece<'_>) -> Result<Vec<Piece<'_>>, Fault> {
    let mut parts = Vec::new();
    let (mut start, mut quoted, mut escaped) = (0, false, false);
    for (at, c) in list.text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            ';' if !quoted => {
                let part = list.from(start).to(at - start).trim();
                if part.text.is_empty() {
                    let semicolon = list.from(at).to(1);
                    return Err(semicolon.fault("empty option", "an option before each semicolon"));
                }
                parts.push(part);
                start = at + 1;
            }
            _ => {}
        }
    }
    let rest = list.from(start).trim();
    if quoted || !rest.text.is_empty() {
        let expected = "a semicolon after each option and after closed quotes";
        return Err(rest.fault("unterminated option", expected));
    }
    Ok(parts)
}
