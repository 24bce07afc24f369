//! A report as one HTML page, which loads nothing and needs no script.

use std::fmt::Write as _;
use std::io;

use thalweg_source::visible;

use super::plots::{self, Plot};
use super::tables::Table;
use super::{Block, Page};

/// Colours follow the reader's choice of a light or a dark page, also in plots: their lines of axes
/// and their texts are black, in attributes that a style sheet overrides.
const STYLE: &str = "\
:root { color-scheme: light dark; --ink: #1b1f24; --page: #ffffff; --rule: #d0d7de; --head: #f3f5f7; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #d7dde3; --page: #14181c; --rule: #3a424a; --head: #1f252b; }
}
body { margin: 2rem auto; max-width: 62rem; padding: 0 1rem; color: var(--ink);
  background: var(--page); font: 15px/1.5 system-ui, sans-serif; }
h1, h2 { line-height: 1.2; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--rule); }
code { font: 0.9em ui-monospace, monospace; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { border: 1px solid var(--rule); padding: 0.2rem 0.6rem; text-align: left; }
th { background: var(--head); }
td.n, th.n { text-align: right; white-space: nowrap; }
figure { margin: 1.5rem 0; }
figcaption { font-weight: 600; }
svg { display: block; width: 100%; height: auto; }
svg [fill=\"#000000\"] { fill: var(--ink); }
svg [stroke=\"#000000\"] { stroke: var(--ink); }
ul.legend { display: flex; flex-wrap: wrap; gap: 0 1.2rem; list-style: none; margin: 0; padding: 0; }
ul.legend span { display: inline-block; width: 0.8em; height: 0.8em; margin-right: 0.4em; }
";

/// The page.
///
/// # Errors
/// When a plot cannot be drawn.
pub(super) fn page(page: &Page) -> io::Result<String> {
    let mut out =
        String::from("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    out.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    // Writing to a string does not fail.
    let _ = write!(
        out,
        "<title>Report of a run</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <h1>Report of a run</h1>\n<p>{}</p>\n<p>Command: <code>{}</code><br>\nWritten: {}</p>\n",
        escaped(&page.summary),
        escaped(&page.command),
        escaped(&page.written),
    );
    for section in &page.sections {
        let _ = writeln!(out, "<section>\n<h2>{}</h2>", escaped(section.title));
        for block in &section.blocks {
            out.push_str(&match block {
                Block::Note(note) => paragraph(note),
                Block::List(lines) => list(lines),
                Block::Table(table) => self::table(table),
                Block::Plot(plot) => figure(plot)?,
            });
        }
        out.push_str("</section>\n");
    }
    out.push_str("</body>\n</html>\n");
    Ok(out)
}

fn paragraph(text: &str) -> String {
    format!("<p>{}</p>\n", escaped(text))
}

fn list(lines: &[String]) -> String {
    let items: Vec<_> = lines.iter().map(|line| format!("<li>{}</li>\n", escaped(line))).collect();
    format!("<ul>\n{}</ul>\n", items.concat())
}

fn table(table: &Table) -> String {
    let class = |at: usize| if table.numbers.contains(&at) { " class=\"n\"" } else { "" };
    let mut out = String::from("<div class=\"scroll\">\n<table>\n<thead>\n<tr>");
    for (at, heading) in table.headings.iter().enumerate() {
        let _ = write!(out, "<th scope=\"col\"{}>{}</th>", class(at), escaped(heading));
    }
    out.push_str("</tr>\n</thead>\n<tbody>\n");
    for row in &table.rows {
        out.push_str("<tr>");
        for (at, cell) in row.iter().enumerate() {
            let _ = write!(out, "<td{}>{}</td>", class(at), escaped(cell));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
    out
}

/// A plot with its legend, which is HTML: it wraps, and covers nothing.
fn figure(plot: &Plot) -> io::Result<String> {
    let (title, (width, height)) = (escaped(&plot.title), plots::SIZE);
    let drawn = plots::drawn(plot).map_err(|e| io::Error::other(e.to_string()))?;
    let mut out = format!(
        "<figure>\n<figcaption>{title}</figcaption>\n\
         <svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{title}\">\n{drawn}\n</svg>\n\
         <ul class=\"legend\">\n"
    );
    for (line, colour) in plot.lines.iter().zip(plots::colours()) {
        let _ = writeln!(
            out,
            "<li><span style=\"background:{colour}\"></span>{}</li>",
            escaped(&line.name)
        );
    }
    out.push_str("</ul>\n</figure>\n");
    Ok(out)
}

/// A text that may hold anything, as text of HTML or the value of an attribute.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in visible(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(c),
        }
    }
    out
}
