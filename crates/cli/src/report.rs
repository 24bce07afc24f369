//! Readable tables, and JSON.

use std::io::{self, Write};

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use thalweg_source::VisibleJson;

/// Writes a document as indented JSON, with a newline at its end.
pub fn write_json(out: &mut impl Write, document: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(VisibleJson(&mut *out), document)?;
    writeln!(out)
}

/// A table with headings and without lines, columns two blanks apart.
pub fn plain_table(headings: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(headings);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}

/// Like [`plain_table`], with the columns from `first_number` on aligned right.
pub fn number_table(headings: &[&str], first_number: usize) -> Table {
    let mut table = plain_table(headings);
    for column in table.column_iter_mut().skip(first_number) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
