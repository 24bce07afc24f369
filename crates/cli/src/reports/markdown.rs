//! A report as Markdown (GitHub's, since CommonMark has no tables): for a ticket.

use std::fmt::Write as _;

use thalweg_source::visible;

use super::tables::Table;
use super::{Block, Page};

/// The report as text.
pub(super) fn page(page: &Page) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(out, "# Report of a run\n\n{}\n", page.summary);
    let _ = writeln!(out, "- command: {}\n- written: {}", code(&page.command), page.written);
    for section in &page.sections {
        let _ = writeln!(out, "\n## {}", section.title);
        for block in &section.blocks {
            out.push_str(&match block {
                Block::Note(note) => paragraph(note),
                Block::List(lines) => list(lines),
                Block::Table(table) => self::table(table),
                Block::Plot(_) => continue,
            });
        }
    }
    out
}

fn paragraph(text: &str) -> String {
    format!("\n{text}\n")
}

fn list(lines: &[String]) -> String {
    let items: Vec<_> = lines.iter().map(|line| format!("- {}", text(line))).collect();
    format!("\n{}\n", items.join("\n"))
}

fn table(table: &Table) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut out = format!("\n{}", line(table.headings.iter().map(ToString::to_string).collect()));
    let is_number = |at: usize| table.numbers.contains(&at);
    let rule = |at| if is_number(at) { "---:" } else { "---" }.to_owned();
    out.push_str(&line((0..table.headings.len()).map(rule).collect()));
    for row in &table.rows {
        let cells = row.iter().enumerate().map(|(at, cell)| {
            // Within a table, a bar ends a cell even in code.
            if is_number(at) { cell.clone() } else { text(cell).replace('|', "\\|") }
        });
        out.push_str(&line(cells.collect()));
    }
    out
}

/// A text that may hold anything: as code, unless it is plain words. In code, neither marks, HTML,
/// links nor mentions of people are effective.
fn text(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || " ,-.".contains(c);
    // A letter after a dot may be that of a link: www.example.
    let may_link = text.split('.').skip(1).any(|part| part.starts_with(char::is_alphabetic));
    if text.chars().all(is_plain) && !may_link { text.to_owned() } else { code(text) }
}

/// A text as code, between more backticks than it has in a row.
fn code(text: &str) -> String {
    let text = visible(text);
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    // Blanks keep backticks at the ends of the text apart from the fence; a reader removes one pair.
    let pad = if text.starts_with(['`', ' ']) || text.ends_with(['`', ' ']) { " " } else { "" };
    format!("{fence}{pad}{text}{pad}{fence}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_code_unless_they_are_plain_words() {
        for (typed, written) in [
            ("policy 12, no-route 3", "policy 12, no-route 3"),
            ("", ""),
            ("latency p99.9", "latency p99.9"),
            ("www.example", "`www.example`"),
            ("eth0@if7", "`eth0@if7`"),
            ("<b>*@a* [x](http://y)</b>", "`<b>*@a* [x](http://y)</b>`"),
            ("a`b``c", "```a`b``c```"),
            ("`", "`` ` ``"),
            ("a\n# b\u{202e}", "`a\\n# b\\u{202e}`"),
        ] {
            assert_eq!(text(typed), written, "{typed}");
        }
    }

    #[test]
    fn a_table_keeps_its_columns_whatever_a_name_holds() {
        let rows = vec![vec!["a|b\n| c |".to_owned(), "7".into()]];
        let shown = table(&Table { headings: vec!["name", "packets"], numbers: 1..2, rows });
        assert_eq!(shown, "\n| name | packets |\n| --- | ---: |\n| `a\\|b\\n\\| c \\|` | 7 |\n");
    }
}
