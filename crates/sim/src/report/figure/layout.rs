//! Where everything is: title, legend, axes with the data, and caption, one below the other, so
//! that none covers another.

use super::scale::{Scale, Span};
use super::scene::{Anchor, Bounds, Part, Place, Scene};
use super::style::{BLACK, Colour, FILLS, GRID, INK, LINES, Marker, SHADE, WHITE};
use super::{Figure, Kind, PaperMark, font};

/// Seven inches: both columns of a page.
const WIDTH: f64 = 504.0;
const MARGIN: f64 = 8.0;
/// Of the axes with the data.
const HEIGHT: f64 = 210.0;
/// Left of the axes, for names of ticks and of the axis.
const LEFT: f64 = 50.0;
const TITLE: f64 = 10.0;
const NAME: f64 = 8.5;
const TICK: f64 = 8.0;
const CAPTION: f64 = 7.0;
/// From one base line to the next, times the size.
const LINE: f64 = 1.3;
/// A key of the legend, and the gap to its name.
const KEY: f64 = 26.0;
const GAP: f64 = 5.0;
const RADIUS: f64 = 3.0;
/// Part of a point's room that its bars fill.
const FILLED: f64 = 0.76;

/// A figure's axes on the page.
struct Axes {
    area: Bounds,
    x: Option<Span>,
    y: Span,
    points: usize,
}

impl Axes {
    fn new(figure: &Figure, top: f64) -> Self {
        let area = Bounds { left: LEFT, top, right: WIDTH - MARGIN, bottom: top + HEIGHT };
        let x = match figure.kind {
            Kind::Lines(scale) => Some(Span::tight(scale, figure.points.iter().map(|p| p.number))),
            Kind::Bars | Kind::Stacks => None,
        };
        let y = Span::round(figure.scale, shown(figure).into_iter());
        Self { area, x, y, points: figure.points.len() }
    }

    /// The room of a point, from left to right.
    fn room(&self, at: usize) -> (f64, f64) {
        let room = (self.area.right - self.area.left) / self.points.max(1) as f64;
        let left = self.area.left + room * at as f64;
        (left, left + room)
    }

    fn x(&self, figure: &Figure, at: usize) -> f64 {
        let (left, right) = self.room(at);
        let part = self.x.and_then(|span| span.at(figure.points[at].number));
        let wide = self.area.right - self.area.left;
        part.map_or(f64::midpoint(left, right), |part| self.area.left + part * wide)
    }

    /// The height of a value; `None` for one that a logarithmic axis does not have.
    fn y(&self, value: f64) -> Option<f64> {
        let part = self.y.at(value)?;
        Some(self.area.bottom - part * (self.area.bottom - self.area.top))
    }
}

/// All values that the y axis must have.
fn shown(figure: &Figure) -> Vec<f64> {
    let mut values: Vec<f64> = figure
        .marks
        .iter()
        .flat_map(|mark| [mark.least, mark.most])
        .chain(figure.reference)
        .collect();
    if figure.kind == Kind::Stacks {
        for at in 0..figure.points.len() {
            let all: f64 = figure.series.iter().map(|series| series.values[at].value).sum();
            values.push(all + figure.of_stacks.get(at).copied().unwrap_or(0.0));
        }
    } else {
        let ends = |value: &super::Metric| {
            [value.value, value.value - value.half_width, value.value + value.half_width]
        };
        values.extend(figure.series.iter().flat_map(|series| &series.values).flat_map(ends));
    }
    values
}

/// The figure's shapes.
pub(super) fn scene(figure: &Figure) -> Scene {
    let mut scene = Scene { width: WIDTH, title: figure.title.to_owned(), ..Scene::default() };
    let mut y = MARGIN + TITLE;
    scene.text(Part::Title, (MARGIN, y), Anchor::Start, TITLE, figure.title);
    y += 6.0;
    y = legend(&mut scene, figure, y);
    let axes = Axes::new(figure, y + 6.0);
    grid(&mut scene, &axes);
    ranges(&mut scene, figure, &axes);
    // Marks are behind lines and before bars; neither hides an interval.
    match figure.kind {
        Kind::Lines(_) => {
            marks(&mut scene, figure, &axes);
            lines(&mut scene, figure, &axes);
        }
        Kind::Bars => {
            let whiskers = bars(&mut scene, figure, &axes);
            marks(&mut scene, figure, &axes);
            scene.shapes.extend(whiskers.shapes);
        }
        Kind::Stacks => {
            let whiskers = stacks(&mut scene, figure, &axes);
            marks(&mut scene, figure, &axes);
            scene.shapes.extend(whiskers.shapes);
        }
    }
    y = names(&mut scene, figure, &axes);
    for line in font::wrap(&figure.caption, CAPTION, WIDTH - 2.0 * MARGIN) {
        y += LINE * CAPTION;
        scene.text(Part::Caption, (MARGIN, y), Anchor::Start, CAPTION, &line);
    }
    scene.height = y + MARGIN;
    scene
}

