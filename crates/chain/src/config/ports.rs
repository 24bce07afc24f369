//! Inputs and outputs of a chain file.

use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thalweg_io::generate::Spec;
use thalweg_io::{CaptureFiles, CaptureOutput, FILTER, Filter, TimeRange};
use thalweg_source::{OutputFile, Passage, Source, SourceError};
use toml::{Spanned, Value};

use super::captures::{Findings, Found, Searched, captures};
use super::file::{Input, Named, Output, Placed};
use super::files::Files;

/// The source of an input's packets.
#[derive(Clone, Debug)]
pub enum InputSource {
    /// A network interface.
    Interface {
        /// Its name.
        name: String,
        /// Whether it takes packets for other stations too.
        promiscuous: bool,
    },
    /// A pipe, or capture files that are read as one.
    Capture {
        /// The files.
        files: CaptureFiles,
        /// The path; with several files, their names in the chain file and their number.
        what: String,
        /// Whether they are loaded as a whole before the first packet.
        in_memory: bool,
    },
    /// A generator.
    Generate(Box<Spec>),
}

/// The order in which the packets of several captures are received. Other inputs take turns with
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MergeBy {
    /// The oldest packet first.
    #[default]
    Time,
    /// In turn, a batch of each.
    Turn,
}

/// An input of a chain.
#[derive(Clone, Debug)]
pub struct InputPlan {
    /// Its name.
    pub name: String,
    /// The source of its packets.
    pub source: InputSource,
    /// Where its captures were looked for.
    pub(super) searched: Vec<Searched>,
    /// Passes over a capture; 0 means without end.
    pub loops: u64,
    /// The range of captured times that are received.
    pub times: TimeRange,
    /// The filter that received packets match.
    pub filter: Option<Filter>,
}

/// The target of an output's packets.
#[derive(Clone, Debug)]
pub enum OutputTarget {
    /// A network interface, by its name.
    Interface(String),
    /// A capture file or pipe, by its path.
    Capture(PathBuf),
    /// Nothing: packets are counted and discarded.
    Discard,
}

/// An output of a chain.
#[derive(Clone, Debug)]
pub struct OutputPlan {
    /// Its name.
    pub name: String,
    /// The target of its packets.
    pub target: OutputTarget,
}

/// The inputs. `interfaces` are those that there are; without them, any name is accepted.
pub(super) fn inputs(
    source: &Source,
    inputs: Vec<Named<Input>>,
    interfaces: Option<&[String]>,
    findings: &mut Findings<'_>,
) -> Vec<InputPlan> {
    if inputs.is_empty() {
        let message = "the chain has no input";
        findings.errors.push(source.error(0..0, message, "a section [input.NAME]"));
    }
    let plan = |Placed { source, part: (name, input) }: Named<Input>| {
        let input = input?;
        let span = input.span();
        let input = input.into_inner();
        let loops = input.r#loop.as_ref().map_or(1, |loops| *loops.get_ref());
        let times = time_range(&source, &input, findings.errors);
        let filter = filter(&source, &input, findings.errors);
        let Found { source, searched } = input_source(&source, input, span, interfaces, findings)?;
        Some(InputPlan { name: name.into_inner(), source, searched, loops, times, filter })
    };
    inputs.into_iter().filter_map(plan).collect()
}

