//! NF `ipsec`: ESP in tunnel mode (RFC 4303), outbound and inbound.
//!
//! An ESP packet to one of our tunnel end points is opened by the inbound SA
//! with its SPI. Every other packet is checked against the security policy, a
//! list of patterns in flow syntax; the first match decides: protect the packet
//! by an outbound SA, let it bypass, or discard it. A packet in the clear that
//! the selector of an inbound SA covers is dropped.

mod cipher;
mod config;
pub mod device;
mod inbound;
mod iv;
mod outbound;
mod packets;
mod path;
mod replay;
mod sa;
mod suite;

use std::sync::Arc;

use arrayvec::ArrayVec;
use serde::{Deserialize, Serialize};
use thalweg_classify::{Classifier, Config, Lookup, SharedRules};
use thalweg_cpu::Isa;
use thalweg_packet::{BATCH, Batch, Cut, Decapsulate, DropReason, Lanes, ParseStatus};
use thalweg_source::SourceError;

use cipher::{Engine, Job};
use config::{Databases, Options, Policy};
use inbound::Arrival;
use iv::IvSource;
use outbound::{Departure, Fate, no_number};
use packets::{PacketKind, arrival, kind, may_be_new_later};
use sa::{Received, Receiver};
use thalweg_nf::device::{DeviceJob, DeviceWork, OnDevice};
use thalweg_nf::state::{StateError, StateReader, StateWriter};
use thalweg_nf::toolkit::fragment::Cutter;
use thalweg_nf::toolkit::icmp_error::IcmpSender;
use thalweg_nf::toolkit::outer::see_outermost;
use thalweg_nf::{
    Blueprint, BuildError, Context, Environment, Grain, Kind, NetworkFunction, Renewal, Section,
    Seed,
};

/// The kind, for the registry of a program.
pub const KIND: Kind = Kind {
    name: "ipsec",
    summary: "ESP tunnel mode, outbound and inbound",
    state: Some("sequence numbers, replay windows of 64 packets, lifetime counters"),
    grain: Grain::Whole,
    limits: &[
        "no transport mode, AH or IKE",
        "keys in a file are for tests only: sequence numbers restart at 1 with every start",
    ],
    chooses_output: false,
    keeps_names: false,
    takes_supers: false,
    runs_on_devices: true,
    bypass_hazard: Some("packets would leave unprotected"),
    options: || schemars::schema_for!(Options),
    build,
};

/// The version of the SA records.
const STATE_VERSION: u16 = 3;

fn build(
    section: &Section<'_>,
    environment: &Environment<'_>,
) -> Result<Box<dyn Blueprint>, BuildError> {
    let databases = config::read(section, environment.seed)?;
    // `instance` cannot report an error, so the random source is tried once here.
    if let Err(e) = IvSource::new(environment.seed) {
        return Err(section
            .error(
                section.span(),
                format!("cannot read random bytes: {e}"),
                "a random source of the operating system",
            )
            .into());
    }
    let rules = Arc::new(SharedRules::new(databases.table.clone()));
    Ok(Box::new(IpsecBlueprint { databases: Arc::new(databases), rules, seed: environment.seed }))
}

struct IpsecBlueprint {
    databases: Arc<Databases>,
    rules: Arc<SharedRules>,
    seed: Seed,
}

impl Blueprint for IpsecBlueprint {
    fn instance(&self) -> Box<dyn NetworkFunction> {
        Box::new(Ipsec {
            databases: self.databases.clone(),
            classifier: Classifier::new(self.rules.clone(), Config::default()),
            engine: Engine::new(Isa::active()),
            ivs: IvSource::new(self.seed).expect("the random source worked when the NF was built"),
            ip_id: 0,
            jobs: None,
            cutter: Cutter::default(),
            icmp: IcmpSender::new(IcmpSender::DEFAULT_RATE),
            figures: Figures::default(),
        })
    }

    fn device_work(&self) -> Option<DeviceWork> {
        self.databases.device_keys.work()
    }

