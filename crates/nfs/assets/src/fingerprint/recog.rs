//! Files of Rapid7's recog: expressions for banners, in XML.

use std::ops::Range;

use roxmltree::{Document, Node};
use thalweg_source::{Mistakes, Source, SourceError};

use super::super::text::Text;
use super::Fingerprints;
use super::pattern::{Pattern, Reading, Template};

/// Reads `source` into `into`.
///
/// # Errors
/// Why the whole file is unreadable.
pub(super) fn read(
    source: &Source,
    into: &mut Fingerprints,
    problems: &mut Mistakes,
) -> Result<(), SourceError> {
    let document = Document::parse(source.text()).map_err(|e| {
        let at = line_start(source, e.pos().row);
        source.error(at..at, e.to_string(), "XML")
    })?;
    let root = document.root_element();
    if !root.has_tag_name("fingerprints") {
        return Err(source.error(
            root.range(),
            "not a fingerprint file of recog",
            "<fingerprints matches=\"...\">",
        ));
    }
    let Some(text) = root.attribute("matches").and_then(Text::named) else {
        let expected = format!("'matches' to name one of {}", Text::names());
        problems.push(source.error(start_tag(&root), "unknown kind of text", expected));
        return Ok(());
    };
    for node in root.children().filter(|n| n.has_tag_name("fingerprint")) {
        match fingerprint(&node, text) {
            Ok(pattern) => into.texts[text as usize].push(pattern),
            Err((span, message)) => {
                let expected =
                    "<fingerprint pattern=\"...\"> with <param pos=... name=... value=.../>";
                problems.push_with(|| source.error(span, message, expected));
            }
        }
    }
    Ok(())
}

fn line_start(source: &Source, row: u32) -> usize {
    source.lines().nth(row.saturating_sub(1) as usize).map_or(0, |(span, _)| span.start)
}

fn start_tag(node: &Node<'_, '_>) -> Range<usize> {
    let Range { start, end } = node.range();
    start..node.first_child().map_or(end, |child| child.range().start)
}

type Mistake = (Range<usize>, String);

fn fingerprint(node: &Node<'_, '_>, text: Text) -> Result<Pattern, Mistake> {
    let wrong = |node: &Node<'_, '_>, what: &str| (start_tag(node), what.to_owned());
    let expression = node.attribute("pattern").ok_or_else(|| wrong(node, "missing pattern"))?;
    let flags = node.attribute("flags").unwrap_or("");
    let reading = Reading {
        ignore_case: flags.contains("REG_ICASE"),
        // As in Ruby, whose dialect these expressions use.
        dot_is_any: flags.contains("REG_MULTILINE"),
        lines: true,
        octal: false,
    };
    let mut set = Vec::new();
    // Values may refer to attributes that follow them.
    let mut composed = Vec::new();
    if let Some(name) = text.service() {
        set.push(("service.name".to_owned(), Template::with_attributes(name)));
    }
    for param in node.children().filter(|n| n.has_tag_name("param")) {
        let name = param.attribute("name").ok_or_else(|| wrong(&param, "missing name"))?.to_owned();
        let position = param.attribute("pos").and_then(|p| p.parse().ok());
        match (position, param.attribute("value")) {
            (Some(0), Some(value)) if value.contains('{') => {
                composed.push((name, Template::with_attributes(value)));
            }
            (Some(0), Some(value)) => set.push((name, Template::with_attributes(value))),
            (Some(0), None) => return Err(wrong(&param, "missing value")),
            (Some(position), _) => set.push((name, Template::group(position))),
            (None, _) => return Err(wrong(&param, "missing position")),
        }
    }
    set.append(&mut composed);
    Pattern::new(expression, reading, set).map_err(|e| (start_tag(node), e))
}
