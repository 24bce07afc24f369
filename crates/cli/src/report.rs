//! Readable tables and lists, and JSON.

use std::fmt::{self, Display, Formatter};
use std::io::{self, Write};
use std::ops::Range;

use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, Row, Table, Width, presets,
};
use serde::Serialize;
use thalweg_source::VisibleJson;

use crate::terminal;

/// Blanks between two columns.
const GAP: usize = 2;

/// Writes a document as indented JSON, with a newline at its end.
pub fn write_json(out: &mut impl Write, document: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(VisibleJson(&mut *out), document)?;
    writeln!(out)
}

/// The columns that standard output has for text; `None` if it is unlimited.
pub fn columns() -> Option<usize> {
    terminal::columns(&io::stdout())
}

/// A table with headings and without lines, columns two blanks apart, that fits the width of
/// standard output.
///
/// Where it is too wide, columns of zeros are left out, texts wrap at blanks, and at last the
/// columns that do not fit follow below, with the first one repeated. Nothing is truncated.
pub struct TextTable {
    table: Table,
    /// Columns of numbers, whose cells do not wrap.
    numbers: Range<usize>,
    width: Option<usize>,
}

/// A table of texts.
pub fn plain_table(headings: &[&str]) -> TextTable {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(headings);
    for column in table.column_iter_mut() {
        column.set_padding((0, GAP as u16));
    }
    TextTable { table, numbers: 0..0, width: columns() }
}

/// A table whose columns from `first_number` on hold numbers, and are aligned right.
pub fn number_table(headings: &[&str], first_number: usize) -> TextTable {
    plain_table(headings).with_numbers(first_number..headings.len())
}

impl TextTable {
    /// The table with numbers in `columns`.
    pub fn with_numbers(mut self, columns: Range<usize>) -> Self {
        for column in self.table.column_iter_mut().take(columns.end).skip(columns.start) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        Self { numbers: columns, ..self }
    }

    /// The table in `width` columns of text, instead of those of standard output.
    pub fn within(self, width: Option<usize>) -> Self {
        Self { width, ..self }
    }

    /// Adds a row.
    pub fn add_row<T: Into<Row>>(&mut self, row: T) {
        self.table.add_row(row);
    }

    /// The text of a column, its heading first, line by line.
    fn cells(&self, column: usize) -> impl Iterator<Item = String> {
        let cells = self.table.column_cells_with_header_iter(column);
        cells.map(|cell| cell.map_or_else(String::new, comfy_table::Cell::content))
    }

    /// The columns that a column takes at least, without the gap: that of its longest number or
    /// word.
    fn least(&self, column: usize) -> usize {
        let longest = |text: &str| text.split(' ').map(|word| word.chars().count()).max();
        let cells = self.cells(column).map(|text| {
            let is_number = self.numbers.contains(&column);
            if is_number { text.chars().count() } else { longest(&text).unwrap_or(0) }
        });
        cells.max().unwrap_or(0).max(1)
    }

    /// Whether a column says nothing in any row: it has zeros, or no text.
    fn is_void(&self, column: usize) -> bool {
        self.cells(column).skip(1).all(|text| matches!(&*text, "" | "0"))
    }

    /// The columns in groups, one below the other, each of which fits in `width`.
    fn groups(&self, width: usize) -> Vec<Vec<usize>> {
        let widths = self.table.column_max_content_widths();
        let natural: usize = widths.iter().map(|w| usize::from(*w) + GAP).sum();
        let all = 0..widths.len();
        if natural <= width + GAP {
            return vec![all.collect()];
        }
        let first = self.least(0);
        let mut groups = vec![vec![0]];
        let mut taken = first;
        for column in all.skip(1).filter(|column| !self.is_void(*column)) {
            let least = self.least(column) + GAP;
            if taken + least > width && taken > first {
                groups.push(vec![0]);
                taken = first;
            }
            taken += least;
            groups.last_mut().expect("there is a first group").push(column);
        }
        groups
    }

    /// The widths of columns that together fit in `width`: each has at least that of its longest
    /// word, and the columns that need more share the rest.
    fn widths(&self, columns: &[usize], width: usize) -> Vec<usize> {
        let natural = self.table.column_max_content_widths();
        let mut widths: Vec<usize> = columns.iter().map(|column| self.least(*column)).collect();
        let taken = widths.iter().sum::<usize>() + GAP * (columns.len() - 1);
        let mut left = width.saturating_sub(taken);
        let want =
            |at: usize, width: usize| usize::from(natural[columns[at]]).saturating_sub(width);
        let mut order: Vec<usize> = (0..columns.len()).collect();
        order.sort_by_key(|at| want(*at, widths[*at]));
        for (rank, at) in order.into_iter().enumerate() {
            let more = want(at, widths[at]).min(left / (columns.len() - rank));
            widths[at] += more;
            left -= more;
        }
        // Only where two words do not fit side by side: they are split.
        let mut over = taken.saturating_sub(width);
        for column in &mut widths {
            let less = over.min(column.saturating_sub(width / columns.len()));
            *column -= less;
            over -= less;
        }
        widths
    }

