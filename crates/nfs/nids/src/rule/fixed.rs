//! Contents that can lie at one place only.
//!
//! A content at a fixed place is compared, not searched for, and cannot lie anywhere else later.

use super::content::{Content, Number, PayloadTest};

/// Finds the contents of `tests` that have one place, and notes it.
pub(in super::super) fn fix(tests: &mut [PayloadTest]) {
    // Where the previous match ends, if that is always the same.
    let mut cursor = Some(0);
    for test in tests {
        match test {
            PayloadTest::Content(content) => {
                content.place = place(content, cursor);
                if !content.negated {
                    cursor = content.place.map(|place| place + content.bytes.len());
                }
            }
            PayloadTest::Base64 { tests, .. } => fix(tests),
            PayloadTest::Regex(_) | PayloadTest::ByteJump(_) | PayloadTest::ByteExtract(_) => {
                cursor = None;
            }
            PayloadTest::ByteTest(_) | PayloadTest::IsDataAt { .. } | PayloadTest::Size { .. } => {}
        }
    }
}

/// The only place of a content after a previous match that ends at `cursor`.
fn place(content: &Content, cursor: Option<usize>) -> Option<usize> {
    let literal = |number: Option<Number>| match number {
        Some(Number::Literal(number)) => Some(number),
        Some(Number::Variable(_)) => None,
        None => Some(0),
    };
    let (start, room) = match (content.is_relative(), content.offset.or(content.depth)) {
        (true, None) => {
            let cursor = i64::try_from(cursor?).ok()?;
            (cursor.checked_add(literal(content.distance)?)?, literal(content.within)?)
        }
        (true, Some(_)) => return None,
        (false, _) => (literal(content.offset)?, literal(content.depth)?),
    };
    let is_all = usize::try_from(room) == Ok(content.bytes.len());
    usize::try_from(start).ok().filter(|_| is_all && !content.ends_with)
}
