//! NF `ipsec`: ESP in tunnel mode (RFC 4303), outbound and inbound.
//!
//! An ESP packet to an end point of ours is opened by the inbound SA of its
//! SPI. Every other packet meets the security policy, a list of patterns in
//! flow syntax of which the first that matches decides: protect it by an
//! outbound SA, let it bypass, or discard it. A packet in the clear that an
//! inbound SA says should have come protected is dropped.

mod config;
mod inbound;
mod iv;
mod outbound;
mod replay;
mod sa;
mod suite;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thalweg_classify::{Classifier, Config, Lookup, SharedRules};
use thalweg_packet::{BATCH, Batch, Decapsulate, DropReason, FlowKey, Lanes, ParseStatus, field};

use crate::state::{StateError, StateReader, StateWriter};
use crate::{Blueprint, BuildError, Context, Environment, Kind, NetworkFunction, Section};
use config::{Databases, Options, Policy};
use iv::IvSource;
use outbound::ESP;
use replay::ReplayWindow;

pub(crate) const KIND: Kind = Kind {
    name: "ipsec",
    summary: "ESP tunnel mode, outbound and inbound",
    state: "sequence numbers, replay windows of 64 packets",
    limits: &[
        "no transport mode, AH, IKE, NAT traversal, lifetimes or path MTU",
        "keys that stand in a file are for tests: sequence numbers begin at 1 with every start",
    ],
    options: || schemars::schema_for!(Options),
    build,
};

fn build(
    section: &Section<'_>,
    _environment: &Environment<'_>,
) -> Result<Box<dyn Blueprint>, BuildError> {
    let databases = config::read(section)?;
    // Instances must not fail, so that the source is asked once before.
    if let Err(e) = IvSource::new() {
        return Err(section
            .error(section.span(), format!("no randomness: {e}"), "a random source")
            .into());
    }
    let rules = Arc::new(SharedRules::new(databases.table.clone()));
    Ok(Box::new(IpsecBlueprint { databases: Arc::new(databases), rules }))
}

struct IpsecBlueprint {
    databases: Arc<Databases>,
    rules: Arc<SharedRules>,
}

impl Blueprint for IpsecBlueprint {
    fn instance(&self, _worker: usize) -> Box<dyn NetworkFunction> {
        Box::new(Ipsec {
            databases: self.databases.clone(),
            classifier: Classifier::new(self.rules.clone(), Config::default()),
            ivs: IvSource::new().expect("the random source answered when the NF was built"),
            ip_id: 0,
            figures: Figures::default(),
        })
    }

    fn describe(&self) -> String {
        let d = &self.databases;
        let policies = d.policies.len() - 1;
        format!("{} SAs out, {} in, {policies} policies", d.outbound.len(), d.inbound.len())
    }
}

#[derive(Debug, Default)]
struct Figures {
    protected: u64,
    opened: u64,
    bypassed: u64,
}

/// IPsec on one worker.
struct Ipsec {
    databases: Arc<Databases>,
    classifier: Classifier,
    ivs: IvSource,
    ip_id: u16,
    figures: Figures,
}

/// The state of one SA.
#[derive(Debug, Serialize, Deserialize)]
enum SaRecord {
    Outbound { spi: u32, last_sent: u64 },
    Inbound { spi: u32, top: u64, seen: u64 },
}

impl NetworkFunction for Ipsec {
    fn process(&mut self, batch: &mut Batch, lanes: Lanes, context: &mut Context<'_>) {
        let mut clear = Lanes::NONE;
        for lane in lanes {
            let headers = batch.headers(lane);
            if headers.ip_proto == ESP && self.is_ours(&batch.key(lane)) {
                self.inbound(batch, lane, context);
            } else if headers.is_ipv4() || headers.is_ipv6() {
                clear.insert(lane);
            } else if matches!(batch.field(lane, field::DL_TYPE), 0x0800 | 0x86dd) {
                context.drop(lane, DropReason::Malformed);
            } else {
                self.figures.bypassed += 1;
                context.explain(lane, || "not IP: bypass".into());
            }
        }
        self.outbound(batch, clear, context);
    }

    fn export_state(&self, writer: &mut StateWriter<'_>) -> Result<(), StateError> {
        for sa in &self.databases.outbound {
            let (spi, last_sent) = (sa.association.spi, sa.last_sent());
            writer.record(&SaRecord::Outbound { spi, last_sent })?;
        }
        for (spi, sa) in &self.databases.inbound {
            let ReplayWindow { top, seen } = *sa.window();
            writer.record(&SaRecord::Inbound { spi: *spi, top, seen })?;
        }
        Ok(())
    }

    fn import_state(&mut self, reader: &mut StateReader<'_>) -> Result<usize, StateError> {
        let records: Vec<SaRecord> = reader.records()?;
        for (index, record) in records.iter().enumerate() {
            let known = match record {
                SaRecord::Outbound { spi, .. } => self.outbound_sas(*spi).next().is_some(),
                SaRecord::Inbound { spi, .. } => self.databases.inbound.contains_key(spi),
            };
            if !known {
                let what = format!("there is no SA for {record:?}");
                return Err(StateError::Record { index, what });
            }
        }
        for record in &records {
            match *record {
                SaRecord::Outbound { spi, last_sent } => {
                    self.outbound_sas(spi).for_each(|sa| sa.resume_after(last_sent));
                }
                SaRecord::Inbound { spi, top, seen } => {
                    if let Some(sa) = self.databases.inbound.get(&spi) {
                        *sa.window() = ReplayWindow { top, seen };
                    }
                }
            }
        }
        Ok(records.len())
    }