    /// The text of some columns, in `width` columns of text.
    fn group(&self, columns: &[usize], width: usize) -> String {
        let fixed = |width: usize| Width::Fixed(u16::try_from(width + GAP).unwrap_or(u16::MAX));
        let mut table = self.table.clone();
        table.set_content_arrangement(ContentArrangement::Dynamic);
        // The gap after the last column is cut off again.
        table.set_width(u16::try_from(width + GAP).unwrap_or(u16::MAX));
        for column in table.column_iter_mut() {
            column.set_constraint(ColumnConstraint::Hidden);
        }
        for (at, width) in columns.iter().zip(self.widths(columns, width)) {
            if let Some(column) = table.column_mut(*at) {
                column.set_constraint(ColumnConstraint::Absolute(fixed(width.max(1))));
            }
        }
        table.trim_fmt()
    }
}

impl Display for TextTable {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Some(width) = self.width else { return f.write_str(&self.table.trim_fmt()) };
        let groups = self.groups(width);
        let texts: Vec<_> = groups.iter().map(|columns| self.group(columns, width)).collect();
        f.write_str(&texts.join("\n\n"))
    }
}

/// `lead` and then `parts`, joined by `separator`, in lines of at most `width` columns: lines break
/// between parts, and those after the first are indented two blanks more than it.
pub fn wrapped<T: AsRef<str>>(
    lead: &str,
    parts: impl IntoIterator<Item = T>,
    separator: &str,
    width: Option<usize>,
) -> String {
    let indent = lead.len() - lead.trim_start().len() + 2;
    let mut text = lead.to_owned();
    let mut taken = lead.chars().count();
    let mut is_first = true;
    let mut parts = parts.into_iter().peekable();
    while let Some(part) = parts.next() {
        let part = part.as_ref();
        let end = if parts.peek().is_some() { separator.trim_end() } else { "" };
        let gap = if is_first { "" } else { " " };
        let more = part.chars().count() + end.chars().count();
        if !is_first && width.is_some_and(|width| taken + gap.len() + more > width) {
            text.push('\n');
            text.push_str(&" ".repeat(indent));
            taken = indent;
        } else {
            text.push_str(gap);
            taken += gap.len();
        }
        text.push_str(part);
        text.push_str(end);
        taken += more;
        is_first = false;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(width: Option<usize>) -> TextTable {
        let headings = ["name", "packets", "dropped", "p50", "reasons"];
        let mut table = plain_table(&headings).with_numbers(1..4).within(width);
        table.add_row(["first", "1234567", "0", "12.3 us", "no-route 12, frame-too-small 7"]);
        table.add_row(["a longer name", "9", "0", "1 ns", ""]);
        table
    }

    #[test]
    fn a_table_is_as_wide_as_it_needs_where_there_is_room() {
        let whole = "\
name           packets  dropped      p50  reasons
first          1234567        0  12.3 us  no-route 12, frame-too-small 7
a longer name        9        0     1 ns";
        assert_eq!(table(None).to_string(), whole);
        assert_eq!(table(Some(72)).to_string(), whole);
    }

    #[test]
    fn a_table_without_room_loses_its_zeros_and_wraps_texts_at_blanks() {
        let fitted = "\
name        packets      p50  reasons
first       1234567  12.3 us  no-route 12,
                              frame-too-small 7
a longer          9     1 ns
name";
        assert_eq!(table(Some(50)).to_string(), fitted);
    }

    #[test]
    fn columns_that_do_not_fit_follow_below() {
        let text = table(Some(24)).to_string();
        assert!(text.lines().all(|line| line.chars().count() <= 24), "{text}");
        assert_eq!(text.matches("first").count(), 2, "{text}");
        for word in ["1234567", "12.3 us", "frame-too-small", "packets", "reasons"] {
            assert!(text.contains(word), "{word}: {text}");
        }
    }

    #[test]
    fn words_are_whole_where_two_of_them_fit_side_by_side() {
        for width in 23..100 {
            let text = table(Some(width)).to_string();
            for word in ["1234567", "12.3 us", "12,", "packets", "frame-too-small"] {
                assert!(text.contains(word), "{word} in {width}: {text}");
            }
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
        }
        for width in 0..23 {
            assert!(!table(Some(width)).to_string().is_empty());
        }
    }

    #[test]
    fn lists_wrap_between_their_parts_and_are_indented() {
        let parts = ["alerts 1", "rules 20", "flows 3"];
        let text = |width| wrapped("nids: ", parts, ", ", width);
        assert_eq!(text(None), "nids: alerts 1, rules 20, flows 3");
        assert_eq!(text(Some(33)), "nids: alerts 1, rules 20, flows 3");
        assert_eq!(text(Some(32)), "nids: alerts 1, rules 20,\n  flows 3");
        assert_eq!(text(Some(3)), "nids: alerts 1,\n  rules 20,\n  flows 3");
        assert_eq!(wrapped("  - ", "a b".split(' '), " ", Some(5)), "  - a\n    b");
        assert_eq!(wrapped("none: ", [""; 0], ", ", None), "none: ");
    }
}
