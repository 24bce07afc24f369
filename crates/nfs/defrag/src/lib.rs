//! NF `defrag`: reassembles fragmented IPv4 and IPv6 packets (RFC 791, RFC 8200), so that the NFs
//! after it see whole packets only.
//!
//! The fragment that completes a packet becomes that packet. The NF keeps copies of the fragments
//! before it and drops them (`fragment-held`).

mod datagram;
mod fragment;
mod table;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_packet::{Batch, Cut, Decapsulate, DropReason, HEADROOM, Lanes, Nanoseconds, field};
use toml::Spanned;

use datagram::Datagram;
use fragment::Fragment;
use table::{Limits, Record, Table};
use thalweg_nf::state::{StateError, StateReader, StateWriter};
use thalweg_nf::{
    Blueprint, BuildError, Context, Environment, Grain, Kind, NetworkFunction, Section, Units,
};

/// The kind, for the registry of a program.
pub const KIND: Kind = Kind {
    name: "defrag",
    summary: "reassembles fragmented IP packets",
    state: Some("incomplete packets: the fragments received so far"),
    grain: Grain::Units,
    limits: &[
        "memory_mib of fragments: beyond that the oldest packet is evicted; max_fragments per \
         packet: one with more is refused",
        "a packet longer than a frame is dropped (frame-too-small); frames hold 10 KiB unless \
         memory.frame_size sets another size",
        "no fragments inside tunnels; no ICMP errors for packets that stay incomplete",
    ],
    chooses_output: false,
    keeps_names: false,
    takes_supers: true,
    runs_on_devices: false,
    bypass_hazard: Some("NFs after it would see fragments"),
    options: || schemars::schema_for!(Options),
    build,
};

/// The frame size for packets of 10 KiB: jumbo packets, datagrams of 8 KiB. Not a power of two, or
/// the beginnings of all packets would map to the same few cache lines.
const FRAME_SIZE: usize = 10_496;

/// The options of reassembly.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {
    /// Seconds after which an incomplete packet expires.
    #[serde(default = "timeout_s")]
    #[schemars(with = "u64", range(min = 1, max = 600))]
    timeout_s: Spanned<u64>,
    /// The most MiB of fragments that are held.
    #[serde(default = "memory_mib")]
    #[schemars(with = "usize", range(min = 1, max = 65536))]
    memory_mib: Spanned<usize>,
    /// The most fragments of a packet.
    #[serde(default = "max_fragments")]
    #[schemars(with = "usize", range(min = 2, max = 8192))]
    max_fragments: Spanned<usize>,
}

fn timeout_s() -> Spanned<u64> {
    Spanned::new(0..0, 30)
}

fn memory_mib() -> Spanned<usize> {
    Spanned::new(0..0, 4)
}

fn max_fragments() -> Spanned<usize> {
    Spanned::new(0..0, 64)
}

fn build(
    section: &Section<'_>,
    _environment: &Environment<'_>,
) -> Result<Box<dyn Blueprint>, BuildError> {
    let (options, mut errors): (Options, _) = (section.parse()?, Vec::new());
    let seconds = section.in_range(&options.timeout_s, 1..=600, &mut errors);
    let mebibytes = section.in_range(&options.memory_mib, 1..=65536, &mut errors);
    let fragments = section.in_range(&options.max_fragments, 2..=8192, &mut errors);
    if !errors.is_empty() {
        return Err(BuildError(errors));
    }
    let timeout = Nanoseconds::from_secs(seconds);
    Ok(Box::new(DefragBlueprint(Limits { timeout, memory: mebibytes << 20, fragments })))
}

struct DefragBlueprint(Limits);

impl Blueprint for DefragBlueprint {
    fn instance(&self) -> Box<dyn NetworkFunction> {
        Box::new(Defrag { table: Table::new(self.0), fragments: 0, whole: 0, refused: 0 })
    }

    fn frame_size(&self) -> usize {
        FRAME_SIZE
    }

    fn memory(&self) -> u64 {
        // The limit counts the slots of the table, too.
        self.0.memory as u64
    }

    fn describe(&self) -> String {
        format!("at most {} MiB of fragments", self.0.memory >> 20)
    }
}

/// The incomplete packets.
struct Defrag {
    table: Table,
    fragments: u64,
    whole: u64,
    refused: u64,
}

