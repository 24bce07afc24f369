//! What figures look like, by the rectangles that their parts cover.

use super::scene::{Anchor, Bounds, Part, Place, Scene, Shape};
use super::*;

impl Bounds {
    fn around(places: &[Place], margin: f64) -> Self {
        let start = (f64::INFINITY, f64::INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY);
        let (left, top, right, bottom) = places.iter().fold(start, |so_far, (x, y)| {
            (so_far.0.min(*x), so_far.1.min(*y), so_far.2.max(*x), so_far.3.max(*y))
        });
        Self {
            left: left - margin,
            top: top - margin,
            right: right + margin,
            bottom: bottom + margin,
        }
    }

    fn meets(self, other: Self) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    fn contains(self, other: Self) -> bool {
        self.left <= other.left
            && self.top <= other.top
            && self.right >= other.right
            && self.bottom >= other.bottom
    }
}

impl Shape {
    /// The rectangle that it covers.
    fn bounds(&self) -> Bounds {
        match self {
            Self::Line { places, width, .. } => Bounds::around(places, width / 2.0),
            Self::Area { places, edge, .. } => {
                Bounds::around(places, edge.map_or(0.0, |(width, _)| width / 2.0))
            }
            Self::Text { at: (x, y), anchor, size, upward, text, .. } => {
                let long = font::width(text, *size);
                let before = match anchor {
                    Anchor::Start => 0.0,
                    Anchor::Middle => long / 2.0,
                    Anchor::End => long,
                };
                // Capital letters and digits above the base line, tails below it.
                let (above, below) = (0.73 * size, 0.21 * size);
                if *upward {
                    let bottom = y + before;
                    Bounds { left: x - above, top: bottom - long, right: x + below, bottom }
                } else {
                    let left = x - before;
                    Bounds { left, top: y - above, right: left + long, bottom: y + below }
                }
            }
        }
    }
}

fn metric(value: f64, half_width: f64) -> Metric {
    Metric { value, half_width }
}

/// A figure of any kind, with as many series as there are styles, and long names.
fn example(kind: Kind, scale: Scale) -> Figure {
    let series =
        if matches!(kind, Kind::Lines(_)) { style::LINES.len() } else { style::FILLS.len() };
    let point = |n: u32| Point { name: format!("category 1{n} of all"), number: f64::from(1 << n) };
    let values =
        |n: usize| (0..6).map(|at| metric((n + 1) as f64 * 7.5 * f64::from(at), 1.5)).collect();
    let of = |n| Series { name: format!("a series with a long name {n}"), values: values(n) };
    Figure {
        kind,
        title: "Figure 0: an example",
        x: "points",
        y: "values",
        scale,
        points: (1..7).map(point).collect(),
        series: (0..series).map(of).collect(),
        of_stacks: vec![2.0; if kind == Kind::Stacks { 6 } else { 0 }],
        reference: Some(1.0),
        marks: vec![
            PaperMark { from: 1, to: 3, least: 500.0, most: 500.0 },
            PaperMark { from: 0, to: 5, least: 17.0, most: 26.0 },
            PaperMark { from: 2, to: 2, least: 40.0, most: 40.0 },
        ],
        samples: "the batches",
        caption: "Words of the caption. ".repeat(30),
    }
}

fn examples() -> Vec<Figure> {
    let all = [Kind::Lines(Scale::Linear), Kind::Lines(Scale::Twos), Kind::Lines(Scale::Tens)];
    let bars = [Kind::Bars, Kind::Stacks].map(|kind| example(kind, Scale::Linear));
    let lines = all.into_iter().flat_map(|kind| {
        [Scale::Linear, Scale::Twos, Scale::Tens].map(|scale| example(kind, scale))
    });
    lines.chain(bars).collect()
}

fn of(scene: &Scene, part: Part) -> Vec<Bounds> {
    scene.shapes.iter().filter(|(of, _)| *of == part).map(|(_, shape)| shape.bounds()).collect()
}

