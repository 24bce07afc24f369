//! NF `nat`: network address and port translation (RFC 3022) of IPv4 TCP, UDP
//! and ICMP echo, as RFC 4787, 5382 and 5508 require.
//!
//! An inside host gets one external address and port for each of its own,
//! independent of its peers (endpoint-independent mapping). The configured
//! filtering decides which packets from outside are accepted.

mod config;
mod fragments;
mod icmp;
mod mapping;
mod pool;
mod session;
mod taken;
mod translate;
mod waiting;

use std::net::Ipv4Addr;

use arrayvec::ArrayVec;
use serde::{Deserialize, Serialize};
use thalweg_packet::wire::ethertype;
use thalweg_packet::{BATCH, Batch, Decapsulate, DropReason, Lanes, Nanoseconds, field};

use config::{Config, Options};
use fragments::{FragmentId, Fragments};
use mapping::{EndPoint, Mappings, Record, STEP};
use thalweg_nf::state::{StateError, StateReader, StateWriter};
use thalweg_nf::{
    Blueprint, BuildError, Context, Environment, Grain, Kind, NetworkFunction, NfError, Renewal,
    Section,
};
use translate::{Direction, Done};
use waiting::Waiting;

/// The kind, for the registry of a program.
pub const KIND: Kind = Kind {
    name: "nat",
    summary: "network address and port translation",
    state: Some("mappings with their sessions"),
    grain: Grain::Whole,
    limits: &[
        "IPv4 only: TCP, UDP and ICMP echo; no static forwards, no application-level gateways",
        "max_mappings mappings, max_sessions sessions: when full, sessions that were never \
         answered are evicted",
        "answered mappings are never evicted: without room or a free port a new one is refused",
        "4096 fragmented packets, each for 30 s: beyond that the oldest is evicted",
        "4096 fragments wait for the first of their packet, in 4 MiB: 64 of a packet, 256 of a source",
        "1024 external addresses",
    ],
    chooses_output: false,
    keeps_names: false,
    takes_supers: true,
    runs_on_devices: false,
    bypass_hazard: Some("packets would leave with their internal addresses"),
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
    fn instance(&self) -> Box<dyn NetworkFunction> {
        Box::new(Nat {
            mappings: Mappings::new(self.0.clone()),
            fragments: Fragments::new(),
            waiting: Waiting::new(),
            clock: Nanoseconds::default(),
            config: self.0.clone(),
            untouched: 0,
        })
    }

    fn describe(&self) -> String {
        let (addresses, ports) = (self.0.external.len(), self.0.ports.clone().count());
        let addresses = match addresses {
            1 => "1 external address".to_owned(),
            several => format!("{several} external addresses"),
        };
        format!("{addresses}, {ports} ports per address")
    }

    fn memory(&self) -> u64 {
        Mappings::bytes(&self.0) as u64
    }

    fn renew(&mut self, old: &dyn Blueprint) -> Option<Renewal> {
        old.downcast().filter(|old: &&Self| self.0.suits_mappings_of(&old.0))?;
        let config = self.0.clone();
        Some(Box::new(|instance| {
            let nat = instance.downcast_mut::<Nat>()?;
            nat.mappings.renew(config.clone());
            nat.config = config;
            None
        }))
    }
}

/// The protocols that a NAT translates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Protocol {
    /// TCP ports.
    Tcp,
    /// UDP ports.
    Udp,
    /// ICMP echo identifiers.
    Echo,
}

impl Protocol {
    /// Its IP protocol number.
    fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Echo => 1,
        }
    }
}

struct Nat {
    config: Config,
    mappings: Mappings,
    fragments: Fragments,
    waiting: Waiting,
    /// The newest time of a packet.
    clock: Nanoseconds,
    untouched: u64,
}

impl NetworkFunction for Nat {
    fn process(&mut self, batch: &mut Batch, lanes: Lanes, context: &mut Context<'_>) {
        let directions = self.directions(batch, lanes);
        self.ask_for(batch, lanes, &directions);
        let (mut changed, mut step) = (Lanes::NONE, STEP);
        for lane in lanes {
            let now = batch.meta.timestamp[lane];
            self.clock = self.clock.follow(now);
            self.mappings.expire(now, &mut step);
            self.fragments.expire(now);
            self.waiting.expire(now);
            let fragment = FragmentId::of(batch, lane).zip(directions[lane]);
            match self.packet(batch, lane, directions[lane], now) {
                Ok(Some(done)) => {
                    changed.insert(lane);
                    context.explain(lane, || done.to_string());
                    if let Some((id, direction)) = fragment {
                        self.resume(batch, lane, (id, direction), context);
                    }
                }
                Ok(None) => self.untouched += 1,
                Err(DropReason::UnknownFragment) => self.wait(batch, lane, fragment, context),
                Err(reason) => context.drop(lane, reason),
            }
        }
        batch.mark_changed(changed);
    }

    fn export_state(&self, writer: &mut StateWriter<'_>) -> Result<(), StateError> {
        let records = self.mappings.records();
        writer.expect(records.len());
        records.into_iter().try_for_each(|record| writer.record(record.flows(), record))
    }

    fn import_state(&mut self, reader: &mut StateReader<'_>) -> Result<usize, StateError> {
        let records: Vec<Record> = reader.records()?;
        let count = records.len();
        self.mappings.take_over(records, reader.expected())?;
        Ok(count)
    }

    /// Fragments that wait for their first one are not part of the state; they expire here.
    fn forget_unit(&mut self, unit: u16) {
        if unit == 0 {
            self.mappings.forget();
        }
    }

    fn state_version(&self) -> u16 {
        2 // Version 1 had no sessions.
    }

