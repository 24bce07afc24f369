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
pub(super) fn check(file: &ChainFile<'_>, errors: &mut Vec<SourceError>) {
    let ports = || {
        let inputs = file.inputs.iter().map(|input| (&input.source, &input.0));
        inputs.chain(file.outputs.iter().map(|output| (&output.source, &output.0)))
    };
    for (source, name) in ports() {
        errors.extend(objection(source, name.get_ref(), name.span(), &RESERVED));
    }
    for nf in &file.nfs {
        errors.extend(objection(&nf.source, &nf.name, nf.span.clone(), &RESERVED));
        if ports().any(|(_, port)| *port.get_ref() == nf.name) {
            let message = format!("'{}' is also the name of a port", nf.name);
            errors.push(nf.source.error(nf.span.clone(), message, "a name that no port has"));
        }
    }
    let types = file.classes.iter().map(|class| (&class.source, &class.get_ref().r#type));
    let default = file.default_type.iter().map(|name| (&name.source, &name.part));
    for (source, name) in types.chain(default) {
        errors.extend(objection(source, name.get_ref(), name.span(), &["*"]));
    }
}

/// Why routes cannot use a name.
fn objection(
    source: &Source,
    name: &str,
    span: Range<usize>,
    reserved: &[&str],
) -> Option<SourceError> {
    let mut expected = "another name";
    let message = if reserved.contains(&name) {
        format!("'{name}' is reserved in routes")
    } else if name.is_empty() || name.trim() != name {
        "the name is empty or has blanks around it".into()
    } else if name.contains(|c: char| matches!(c, ',' | '#' | '"') || !is_visible(c)) {
        expected = "a name without commas, quotes and '#'";
        format!("'{name}' cannot be used in routes")
    } else {
        return None;
    };
    Some(source.error(span, message, expected))
}
