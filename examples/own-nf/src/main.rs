//! `thalweg` with one more NF: `quota` drops the packets of a source after a number of bytes.
use std::{collections::HashMap, net::IpAddr, num::NonZero, process::ExitCode};
use thalweg_nf::state::{StateError, StateReader, StateWriter};
use thalweg_nf::{Blueprint, Context, Grain, Kind, NetworkFunction};
use thalweg_packet::{Batch, DropReason, FiveTuple, Lanes};

const KIND: Kind = Kind {
    name: "quota",
    summary: "drops the packets of a source address after a number of bytes",
    state: Some("bytes by source address"),
    grain: Grain::Whole,
    limits: &["1048576 sources: packets of others are dropped (state-full)"],
    chooses_output: false,
    keeps_names: false,
    takes_supers: false,
    runs_on_devices: false,
    bypass_hazard: None,
    options: || schemars::schema_for!(Options),
    build: |section, _environment| Ok(Box::new(section.parse::<Options>()?)),
};
/// The most sources, so that memory is bounded.
const SOURCES: usize = 1 << 20;

fn main() -> ExitCode {
    thalweg_cli::main(&thalweg_cli::built_in_kinds().with(KIND))
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {
    /// The bytes, including Ethernet headers, after which packets of a source are dropped.
    bytes: NonZero<u64>,
}

impl Blueprint for Options {
    fn instance(&self) -> Box<dyn NetworkFunction> {
        Box::new(Quota { quota: self.bytes.get(), sent: HashMap::new() })
    }
    fn describe(&self) -> String {
        format!("{} bytes for each source", self.bytes)
    }
}

struct Quota {
    quota: u64,
    sent: HashMap<IpAddr, u64>,
}
impl NetworkFunction for Quota {
    fn process(&mut self, batch: &mut Batch, lanes: Lanes, context: &mut Context<'_>) {
        for lane in lanes {
            let Some(FiveTuple { src, .. }) = FiveTuple::of(batch, lane) else { continue };
            if self.sent.len() >= SOURCES && !self.sent.contains_key(&src) {
                context.drop(lane, DropReason::StateFull);
                continue;
            }
            let sent = self.sent.entry(src).or_default();
            if *sent >= self.quota {
                context.drop(lane, DropReason::FilterDrop);
            } else {
                *sent = sent.saturating_add(batch.meta.wire_len[lane].into());
                context.explain(lane, || format!("{sent} of {} bytes", self.quota));
            }
        }
    }
    fn export_state(&self, writer: &mut StateWriter<'_>) -> Result<(), StateError> {
        self.sent.iter().try_for_each(|record| writer.record([], &record))
    }
    fn import_state(&mut self, reader: &mut StateReader<'_>) -> Result<usize, StateError> {
        let before = self.sent.len();
        for (source, sent) in reader.records()?.into_iter().take(SOURCES) {
            self.sent.entry(source).or_insert(sent);
        }
        Ok(self.sent.len() - before)
    }
    fn figures(&self) -> Vec<(&'static str, u64)> {
        let exhausted = self.sent.values().filter(|sent| **sent >= self.quota).count();
        vec![("sources", self.sent.len() as u64), ("exhausted", exhausted as u64)]
    }
}
#[cfg(test)]
mod tests;