/// The names of the series, in columns; returns where it ends.
fn legend(scene: &mut Scene, figure: &Figure, top: f64) -> f64 {
    let paper = (!figure.marks.is_empty()).then_some("the paper's value");
    let names: Vec<&str> =
        figure.series.iter().map(|series| series.name.as_str()).chain(paper).collect();
    let widest = names.iter().map(|name| font::width(name, TICK)).fold(0.0, f64::max);
    let column = KEY + GAP + widest + 14.0;
    let columns = (((WIDTH - 2.0 * MARGIN) / column) as usize).clamp(1, names.len().max(1));
    for (n, name) in names.iter().enumerate() {
        let x = MARGIN + column * (n % columns) as f64;
        let y = top + LINE * TICK * ((n / columns) as f64 + 0.5) + 2.0;
        match figure.kind {
            _ if n == figure.series.len() => paper_key(scene, figure, (x, y)),
            Kind::Lines(_) => {
                let style = LINES[n % LINES.len()];
                let ends = [(x, y), (x + KEY, y)];
                scene.dashed(Part::Legend, &ends, 1.4, style.colour, style.dash);
                marker(scene, Part::Legend, (x + KEY / 2.0, y), style.marker, style.colour);
            }
            Kind::Bars | Kind::Stacks => {
                let key = Bounds { left: x, top: y - 4.0, right: x + KEY, bottom: y + 4.0 };
                scene.rectangle(Part::Legend, key, FILLS[n % FILLS.len()], Some((0.6, BLACK)));
            }
        }
        scene.text(Part::Legend, (x + KEY + GAP, y + 2.8), Anchor::Start, TICK, name);
    }
    top + LINE * TICK * names.len().div_ceil(columns) as f64 + 2.0
}

fn paper_key(scene: &mut Scene, figure: &Figure, (x, y): Place) {
    if figure.marks.iter().any(|mark| mark.least < mark.most) {
        let key = Bounds { left: x, top: y - 4.0, right: x + KEY, bottom: y + 4.0 };
        scene.rectangle(Part::Legend, key, SHADE, None);
    }
    if figure.marks.iter().any(|mark| mark.from < mark.to && mark.least >= mark.most) {
        level(scene, Part::Legend, x, x + KEY, y);
    } else {
        star(scene, Part::Legend, (x + KEY / 2.0, y));
    }
}

/// Lines at the ticks of the y axis, and the names of those.
fn grid(scene: &mut Scene, axes: &Axes) {
    let Bounds { left, right, .. } = axes.area;
    for (value, name) in axes.y.ticks() {
        let Some(y) = axes.y(value) else { continue };
        scene.line(Part::Axis, &[(left, y), (right, y)], 0.5, GRID);
        scene.line(Part::Axis, &[(left - 3.5, y), (left, y)], 0.7, INK);
        scene.text(Part::Axis, (left - 6.0, y + 2.8), Anchor::End, TICK, &name);
    }
    for value in axes.y.minor_ticks() {
        let Some(y) = axes.y(value) else { continue };
        scene.line(Part::Axis, &[(left - 2.0, y), (left, y)], 0.5, INK);
    }
}

