//! `thalweg check`: validates a chain file and shows the chain.

use std::io::{self, Write};

use schemars::JsonSchema;
use serde::Serialize;
use thalweg_chain::{Graph, Kinds, Plan, PlanOptions};
use thalweg_source::visible_lines;

use crate::args::{self, GraphFormat};
use crate::errors::Failure;
use crate::report::write_json;

/// A chain that `run` would start.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Checked {
    #[schemars(extend("const" = "thalweg.check/1"))]
    schema: &'static str,
    graph: Graph,
    /// What `--strict` would refuse.
    warnings: Vec<String>,
}

/// Loads the chain file, which checks it as a whole, and prints its graph.
pub fn check(options: &args::Check, kinds: &Kinds) -> Result<(), Failure> {
    let how = PlanOptions {
        dry_run: true,
        strict: options.strict,
        any_interface: options.any_interface,
        ..PlanOptions::default()
    };
    let plan = load(&options.chain, kinds, how)?;
    let graph = plan.graph();
    let mut out = io::stdout().lock();
    if options.json {
        let warnings = plan.warnings().iter().map(ToString::to_string).collect();
        let schema = "thalweg.check/1";
        write_json(&mut out, &Checked { schema, graph, warnings })?;
        return Ok(());
    }
    let picture = match options.format {
        GraphFormat::Tree => graph.to_tree(),
        GraphFormat::Dot => graph.to_dot(),
        GraphFormat::Mermaid => graph.to_mermaid(),
    };
    write!(out, "{}", visible_lines(&picture))?;
    Ok(())
}

/// Loads a chain file and logs its warnings, such as options that are not supported.
pub fn load(path: &std::path::Path, kinds: &Kinds, options: PlanOptions) -> Result<Plan, Failure> {
    let plan = Plan::load(path, kinds, options).map_err(Failure::Configuration)?;
    for warning in plan.warnings() {
        log::warn!("{warning}");
    }
    Ok(plan)
}