#[test]
fn a_legend_covers_nothing() {
    for figure in examples() {
        let scene = layout::scene(&figure);
        let legend = of(&scene, Part::Legend);
        assert!(legend.len() > figure.series.len());
        for part in [Part::Title, Part::Axis, Part::Data, Part::Caption] {
            for other in of(&scene, part) {
                assert!(!legend.iter().any(|key| key.meets(other)), "{part:?} {:?}", figure.kind);
            }
        }
    }
}

#[test]
fn everything_is_on_the_page_and_no_text_covers_another() {
    for figure in examples() {
        let scene = layout::scene(&figure);
        let page = Bounds { left: 0.0, top: 0.0, right: scene.width, bottom: scene.height };
        let mut texts: Vec<(Bounds, &Shape)> = Vec::new();
        for (part, shape) in &scene.shapes {
            let bounds = shape.bounds();
            assert!(page.contains(bounds), "{part:?} {shape:?}");
            if matches!(shape, Shape::Text { .. }) {
                let covered = texts.iter().find(|(other, _)| other.meets(bounds));
                assert!(covered.is_none(), "{shape:?} {covered:?}");
                texts.push((bounds, shape));
            }
        }
    }
}

#[test]
fn data_lies_within_the_axes() {
    for figure in examples() {
        let scene = layout::scene(&figure);
        let frame = of(&scene, Part::Axis).into_iter().reduce(|a, b| Bounds {
            left: a.left.min(b.left),
            top: a.top.min(b.top),
            right: a.right.max(b.right),
            bottom: a.bottom.max(b.bottom),
        });
        // Markers at the edge are a little larger than their place.
        let Bounds { left, top, right, bottom } = frame.unwrap();
        let frame = Bounds { left, top: top - 7.0, right: right + 7.0, bottom };
        assert!(of(&scene, Part::Data).into_iter().all(|data| frame.contains(data)));
    }
}

#[test]
fn values_have_their_intervals_and_the_paper_its_marks() {
    let count = |figure: &Figure| layout::scene(figure).shapes.len();
    for figure in examples() {
        let mut certain = figure.clone();
        certain.of_stacks.clear();
        let values = certain.series.iter_mut().flat_map(|series| &mut series.values);
        values.for_each(|value| value.half_width = 0.0);
        assert!(count(&figure) >= count(&certain) + 3 * 6, "{:?}", figure.kind);
        assert!(figure.has_intervals() && !certain.has_intervals());
        let mut ours = figure.clone();
        ours.marks.clear();
        assert!(count(&figure) >= count(&ours) + 3, "{:?}", figure.kind);
    }
}

#[test]
fn values_that_a_logarithmic_axis_lacks_are_left_out() {
    let figure = example(Kind::Lines(Scale::Linear), Scale::Twos);
    // The first value of each series is 0.
    let legend = |(part, shape): &&(Part, Shape)| {
        *part == Part::Data && matches!(shape, Shape::Area { places, .. } if places.len() != 10)
    };
    let scene = layout::scene(&figure);
    // 5 of 6 values, and the range of the paper.
    assert_eq!(scene.shapes.iter().filter(legend).count(), figure.series.len() * 5 + 1);
}

#[test]
fn commas_separate_values_and_their_intervals() {
    let mut figure = example(Kind::Bars, Scale::Linear);
    figure.series.truncate(2);
    figure.series[1].values.iter_mut().for_each(|value| value.half_width = 0.0);
    figure.series[0].name = "one".into();
    figure.series[1].name = "two".into();
    let csv = figure.csv();
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines[0], "points,one,two,one 95 %");
    assert_eq!(lines[2], "category 12 of all,7.5000,15.0000,1.5000");
}

#[test]
fn figures_of_the_paper_have_no_more_series_than_styles() {
    for (name, _, figure) in crate::report::tests::all_figures() {
        let styles = if matches!(figure.kind, Kind::Lines(_)) {
            style::LINES.len()
        } else {
            style::FILLS.len()
        };
        assert!(figure.series.len() <= styles, "{name}");
        let scene = layout::scene(&figure);
        let legend = of(&scene, Part::Legend);
        let rest = [Part::Axis, Part::Data].into_iter().flat_map(|part| of(&scene, part));
        assert!(rest.into_iter().all(|other| !legend.iter().any(|key| key.meets(other))), "{name}");
    }
}