/// The only source of an input, whose section is at `span`.
fn input_source(
    source: &Source,
    input: Input,
    span: Range<usize>,
    interfaces: Option<&[String]>,
    findings: &mut Findings<'_>,
) -> Option<Found> {
    // Ignoring these would run something else than the file requests.
    let of_captures = [
        ("loop", input.r#loop.as_ref().map(Spanned::span)),
        ("memory", input.memory.as_ref().map(Spanned::span)),
    ];
    let of_times = [
        ("from", input.from.as_ref().map(Spanned::span)),
        ("to", input.to.as_ref().map(Spanned::span)),
    ];
    let of_packets = [("filter", input.filter.as_ref().map(Spanned::span))];
    let of_interfaces = [("promiscuous", input.promiscuous.as_ref().map(Spanned::span))];
    let errors = &mut *findings.errors;
    let mut refuse = |keys: &[Key], what, expected| {
        for (key, at) in keys.iter().filter_map(|(key, at)| Some((key, at.clone()?))) {
            let message = format!("'{key}' does not apply to {what}");
            errors.push(source.error(at, message, expected));
        }
    };
    let from = match (input.interface, input.capture, input.generate) {
        (Some(interface), None, None) => {
            refuse(&of_captures, "an interface", "--duration or --count to end the run");
            refuse(&of_times, "an interface", "a capture");
            let promiscuous = input.promiscuous.is_none_or(Spanned::into_inner);
            let name = interface_name(source, interface, interfaces, true, errors);
            InputSource::Interface { name, promiscuous }
        }
        (None, Some(capture), None) => {
            refuse(&of_interfaces, "a capture", "no such key");
            let in_memory = input.memory.is_some_and(Spanned::into_inner);
            let passes = input.r#loop.filter(|loops| *loops.get_ref() != 1);
            let passes = passes.map(|loops| loops.span());
            return Some(captures(source, capture, in_memory, passes, findings));
        }
        (None, None, Some(spec)) => {
            refuse(&of_captures, "generated traffic", "packets = N in generate");
            refuse(&of_times, "generated traffic", "a capture");
            refuse(&of_packets, "generated traffic", "a capture or an interface");
            refuse(&of_interfaces, "generated traffic", "no such key");
            generator_source(source, spec, errors)
        }
        _ => {
            let expected = "one of: interface = \"NAME\", capture = \"FILE\", generate = { ... }";
            errors.push(source.error(span, "an input needs exactly one source", expected));
            return None;
        }
    };
    Some(Found { source: from, searched: Vec::new() })
}

/// The range of times between `from` and `to`.
fn time_range(source: &Source, input: &Input, errors: &mut Vec<SourceError>) -> TimeRange {
    let mut time = |value: &Option<Spanned<Value>>| {
        let value = value.as_ref()?;
        let text = match value.get_ref() {
            Value::String(text) => Some(text.clone()),
            // TOML has times of its own, and writes them as RFC 3339 does.
            Value::Datetime(time) => Some(time.to_string()),
            Value::Integer(seconds) => Some(seconds.to_string()),
            Value::Float(seconds) => Some(seconds.to_string()),
            _ => None,
        };
        let time = text.and_then(|text| thalweg_io::parse_time(&text));
        if time.is_none() {
            errors.push(source.error(value.span(), "bad time", thalweg_io::TIME));
        }
        time
    };
    let times = TimeRange { from: time(&input.from), to: time(&input.to) };
    if times.is_empty()
        && let Some(to) = &input.to
    {
        errors.push(source.error(to.span(), "'to' is not after 'from'", "a later time"));
    }
    times
}

/// The filter of packets, compiled.
fn filter(source: &Source, input: &Input, errors: &mut Vec<SourceError>) -> Option<Filter> {
    let text = input.filter.as_ref()?;
    match Filter::compile(text.get_ref()) {
        Ok(filter) => Some(filter),
        Err(message) => {
            errors.push(source.error(text.span(), message, FILTER));
            None
        }
    }
}

/// A key of an input, and its place if the file has it.
type Key = (&'static str, Option<Range<usize>>);

/// Checks that there is such an interface and, if the run `opens` it, that it may.
fn interface_name(
    source: &Source,
    interface: Spanned<String>,
    interfaces: Option<&[String]>,
    opens: bool,
    errors: &mut Vec<SourceError>,
) -> String {
    let Some(names) = interfaces else { return interface.into_inner() };
    if !names.contains(interface.get_ref()) {
        let message = format!("there is no interface '{}'", interface.get_ref());
        errors.push(source.error(
            interface.span(),
            message,
            format!("one of {}", names.join(", ")),
        ));
    } else if opens && let Err(e) = thalweg_io::check_interface(interface.get_ref()) {
        let message = format!("interface '{}': {}", interface.get_ref(), e.what());
        errors.push(source.error(interface.span(), message, "an interface that can be opened"));
    }
    interface.into_inner()
}

fn generator_source(
    source: &Source,
    spec: Spanned<Spec>,
    errors: &mut Vec<SourceError>,
) -> InputSource {
    if let Err(e) = spec.get_ref().validate() {
        errors.push(source.error(spec.span(), format!("{}: {}", e.field, e.what), e.expected));
    }
    InputSource::Generate(Box::new(spec.into_inner()))
}

/// The outputs. `interfaces` are those that there are; without them, any name is accepted. `opens`:
/// the outputs are opened later, so check that this is permitted.
pub(super) fn outputs(
    source: &Source,
    outputs: Vec<Named<Output>>,
    interfaces: Option<&[String]>,
    opens: bool,
    files: &mut Files,
    errors: &mut Vec<SourceError>,
) -> Vec<OutputPlan> {
    if outputs.is_empty() {
        errors.push(source.error(0..0, "the chain has no output", "a section [output.NAME]"));
    }
    let mut plans: Vec<OutputPlan> = Vec::new();
    for Placed { source, part: (name, output) } in outputs {
        let Some(output) = output else { continue };
        let span = output.span();
        let output = output.into_inner();
        let target = match (output.interface, output.capture, output.discard) {
            (Some(interface), None, false) => OutputTarget::Interface(interface_name(
                &source, interface, interfaces, opens, errors,
            )),
            (None, Some(capture), false) => {
                let path = source.resolve(capture.get_ref());
                if let Some((message, expected)) = unwritable(&path) {
                    errors.push(source.error(capture.span(), message, expected));
                }
                let what = format!("the file that output '{}' writes", name.get_ref());
                let option = Passage::new(&source, capture.span());
                files.written(OutputFile::new(&path), option, what);
                OutputTarget::Capture(path)
            }
            (None, None, true) => OutputTarget::Discard,
            _ => {
                let expected = "one of: interface = \"NAME\", capture = \"FILE\", discard = true";
                errors.push(source.error(span, "an output needs exactly one target", expected));
                continue;
            }
        };
        plans.push(OutputPlan { name: name.into_inner(), target });
    }
    plans
}

/// What names of captures are accepted for writing.
const NAMES: &str = "a name that ends in .pcap, .pcapng, .pcap.gz or .pcapng.gz, or /dev/stdout";

/// Why no capture can be written to `path`, and what would be accepted.
fn unwritable(path: &Path) -> Option<(&'static str, &'static str)> {
    if let Some(why) = thalweg_source::misplaced(path) {
        return Some(why);
    }
    (!CaptureOutput::has_format(path)).then_some(("unknown capture format", NAMES))
}
