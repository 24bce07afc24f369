//! The names of ports, NFs and packet types, and the check that routes can use them.

use std::ops::Range;

use indexmap::IndexSet;
use thalweg_source::{Source, SourceError, is_visible};

use super::file::ChainFile;

/// Words that are reserved in `routes.csv`.
const RESERVED: [&str; 4] = ["ingress", "egress", "drop", "*"];

/// The names that routes may use, by number.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Packet types; type 0 is the default type.
    pub types: IndexSet<String>,
    /// NFs.
    pub nfs: Vec<String>,
    /// For each NF, whether it may choose the output of a packet.
    pub choosers: Vec<bool>,
    /// Inputs.
    pub inputs: Vec<String>,
    /// Outputs.
    pub outputs: Vec<String>,
}

/// Checks every name in the file, even if other parts of it are invalid.
pub(super) fn check(source: &Source, file: &ChainFile<'_>, errors: &mut Vec<SourceError>) {
    let ports = || {
        let inputs = file.inputs.iter().map(|(name, _)| name);
        inputs.chain(file.outputs.iter().map(|(name, _)| name))
    };
    let mut add = |span: Range<usize>, message: String, expected: &str| {
        errors.push(source.error(span, message, expected));
    };
    for (name, span) in ports().map(|n| (n.get_ref(), n.span())) {
        check_one(name, span, &RESERVED, &mut add);
    }
    for nf in &file.nfs {
        check_one(&nf.name, nf.span.clone(), &RESERVED, &mut add);
        if ports().any(|port| *port.get_ref() == nf.name) {
            let message = format!("'{}' is also the name of a port", nf.name);
            add(nf.span.clone(), message, "a name that no port has");
        }
    }
    let types = file.classes.iter().map(|class| &class.get_ref().r#type);
    for name in types.chain(&file.default_type) {
        check_one(name.get_ref(), name.span(), &["*"], &mut add);
    }
}

fn check_one(
    name: &str,
    span: Range<usize>,
    reserved: &[&str],
    add: &mut impl FnMut(Range<usize>, String, &str),
) {
    let expected = "another name";
    if reserved.contains(&name) {
        add(span, format!("'{name}' is reserved in routes"), expected);
    } else if name.is_empty() || name.trim() != name {
        add(span, "the name is empty or has blanks around it".into(), expected);
    } else if name.contains(|c: char| matches!(c, ',' | '#' | '"') || !is_visible(c)) {
        let expected = "a name without commas, quotes and '#'";
        add(span, format!("'{name}' cannot be used in routes"), expected);
    }
}
