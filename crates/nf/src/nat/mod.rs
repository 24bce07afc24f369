//! NF `nat`: network address and port translation (RFC 3022) of IPv4 TCP, UDP
//! and ICMP echo, as RFC 4787, 5382 and 5508 ask.
//!
//! A host inside gets one external address and port for each of its own,
//! whomever it talks to (endpoint-independent mapping). Packets from outside
//! are let in by the filtering that the configuration says.

mod config;
mod fragments;
mod icmp;
mod mapping;
mod session;
mod translate;

use serde::{Deserialize, Serialize};
use thalweg_packet::{Batch, DropReason, Lanes, Nanoseconds, field};

use crate::state::{StateError, StateReader, StateWriter};
use crate::{Blueprint, BuildError, Context, Environment, Kind, NetworkFunction, Section, Sharing};
use config::{Config, Options};
use fragments::Fragments;
use mapping::{Mappings, Record};
use translate::Direction;

pub(crate) const KIND: Kind = Kind {
    name: "nat",
    summary: "network address and port translation",
    state: "mappings with their sessions",
    limits: &[
        "IPv4: TCP, UDP and ICMP echo; no static forwards, no application gateways",
        "max_mappings mappings, max_sessions sessions; more are refused (state-full)",
        "4096 packets whose fragments come, for 30 s; of more the oldest is forgotten",
        "one instance: with several workers it runs on a worker of its own",
    ],
    options: || schemars::schema_for!(Options),
    build,
};

fn build(
    section: &Section<'_>,
    _environment: &Environment<'_>,
) -> Result<Box<dyn Blueprint>, BuildError> {
    Ok(Box::new(NatBlueprint(config::read(section)?)))
}

struct NatBlueprint(Config);

impl Blueprint for NatBlueprint {
    /// Answers come back to an external address and port that say nothing of
    /// the worker that chose them.
    fn sharing(&self) -> Sharing {
        Sharing::Single
    }

    fn instance(&self, _worker: usize) -> Box<dyn NetworkFunction> {
        Box::new(Nat {
            mappings: Mappings::new(self.0.clone()),
            fragments: Fragments::default(),
            config: self.0.clone(),
            untouched: 0,
        })
    }

    fn describe(&self) -> String {
        let (addresses, ports) = (self.0.external.len(), self.0.ports.clone().count());
        format!("{addresses} external addresses of {ports} ports")
    }
}

/// What a NAT knows of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Protocol {
    /// TCP ports.
    Tcp,
    /// UDP ports.
    Udp,
    /// ICMP echo identifiers.
    Echo,
}

struct Nat {
    config: Config,
    mappings: Mappings,
    fragments: Fragments,
    untouched: u64,
}

impl NetworkFunction for Nat {
    fn process(&mut self, batch: &mut Batch, lanes: Lanes, context: &mut Context<'_>) {
        let now = context.now();
        self.mappings.expire(now);
        self.fragments.expire(now);
        for lane in lanes {
            match self.packet(batch, lane, now) {
                Ok(Some(what)) => context.explain(lane, || what),
                Ok(None) => self.untouched += 1,
                Err(reason) => context.drop(lane, reason),
            }
        }
    }

    fn export_state(&self, writer: &mut StateWriter<'_>) -> Result<(), StateError> {
        self.mappings.records().into_iter().try_for_each(|record| writer.record(record))
    }

    fn import_state(&mut self, reader: &mut StateReader<'_>) -> Result<usize, StateError> {
        let records: Vec<Record> = reader.records()?;
        let count = records.len();
        self.mappings.take_over(records)?;
        Ok(count)
    }

    fn state_version(&self) -> u16 {
        2 // 1 had no sessions
    }

    fn figures(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("mappings", self.mappings.len() as u64),
            ("sessions", self.mappings.sessions() as u64),
            ("created", self.mappings.created),
            ("expired", self.mappings.expired),
            ("refused", self.mappings.refused),
            ("untouched", self.untouched),
        ]
    }
}

impl Nat {
    /// Translates one packet; what was done, or nothing when it is no matter
    /// of NAT, or why it is lost.
    fn packet(
        &mut self,
        batch: &mut Batch,
        lane: usize,
        now: Nanoseconds,
    ) -> Result<Option<String>, DropReason> {
        let key = batch.key(lane);
        if !batch.headers(lane).is_ipv4() {
            let cut = key.get(field::DL_TYPE) == 0x0800;
            return if cut { Err(DropReason::Malformed) } else { Ok(None) };
        }
        let (source, destination) = (key.get(field::NW_SRC) as u32, key.get(field::NW_DST) as u32);
        let inside = |a: u32| self.config.is_inside(a.into());
        let direction = if self.config.is_external(destination.into()) {
            if inside(source) { Direction::Hairpin } else { Direction::In }
        } else if inside(source) && !inside(destination) {
            Direction::Out
        } else {
            return Ok(None);
        };
        let said = match direction {
            Direction::Hairpin if !self.config.hairpinning => return Err(DropReason::NoMapping),
            // Out by the mapping of the sender, in again by that of the receiver.
            Direction::Hairpin => {
                self.translate(batch, lane, Direction::Out, now)?;
                batch.parse(Lanes::one(lane), thalweg_packet::Decapsulate::No);
                self.translate(batch, lane, Direction::In, now)?
            }
            direction => self.translate(batch, lane, direction, now)?,
        };
        batch.parse(Lanes::one(lane), thalweg_packet::Decapsulate::No);
        Ok(Some(said))
    }

    fn translate(
        &mut self,
        batch: &mut Batch,
        lane: usize,
        direction: Direction,
        now: Nanoseconds,
    ) -> Result<String, DropReason> {
        translate::packet(&mut self.mappings, &mut self.fragments, batch, lane, direction, now)
    }
}

#[cfg(test)]
mod tests;
