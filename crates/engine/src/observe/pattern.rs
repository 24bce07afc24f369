//! Which packets are observed.

use thalweg_chain::{Plan, parse_flow};
use thalweg_classify::Match;
use thalweg_classify::flow_syntax::{FlowError, place_of};
use thalweg_packet::{Batch, FlowKey, field};

use super::error::ObserveError;

/// The packets that match a flow, whatever chain a reload puts in place.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// Without the input, whose number is another one in another chain.
    fields: Match,
    /// The name of the input, if the flow has one.
    input: Option<String>,
}

impl Pattern {
    /// All packets.
    pub(crate) fn any() -> Self {
        Self { fields: Match::new(FlowKey::default(), FlowKey::default()), input: None }
    }

    /// Parses a flow about packets of `plan`, which is known once the run has begun.
    pub(super) fn parse(text: &str, plan: Option<&Plan>) -> Result<Self, ObserveError> {
        let failed = |error| ObserveError::in_pattern(text, error);
        let not_here = |name: &str, expected: &str| match place_of(text, name) {
            Some(span) => Err(failed(FlowError {
                span,
                message: format!("'{name}' is not supported here"),
                expected: expected.to_owned(),
            })),
            None => Ok(()),
        };
        not_here("priority", "a pattern without priority")?;
        if plan.is_none() {
            not_here("in_port", "a pattern without in_port before the run has begun")?;
        }
        let inputs = plan.map_or(&[][..], |plan| &plan.inputs);
        let names: Vec<_> = inputs.iter().map(|input| input.name.clone()).collect();
        let flow = parse_flow(text, &names).map_err(failed)?;
        let (mut value, mut mask) = (*flow.pattern.value(), *flow.pattern.mask());
        let number = (value.get(field::IN_PORT) as usize).checked_sub(1);
        let input = number.and_then(|number| names.get(number).cloned());
        value.set(field::IN_PORT, 0);
        mask.set(field::IN_PORT, 0);
        Ok(Self { fields: Match::new(value, mask), input })
    }

    /// Whether the packet in `lane`, which takes `plan` and is parsed, matches.
    pub(super) fn covers(&self, batch: &Batch, lane: usize, plan: &Plan) -> bool {
        let is_of_input = |name: &String| {
            let number = usize::from(batch.meta.in_port[lane].0);
            plan.inputs.get(number).is_some_and(|input| input.name == *name)
        };
        self.input.as_ref().is_none_or(is_of_input) && self.fields.covers(&batch.key(lane))
    }
}
