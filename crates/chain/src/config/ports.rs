//! Inputs and outputs of a chain file.

use std::path::PathBuf;

use indexmap::IndexMap;
use thalweg_classify::source::{Source, SourceError};
use thalweg_io::generate::Spec;
use toml::Spanned;

use super::file;

/// Where an input's packets come from.
#[derive(Clone, Debug)]
pub(crate) enum InputSource {
    Capture { path: PathBuf, in_memory: bool },
    Generate(Box<Spec>),
}

/// An input of a chain.
#[derive(Clone, Debug)]
pub(crate) struct InputPlan {
    pub(crate) name: String,
    pub(crate) source: InputSource,
    pub(crate) loops: u64,
}

/// Where an output's packets go.
#[derive(Clone, Debug)]
pub(crate) enum OutputTarget {
    Capture(PathBuf),
    Discard,
}

/// An output of a chain.
#[derive(Clone, Debug)]
pub(crate) struct OutputPlan {
    pub(crate) name: String,
    pub(crate) target: OutputTarget,
}

/// Names that mean something else in `routes.csv`.
const RESERVED: [&str; 4] = ["ingress", "egress", "drop", "*"];

/// A path as the user means it: relative to the chain file's folder.
pub(super) fn resolve(source: &Source, path: &str) -> PathBuf {
    source.path().parent().map_or_else(|| path.into(), |folder| folder.join(path))
}

pub(super) fn inputs(
    source: &Source,
    inputs: IndexMap<Spanned<String>, Spanned<file::Input>>,
    errors: &mut Vec<SourceError>,
) -> Vec<InputPlan> {
    if inputs.is_empty() {
        errors.push(source.error(0..0, "the chain has no input", "a section [input.NAME]"));
    }
    let mut plans = Vec::new();
    for (name, input) in in_file_order(inputs) {
        reserved(source, &name, errors);
        let span = input.span();
        let input = input.into_inner();
        let from = match (input.capture, input.generate) {
            (Some(capture), None) => {
                let path = resolve(source, capture.get_ref());
                if let Err(e) = std::fs::File::open(&path) {
                    let message = format!("cannot open {}: {e}", path.display());
                    errors.push(source.error(capture.span(), message, "a readable capture"));
                }
                InputSource::Capture { path, in_memory: input.memory }
            }
            (None, Some(spec)) => {
                if let Err(e) = spec.get_ref().validate() {
                    errors.push(source.error(
                        spec.span(),
                        format!("{}: {}", e.field, e.what),
                        e.expected,
                    ));
                }
                InputSource::Generate(Box::new(spec.into_inner()))
            }
            _ => {
                let expected = "one of: capture = \"FILE\", generate = { ... }";
                errors.push(source.error(span, "an input is one thing", expected));
                continue;
            }
        };
        plans.push(InputPlan { name: name.into_inner(), source: from, loops: input.r#loop });
    }
    plans
}

pub(super) fn outputs(
    source: &Source,
    outputs: IndexMap<Spanned<String>, Spanned<file::Output>>,
    errors: &mut Vec<SourceError>,
) -> Vec<OutputPlan> {
    if outputs.is_empty() {
        errors.push(source.error(0..0, "the chain has no output", "a section [output.NAME]"));
    }
    let mut plans: Vec<OutputPlan> = Vec::new();
    for (name, output) in in_file_order(outputs) {
        reserved(source, &name, errors);
        let span = output.span();
        let output = output.into_inner();
        let target = match (output.capture, output.discard) {
            (Some(capture), false) => {
                let path = resolve(source, capture.get_ref());
                let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
                if folder.is_some_and(|f| !f.is_dir()) {
                    let message = format!("there is no folder for {}", path.display());
                    errors.push(source.error(capture.span(), message, "a folder that exists"));
                }
                let name = path.to_string_lossy().to_ascii_lowercase();
                let plain = name.trim_end_matches(".gz");
                if !plain.ends_with(".pcap") && !plain.ends_with(".pcapng") {
                    let message = "the name tells no capture format";
                    let expected = "a name that ends in .pcap or .pcapng, and .gz to compress";
                    errors.push(source.error(capture.span(), message, expected));
                }
                OutputTarget::Capture(path)
            }
            (None, true) => OutputTarget::Discard,
            _ => {
                let expected = "one of: capture = \"FILE\", discard = true";
                errors.push(source.error(span, "an output is one thing", expected));
                continue;
            }
        };
        plans.push(OutputPlan { name: name.into_inner(), target });
    }
    plans
}

/// The parser sorts keys; ports are numbered in the order of the file.
fn in_file_order<T>(ports: IndexMap<Spanned<String>, T>) -> Vec<(Spanned<String>, T)> {
    let mut ports: Vec<_> = ports.into_iter().collect();
    ports.sort_by_key(|(name, _)| name.span().start);
    ports
}

fn reserved(source: &Source, name: &Spanned<String>, errors: &mut Vec<SourceError>) {
    if RESERVED.contains(&name.get_ref().as_str()) {
        let message = format!("'{}' has a meaning of its own in routes", name.get_ref());
        errors.push(source.error(name.span(), message, "another name"));
    }
}
