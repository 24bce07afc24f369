//! NF `refrag`: fragments packets that a `defrag` reassembled, into fragments no longer than those
//! they arrived in, so that they fit the path MTU that the sender fragmented them for.

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_packet::{Batch, DropReason, Lanes};

use thalweg_nf::toolkit::fragment::{Cutter, was_cut};
use thalweg_nf::toolkit::outer::see_outermost;
use thalweg_nf::{
    Blueprint, BuildError, Context, Environment, Grain, Kind, NetworkFunction, Section,
};

/// The kind, for the registry of a program.
pub const KIND: Kind = Kind {
    name: "refrag",
    summary: "fragments packets that a defrag reassembled, to the sizes they arrived in",
    state: None,
    grain: Grain::None,
    limits: &["a packet is dropped if there are no frames for all its fragments (pool-exhausted)"],
    chooses_output: false,
    keeps_names: false,
    takes_supers: true,
    runs_on_devices: false,
    bypass_hazard: None,
    options: || schemars::schema_for!(Options),
    build,
};

/// There are no options.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {}

fn build(
    section: &Section<'_>,
    _environment: &Environment<'_>,
) -> Result<Box<dyn Blueprint>, BuildError> {
    let Options {} = section.parse()?;
    Ok(Box::new(RefragBlueprint))
}

struct RefragBlueprint;

impl Blueprint for RefragBlueprint {
    fn instance(&self) -> Box<dyn NetworkFunction> {
        Box::new(Refrag::default())
    }

    fn describe(&self) -> String {
        "fragments no longer than those that arrived".into()
    }
}

#[derive(Default)]
struct Refrag {
    cutter: Cutter,
    packets: u64,
    fragments: u64,
}

impl NetworkFunction for Refrag {
    fn process(&mut self, batch: &mut Batch, lanes: Lanes, context: &mut Context<'_>) {
        let came_cut = |lane: &usize| batch.meta.cut[*lane].longest > 0;
        let lanes: Lanes = lanes.into_iter().filter(came_cut).collect();
        if lanes.is_empty() {
            return;
        }
        see_outermost(batch, lanes);
        for lane in lanes {
            if was_cut(batch, lane) {
                self.cut(batch, lane, context);
            }
        }
    }

    /// A super-packet in a tunnel is as good as its segments: they are no fragments.
    fn takes_whole(&self, _batch: &Batch, _lane: usize) -> bool {
        true
    }

    fn figures(&self) -> Vec<(&'static str, u64)> {
        vec![("packets", self.packets), ("fragments", self.fragments)]
    }
}

impl Refrag {
    fn cut(&mut self, batch: &mut Batch, lane: usize, context: &mut Context<'_>) {
        let longest = batch.meta.cut[lane].longest;
        let Some(later) = self.cutter.cut_again(batch, context, lane) else {
            context.drop(lane, DropReason::PoolExhausted);
            return;
        };
        let count = 1 + later.len();
        context
            .explain(lane, || format!("split into {count} fragments of at most {longest} bytes"));
        self.packets += 1;
        self.fragments += count as u64;
    }
}
