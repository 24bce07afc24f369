//! The lines around a mistake, fit for a terminal.

use std::ops::Range;

use crate::SourceError;
use crate::visible::{shortened, tail};

/// The most characters of a line of an excerpt.
const WIDTH: usize = 160;

/// The most characters of a long line that precede the mistake, and that are marked.
const PART: usize = 64;

/// The blanks that a tab is shown as.
const TAB: &str = "    ";

/// The line of a mistake between its neighbours, escaped, and truncated around the mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The lines.
    pub text: String,
    /// The 1-based number of the first of them.
    pub first_line: usize,
    /// The bytes of `text` that are wrong. A mistake of several lines is marked in its first.
    pub span: Range<usize>,
}

impl SourceError {
    /// The lines around the mistake; `None` for a file without text.
    pub fn excerpt(&self) -> Option<Excerpt> {
        let text = self.source_file().text();
        if text.is_empty() {
            return None;
        }
        let span = self.span();
        let line = line_at(text, span.start);
        let mut excerpt = Excerpt { text: String::new(), first_line: self.line(), span: 0..0 };
        if line.start > 0 {
            excerpt.first_line -= 1;
            excerpt.text = shown(&text[line_at(text, line.start - 1)]) + "\n";
        }
        let start = span.start.min(line.end);
        let end = span.end.clamp(start, line.end);
        let parts = [&text[line.start..start], &text[start..end], &text[end..line.end]];
        excerpt.push(parts);
        let next = text[line.end..].find('\n').map(|at| line.end + at + 1);
        if let Some(next) = next.filter(|next| *next < text.len()) {
            excerpt.text.push('\n');
            excerpt.text += &shown(&text[line_at(text, next)]);
        }
        Some(excerpt)
    }
}

impl Excerpt {
    /// Adds a line, whose middle part is wrong.
    fn push(&mut self, parts: [&str; 3]) {
        // The start of a long part is enough to find out that it is long.
        let [before, wrong, after] = parts.map(|part| clipped(part).replace('\t', TAB));
        let lengths =
            [&before, &wrong, &after].map(|part| shortened(part, WIDTH + 1).chars().count());
        let (before, wrong, after) = if lengths.iter().sum::<usize>() <= WIDTH {
            (shortened(&before, WIDTH), shortened(&wrong, WIDTH), shortened(&after, WIDTH))
        } else {
            let before = parts[0].replace('\t', TAB);
            let before = tail(&before, PART).into_owned();
            let wrong = shortened(&wrong, PART);
            let rest = WIDTH - before.chars().count() - wrong.chars().count();
            let after = shortened(&after, rest);
            (before.into(), wrong, after)
        };
        self.text += &before;
        let start = self.text.len();
        self.text += &wrong;
        self.span = start..self.text.len();
        self.text += &after;
    }
}

/// The bytes of the line that holds the byte `at`, without its end.
fn line_at(text: &str, at: usize) -> Range<usize> {
    let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let end = text[at..].find('\n').map_or(text.len(), |end| at + end);
    start..start + text[start..end].strip_suffix('\r').unwrap_or(&text[start..end]).len()
}

fn shown(line: &str) -> String {
    shortened(&clipped(line).replace('\t', TAB), WIDTH).into_owned()
}

/// The start of a text: more characters than a line shows.
fn clipped(text: &str) -> &str {
    text.char_indices().nth(WIDTH + 1).map_or(text, |(at, _)| &text[..at])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Source, is_visible};

    fn excerpt(text: &str, span: Range<usize>) -> Excerpt {
        Source::new("x", text).error(span, "m", "e").excerpt().unwrap()
    }

    #[test]
    fn a_mistake_stands_between_its_neighbours() {
        let e = excerpt("one\ntwo\nthr\x1bee\nfour\n", 9..12);
        assert_eq!((e.text.as_str(), e.first_line), ("two\nthr\\x1bee\nfour", 2));
        assert_eq!(&e.text[e.span], "hr\\x1b");
        let e = excerpt("one\r\ntwo\r\n", 0..9);
        assert_eq!((e.text.as_str(), e.first_line, e.span), ("one\ntwo", 1, 0..3));
        let e = excerpt("one\n", 4..4);
        assert_eq!((e.text.as_str(), e.first_line, e.span), ("one\n", 1, 4..4));
        assert_eq!(Source::new("x", "").error(0..0, "m", "e").excerpt(), None);
    }

    #[test]
    fn a_long_line_is_truncated_around_the_mistake() {
        let text = format!(
            "{}\n{} wrong {}\n",
            "c".repeat(1 << 20),
            "a".repeat(1 << 20),
            "b".repeat(1 << 20)
        );
        let at = text.find("wrong").unwrap();
        let e = excerpt(&text, at..at + 5);
        assert_eq!(&e.text[e.span.clone()], "wrong");
        let lines: Vec<_> = e.text.lines().collect();
        assert!(
            lines[0].ends_with("c…") && lines[1].starts_with("…aaa") && lines[1].ends_with("bb…")
        );
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{lines:?}");
        let e = excerpt(&text, 0..text.len());
        assert_eq!(e.text[e.span].chars().count(), PART);
    }

    proptest! {
        #[test]
        fn an_excerpt_is_bounded_visible_and_marks_the_mistake(
            text in "([a\t\x1b\u{202e}é日\r]{0,90}\n){0,4}[a\t\x1b\u{9b}é日]{0,400}",
            start in 0usize..600, length in 0usize..300,
        ) {
            prop_assume!(!text.is_empty());
            let error = Source::new("x", text.as_str()).error(start..start + length, "m", "e");
            let e = error.excerpt().unwrap();
            let is_shown = |c: char| c == '\n' || is_visible(c);
            prop_assert!(e.text.chars().all(is_shown), "{:?}", e.text);
            prop_assert!(e.text.split('\n').all(|line| line.chars().count() <= WIDTH));
            prop_assert!(e.text.split('\n').count() <= 3);
            // The span is in the text, in the line of the mistake.
            let before = e.text.get(..e.span.start).unwrap();
            prop_assert_eq!(e.first_line + before.matches('\n').count(), error.line());
            let marked = e.text.get(e.span).unwrap();
            let shown = |c| if c == '\t' { ' ' } else if is_visible(c) { c } else { '\\' };
            if let Some(first) = error.text().chars().next().filter(|c| !matches!(c, '\n' | '\r')) {
                prop_assert_eq!(marked.chars().next(), Some(shown(first)));
            }
        }
    }
}
