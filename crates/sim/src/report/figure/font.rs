//! The font of figures: what PDF files embed, and the widths that the layout needs. Helvetica,
//! Arial and Liberation Sans, which SVG viewers have, are as wide.

use std::sync::LazyLock;

use ttf_parser::{Face, GlyphId};

/// Arimo Regular by Google (SIL Open Font License 1.1, `font/OFL.txt`), reduced to [`CHARACTERS`].
pub(super) const FILE: &[u8] = include_bytes!("font/arimo.ttf");
/// Characters besides those of ASCII that it has, with their codes in PDF's WinAnsiEncoding.
const CHARACTERS: [(char, u8); 4] = [('±', 0xb1), ('·', 0xb7), ('×', 0xd7), ('–', 0x96)];

static FACE: LazyLock<Face<'static>> =
    LazyLock::new(|| Face::parse(FILE, 0).expect("the font is whole"));

/// The code of a character in WinAnsiEncoding; that of `?` where the font lacks it.
pub(super) fn code(character: char) -> u8 {
    let other = || CHARACTERS.iter().find(|(known, _)| *known == character);
    match u8::try_from(character) {
        Ok(code) if (b' '..=b'~').contains(&code) => code,
        _ => other().map_or(b'?', |(_, code)| *code),
    }
}

fn character(code: u8) -> Option<char> {
    let other = || CHARACTERS.iter().find(|(_, known)| *known == code).map(|(known, _)| *known);
    if (b' '..=b'~').contains(&code) { Some(char::from(code)) } else { other() }
}

/// The width of a code's character, where the size is 1000.
pub(super) fn advance(code: u8) -> f64 {
    let glyph = character(code).and_then(|known| FACE.glyph_index(known)).unwrap_or(GlyphId(0));
    let advance = FACE.glyph_hor_advance(glyph).unwrap_or(0);
    1000.0 * f64::from(advance) / f64::from(FACE.units_per_em())
}

/// The width of a text of the given size.
pub(super) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(|character| advance(code(character))).sum::<f64>() * size / 1000.0
}

/// Lines of at most `most` points, broken at blanks.
pub(super) fn wrap(text: &str, size: f64, most: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(&format!("{line} {word}"), size) <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_those_of_helvetica() {
        // 722 + 556 + 833 + 556 + 556 + 333 + 556 in its metrics.
        assert!((width("Hamburg", 1000.0) - 4112.0).abs() < 8.0, "{}", width("Hamburg", 1000.0));
        assert!(CHARACTERS.iter().all(|(known, code)| character(*code) == Some(*known)));
        assert!(CHARACTERS.iter().all(|(known, _)| FACE.glyph_index(*known).is_some()));
        assert_eq!(wrap("one two three", 10.0, width("one two", 10.0)), ["one two", "three"]);
        // A word that is too long has a line of its own.
        assert_eq!(wrap("a incomprehensible b", 10.0, 20.0), ["a", "incomprehensible", "b"]);
    }
}