/// The frame, the names below the x axis, and those of both axes; returns where they end.
fn names(scene: &mut Scene, figure: &Figure, axes: &Axes) -> f64 {
    let Bounds { left, top, right, bottom } = axes.area;
    scene.line(Part::Axis, &[(left, top), (left, bottom), (right, bottom)], 0.8, INK);
    let mut end = bottom + 3.5 + LINE * TICK;
    match axes.x {
        Some(span) if figure.kind == Kind::Lines(Scale::Tens) => {
            let at = |value| span.at(value).map(|part| left + part * (right - left));
            for (value, name) in span.ticks() {
                let Some(x) = at(value) else { continue };
                scene.line(Part::Axis, &[(x, bottom), (x, bottom + 3.5)], 0.7, INK);
                scene.text(Part::Axis, (x, end), Anchor::Middle, TICK, &name);
            }
            for x in span.minor_ticks().into_iter().filter_map(at) {
                scene.line(Part::Axis, &[(x, bottom), (x, bottom + 2.0)], 0.5, INK);
            }
        }
        _ => {
            let (first, mut free) = (end, 0.0);
            for (at, point) in figure.points.iter().enumerate() {
                let (x, (from, to)) = (axes.x(figure, at), axes.room(at));
                if axes.x.is_some() {
                    scene.line(Part::Axis, &[(x, bottom), (x, bottom + 3.5)], 0.7, INK);
                }
                let lines = font::wrap(&point.name, TICK, to - from - 4.0);
                let half =
                    lines.iter().map(|line| font::width(line, TICK)).fold(0.0, f64::max) / 2.0;
                let x = x.min(WIDTH - 2.0 - half);
                // Points that are too close to the last one with a name have none.
                if x - half < free {
                    continue;
                }
                free = x + half + 2.0;
                for (n, line) in lines.iter().enumerate() {
                    let y = first + LINE * TICK * n as f64;
                    scene.text(Part::Axis, (x, y), Anchor::Middle, TICK, line);
                    end = end.max(y);
                }
            }
        }
    }
    end += LINE * NAME + 2.0;
    scene.text(Part::Axis, (f64::midpoint(left, right), end), Anchor::Middle, NAME, figure.x);
    scene.upward(Part::Axis, (MARGIN + NAME, f64::midpoint(top, bottom)), NAME, figure.y);
    end + 3.0
}

fn lines(scene: &mut Scene, figure: &Figure, axes: &Axes) {
    reference(scene, figure, axes);
    // The first on top.
    for (n, series) in figure.series.iter().enumerate().rev() {
        let style = LINES[n % LINES.len()];
        let place = |at: usize| Some((axes.x(figure, at), axes.y(series.values[at].value)?));
        let places: Vec<Option<Place>> = (0..figure.points.len()).map(place).collect();
        for part in places.split(Option::is_none) {
            let part: Vec<Place> = part.iter().copied().flatten().collect();
            if part.len() > 1 {
                scene.dashed(Part::Data, &part, 1.4, style.colour, style.dash);
            }
        }
        for (value, (x, y)) in
            series.values.iter().zip(&places).filter_map(|(v, p)| Some((v, (*p)?)))
        {
            whisker(scene, axes, x, value.value, value.half_width);
            marker(scene, Part::Data, (x, y), style.marker, style.colour);
        }
    }
}

/// Draws bars; returns their intervals.
fn bars(scene: &mut Scene, figure: &Figure, axes: &Axes) -> Scene {
    let mut whiskers = Scene::default();
    let floor = axes.y(0.0).unwrap_or(axes.area.bottom);
    for at in 0..figure.points.len() {
        let (left, right) = axes.room(at);
        let bar = (right - left) * FILLED / figure.series.len().max(1) as f64;
        let start = left + (right - left) * (1.0 - FILLED) / 2.0;
        for (n, series) in figure.series.iter().enumerate() {
            let value = series.values[at];
            let Some(y) = axes.y(value.value) else { continue };
            let x = start + bar * n as f64;
            let of = Bounds { left: x, top: y.min(floor), right: x + bar, bottom: y.max(floor) };
            scene.rectangle(Part::Data, of, FILLS[n % FILLS.len()], Some((0.5, BLACK)));
            whisker(&mut whiskers, axes, x + bar / 2.0, value.value, value.half_width);
        }
    }
    reference(scene, figure, axes);
    whiskers
}

