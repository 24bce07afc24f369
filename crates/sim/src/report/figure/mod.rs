//! Figures: what they show, and their files.

mod font;
mod layout;
mod pdf;
mod scale;
mod scene;
mod style;
mod svg;
#[cfg(test)]
mod tests;

use std::fmt::Write;

pub(super) use scale::Scale;

use super::metrics::Metric;

/// How values are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A line for each series over an axis of numbers.
    Lines(Scale),
    /// Next to each other, a bar for each series at each point.
    Bars,
    /// A bar for each point, the series stacked in it.
    Stacks,
}

/// A point of the x axis: its name, and for [`Kind::Lines`] its number.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) name: String,
    pub(super) number: f64,
}

/// A name, and the values at all points.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) values: Vec<Metric>,
}

/// A number of the paper, or a range, from one point to another.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PaperMark {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) least: f64,
    pub(super) most: f64,
}

/// A figure.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    pub(super) kind: Kind,
    pub(super) title: &'static str,
    pub(super) x: &'static str,
    pub(super) y: &'static str,
    pub(super) scale: Scale,
    pub(super) points: Vec<Point>,
    pub(super) series: Vec<Series>,
    /// Halves of the intervals of whole stacks.
    pub(super) of_stacks: Vec<f64>,
    /// A value that others are compared with.
    pub(super) reference: Option<f64>,
    pub(super) marks: Vec<PaperMark>,
    /// What the intervals are over.
    pub(super) samples: &'static str,
    /// Machine, version and seed, and what else a reader must know.
    pub(super) caption: String,
}

impl Figure {
    /// The figure as SVG.
    pub(super) fn svg(&self) -> String {
        svg::svg(&layout::scene(self))
    }

    /// The figure as PDF.
    pub(super) fn pdf(&self) -> Vec<u8> {
        pdf::pdf(&layout::scene(self))
    }

    /// The same as CSV, halves of 95 % intervals in columns of their own.
    pub(super) fn csv(&self) -> String {
        let uncertain = |series: &&Series| series.values.iter().any(|v| v.half_width > 0.0);
        let mut text = self.x.to_owned();
        for series in &self.series {
            let _ = write!(text, ",{}", series.name);
        }
        for series in self.series.iter().filter(uncertain) {
            let _ = write!(text, ",{} 95 %", series.name);
        }
        if !self.of_stacks.is_empty() {
            text += ",all 95 %";
        }
        text.push('\n');
        for (at, point) in self.points.iter().enumerate() {
            text += &point.name;
            for series in &self.series {
                let _ = write!(text, ",{:.4}", series.values[at].value);
            }
            for series in self.series.iter().filter(uncertain) {
                let _ = write!(text, ",{:.4}", series.values[at].half_width);
            }
            if let Some(half) = self.of_stacks.get(at) {
                let _ = write!(text, ",{half:.4}");
            }
            text.push('\n');
        }
        text
    }

    /// Whether any value has an interval.
    pub(super) fn has_intervals(&self) -> bool {
        let values = self.series.iter().flat_map(|series| &series.values);
        !self.of_stacks.is_empty() || values.into_iter().any(|value| value.half_width > 0.0)
    }
}