    // The first half decides about all packets that are sent, the second about all that arrive for
    // associations that a device serves; what they share are counts.
    fn overlaps_on_device(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        let d = &self.databases;
        let policies = d.policies.len() - 1;
        let sas = if d.outbound.len() == 1 { "SA" } else { "SAs" };
        let noun = if policies == 1 { "policy" } else { "policies" };
        format!("{} {sas} out, {} in, {policies} {noun}", d.outbound.len(), d.inbound.len())
    }

    fn warnings(&self) -> &[SourceError] {
        &self.databases.warnings
    }

    fn renew(&mut self, old: &dyn Blueprint) -> Option<Renewal> {
        old.downcast::<Self>()?;
        let databases = self.databases.clone();
        let classifier = Classifier::new(self.rules.clone(), Config::default());
        Some(Box::new(|instance| {
            let ipsec = instance.downcast_mut::<Ipsec>()?;
            Some(Box::new(ipsec.renew(databases, classifier)))
        }))
    }
}

#[derive(Debug, Default)]
struct Figures {
    protected: u64,
    opened: u64,
    bypassed: u64,
    /// Packets that were fragmented before they were protected.
    cut: u64,
    /// Tunnel packets that were fragmented after they were protected.
    cut_outside: u64,
    /// Fragments that could not be protected, of packets fragmented before.
    lost_fragments: u64,
    /// Packets too long for their tunnel without an ICMP error, as no source address was available.
    no_source: u64,
}

/// IPsec: all associations and policies of the NF.
struct Ipsec {
    databases: Arc<Databases>,
    classifier: Classifier,
    engine: Engine,
    ivs: IvSource,
    ip_id: u16,
    /// Jobs for a device, if it does what it can.
    jobs: Option<Vec<DeviceJob>>,
    cutter: Cutter,
    icmp: IcmpSender,
    figures: Figures,
}

/// The state of one SA.
#[derive(Debug, Serialize, Deserialize)]
enum SaRecord {
    Outbound { receiver: Receiver, last_sent: u64, bytes: u64 },
    Inbound { spi: u32, received: Received },
}

impl NetworkFunction for Ipsec {
    fn process(&mut self, batch: &mut Batch, lanes: Lanes, context: &mut Context<'_>) {
        see_outermost(batch, lanes);
        let databases = self.databases.clone();
        let (mut clear, mut arriving) = (Lanes::NONE, Lanes::NONE);
        for lane in lanes {
            match kind(&databases, batch, lane) {
                PacketKind::Tunnel => arriving.insert(lane),
                PacketKind::Clear => clear.insert(lane),
                PacketKind::Keepalive => context.drop(lane, DropReason::NatKeepalive),
                PacketKind::Malformed => context.drop(lane, DropReason::Malformed),
                PacketKind::NotIp => {
                    self.figures.bypassed += 1;
                    context.explain(lane, || "not IP: bypass".into());
                }
            }
        }
        if !arriving.is_empty() {
            self.inbound(&databases, batch, arriving, context);
        }
        if !clear.is_empty() {
            self.outbound(&databases, batch, clear, context);
        }
    }

    fn export_state(&self, writer: &mut StateWriter<'_>) -> Result<(), StateError> {
        for sa in &self.databases.outbound {
            let (receiver, (last_sent, bytes)) = (sa.association.receiver(), sa.sent());
            let record = SaRecord::Outbound { receiver, last_sent, bytes };
            writer.record([sa.association.flow()], &record)?;
        }
        for (spi, sa) in &self.databases.inbound {
            let record = SaRecord::Inbound { spi: *spi, received: *sa.received() };
            writer.record([sa.association.flow()], &record)?;
        }
        Ok(())
    }