    fn figures(&self) -> Vec<(&'static str, u64)> {
        let f = &self.figures;
        vec![("protected", f.protected), ("opened", f.opened), ("bypassed", f.bypassed)]
    }
}

impl Ipsec {
    fn outbound_sas(&self, spi: u32) -> impl Iterator<Item = &Arc<sa::Outbound>> {
        self.databases.outbound.iter().filter(move |sa| sa.association.spi == spi)
    }

    /// Whether the packet is addressed to an end point of an inbound SA.
    fn is_ours(&self, key: &FlowKey) -> bool {
        let address = destination(key);
        self.databases.inbound.values().any(|sa| sa.association.destination == address)
    }

    fn inbound(&mut self, batch: &mut Batch, lane: usize, context: &mut Context<'_>) {
        let opened = self.open(batch, lane);
        match opened {
            Ok((name, number)) => {
                self.figures.opened += 1;
                context
                    .explain(lane, || format!("opened by SA '{name}', sequence number {number}"));
            }
            Err((reason, why)) => {
                context.explain(lane, || why);
                context.drop(lane, reason);
            }
        }
    }

    fn open(&self, batch: &mut Batch, lane: usize) -> Result<(String, u64), (DropReason, String)> {
        let headers = *batch.headers(lane);
        if headers.fragment || headers.status != ParseStatus::Complete {
            return Err((DropReason::Malformed, "a fragment or cut ESP packet".into()));
        }
        let start = headers.payload as usize;
        let spi = batch.bytes(lane).get(start..start + 4).and_then(<[u8]>::first_chunk);
        let spi = spi.map(|b| u32::from_be_bytes(*b));
        let spi = spi.ok_or_else(|| (DropReason::Malformed, "an ESP header cut short".into()))?;
        let address = destination(&batch.key(lane));
        let sa = self.databases.inbound.get(&spi);
        let Some(sa) = sa.filter(|sa| sa.association.destination == address) else {
            return Err((DropReason::NoSa, format!("no SA for SPI {spi:#010x}")));
        };
        match inbound::open(sa, batch, lane) {
            Ok(number) => Ok((sa.association.name.clone(), number)),
            Err(reason) => Err((reason, format!("refused by SA '{}'", sa.association.name))),
        }
    }

    fn outbound(&mut self, batch: &mut Batch, lanes: Lanes, context: &mut Context<'_>) {
        let mut found = [Lookup::default(); BATCH];
        let now = context.now();
        self.classifier.classify_batch(batch.keys(), lanes, batch.lens(), now, &mut found);
        let databases = self.databases.clone();
        for lane in lanes {
            // It should have come through a tunnel (RFC 4301, 5.2).
            if databases.inbound.values().any(|sa| expects(sa, &batch.key(lane))) {
                context.explain(lane, || "in the clear, but an inbound SA covers it".into());
                context.drop(lane, DropReason::NoPolicy);
                continue;
            }
            let policy = databases.policies.get(usize::from(found[lane].packet_type.0));
            match policy.unwrap_or(&Policy::Discard) {
                Policy::Bypass => {
                    self.figures.bypassed += 1;
                    context.explain(lane, || "policy: bypass".into());
                }
                Policy::Discard => {
                    context.explain(lane, || "policy: discard".into());
                    context.drop(lane, DropReason::NoPolicy);
                }
                Policy::Protect(sa) => self.protect(sa, batch, lane, context),
            }
        }
    }

    fn protect(
        &mut self,
        sa: &sa::Outbound,
        batch: &mut Batch,
        lane: usize,
        context: &mut Context<'_>,
    ) {
        // Half a packet cannot be protected as a whole one.
        if batch.headers(lane).status == ParseStatus::Truncated {
            context.drop(lane, DropReason::Malformed);
            return;
        }
        match outbound::protect(sa, batch, lane, &mut self.ivs, &mut self.ip_id) {
            Ok(number) => {
                self.figures.protected += 1;
                batch.parse(Lanes::one(lane), Decapsulate::No);
                let name = &sa.association.name;
                context.explain(lane, || {
                    format!("policy: protect by SA '{name}', sequence number {number}")
                });
            }
            Err(reason) => context.drop(lane, reason),
        }
    }
}

/// Whether packets like `key` should come through the tunnel of `sa`. An SA
/// without selector takes what comes and expects nothing.
fn expects(sa: &sa::Inbound, key: &FlowKey) -> bool {
    *sa.selector.mask() != FlowKey::default() && sa.selector.covers(key)
}

fn destination(key: &FlowKey) -> IpAddr {
    if key.get(field::DL_TYPE) == 0x0800 {
        Ipv4Addr::from(key.get(field::NW_DST) as u32).into()
    } else {
        Ipv6Addr::from(key.get128(field::IPV6_DST)).into()
    }
}

#[cfg(test)]
mod tests;
