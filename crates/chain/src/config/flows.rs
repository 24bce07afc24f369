//! Flows that may name the inputs of a chain.

use std::ops::Range;

use thalweg_classify::flow_syntax::{self, Flow, FlowError};
use thalweg_packet::field;
use thalweg_source::nearest;

/// Parses a flow whose `in_port` is the name of one of `inputs`, or its position there, from 0.
///
/// # Errors
/// The first mistake; about an input, with the names of all.
pub fn parse_flow(text: &str, inputs: &[String]) -> Result<Flow, FlowError> {
    let port = |name: &str| inputs.iter().position(|input| input == name).map(|at| at as u16);
    let flow = flow_syntax::parse(text, &port).map_err(|e| about_input(text, e, inputs))?;
    // The key holds the input's number plus one: 0 is no input.
    if flow.pattern.value().get(field::IN_PORT) <= inputs.len() as u64 {
        return Ok(flow);
    }
    Err(unknown_input(flow_syntax::place_of(text, "in_port").unwrap_or_default(), "", inputs))
}

/// An error of the flow `text`; about the value of `in_port`, one that names the inputs.
fn about_input(text: &str, error: FlowError, inputs: &[String]) -> FlowError {
    let start = flow_syntax::place_of(text, "in_port").map(|place| place.start + "in_port=".len());
    match text.get(error.span.clone()) {
        Some(name) if start == Some(error.span.start) && !name.is_empty() => {
            unknown_input(error.span, name, inputs)
        }
        _ => error,
    }
}

fn unknown_input(span: Range<usize>, name: &str, inputs: &[String]) -> FlowError {
    let names: Vec<_> = inputs.iter().map(|input| format!("'{input}'")).collect();
    let near = nearest(name, inputs.iter().map(String::as_str));
    let meant = near.map_or_else(String::new, |near| format!("; did you mean '{near}'?"));
    let expected = format!("an input: {}{meant}", names.join(", "));
    FlowError { span, message: "unknown input".into(), expected }
}
