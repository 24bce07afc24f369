//! A scene as SVG.

use std::fmt::Write;

use super::scene::{Anchor, Place, Scene, Shape};
use super::style::Colour;

/// Fonts as wide as the one that the layout measures with.
const FONTS: &str = "Arimo, Helvetica, Arial, Liberation Sans, sans-serif";

pub(super) fn svg(scene: &Scene) -> String {
    let (width, height) = (number(scene.width), number(scene.height));
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}pt\" height=\"{height}pt\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\" font-family=\"{FONTS}\">\n\
         <title>{}</title>\n<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n",
        escaped(&scene.title)
    );
    for (_, shape) in &scene.shapes {
        // Into a string, which cannot fail.
        let _ = write(&mut text, shape);
    }
    text + "</svg>\n"
}

fn write(out: &mut String, shape: &Shape) -> std::fmt::Result {
    match shape {
        Shape::Line { places, width, colour, dash } => {
            let width = number(*width);
            write!(out, "<polyline points=\"{}\" fill=\"none\"", points(places))?;
            write!(out, " stroke=\"{}\" stroke-width=\"{width}\"", hex(*colour))?;
            if !dash.is_empty() {
                let dash: Vec<String> = dash.iter().map(|part| number(*part)).collect();
                write!(out, " stroke-dasharray=\"{}\"", dash.join(" "))?;
            }
            writeln!(out, "/>")
        }
        Shape::Area { places, fill, edge } => {
            write!(out, "<polygon points=\"{}\" fill=\"{}\"", points(places), hex(*fill))?;
            if let Some((width, colour)) = edge {
                let width = number(*width);
                write!(out, " stroke=\"{}\" stroke-width=\"{width}\"", hex(*colour))?;
            }
            writeln!(out, "/>")
        }
        Shape::Text { at, anchor, size, upward, colour, text } => {
            let anchor = match anchor {
                Anchor::Start => "start",
                Anchor::Middle => "middle",
                Anchor::End => "end",
            };
            let (x, y) = (number(at.0), number(at.1));
            write!(out, "<text x=\"{x}\" y=\"{y}\" font-size=\"{}\"", number(*size))?;
            write!(out, " text-anchor=\"{anchor}\" fill=\"{}\"", hex(*colour))?;
            if *upward {
                write!(out, " transform=\"rotate(-90 {x} {y})\"")?;
            }
            writeln!(out, ">{}</text>", escaped(text))
        }
    }
}

fn points(places: &[Place]) -> String {
    let place = |(x, y): &Place| format!("{},{}", number(*x), number(*y));
    places.iter().map(place).collect::<Vec<_>>().join(" ")
}

/// Hundredths of a point suffice.
fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn hex(Colour(red, green, blue): Colour) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