    fn figures(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("mappings", self.mappings.len() as u64),
            ("sessions", self.mappings.sessions() as u64),
            ("created", self.mappings.created),
            ("expired", self.mappings.expired),
            ("evicted", self.mappings.evicted),
            ("sessions_evicted", self.mappings.sessions_evicted),
            ("refused", self.mappings.refused),
            ("fragments_evicted", self.fragments.evicted),
            ("fragments_held", self.waiting.held),
            ("fragments_resumed", self.waiting.resumed),
            ("fragments_lost", self.waiting.lost),
            ("untouched", self.untouched),
        ]
    }

    /// Removes what is over and was not removed yet, so that figures do not count it.
    fn flush(&mut self) -> Result<(), NfError> {
        self.mappings.remove_all_late();
        self.waiting.remove_all_late(self.clock);
        Ok(())
    }

    fn flush_some(&mut self) -> Result<bool, NfError> {
        Ok(true)
    }
}

impl Nat {
    /// The direction of each IPv4 packet that the NAT translates.
    fn directions(&self, batch: &Batch, lanes: Lanes) -> [Option<Direction>; BATCH] {
        let mut directions = [None; BATCH];
        for lane in lanes.into_iter().filter(|lane| batch.headers(*lane).is_ipv4()) {
            let address = |f| Ipv4Addr::from(batch.field(lane, f) as u32);
            let (source, destination) = (address(field::NW_SRC), address(field::NW_DST));
            let inside = self.config.is_inside(source);
            directions[lane] = if self.config.is_external(destination) {
                Some(if inside { Direction::Hairpin } else { Direction::In })
            } else {
                (inside && !self.config.is_inside(destination)).then_some(Direction::Out)
            };
        }
        directions
    }

    /// Prefetches the mappings of all packets before the first packet needs its own.
    fn ask_for(&mut self, batch: &Batch, lanes: Lanes, directions: &[Option<Direction>; BATCH]) {
        type Ends = ArrayVec<EndPoint, BATCH>;
        let (mut insides, mut externals) = (Ends::new(), Ends::new());
        for lane in lanes {
            match (directions[lane], translate::ends(batch, lane)) {
                (None, _) | (_, None) => {}
                (Some(Direction::In), Some((protocol, _, (address, port)))) => {
                    externals.push(EndPoint(protocol, address, port));
                }
                (_, Some((protocol, (address, port), _))) => {
                    insides.push(EndPoint(protocol, address, port));
                }
            }
        }
        self.mappings.ask_for(&insides, &externals);
    }

    /// Translates one packet; returns what was done, `None` if the NAT does not
    /// translate it, or why it is dropped.
    fn packet(
        &mut self,
        batch: &mut Batch,
        lane: usize,
        direction: Option<Direction>,
        now: Nanoseconds,
    ) -> Result<Option<Done>, DropReason> {
        let Some(direction) = direction else {
            let says_ipv4 = batch.field(lane, field::DL_TYPE) == u64::from(ethertype::IPV4);
            let cut = !batch.headers(lane).is_ipv4() && says_ipv4;
            return if cut { Err(DropReason::Malformed) } else { Ok(None) };
        };
        if direction == Direction::Hairpin {
            if !self.config.hairpinning {
                return Err(DropReason::NoMapping);
            }
            // An identifier belongs to the sender of an echo request and does not name another
            // host; the answer would be its sender's own request.
            if translate::is_echo_request(batch, lane) {
                return Err(DropReason::NoMapping);
            }
            // Outward by the mapping of the sender, then inward by that of the receiver.
            self.translate(batch, lane, Direction::Out, now)?;
            batch.parse(Lanes::one(lane), Decapsulate::No);
        }
        let last = if direction == Direction::Out { direction } else { Direction::In };
        self.translate(batch, lane, last, now).map(Some)
    }

    /// Keeps a copy of a later fragment until its first one arrives.
    fn wait(
        &mut self,
        batch: &Batch,
        lane: usize,
        fragment: Option<(FragmentId, Direction)>,
        context: &mut Context<'_>,
    ) {
        let waits = fragment.is_some_and(|(id, _)| self.waiting.hold(id, batch, lane));
        context.explain(lane, || {
            let how = if waits { "waits" } else { "no room to wait" };
            format!("{how} for the first fragment")
        });
        let reason = if waits { DropReason::FragmentHeld } else { DropReason::UnknownFragment };
        context.drop(lane, reason);
    }

    /// Translates and emits the fragments that waited for the first one, which is in `lane`.
    fn resume(
        &mut self,
        batch: &Batch,
        lane: usize,
        (id, direction): (FragmentId, Direction),
        context: &mut Context<'_>,
    ) {
        for held in self.waiting.take(&id, batch.meta.timestamp[lane]) {
            let Some(made) = context.emit(batch, lane, &held.bytes) else {
                self.waiting.lost += 1;
                continue;
            };
            let (emitted, new) = (context.emitted().batch_of(made), made.lane);
            emitted.meta.wire_len[new] = held.wire_len;
            emitted.parse(Lanes::one(new), Decapsulate::No);
            let now = batch.meta.timestamp[lane];
            if self.packet(emitted, new, Some(direction), now).is_ok() {
                self.waiting.resumed += 1;
                emitted.mark_changed(Lanes::one(new));
            } else {
                self.waiting.lost += 1;
                emitted.release(Lanes::one(new));
            }
        }
    }

    fn translate(
        &mut self,
        batch: &mut Batch,
        lane: usize,
        direction: Direction,
        now: Nanoseconds,
    ) -> Result<Done, DropReason> {
        translate::packet(&mut self.mappings, &mut self.fragments, batch, lane, direction, now)
    }
}

#[cfg(test)]
mod tests;
