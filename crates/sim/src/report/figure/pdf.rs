//! A scene as PDF: vectors, and text in an embedded font, as journals demand.

use pdf_writer::types::FontFlags;
use pdf_writer::{Content, Finish, Name, Pdf, Rect, Ref, Str, TextStr};

use super::font;
use super::scene::{Anchor, Place, Scene, Shape};
use super::style::{Colour, Dash};

const CATALOG: Ref = Ref::new(1);
const PAGES: Ref = Ref::new(2);
const PAGE: Ref = Ref::new(3);
const CONTENT: Ref = Ref::new(4);
const FONT: Ref = Ref::new(5);
const DESCRIPTOR: Ref = Ref::new(6);
const FILE: Ref = Ref::new(7);
const INFO: Ref = Ref::new(8);
/// The font in the resources of the page, and its name: six letters mark a part of a font.
const NAMED: Name<'_> = Name(b"F1");
const BASE: Name<'_> = Name(b"THALWG+Arimo");
const FIRST: u8 = b' ';

pub(super) fn pdf(scene: &Scene) -> Vec<u8> {
    let mut pdf = Pdf::new();
    pdf.catalog(CATALOG).pages(PAGES);
    pdf.pages(PAGES).kids([PAGE]).count(1);
    pdf.document_info(INFO).title(TextStr(&scene.title)).producer(TextStr("Thalweg"));
    let mut page = pdf.page(PAGE);
    page.parent(PAGES).contents(CONTENT);
    page.media_box(Rect::new(0.0, 0.0, points(scene.width), points(scene.height)));
    page.resources().fonts().pair(NAMED, FONT);
    page.finish();
    let mut content = Content::new();
    for (_, shape) in &scene.shapes {
        draw(&mut content, scene.height, shape);
    }
    pdf.stream(CONTENT, &content.finish());
    embed(&mut pdf);
    pdf.finish()
}

/// The font, with the widths of its characters.
fn embed(pdf: &mut Pdf) {
    let mut dict = pdf.indirect(FONT).dict();
    dict.pair(Name(b"Type"), Name(b"Font"));
    dict.pair(Name(b"Subtype"), Name(b"TrueType"));
    dict.pair(Name(b"BaseFont"), BASE);
    dict.pair(Name(b"FirstChar"), i32::from(FIRST));
    dict.pair(Name(b"LastChar"), i32::from(u8::MAX));
    dict.pair(Name(b"Encoding"), Name(b"WinAnsiEncoding"));
    dict.pair(Name(b"FontDescriptor"), DESCRIPTOR);
    dict.insert(Name(b"Widths"))
        .array()
        .items((FIRST..=u8::MAX).map(|code| points(font::advance(code))));
    dict.finish();
    let mut descriptor = pdf.font_descriptor(DESCRIPTOR);
    descriptor.name(BASE).flags(FontFlags::NON_SYMBOLIC).italic_angle(0.0);
    // Arimo's, in thousandths of its size.
    descriptor.bbox(Rect::new(-544.0, -303.0, 1302.0, 980.0));
    descriptor.ascent(905.0).descent(-212.0).cap_height(716.0).stem_v(88.0).font_file2(FILE);
    descriptor.finish();
    let length = i32::try_from(font::FILE.len()).unwrap_or(i32::MAX);
    pdf.stream(FILE, font::FILE).pair(Name(b"Length1"), length);
}

/// PDF's coordinates have their origin in the lower left corner.
fn draw(content: &mut Content, height: f64, shape: &Shape) {
    let place = |(x, y): Place| (points(x), points(height - y));
    match shape {
        Shape::Line { places, width, colour, dash } => {
            pen(content, *width, *colour, dash);
            path(content, places, place);
            content.stroke();
        }
        Shape::Area { places, fill, edge } => {
            let [red, green, blue] = parts(*fill);
            content.set_fill_rgb(red, green, blue);
            if let Some((width, colour)) = edge {
                pen(content, *width, *colour, &[]);
            }
            path(content, places, place);
            content.close_path();
            match edge {
                Some(_) => content.fill_nonzero_and_stroke(),
                None => content.fill_nonzero(),
            };
        }
        Shape::Text { at, anchor, size, upward, colour, text } => {
            let long = font::width(text, *size);
            let before = match anchor {
                Anchor::Start => 0.0,
                Anchor::Middle => long / 2.0,
                Anchor::End => long,
            };
            let (x, y) = if *upward { (at.0, at.1 + before) } else { (at.0 - before, at.1) };
            let (x, y) = place((x, y));
            let [red, green, blue] = parts(*colour);
            content.set_fill_rgb(red, green, blue);
            content.begin_text().set_font(NAMED, points(*size));
            let turned = [0.0, 1.0, -1.0, 0.0, x, y];
            content.set_text_matrix(if *upward { turned } else { [1.0, 0.0, 0.0, 1.0, x, y] });
            let codes: Vec<u8> = text.chars().map(font::code).collect();
            content.show(Str(&codes)).end_text();
        }
    }
}

fn pen(content: &mut Content, width: f64, colour: Colour, dash: Dash) {
    let [red, green, blue] = parts(colour);
    content.set_stroke_rgb(red, green, blue).set_line_width(points(width));
    content.set_dash_pattern(dash.iter().map(|part| points(*part)), 0.0);
}

fn path(content: &mut Content, places: &[Place], place: impl Fn(Place) -> (f32, f32)) {
    for (n, at) in places.iter().enumerate() {
        let (x, y) = place(*at);
        if n == 0 {
            content.move_to(x, y)
        } else {
            content.line_to(x, y)
        };
    }
}

fn parts(Colour(red, green, blue): Colour) -> [f32; 3] {
    [red, green, blue].map(|part| f32::from(part) / 255.0)
}

/// Hundredths of a point suffice.
fn points(value: f64) -> f32 {
    ((value * 100.0).round() / 100.0) as f32
}