    fn import_state(&mut self, reader: &mut StateReader<'_>) -> Result<usize, StateError> {
        let records: Vec<SaRecord> = reader.records()?;
        for (index, record) in records.iter().enumerate() {
            let known = match record {
                SaRecord::Outbound { receiver, .. } => self.outbound_sa(*receiver).is_some(),
                SaRecord::Inbound { spi, .. } => self.databases.inbound.contains_key(spi),
            };
            if !known {
                let what = format!("no SA matches {record:?}");
                return Err(StateError::Record { index, what });
            }
        }
        for record in &records {
            match *record {
                SaRecord::Outbound { receiver, last_sent, bytes } => {
                    if let Some(sa) = self.outbound_sa(receiver) {
                        sa.resume_after(last_sent, bytes);
                    }
                }
                SaRecord::Inbound { spi, received } => {
                    if let Some(sa) = self.databases.inbound.get(&spi) {
                        sa.received().merge(&received);
                    }
                }
            }
        }
        Ok(records.len())
    }

    fn state_version(&self) -> u16 {
        STATE_VERSION
    }

    fn on_device(&mut self) -> Option<&mut dyn OnDevice> {
        Some(self)
    }

    fn figures(&self) -> Vec<(&'static str, u64)> {
        let f = &self.figures;
        vec![
            ("protected", f.protected),
            ("opened", f.opened),
            ("bypassed", f.bypassed),
            ("fragmented", f.cut),
            ("fragmented_outside", f.cut_outside),
            ("fragments_lost", f.lost_fragments),
            ("icmp_sent", self.icmp.sent()),
            ("icmp_suppressed", self.icmp.suppressed()),
            ("icmp_no_source", f.no_source),
        ]
    }
}

impl Ipsec {
    /// Goes on with other databases; returns the old ones. An association with the same receiver and
    /// keys continues its numbers.
    fn renew(
        &mut self,
        databases: Arc<Databases>,
        classifier: Classifier,
    ) -> (Arc<Databases>, Classifier) {
        for sa in &databases.outbound {
            let is_same =
                |old: &&Arc<sa::Outbound>| old.association.key_id == sa.association.key_id;
            if let Some(old) = self.outbound_sa(sa.association.receiver()).filter(is_same) {
                let (last_sent, bytes) = old.sent();
                sa.resume_after(last_sent, bytes);
            }
        }
        for (spi, sa) in &databases.inbound {
            let is_same = |old: &&Arc<sa::Inbound>| {
                old.association.receiver() == sa.association.receiver()
                    && old.association.key_id == sa.association.key_id
            };
            if let Some(old) = self.databases.inbound.get(spi).filter(is_same) {
                sa.received().merge(&old.received());
            }
        }
        let old = std::mem::replace(&mut self.classifier, classifier);
        (std::mem::replace(&mut self.databases, databases), old)
    }

    fn outbound_sa(&self, receiver: Receiver) -> Option<&Arc<sa::Outbound>> {
        self.databases.outbound.iter().find(|sa| sa.association.receiver() == receiver)
    }

    fn inbound(
        &mut self,
        databases: &Databases,
        batch: &mut Batch,
        lanes: Lanes,
        context: &mut Context<'_>,
    ) {
        let mut arrivals: ArrayVec<Arrival<'_>, BATCH> = ArrayVec::new();
        for lane in lanes {
            match arrival(databases, batch, lane) {
                Ok(arrival) => arrivals.push(arrival),
                Err((reason, why)) => {
                    if let Some(jobs) = &mut self.jobs
                        && reason == DropReason::Replayed
                        && may_be_new_later(databases, batch, lane)
                    {
                        jobs.push(DeviceJob { lane, start: 0, len: 0, argument: [0; 2] });
                        continue;
                    }
                    context.explain(lane, || why.into());
                    context.drop(lane, reason);
                }
            }
        }
        if let Some(jobs) = &mut self.jobs {
            arrivals.retain(|arrival| match arrival.job() {
                Some(job) => {
                    jobs.push(job);
                    false
                }
                None => true,
            });
        }
        let (whole, authentic) = self.open(batch, &arrivals);
        self.unwrap(batch, &arrivals, (whole, authentic), context);
    }

