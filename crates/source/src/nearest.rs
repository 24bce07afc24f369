//! Suggestions for misspelt and unknown names.

use crate::shortened;

/// The longest name that is compared.
const LONGEST: usize = 48;
/// The most characters of a list of names.
const SHOWN: usize = 100;

/// The candidate that `text` is probably a misspelling of: the one with the fewest edits, if they
/// are at most one in three characters. Case does not count; the first of several is returned.
pub fn nearest<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let text = text.to_ascii_lowercase();
    if text.len() > LONGEST {
        return None;
    }
    let most = (text.len() / 3).max(1);
    let near = |name: &&str| name.len().abs_diff(text.len()) <= most && name.len() <= LONGEST;
    let edits = |name: &'a str| (edits(text.as_bytes(), name.as_bytes()), name);
    let close = candidates.into_iter().filter(near).map(edits).filter(|(n, _)| *n <= most);
    close.min_by_key(|(n, _)| *n).map(|(_, name)| name)
}

/// What is expected in place of an unknown name: one of `names`, about 100 characters of them, or
/// `none` if there are none.
pub fn names_or(names: &[&str], none: &str) -> String {
    match names {
        [] => none.to_owned(),
        names => shortened(&names.join(", "), SHOWN).into_owned(),
    }
}

/// The number of insertions, deletions, substitutions and exchanges of neighbours that turn `a`
/// into `b` (the optimal string alignment distance).
fn edits(a: &[u8], b: &[u8]) -> usize {
    // Three rows of the table of distances between prefixes.
    let mut rows = [[0; LONGEST + 1]; 3];
    for (j, distance) in rows[0].iter_mut().enumerate() {
        *distance = j;
    }
    for i in 1..=a.len() {
        let [above, row, before] = [i - 1, i, i + 1].map(|row| row % 3);
        rows[row][0] = i;
        for j in 1..=b.len() {
            let differ = !a[i - 1].eq_ignore_ascii_case(&b[j - 1]);
            let replaced = rows[above][j - 1] + usize::from(differ);
            let mut least = (rows[above][j] + 1).min(rows[row][j - 1] + 1).min(replaced);
            let exchanged = |x: &[u8], y: &[u8]| x[0].eq_ignore_ascii_case(&y[1]);
            if i > 1 && j > 1 {
                let (x, y) = (&a[i - 2..i], &b[j - 2..j]);
                if exchanged(x, y) && exchanged(y, x) {
                    least = least.min(rows[before][j - 2] + 1);
                }
            }
            rows[row][j] = least;
        }
    }
    rows[a.len() % 3][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 7] =
        ["content", "flow", "http.host", "http.uri", "http_uri", "HOME_NET", "sid"];

    #[test]
    fn a_misspelt_name_has_a_suggestion() {
        for (text, name) in [
            ("contnet", "content"),
            ("flwo", "flow"),
            ("Flow", "flow"),
            ("http.hots", "http.host"),
            ("http-uri", "http.uri"),
            ("http_ur", "http_uri"),
            ("HOEM_NET", "HOME_NET"),
            ("si", "sid"),
        ] {
            assert_eq!(nearest(text, NAMES), Some(name), "{text}");
        }
    }

    #[test]
    fn another_name_has_none() {
        for text in ["", "x", "byte_math", "HTTP_PORTS", &"content".repeat(99)] {
            assert_eq!(nearest(text, NAMES), None, "{text}");
        }
    }

    #[test]
    fn edits_are_counted() {
        for (a, b, count) in
            [("", "", 0), ("", "ab", 2), ("ab", "ba", 1), ("abc", "axc", 1), ("abcd", "bcde", 2)]
        {
            assert_eq!(edits(a.as_bytes(), b.as_bytes()), count, "{a} {b}");
            assert_eq!(edits(b.as_bytes(), a.as_bytes()), count, "{b} {a}");
        }
    }
}
