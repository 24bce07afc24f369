//! NF `acl`: an access-control list of many thousands of wildcard rules by priority.
//!
//! The three layers of `thalweg-classify` search the rules: the cost of a packet depends little on
//! their number. The NF counts how often each rule decided.

mod rules;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use thalweg_classify::{Classifier, Config, Lookup, Rule, RuleId, RuleTable, SharedRules};
use thalweg_packet::{BATCH, Batch, DropReason, Lanes};
use thalweg_source::SourceError;

use rules::{Action, Options, Rules};
use thalweg_nf::NfError;
use thalweg_nf::toolkit::output::{OutputFile, json_line, replace};
use thalweg_nf::toolkit::rules::renew;
use thalweg_nf::{
    Blueprint, BuildError, Context, Environment, Grain, Kind, NetworkFunction, Renewal, Section,
};

/// The kind, for the registry of a program.
pub const KIND: Kind = Kind {
    name: "acl",
    summary: "access-control list: many wildcard rules by priority, with hit counts",
    state: None,
    grain: Grain::None,
    limits: &["stateless; no in_port; port ranges only in ClassBench files, masks elsewhere"],
    chooses_output: false,
    keeps_names: false,
    takes_supers: true,
    runs_on_devices: false,
    bypass_hazard: Some("packets that its rules deny would pass"),
    options: || schemars::schema_for!(Options),
    build,
};

/// The JSON Schema of a line of `hits`: a rule with its hits.
pub fn line_schema() -> schemars::Schema {
    thalweg_nf::toolkit::output::schema_of::<Line<'_>>()
}

fn build(
    section: &Section<'_>,
    environment: &Environment<'_>,
) -> Result<Box<dyn Blueprint>, BuildError> {
    let options: Options = section.parse()?;
    let rules = Rules::read(section, &options)?;
    let shared = Arc::new(SharedRules::new(rules.table()));
    let file = section.replaced_output(options.hits.as_ref(), environment)?;
    Ok(Box::new(AclBlueprint { rules, shared, file }))
}

struct AclBlueprint {
    rules: Rules,
    shared: Arc<SharedRules>,
    /// The file for the hits.
    file: Option<OutputFile>,
}

impl Blueprint for AclBlueprint {
    fn instance(&self) -> Box<dyn NetworkFunction> {
        Box::new(Acl {
            classifier: Classifier::new(self.shared.clone(), Config::default()),
            shared: self.shared.clone(),
            table: self.shared.load(),
            hits: Vec::new(),
            denied: 0,
            unmatched: 0,
            file: self.file.clone(),
        })
    }

    fn describe(&self) -> String {
        let default = self.rules.default_action().name();
        let rules = thalweg_source::counted(self.rules.len(), "rule");
        format!("{rules}, default {default}")
    }

    fn warnings(&self) -> &[SourceError] {
        &self.rules.warnings
    }

    fn renew(&mut self, old: &dyn Blueprint) -> Option<Renewal> {
        let old: &Self = old.downcast().filter(|old: &&Self| old.file == self.file)?;
        Some(renew(&mut self.shared, &old.shared))
    }
}

/// An access-control list.
struct Acl {
    classifier: Classifier,
    shared: Arc<SharedRules>,
    /// The rules that are counted.
    table: Arc<RuleTable>,
    /// The hits of each rule, by its id.
    hits: Vec<Hits>,
    denied: u64,
    unmatched: u64,
    /// The file for the hits.
    file: Option<OutputFile>,
}

/// The packets and bytes that a rule decided about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Hits {
    packets: u64,
    bytes: u64,
}

impl NetworkFunction for Acl {
    fn process(&mut self, batch: &mut Batch, lanes: Lanes, context: &mut Context<'_>) {
        self.renew();
        let mut found = [Lookup::default(); BATCH];
        let now = context.clock();
        self.classifier.classify_batch(batch.keys(), lanes, batch.lens(), now, &mut found);
        for lane in lanes {
            let Lookup { rule, packet_type, .. } = found[lane];
            let action = Action::of(packet_type);
            match rule {
                Some(rule) => self.count(rule.0 as usize, batch.meta.wire_len[lane].into()),
                None => self.unmatched += 1,
            }
            if context.is_traced() {
                let why = self.classifier.explain(&batch.key(lane));
                let rule = why.rule_text.unwrap_or_else(|| "default".into());
                context.explain(lane, || format!("{}: {rule}", action.name()));
            }
            if action == Action::Deny {
                self.denied += 1;
                context.drop(lane, DropReason::FilterDrop);
            }
        }
    }

    /// A super-packet in a tunnel is as good as its segments: they have the same headers.
    fn takes_whole(&self, _batch: &Batch, _lane: usize) -> bool {
        true
    }

    fn figures(&self) -> Vec<(&'static str, u64)> {
        vec![("denied", self.denied), ("unmatched", self.unmatched)]
    }

    fn flush(&mut self) -> Result<(), NfError> {
        self.renew();
        let Some(file) = &self.file else { return Ok(()) };
        replace(file, |out| {
            for id in 0..self.table.next_id().0 {
                if let Some(rule) = self.table.rule(RuleId(id)) {
                    json_line(out, &line(rule, &self.hits))?;
                }
            }
            Ok(())
        })
    }
}

impl Acl {
    /// Restarts the counts after a reload of the rules.
    fn renew(&mut self) {
        if !self.shared.is_current(&self.table) {
            self.table = self.shared.load();
            self.hits.clear();
        }
    }

    fn count(&mut self, rule: usize, bytes: u64) {
        if rule >= self.hits.len() {
            self.hits.resize(rule + 1, Hits::default());
        }
        let hits = &mut self.hits[rule];
        hits.packets += 1;
        hits.bytes += bytes;
    }
}

/// A rule as a line of JSON.
#[derive(Serialize, JsonSchema)]
struct Line<'a> {
    #[schemars(extend("const" = "thalweg.acl/1"))]
    schema: &'static str,
    rule: u32,
    priority: u32,
    action: &'static str,
    text: &'a str,
    packets: u64,
    bytes: u64,
}

/// A rule with its hits.
fn line<'a>(rule: &'a Rule, hits: &[Hits]) -> Line<'a> {
    let Hits { packets, bytes } = hits.get(rule.id.0 as usize).copied().unwrap_or_default();
    Line {
        schema: "thalweg.acl/1",
        rule: rule.id.0,
        priority: rule.priority,
        action: Action::of(rule.packet_type).name(),
        text: &rule.text,
        packets,
        bytes,
    }
}

#[cfg(test)]
mod tests;