/// Draws stacks; returns the intervals of their sums.
fn stacks(scene: &mut Scene, figure: &Figure, axes: &Axes) -> Scene {
    let mut whiskers = Scene::default();
    for at in 0..figure.points.len() {
        let (left, right) = axes.room(at);
        let gap = (right - left) * (1.0 - FILLED) / 2.0;
        let mut below = 0.0;
        for (n, series) in figure.series.iter().enumerate() {
            let above = below + series.values[at].value;
            let (Some(top), Some(bottom)) = (axes.y(above), axes.y(below)) else { continue };
            if above > below {
                let of = Bounds { left: left + gap, top, right: right - gap, bottom };
                scene.rectangle(Part::Data, of, FILLS[n % FILLS.len()], Some((0.5, BLACK)));
            }
            below = above;
        }
        let half = figure.of_stacks.get(at).copied().unwrap_or(0.0);
        whisker(&mut whiskers, axes, f64::midpoint(left, right), below, half);
    }
    whiskers
}

fn reference(scene: &mut Scene, figure: &Figure, axes: &Axes) {
    let Some(y) = figure.reference.and_then(|value| axes.y(value)) else { return };
    scene.line(Part::Data, &[(axes.area.left, y), (axes.area.right, y)], 0.9, INK);
}

/// An interval.
fn whisker(scene: &mut Scene, axes: &Axes, x: f64, value: f64, half: f64) {
    let (Some(top), Some(bottom)) = (axes.y(value + half), axes.y(value - half)) else { return };
    if half > 0.0 {
        scene.line(Part::Data, &[(x, top), (x, bottom)], 0.7, BLACK);
        for y in [top, bottom] {
            scene.line(Part::Data, &[(x - 2.2, y), (x + 2.2, y)], 0.7, BLACK);
        }
    }
}

/// The ranges that the paper gives, behind the data.
fn ranges(scene: &mut Scene, figure: &Figure, axes: &Axes) {
    for mark in figure.marks.iter().filter(|mark| mark.least < mark.most) {
        let (left, right) = reach(figure, axes, mark);
        let (Some(top), Some(bottom)) = (axes.y(mark.most), axes.y(mark.least)) else { continue };
        scene.rectangle(Part::Data, Bounds { left, top, right, bottom }, SHADE, None);
    }
}

/// The numbers that the paper gives, over the data.
fn marks(scene: &mut Scene, figure: &Figure, axes: &Axes) {
    for mark in figure.marks.iter().filter(|mark| mark.least >= mark.most) {
        let Some(y) = axes.y(mark.most) else { continue };
        if mark.from < mark.to {
            let (left, right) = reach(figure, axes, mark);
            level(scene, Part::Data, left, right, y);
        } else {
            star(scene, Part::Data, (axes.x(figure, mark.from), y));
        }
    }
}

/// How far a mark reaches, from left to right.
fn reach(figure: &Figure, axes: &Axes, mark: &PaperMark) -> (f64, f64) {
    match axes.x {
        Some(_) => (axes.x(figure, mark.from) - 6.0, axes.x(figure, mark.to) + 6.0),
        None => (axes.room(mark.from).0, axes.room(mark.to).1),
    }
}

/// Black with a white edge, so that it shows on bars of any colour.
fn level(scene: &mut Scene, part: Part, left: f64, right: f64, y: f64) {
    scene.line(part, &[(left, y), (right, y)], 3.0, WHITE);
    scene.dashed(part, &[(left, y), (right, y)], 1.6, BLACK, &[8.0, 3.0]);
}

fn star(scene: &mut Scene, part: Part, middle: Place) {
    let corner = |n: u32| {
        let radius = if n.is_multiple_of(2) { 6.0 } else { 2.5 };
        around(middle, radius, 90.0 + f64::from(n) * 36.0)
    };
    scene.area(part, (0..10).map(corner).collect(), WHITE, Some((1.0, BLACK)));
}

fn marker(scene: &mut Scene, part: Part, middle: Place, marker: Marker, colour: Colour) {
    let Marker { corners, turn, filled } = marker;
    let step = 360.0 / f64::from(corners);
    let places = (0..corners).map(|n| around(middle, RADIUS, turn + f64::from(n) * step)).collect();
    scene.area(part, places, if filled { colour } else { WHITE }, Some((1.0, colour)));
}

/// A place at a distance from another, at an angle in degrees.
fn around((x, y): Place, radius: f64, angle: f64) -> Place {
    let angle = angle.to_radians();
    (x + radius * libm::cos(angle), y - radius * libm::sin(angle))
}