    /// Takes packets out of their tunnels, of which those of `authentic` are open and those of `whole`
    /// could be.
    fn unwrap(
        &mut self,
        batch: &mut Batch,
        arrivals: &[Arrival<'_>],
        (whole, authentic): (Lanes, Lanes),
        context: &mut Context<'_>,
    ) {
        let mut good = Lanes::NONE;
        for arrival in arrivals {
            let lane = arrival.lane;
            let opened = if authentic.contains(lane) {
                arrival.unwrap(batch)
            } else if whole.contains(lane) {
                Err(DropReason::AuthenticationFailed)
            } else {
                Err(DropReason::Malformed)
            };
            match opened {
                Ok(()) => good.insert(lane),
                Err(reason) => refuse(arrival, reason, context),
            }
        }
        batch.parse(good, Decapsulate::No);
        for arrival in arrivals.iter().filter(|arrival| good.contains(arrival.lane)) {
            if let Err(reason) = arrival.check(batch) {
                refuse(arrival, reason, context);
                continue;
            }
            self.figures.opened += 1;
            context.explain(arrival.lane, || {
                let (name, number) = (&arrival.sa.association.name, arrival.number);
                format!("opened by SA '{name}', sequence number {number}")
            });
        }
    }

    /// Checks and decrypts packets in place. Returns the lanes whose lengths are valid for ESP, and
    /// the lanes that are authentic.
    fn open(&mut self, batch: &mut Batch, arrivals: &[Arrival<'_>]) -> (Lanes, Lanes) {
        let mut jobs: ArrayVec<Job<'_>, BATCH> = ArrayVec::new();
        let coming = arrivals.iter().map(|arrival| arrival.lane).collect();
        for ((lane, bytes), arrival) in batch.each_mut(coming).zip(arrivals) {
            let esp = &mut bytes[arrival.start..arrival.end];
            jobs.extend(Job::new(lane, &arrival.sa.association.cipher, esp, arrival.high()));
        }
        self.engine.open(&mut jobs);
        let lane = |job: &Job<'_>| job.lane;
        (jobs.iter().map(lane).collect(), jobs.iter().filter(|j| j.is_done()).map(lane).collect())
    }

    fn outbound(
        &mut self,
        databases: &Databases,
        batch: &mut Batch,
        lanes: Lanes,
        context: &mut Context<'_>,
    ) {
        let mut found = [Lookup::default(); BATCH];
        let now = context.clock();
        self.classifier.classify_batch(batch.keys(), lanes, batch.lens(), now, &mut found);
        let mut departures = Departures::new();
        // The later fragments, by the emitted batch that holds them.
        let mut fragments: Vec<Departures<'_>> = Vec::new();
        for lane in lanes {
            let policy = databases.policies.get(usize::from(found[lane].packet_type.0));
            let policy = policy.unwrap_or(&Policy::Discard);
            let Policy::Protect(sa) = policy else {
                self.leave(policy, lane, context);
                continue;
            };
            if batch.headers(lane).status == ParseStatus::Truncated {
                // A truncated packet cannot be protected as if it were complete.
                context.drop(lane, DropReason::Malformed);
                continue;
            }
            let departure = Departure::new(sa, batch, lane);
            match departure.fate(batch) {
                Fate::Fits => departures.push(departure),
                fate => {
                    let later = &mut fragments;
                    departures.extend(self.shorten(sa, batch, lane, fate, later, context));
                }
            }
        }
        let mut jobs = self.jobs.take();
        self.protect(batch, &mut departures, jobs.as_mut(), |lane, reason| {
            context.drop(lane, reason);
        });
        if context.is_traced() {
            departures.iter().for_each(|departure| explain(departure, context));
        }
        for (emitted, departures) in context.emitted().batches_mut().iter_mut().zip(&mut fragments)
        {
            let mut refused = Lanes::NONE;
            self.protect(emitted, departures, None, |lane, _| refused.insert(lane));
            self.figures.lost_fragments += refused.count() as u64;
            emitted.release(refused);
        }
        self.cut_outside(&departures, batch, context);
        self.jobs = jobs;
    }

    /// Applies a policy that does not protect: bypass or discard.
    fn leave(&mut self, policy: &Policy, lane: usize, context: &mut Context<'_>) {
        let why = match policy {
            Policy::Bypass => {
                self.figures.bypassed += 1;
                return context.explain(lane, || "policy: bypass".into());
            }
            Policy::Expected => "in the clear, but the selector of an inbound SA covers it",
            Policy::Discard | Policy::Protect(_) => "policy: discard",
        };
        context.explain(lane, || why.into());
        context.drop(lane, DropReason::NoPolicy);
    }

    /// Puts packets into their tunnels; refuses those without room or a sequence number. What a device
    /// can do is left to it, if there are `device_jobs`.
    fn protect(
        &mut self,
        batch: &mut Batch,
        departures: &mut [Departure<'_>],
        mut device_jobs: Option<&mut Vec<DeviceJob>>,
        mut refuse: impl FnMut(usize, DropReason),
    ) {
        let (mut lanes, mut in_udp) = (Lanes::NONE, false);
        for run in departures.chunk_by_mut(|a, b| std::ptr::eq(a.sa, b.sa)) {
            let sa = run[0].sa;
            in_udp |= sa.association.udp.is_some();
            let fit = run.iter().filter(|departure| departure.fits).count();
            let mut numbers = sa.reserve(fit as u64);
            for departure in run {
                let lane = departure.lane;
                if !departure.fits {
                    refuse(lane, DropReason::NoRoom);
                } else if !sa.charge(departure.inner) {
                    refuse(lane, DropReason::LifetimeOver);
                } else if let Some(number) = numbers.next() {
                    departure.number = Some(number);
                    batch.meta.cut[lane] = Cut::default();
                    lanes.insert(lane);
                } else {
                    refuse(lane, no_number(sa));
                }
            }
        }
        let wrapped = departures.iter().filter(|departure| departure.number.is_some());
        let mut jobs: ArrayVec<Job<'_>, BATCH> = ArrayVec::new();
        let mut left = Lanes::NONE;
        let places = batch.reshape_each(wrapped.clone().map(Departure::shape));
        for (bytes, departure) in places.zip(wrapped.clone()) {
            let (Some(bytes), Some(number)) = (bytes, departure.number) else { continue };
            self.ip_id = self.ip_id.wrapping_add(1);
            let esp = departure.wrap(bytes, number, &mut self.ivs, self.ip_id);
            if let Some(jobs) = &mut device_jobs
                && let Some(job) = departure.job(esp.len())
            {
                jobs.push(job);
                left.insert(departure.lane);
                continue;
            }
            let cipher = &departure.sa.association.cipher;
            if let Some(job) = Job::new(departure.lane, cipher, esp, departure.high()) {
                jobs.push(job);
            }
        }
        self.engine.seal(&mut jobs);
        let sealed: Lanes = jobs.iter().filter(|job| job.is_done()).map(|job| job.lane).collect();
        drop(jobs);
        let sealed = sealed.or(left);
        debug_assert_eq!(sealed, lanes, "every wrapped packet can be sealed");
        lanes.without(sealed).into_iter().for_each(|lane| refuse(lane, DropReason::NoRoom));
        if in_udp {
            wrapped.for_each(|departure| departure.write_udp(batch));
        }
        // Those that are left to a device count when they are back.
        self.figures.protected += sealed.without(left).count() as u64;
        batch.mark_changed(sealed);
    }
}

/// The packets of a batch that go into tunnels, by lane.
type Departures<'a> = ArrayVec<Departure<'a>, BATCH>;

/// Explains the protection of a packet, if it was protected.
fn explain(departure: &Departure<'_>, context: &mut Context<'_>) {
    let Some(number) = departure.number else { return };
    context.explain(departure.lane, || {
        let name = &departure.sa.association.name;
        format!("policy: protect by SA '{name}', sequence number {number}")
    });
}

fn refuse(arrival: &Arrival<'_>, reason: DropReason, context: &mut Context<'_>) {
    let name = &arrival.sa.association.name;
    context.explain(arrival.lane, || format!("refused by SA '{name}'"));
    context.drop(arrival.lane, reason);
}

#[cfg(test)]
mod tests;
