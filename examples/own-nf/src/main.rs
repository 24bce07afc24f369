//! The `thalweg` program with one more NF: `quota` drops the packets of a source after a
//! number of bytes.

use std::{num::NonZero, process::ExitCode};

use thalweg_nf::state::{StateError, StateReader, StateWriter};
use thalweg_nf::toolkit::conversation::bits;
use thalweg_nf::toolkit::flow_table::{FlowTable, FlowWords};
use thalweg_nf::{Blueprint, Context, Kind, NetworkFunction, Sharing};
use thalweg_packet::{Batch, DropReason, FiveTuple, Lanes};

const KIND: Kind = Kind {
    name: "quota",
    summary: "drops the packets of a source address after a number of bytes",
    state: Some("bytes by source address"),
    limits: &["1048576 sources: packets of others are dropped (state-full)"],
    chooses_output: false,
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
    fn sharing(&self) -> Sharing {
        Sharing::Single // The flows of one source are spread over all workers.
    }

    fn instance(&self, _worker: usize) -> Box<dyn NetworkFunction> {
        Box::new(Quota { quota: self.bytes.get(), sent: FlowTable::new() })
    }

    fn describe(&self) -> String {
        format!("{} bytes for each source", self.bytes)
    }
}

struct Quota {
    quota: u64,
    sent: FlowTable<Source, u64, 2>,
}

/// A source address; IPv4 as mapped to IPv6.
#[derive(Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct Source(u128);

impl FlowWords<2> for Source {
    fn words(&self) -> [u64; 2] {
        [(self.0 >> 64) as u64, self.0 as u64]
    }
}

impl NetworkFunction for Quota {
    fn process(&mut self, batch: &mut Batch, lanes: Lanes, context: &mut Context<'_>) {
        let source = |lane| Some((lane, Source(bits(FiveTuple::of(batch, lane)?.src))));
        let sources = || lanes.into_iter().filter_map(source);
        // The sources of the whole batch at once, so that their packets wait for memory together.
        let found = self.sent.find(sources().map(|(_, source)| source));
        for (n, (lane, source)) in sources().enumerate() {
            if self.sent.slot_now(found.slot(n), &source).is_none() && self.sent.len() < SOURCES {
                // Fails if there is no place in the table; then there is none below.
                let _ = self.sent.insert(source, 0);
            }
            match self.sent.get_mut(found.slot(n), &source) {
                None => context.drop(lane, DropReason::StateFull),
                Some(sent) if *sent >= self.quota => context.drop(lane, DropReason::FilterDrop),
                Some(sent) => {
                    *sent = sent.saturating_add(batch.meta.wire_len[lane].into());
                    context.explain(lane, || format!("{sent} of {} bytes", self.quota));
                }
            }
        }
    }

    fn export_state(&self, writer: &mut StateWriter<'_>) -> Result<(), StateError> {
        self.sent.iter().try_for_each(|record| writer.record([], &record))
    }

    fn import_state(&mut self, reader: &mut StateReader<'_>) -> Result<usize, StateError> {
        let mut records: Vec<_> = reader.records()?.into_iter().map(Some).collect();
        records.truncate(SOURCES.saturating_sub(self.sent.len()));
        Ok(records.len() - self.sent.extend(records).len())
    }

    fn figures(&self) -> Vec<(&'static str, u64)> {
        let exhausted = self.sent.iter().filter(|(_, sent)| **sent >= self.quota).count();
        vec![("sources", self.sent.len() as u64), ("exhausted", exhausted as u64)]
    }
}

#[cfg(test)]
mod tests;
