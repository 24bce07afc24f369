//! Plots of a series: what happened in a run over time.

use std::collections::BTreeMap;
use std::error::Error;
use std::ops::Range;

use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use thalweg_engine::{Interval, PortReport, Series};

use crate::units::{rate, time};

/// Width and height in pixels.
pub(super) const SIZE: (u32, u32) = (960, 280);

const FONT: (&str, u32) = ("sans-serif", 15);

/// The most lines of a plot: as many as there are colours.
const MOST: usize = COLOURS.len();

/// Colours that colour-blind readers can distinguish (Okabe and Ito), on light and dark pages.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x99, 0x99, 0x99),
    RGBColor(0xf0, 0xe4, 0x42),
];

/// A plot over time.
pub(super) struct Plot {
    pub(super) title: String,
    pub(super) lines: Vec<Line>,
    form: Form,
    /// The start and the end of each interval, in seconds.
    spans: Vec<(f64, f64)>,
    unit: fn(f64) -> String,
}

/// A line of a plot.
pub(super) struct Line {
    pub(super) name: String,
    /// A value for each interval; `None` where there is none.
    values: Vec<Option<f64>>,
}

/// How the lines of a plot are drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Lines,
    /// On top of each other, so that their sum is visible.
    Stack,
    /// On a logarithmic scale.
    Logarithmic,
}

/// The colours of lines, for a style sheet.
pub(super) fn colours() -> impl Iterator<Item = String> {
    COLOURS.into_iter().map(|RGBColor(r, g, b)| format!("#{r:02x}{g:02x}{b:02x}"))
}

/// The plots of a series; those without a value above 0 are left out.
pub(super) fn all(series: &Series) -> Vec<Plot> {
    let plots = [
        plot(series, "Packets per second by port", Form::Lines, pps, ports(series, |p| p.packets)),
        plot(series, "Bits per second by port", Form::Lines, bits, ports(series, |p| 8 * p.bytes)),
        plot(series, "Packets dropped per second by reason", Form::Stack, pps, drops(series)),
        plot(series, "Time from receive to transmit", Form::Logarithmic, ns, latency(series)),
        plot(series, "Cycles per packet by NF", Form::Lines, number, cycles(series)),
    ];
    let is_of_interest = |plot: &Plot| {
        let mut values = plot.lines.iter().flat_map(|line| line.values.iter().flatten());
        values.any(|value| *value > 0.0)
    };
    plots.into_iter().filter(is_of_interest).collect()
}

fn pps(value: f64) -> String {
    rate(value, "pps")
}

fn bits(value: f64) -> String {
    rate(value, "bit/s")
}

fn ns(value: f64) -> String {
    time(value as u64)
}

fn number(value: f64) -> String {
    format!("{value:.0}")
}

fn plot(
    series: &Series,
    title: &str,
    form: Form,
    unit: fn(f64) -> String,
    mut lines: Vec<Line>,
) -> Plot {
    let spans = series.intervals.iter().map(|i| (i.start_s, i.end_s)).collect();
    let more = lines.len().saturating_sub(MOST);
    lines.truncate(MOST);
    // Lines of counts have the rest as their last one; others are left out.
    let title = if more > 0 { format!("{title} ({more} more not shown)") } else { title.into() };
    Plot { title, lines, form, spans, unit }
}

/// A count of each port per second.
fn ports(series: &Series, count: fn(&PortReport) -> u64) -> Vec<Line> {
    let of_interval = |interval: &Interval| {
        let inputs = interval.inputs.iter().map(|port| ("in", port));
        let outputs = interval.outputs.iter().map(|port| ("out", port));
        let count =
            |(way, port): (&str, &PortReport)| (format!("{way}: {}", port.name), count(port));
        inputs.chain(outputs).map(count).collect()
    };
    rates(series, of_interval)
}

/// The drops by reason, per second.
fn drops(series: &Series) -> Vec<Line> {
    let of_interval = |interval: &Interval| {
        interval.drops.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect()
    };
    rates(series, of_interval)
}

/// Counts by name, per second: those with the most in the whole series, and the sum of others, in
/// the order of their names.
fn rates(series: &Series, of_interval: impl Fn(&Interval) -> BTreeMap<String, u64>) -> Vec<Line> {
    let counts: Vec<_> = series.intervals.iter().map(of_interval).collect();
    let mut totals: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, count) in counts.iter().flatten() {
        *totals.entry(name).or_default() += count;
    }
    let mut names: Vec<&str> = totals.keys().copied().collect();
    names.sort_by_key(|name| std::cmp::Reverse(totals[name]));
    let others = if names.len() > MOST { names.split_off(MOST - 1) } else { Vec::new() };
    names.sort_unstable();
    let line = |name: String, members: &[&str]| {
        let sum =
            |of: &BTreeMap<String, u64>| members.iter().filter_map(|name| of.get(*name)).sum();
        let intervals = series.intervals.iter().zip(&counts);
        let values = intervals.map(|(interval, of)| Some(interval.per_second(sum(of))));
        Line { name, values: values.collect() }
    };
    let mut lines: Vec<_> = names.iter().map(|name| line((*name).to_owned(), &[name])).collect();
    if !others.is_empty() {
        lines.push(line(format!("{} others", others.len()), &others));
    }
    lines
}

/// The percentiles of latency, where packets were transmitted.
fn latency(series: &Series) -> Vec<Line> {
    let percentile = |name: &str, of: fn(&Interval) -> u64| {
        let value = |i: &Interval| Some(of(i) as f64).filter(|ns| i.packets_out > 0 && *ns > 0.0);
        Line { name: name.to_owned(), values: series.intervals.iter().map(value).collect() }
    };
    vec![
        percentile("p50", |i| i.latency_ns.p50),
        percentile("p90", |i| i.latency_ns.p90),
        percentile("p99", |i| i.latency_ns.p99),
        percentile("p99.9", |i| i.latency_ns.p999),
        percentile("max", |i| i.latency_ns.max),
    ]
}

