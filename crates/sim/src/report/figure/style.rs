//! Colours, dashes and markers, which can be distinguished in print without colours.

/// A colour: red, green and blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Colour(pub(super) u8, pub(super) u8, pub(super) u8);

pub(super) const BLACK: Colour = Colour(0, 0, 0);
pub(super) const WHITE: Colour = Colour(0xff, 0xff, 0xff);
/// Axes and what is written at them.
pub(super) const INK: Colour = Colour(0x22, 0x22, 0x22);
/// Lines of the grid.
pub(super) const GRID: Colour = Colour(0xdd, 0xdd, 0xdd);
/// Ranges that the paper gives.
pub(super) const SHADE: Colour = Colour(0xe4, 0xe4, 0xe4);

pub(super) type Dash = &'static [f64];
const SOLID: Dash = &[];
const DASHED: Dash = &[6.0, 2.5];
const DOTTED: Dash = &[1.5, 2.0];
const MIXED: Dash = &[7.0, 2.0, 1.5, 2.0];
const LONG: Dash = &[11.0, 3.0];

/// How the line of a series is drawn. No two have the same marker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LineStyle {
    pub(super) colour: Colour,
    pub(super) dash: Dash,
    pub(super) marker: Marker,
}

/// A shape with corners at a distance from the middle, the first at the given angle; filled or
/// not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Marker {
    pub(super) corners: u32,
    pub(super) turn: f64,
    pub(super) filled: bool,
}

const fn line(colour: Colour, dash: Dash, corners: u32, turn: f64, filled: bool) -> LineStyle {
    LineStyle { colour, dash, marker: Marker { corners, turn, filled } }
}

const CIRCLE: u32 = 20;
/// Most of the colours are those of Okabe and Ito, which colour-blind readers can distinguish.
pub(super) const LINES: [LineStyle; 10] = [
    line(Colour(0x0b, 0x2a, 0x6b), SOLID, CIRCLE, 0.0, true),
    line(Colour(0xd5, 0x5e, 0x00), SOLID, 4, 45.0, true),
    line(Colour(0x00, 0x9e, 0x73), DASHED, 3, 90.0, true),
    line(Colour(0x6a, 0x3d, 0x9a), DASHED, 4, 0.0, true),
    line(Colour(0x56, 0xb4, 0xe9), SOLID, CIRCLE, 0.0, false),
    line(BLACK, DOTTED, 4, 45.0, false),
    line(Colour(0xcc, 0x79, 0xa7), DOTTED, 3, 90.0, false),
    line(Colour(0x8c, 0x56, 0x4b), MIXED, 4, 0.0, false),
    line(Colour(0xe6, 0x9f, 0x00), MIXED, 3, 270.0, true),
    line(Colour(0x44, 0x44, 0x44), LONG, 3, 270.0, false),
];

/// Fills of bars, in steps of lightness.
pub(super) const FILLS: [Colour; 4] = [
    Colour(0x08, 0x30, 0x6b),
    Colour(0xd5, 0x5e, 0x00),
    Colour(0x56, 0xb4, 0xe9),
    Colour(0xf0, 0xe4, 0x42),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// CIE L*: how light a colour is in grey, from 0 to 100.
    fn lightness(Colour(red, green, blue): Colour) -> f64 {
        let linear = |part: u8| {
            let part = f64::from(part) / 255.0;
            if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        };
        let light = 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
        if light > 0.008_856 { 116.0 * light.cbrt() - 16.0 } else { 903.3 * light }
    }

    fn pairs<T: Copy>(all: &[T]) -> impl Iterator<Item = (T, T)> {
        (0..all.len()).flat_map(move |a| (0..a).map(move |b| (all[a], all[b])))
    }

    #[test]
    fn fills_can_be_distinguished_in_grey() {
        for (a, b) in pairs(&FILLS) {
            assert!((lightness(a) - lightness(b)).abs() >= 15.0, "{a:?} {b:?}");
        }
    }

    #[test]
    fn lines_can_be_distinguished_in_grey_and_on_white() {
        for (a, b) in pairs(&LINES) {
            assert_ne!(a.marker, b.marker);
            let apart = (lightness(a.colour) - lightness(b.colour)).abs() >= 15.0;
            assert!(apart || a.dash != b.dash, "{a:?} {b:?}");
        }
        assert!(LINES.iter().all(|style| lightness(style.colour) < 75.0));
    }
}
