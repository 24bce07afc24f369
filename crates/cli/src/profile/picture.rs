//! The profile as a picture: a bar for each mix, stacked by stage, with the spread of its samples.

use std::error::Error;

use plotters::prelude::*;
use thalweg_source::counted;

use super::{Profile, STAGES};

const SIZE: (u32, u32) = (960, 540);
/// Colours that colour-blind readers can distinguish (Okabe and Ito).
const COLOURS: [RGBColor; STAGES.len()] = [
    RGBColor(0x99, 0x99, 0x99),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0xf0, 0xe4, 0x42),
];

/// Draws `profile` as SVG.
pub(super) fn draw(profile: &Profile) -> Result<String, Box<dyn Error>> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let most = profile.mixes.iter().map(|m| m.spread.max).fold(1.0, f64::max);
        let samples = profile.mixes.first().map_or(0, |m| m.samples.len());
        let samples = counted(samples as u64, "sample");
        let caption = format!("Cycles per packet by stage, median of {samples} ({})", profile.isa);
        let bars = profile.mixes.len();
        let mut chart = ChartBuilder::on(&area)
            .caption(caption, ("sans-serif", 20))
            .margin(16)
            .x_label_area_size(40)
            .y_label_area_size(56)
            .build_cartesian_2d((0..bars - 1).into_segmented(), 0.0..most * 1.5)?;
        let name = |x: &SegmentValue<usize>| match x {
            SegmentValue::CenterOf(at) => profile.mixes.get(*at).map_or("", |m| m.name).to_owned(),
            _ => String::new(),
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .y_desc("cycles per packet")
            .x_label_formatter(&name)
            .draw()?;
        for (stage, (_, name)) in STAGES.iter().enumerate() {
            let style = COLOURS[stage].filled();
            let bars = profile.mixes.iter().enumerate().map(|(at, mix)| {
                let below: f64 = mix.median.stages[..stage].iter().sum();
                let corners = [
                    (SegmentValue::Exact(at), below),
                    (SegmentValue::Exact(at + 1), below + mix.median.stages[stage]),
                ];
                let mut bar = Rectangle::new(corners, style);
                bar.set_margin(0, 0, 24, 24);
                bar
            });
            chart
                .draw_series(bars)?
                .label(*name)
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], style));
        }
        // The least and the most of all samples.
        let whiskers = profile.mixes.iter().enumerate().filter(|(_, m)| m.samples.len() > 1);
        chart.draw_series(whiskers.map(|(at, mix)| {
            let (x, middle) = (SegmentValue::CenterOf(at), mix.median.cycles_per_packet);
            ErrorBar::new_vertical(x, mix.spread.min, middle, mix.spread.max, BLACK.filled(), 12)
        }))?;
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE)
            .border_style(BLACK)
            .draw()?;
        area.present()?;
    }
    Ok(svg)
}