impl NetworkFunction for Defrag {
    fn process(&mut self, batch: &mut Batch, lanes: Lanes, context: &mut Context<'_>) {
        self.table.expire(context.clock());
        // Fragments inside a tunnel are reassembled after its end.
        let is_fragment = |lane: &usize| {
            batch.headers(*lane).fragment && batch.field(*lane, field::TUN_KIND) == 0
        };
        let fragments: Lanes = lanes.into_iter().filter(is_fragment).collect();
        let mut whole = Lanes::NONE;
        for lane in fragments {
            self.fragments += 1;
            self.table.expire(batch.meta.timestamp[lane]);
            match self.fragment(batch, lane, context) {
                Ok(()) => whole.insert(lane),
                Err(reason) => {
                    self.refused += u64::from(reason != DropReason::FragmentHeld);
                    context.drop(lane, reason);
                }
            }
        }
        batch.parse(whole, Decapsulate::No);
        for lane in whole {
            // A fragmented fragment, which no sender generates.
            if batch.headers(lane).fragment {
                self.refused += 1;
                context.drop(lane, DropReason::Malformed);
            } else {
                self.whole += 1;
            }
        }
    }

    /// A super-packet in a tunnel is as good as its segments: they are no fragments.
    fn takes_whole(&self, _batch: &Batch, _lane: usize) -> bool {
        true
    }

    fn export_state(&self, writer: &mut StateWriter<'_>) -> Result<(), StateError> {
        writer.expect(self.table.len());
        self.table.records().try_for_each(|record| writer.record([record.id.flow()], &record))
    }

    fn import_state(&mut self, reader: &mut StateReader<'_>) -> Result<usize, StateError> {
        let records: Vec<Record> = reader.records()?;
        if let Some(index) = records.iter().position(|record| !self.table.is_sound(record)) {
            let what = "fragments that do not fit together".into();
            return Err(StateError::Record { index, what });
        }
        let count = records.len();
        records.into_iter().for_each(|record| self.table.take_over(record));
        Ok(count)
    }

    fn begin_move(&mut self, units: Units) -> bool {
        self.table.index_units(units)
    }

    fn export_unit(&self, unit: u16, writer: &mut StateWriter<'_>) -> Result<(), StateError> {
        let mut records = self.table.records_of(unit);
        records.try_for_each(|record| writer.record([record.id.flow()], &record))
    }

    fn forget_unit(&mut self, unit: u16) {
        self.table.forget_unit(unit);
    }

    fn end_move(&mut self) {
        self.table.end_units();
    }

    fn figures(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("fragments", self.fragments),
            ("whole", self.whole),
            ("waiting", self.table.len() as u64),
            ("refused", self.refused),
            ("expired", self.table.expired()),
            ("evicted", self.table.evicted),
        ]
    }
}

impl Defrag {
    /// Stores a fragment; turns it into the whole packet if it was the last missing one.
    ///
    /// # Errors
    /// Why the fragment is dropped.
    fn fragment(
        &mut self,
        batch: &mut Batch,
        lane: usize,
        context: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        let fragment = Fragment::of(batch, lane)?;
        context.explain(lane, || {
            let (from, id) = (fragment.offset, fragment.id.identification);
            format!("fragment: bytes {from}..{} of packet {id:#x}", from + fragment.body.len())
        });
        if fragment.origin.is_damaged {
            self.table.doubt(&fragment, batch.meta.timestamp[lane]);
            return Err(DropReason::BadChecksum);
        }
        let identification = fragment.id.identification;
        match self.table.add(&fragment, batch.meta.timestamp[lane])? {
            None => Err(DropReason::FragmentHeld),
            Some(datagram) => {
                context.explain(lane, || {
                    let fragments = thalweg_source::counted(datagram.fragments(), "fragment");
                    format!("reassembled: {} bytes from {fragments}", datagram.len())
                });
                put(&datagram, batch, lane)?;
                batch.meta.cut[lane] = Cut { longest: datagram.longest(), identification };
                Ok(())
            }
        }
    }
}

/// Writes the whole packet into the frame of its last fragment.
fn put(datagram: &Datagram, batch: &mut Batch, lane: usize) -> Result<(), DropReason> {
    let len = datagram.len();
    // Packets begin at different offsets in their frames; this one begins at the usual offset, and
    // earlier if it needs the room.
    let behind = batch.packet_len(lane) + batch.tailroom(lane);
    let front = batch.headroom(lane).saturating_sub(HEADROOM).max(len.saturating_sub(behind));
    let bytes = batch.reshape(lane, front, len).ok_or(DropReason::FrameTooSmall)?;
    datagram.write(bytes)?;
    let meta = &mut batch.meta;
    meta.wire_len[lane] = len as u32;
    meta.packet_type[lane] = datagram.packet_type.unwrap_or(meta.packet_type[lane]);
    Ok(())
}
