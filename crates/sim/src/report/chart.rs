//! Charts as SVG: lines, and stacked bars.

use std::error::Error;

use plotters::coord::CoordTranslate;
use plotters::prelude::*;

const SIZE: (u32, u32) = (960, 540);
/// Colours that colour-blind readers can distinguish (Okabe and Ito).
const COLOURS: [RGBColor; 10] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x99, 0x99, 0x99),
    RGBColor(0x00, 0x00, 0x00),
    RGBColor(0xf0, 0xe4, 0x42),
    RGBColor(0x8c, 0x56, 0x4b),
];

/// How values are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A line for each series, over a logarithmic axis.
    Lines,
    /// A bar for each point, the series stacked in it.
    Bars,
}

/// A chart: names of the points of the x axis, and for each series its values there.
pub(super) struct Chart<'a> {
    pub(super) kind: Kind,
    pub(super) title: &'a str,
    pub(super) x: &'a str,
    pub(super) y: &'a str,
    pub(super) points: Vec<String>,
    pub(super) series: Vec<(String, Vec<f64>)>,
}

impl Chart<'_> {
    /// The chart as SVG.
    pub(super) fn svg(&self) -> String {
        let mut svg = String::new();
        let drawn = match self.kind {
            Kind::Lines => self.lines(&mut svg),
            Kind::Bars => self.bars(&mut svg),
        };
        // Text in memory: there is nothing that can fail but our own arguments.
        drawn.expect("a chart of finite values can be drawn");
        svg
    }

    fn lines(&self, svg: &mut String) -> Result<(), Box<dyn Error>> {
        let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let values = || self.series.iter().flat_map(|(_, values)| values.iter().copied());
        let positive = || values().filter(|value| *value > 0.0);
        let least = positive().fold(f64::MAX, f64::min).min(1e9);
        let most = positive().fold(least * 1.1, f64::max);
        let last = self.points.len().saturating_sub(1).max(1);
        let mut chart = ChartBuilder::on(&area)
            .caption(self.title, ("sans-serif", 20))
            .margin(24)
            .x_label_area_size(40)
            .y_label_area_size(64)
            .build_cartesian_2d(0..last, (least * 0.8..most * 2.0).log_scale())?;
        let name = |at: &usize| self.points.get(*at).cloned().unwrap_or_default();
        chart
            .configure_mesh()
            .x_labels(self.points.len())
            .x_label_formatter(&name)
            .x_desc(self.x)
            .y_desc(self.y)
            .draw()?;
        for (n, (name, values)) in self.series.iter().enumerate() {
            let colour = COLOURS[n % COLOURS.len()];
            let line = values.iter().copied().enumerate().filter(|(_, value)| *value > 0.0);
            chart
                .draw_series(LineSeries::new(line, colour.stroke_width(2)).point_size(3))?
                .label(name)
                .legend(move |at| key(at, colour));
        }
        legend(&mut chart)?;
        area.present()?;
        Ok(())
    }

    fn bars(&self, svg: &mut String) -> Result<(), Box<dyn Error>> {
        let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let height = |at: usize| self.series.iter().map(|(_, values)| values[at]).sum::<f64>();
        let bars = self.points.len();
        let most = (0..bars).map(height).fold(1.0, f64::max);
        let mut chart = ChartBuilder::on(&area)
            .caption(self.title, ("sans-serif", 20))
            .margin(24)
            .x_label_area_size(40)
            .y_label_area_size(64)
            .build_cartesian_2d((0..bars - 1).into_segmented(), 0.0..most * 1.1)?;
        let name = |x: &SegmentValue<usize>| match x {
            SegmentValue::CenterOf(at) => self.points.get(*at).cloned().unwrap_or_default(),
            _ => String::new(),
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_label_formatter(&name)
            .x_desc(self.x)
            .y_desc(self.y)
            .draw()?;
        let mut below = vec![0.0; bars];
        for (n, (name, values)) in self.series.iter().enumerate() {
            let colour = COLOURS[n % COLOURS.len()];
            let bar = |(at, value): (usize, &f64)| {
                let from = below[at];
                let corners =
                    [(SegmentValue::Exact(at), from), (SegmentValue::Exact(at + 1), from + value)];
                let mut bar = Rectangle::new(corners, colour.filled());
                bar.set_margin(0, 0, 16, 16);
                bar
            };
            let drawn: Vec<_> = values.iter().enumerate().map(bar).collect();
            chart.draw_series(drawn)?.label(name).legend(move |at| key(at, colour));
            below.iter_mut().zip(values).for_each(|(below, value)| *below += value);
        }
        legend(&mut chart)?;
        area.present()?;
        Ok(())
    }

    /// The same as CSV.
    pub(super) fn csv(&self) -> String {
        let names = self.series.iter().map(|(name, _)| name.as_str());
        let heading = format!("{},{}\n", self.x, names.collect::<Vec<_>>().join(","));
        let rows = self.points.iter().enumerate().map(|(at, point)| {
            let values = self.series.iter().map(|(_, values)| format!("{:.4}", values[at]));
            format!("{point},{}\n", values.collect::<Vec<_>>().join(","))
        });
        heading + &rows.collect::<String>()
    }
}

/// What stands before a series' name.
fn key((x, y): (i32, i32), colour: RGBColor) -> Rectangle<(i32, i32)> {
    Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled())
}

/// Names the series that were drawn.
fn legend<'a, DB: DrawingBackend + 'a, CT: CoordTranslate>(
    chart: &mut ChartContext<'a, DB, CT>,
) -> Result<(), DrawingAreaErrorKind<DB::ErrorType>> {
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()
}
