//! The inputs and outputs of a chain file, from arguments.

use std::path::Path;

use thalweg_io::{STANDARD_INPUT, STANDARD_OUTPUT};
use thalweg_source::is_visible;

use super::text::{Argument, ChainText};
use crate::args::Traffic;
use crate::errors::Failure;

/// Names that inputs do not get: those of routes, and of NFs.
const RESERVED: [&str; 4] = ["ingress", "egress", "drop", "*"];

/// Adds the inputs, and an output that takes the packets that are left. `nfs` are the names of the
/// NFs.
///
/// # Errors
/// Arguments that no chain file can hold.
pub fn add(
    chain: &mut ChainText,
    traffic: &Traffic,
    write: Option<&Path>,
    nfs: &[&str],
) -> Result<(), Failure> {
    if traffic.inputs.read.iter().filter(|path| is_standard(path)).count() > 1 {
        return Err(Failure::Usage("-r -: standard input can be read only once".into()));
    }
    let mut taken: Vec<String> = nfs.iter().chain(&RESERVED).map(ToString::to_string).collect();
    for path in &traffic.inputs.read {
        let capture = Argument::of_path("-r", path, STANDARD_INPUT)?;
        let name = input_name(if is_standard(path) { "stdin" } else { stem(path) }, &mut taken);
        chain.section(&format!("[input.{name}]"), "");
        chain.take("capture", &capture);
    }
    for interface in &traffic.inputs.interface {
        let name = input_name(interface, &mut taken);
        chain.section(&format!("[input.{name}]"), "");
        chain.take("interface", &Argument::new("-i", interface));
        if traffic.no_promiscuous {
            chain.set("promiscuous", false, "");
        }
    }
    chain.section("[output.packets]", "");
    match write {
        Some(path) => {
            chain.take("capture", &Argument::of_path("-w", path, STANDARD_OUTPUT)?);
        }
        None => chain.set("discard", true, "or: capture = \"FILE.pcapng\""),
    }
    Ok(())
}

/// Whether a path stands for standard input or output.
pub fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}

/// The name of a capture without its extensions.
fn stem(path: &Path) -> &str {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let known = [".gz", ".pcap", ".pcapng", ".cap"];
    known.iter().fold(name, |name, end| name.strip_suffix(end).unwrap_or(name))
}

/// A name for an input, as a key of TOML: `wanted`, with a number if it is taken.
fn input_name(wanted: &str, taken: &mut Vec<String>) -> String {
    // What neither a chain file nor a route can have in a name.
    let is_usable = |c: char| is_visible(c) && !",#\"'\\".contains(c) && !c.is_whitespace();
    let wanted: String = wanted.chars().map(|c| if is_usable(c) { c } else { '-' }).collect();
    let wanted = if wanted.is_empty() { "in".to_owned() } else { wanted };
    let numbered = (2u64..).map(|number| format!("{wanted}-{number}"));
    let mut names = std::iter::once(wanted.clone()).chain(numbered);
    let name = names.find(|name| !taken.contains(name)).unwrap_or(wanted);
    taken.push(name.clone());
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if name.chars().all(is_bare) { name } else { format!("\"{name}\"") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_named_after_their_files_and_interfaces() {
        let mut taken = ["ids", "drop"].map(str::to_owned).to_vec();
        for (wanted, name) in [
            (stem(Path::new("a/mix.pcap.gz")), "mix"),
            (stem(Path::new("mix.pcapng")), "mix-2"),
            (stem(Path::new("mix.pcap")), "mix-3"),
            (stem(Path::new("/dev/fd/63")), "63"),
            (stem(Path::new(".pcap")), "in"),
            ("eth0.10", "\"eth0.10\""),
            ("ids", "ids-2"),
            ("drop", "drop-2"),
            ("a, b\"#\n", "a--b---"),
            ("é", "\"é\""),
        ] {
            assert_eq!(input_name(wanted, &mut taken), name, "{wanted}");
        }
    }
}
