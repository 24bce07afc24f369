//! What a figure is drawn of: lines, areas and texts, in points from the upper left corner.

use super::font;
use super::style::{Colour, Dash};

/// A place on the page.
pub(super) type Place = (f64, f64);

/// What a shape is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Title,
    Legend,
    Axis,
    Data,
    Caption,
}

/// Which side of a text its place is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shape {
    /// A line through places.
    Line { places: Vec<Place>, width: f64, colour: Colour, dash: Dash },
    /// A closed area with an edge.
    Area { places: Vec<Place>, fill: Colour, edge: Option<(f64, Colour)> },
    /// A text on its base line; `upward` reads from below.
    Text { at: Place, anchor: Anchor, size: f64, upward: bool, colour: Colour, text: String },
}

/// A rectangle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bounds {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
}

/// All shapes, those in the background first.
#[derive(Clone, Debug, Default)]
pub(super) struct Scene {
    pub(super) width: f64,
    pub(super) height: f64,
    /// Read aloud, and searched for.
    pub(super) title: String,
    pub(super) shapes: Vec<(Part, Shape)>,
}

impl Scene {
    pub(super) fn line(&mut self, part: Part, places: &[Place], width: f64, colour: Colour) {
        self.dashed(part, places, width, colour, &[]);
    }

    pub(super) fn dashed(
        &mut self,
        part: Part,
        places: &[Place],
        width: f64,
        colour: Colour,
        dash: Dash,
    ) {
        self.shapes.push((part, Shape::Line { places: places.to_vec(), width, colour, dash }));
    }

    pub(super) fn area(
        &mut self,
        part: Part,
        places: Vec<Place>,
        fill: Colour,
        edge: Option<(f64, Colour)>,
    ) {
        self.shapes.push((part, Shape::Area { places, fill, edge }));
    }

    pub(super) fn rectangle(
        &mut self,
        part: Part,
        of: Bounds,
        fill: Colour,
        edge: Option<(f64, Colour)>,
    ) {
        let Bounds { left, top, right, bottom } = of;
        self.area(
            part,
            vec![(left, top), (right, top), (right, bottom), (left, bottom)],
            fill,
            edge,
        );
    }

    /// A text; what follows `^` is raised and smaller.
    pub(super) fn text(&mut self, part: Part, at: Place, anchor: Anchor, size: f64, text: &str) {
        let colour = super::style::INK;
        let mut push = |at, anchor, size, text: &str| {
            let text = text.to_owned();
            self.shapes.push((part, Shape::Text { at, anchor, size, upward: false, colour, text }));
        };
        let Some((base, raised)) = text.split_once('^') else {
            push(at, anchor, size, text);
            return;
        };
        let (small, wide) = (0.72 * size, font::width(base, size));
        let before = match anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => f64::midpoint(wide, font::width(raised, small)),
            Anchor::End => wide + font::width(raised, small),
        };
        push((at.0 - before, at.1), Anchor::Start, size, base);
        push((at.0 - before + wide, at.1 - 0.38 * size), Anchor::Start, small, raised);
    }

    /// A text that reads from below.
    pub(super) fn upward(&mut self, part: Part, at: Place, size: f64, text: &str) {
        let (anchor, colour) = (Anchor::Middle, super::style::INK);
        let text = text.to_owned();
        self.shapes.push((part, Shape::Text { at, anchor, size, upward: true, colour, text }));
    }
}