/// The cycles per packet of NFs, those that took the most cycles first; where packets passed them.
fn cycles(series: &Series) -> Vec<Line> {
    let mut totals: BTreeMap<&str, u64> = BTreeMap::new();
    for nf in series.intervals.iter().flat_map(|interval| &interval.nfs) {
        *totals.entry(&nf.name).or_default() += nf.cycles;
    }
    let mut names: Vec<&str> = totals.keys().copied().collect();
    names.sort_by_key(|name| std::cmp::Reverse(totals[name]));
    let line = |name: &str| {
        let of = |interval: &Interval| {
            let nf = interval.nfs.iter().find(|nf| nf.name == name);
            nf.filter(|nf| nf.packets > 0).map(|nf| nf.cycles_per_packet)
        };
        Line { name: name.to_owned(), values: series.intervals.iter().map(of).collect() }
    };
    names.into_iter().map(line).collect()
}

/// Draws a plot as the content of an SVG element of [`SIZE`].
pub(super) fn drawn(plot: &Plot) -> Result<String, Box<dyn Error>> {
    let mut image = String::new();
    {
        let area = SVGBackend::with_string(&mut image, SIZE).into_drawing_area();
        let most = plot.most();
        match plot.form {
            Form::Logarithmic => {
                let least = plot.values().fold(f64::MAX, f64::min).max(1.0);
                draw(plot, &area, (least / 1.5..most * 1.5).log_scale())?;
            }
            Form::Lines | Form::Stack => draw(plot, &area, 0.0..most * 1.08)?,
        }
        area.present()?;
    }
    let (_, content) = image.split_once('>').unwrap_or_default();
    let (content, _) = content.rsplit_once("</svg>").unwrap_or((content, ""));
    Ok(content.trim_matches('\n').to_owned())
}

impl Plot {
    fn values(&self) -> impl Iterator<Item = f64> {
        self.lines.iter().flat_map(|line| line.values.iter().flatten().copied())
    }

    /// The highest value, or sum of values, to show.
    fn most(&self) -> f64 {
        let most = match self.form {
            Form::Stack => {
                let sum = |at: usize| self.lines.iter().filter_map(|line| line.values[at]).sum();
                (0..self.spans.len()).map(sum).fold(0.0, f64::max)
            }
            Form::Lines | Form::Logarithmic => self.values().fold(0.0, f64::max),
        };
        most.max(1.0)
    }

    /// The corners of the steps of some values, one list for each stretch without a gap.
    fn steps(&self, values: &[Option<f64>]) -> Vec<Vec<(f64, f64)>> {
        let mut stretches = vec![Vec::new()];
        for ((start, end), value) in self.spans.iter().zip(values) {
            match (value, stretches.last_mut()) {
                (Some(value), Some(last)) => last.extend([(*start, *value), (*end, *value)]),
                _ => stretches.push(Vec::new()),
            }
        }
        stretches.retain(|stretch| !stretch.is_empty());
        stretches
    }
}

type Canvas<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Values<Y> = Cartesian2d<RangedCoordf64, Y>;

fn draw<Y>(
    plot: &Plot,
    area: &Canvas<'_>,
    values: impl plotters::coord::ranged1d::AsRangedCoord<CoordDescType = Y, Value = f64>,
) -> Result<(), Box<dyn Error>>
where
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let end = plot.spans.last().map_or(0.0, |(_, end)| *end).max(1e-3);
    let (unit, per_unit) = unit_of(end);
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .margin_right(24)
        .x_label_area_size(48)
        .y_label_area_size(100)
        .build_cartesian_2d(Range { start: 0.0, end }, values)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.15))
        .label_style(FONT)
        .axis_desc_style(FONT)
        .x_desc(format!("time since the start ({unit})"))
        .x_label_formatter(&|seconds| label(seconds / per_unit))
        .y_label_formatter(&|value| (plot.unit)(*value))
        .y_labels(6)
        .draw()?;
    if plot.form == Form::Stack {
        stack(plot, &mut chart)?;
        return Ok(());
    }
    for (line, colour) in plot.lines.iter().zip(COLOURS) {
        let steps = plot.steps(&line.values).into_iter();
        chart.draw_series(steps.map(|steps| PathElement::new(steps, colour.stroke_width(2))))?;
    }
    Ok(())
}

fn stack<Y>(
    plot: &Plot,
    chart: &mut ChartContext<'_, SVGBackend<'_>, Values<Y>>,
) -> Result<(), Box<dyn Error>>
where
    Y: Ranged<ValueType = f64>,
{
    let mut below = vec![Some(0.0); plot.spans.len()];
    for (line, colour) in plot.lines.iter().zip(COLOURS) {
        let pairs = below.iter().zip(&line.values);
        let above: Vec<_> = pairs.map(|(b, v)| Some(b.unwrap_or(0.0) + v.unwrap_or(0.0))).collect();
        let mut corners = plot.steps(&above).concat();
        corners.extend(plot.steps(&below).concat().into_iter().rev());
        chart.draw_series([Polygon::new(corners, colour.filled())])?;
        below = above;
    }
    Ok(())
}

/// The unit in which a time of so many seconds is read well, and its seconds.
fn unit_of(seconds: f64) -> (&'static str, f64) {
    match seconds {
        short if short < 0.1 => ("ms", 1e-3),
        short if short < 300.0 => ("s", 1.0),
        medium if medium < 18_000.0 => ("min", 60.0),
        _ => ("h", 3600.0),
    }
}

/// A number of an axis, without needless digits.
fn label(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
