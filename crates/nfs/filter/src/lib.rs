//! NF `filter`: a stateless packet filter.
//!
//! Rules are `ACTION PATTERN`: an action (`accept`, `drop`, `reject`) and a
//! pattern in `ovs-ofctl` flow syntax. The first matching rule decides; without
//! one the default applies. The three layers of `thalweg-classify` search the
//! rules, so that long lists cost little.

mod rules;

use std::net::IpAddr;
use std::sync::Arc;

use thalweg_classify::{Classifier, Config, Lookup, SharedRules};
use thalweg_packet::wire::ip_proto::TCP;
use thalweg_packet::wire::tcp_flags::{ACK, FIN, RST, SYN};
use thalweg_packet::write::{PacketBuilder, TcpSegment};
use thalweg_packet::{BATCH, Batch, DropReason, FiveTuple, Headers, Lanes};

use rules::{Action, Options, Rules};
use thalweg_nf::toolkit::icmp_error::{IcmpError, IcmpSender, RateLimit};
use thalweg_nf::toolkit::rules::renew;
use thalweg_nf::{
    Blueprint, BuildError, Context, Environment, Grain, Kind, NetworkFunction, Renewal, Section,
};

/// The kind, for the registry of a program.
pub const KIND: Kind = Kind {
    name: "filter",
    summary: "stateless packet filter: accept, drop, reject",
    state: None,
    grain: Grain::None,
    limits: &[
        "stateless; no port ranges (use masks), no in_port",
        "1000 resets and 1000 ICMP errors per second",
    ],
    chooses_output: false,
    keeps_names: false,
    takes_supers: true,
    runs_on_devices: false,
    bypass_hazard: Some("packets that its rules drop would pass"),
    options: || schemars::schema_for!(Options),
    build,
};

fn build(
    section: &Section<'_>,
    _environment: &Environment<'_>,
) -> Result<Box<dyn Blueprint>, BuildError> {
    let rules = Rules::read(section)?;
    let shared = Arc::new(SharedRules::new(rules.table()));
    Ok(Box::new(FilterBlueprint { rules, shared }))
}

struct FilterBlueprint {
    rules: Rules,
    shared: Arc<SharedRules>,
}

impl Blueprint for FilterBlueprint {
    fn instance(&self) -> Box<dyn NetworkFunction> {
        Box::new(Filter {
            classifier: Classifier::new(self.shared.clone(), Config::default()),
            icmp: IcmpSender::new(IcmpSender::DEFAULT_RATE),
            reset_limit: RateLimit::new(IcmpSender::DEFAULT_RATE, IcmpSender::BURST),
            packet: Vec::new(),
            resets: 0,
            resets_suppressed: 0,
        })
    }

    fn describe(&self) -> String {
        let rules = thalweg_source::counted(self.rules.len(), "rule");
        format!("{rules}, default {}", self.rules.default_action().name())
    }

    fn renew(&mut self, old: &dyn Blueprint) -> Option<Renewal> {
        let old: &Self = old.downcast()?;
        Some(renew(&mut self.shared, &old.shared))
    }
}

/// A filter.
struct Filter {
    classifier: Classifier,
    icmp: IcmpSender,
    reset_limit: RateLimit,
    packet: Vec<u8>,
    resets: u64,
    /// Resets over the rate limit, or without a frame to send them in.
    resets_suppressed: u64,
}

impl NetworkFunction for Filter {
    fn process(&mut self, batch: &mut Batch, lanes: Lanes, context: &mut Context<'_>) {
        let mut found = [Lookup::default(); BATCH];
        let now = context.clock();
        self.classifier.classify_batch(batch.keys(), lanes, batch.lens(), now, &mut found);
        for lane in lanes {
            let action = Action::of(found[lane].packet_type);
            if context.is_traced() {
                let why = self.classifier.explain(&batch.key(lane));
                let rule = why.rule_text.unwrap_or_else(|| "default".into());
                context.explain(lane, || format!("{}: {rule}", action.name()));
            }
            match action {
                Action::Accept => {}
                Action::Drop => context.drop(lane, DropReason::FilterDrop),
                Action::Reject => {
                    self.reject(batch, lane, context);
                    context.drop(lane, DropReason::FilterReject);
                }
            }
        }
    }

    /// A super-packet in a tunnel is as good as its segments: they have the same headers.
    fn takes_whole(&self, _batch: &Batch, _lane: usize) -> bool {
        true
    }

    fn figures(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("resets_sent", self.resets),
            ("resets_suppressed", self.resets_suppressed),
            ("icmp_sent", self.icmp.sent()),
            ("icmp_suppressed", self.icmp.suppressed()),
        ]
    }
}

impl Filter {
    /// Notifies the sender: with a reset for TCP, with an ICMP error otherwise.
    fn reject(&mut self, batch: &Batch, lane: usize, context: &mut Context<'_>) {
        let Some(tuple) = FiveTuple::from_key(&batch.key(lane)) else { return };
        if batch.headers(lane).has_transport(TCP) {
            if self.reset(batch, lane, tuple) {
                let sent = self.reset_limit.allow(batch.meta.timestamp[lane])
                    && context.emit(batch, lane, &self.packet).is_some();
                self.resets += u64::from(sent);
                self.resets_suppressed += u64::from(!sent);
            }
            return;
        }
        // Sent from the destination's address: a filter has no address of its own.
        let _ = self.icmp.send(context, batch, lane, IcmpError::AdminProhibited, tuple.dst);
    }

    /// Writes the reset that answers a segment (RFC 9293, 3.5.2); `false` when
    /// none may be sent.
    fn reset(&mut self, batch: &Batch, lane: usize, tuple: FiveTuple) -> bool {
        let (bytes, headers) = (batch.bytes(lane), batch.headers(lane));
        let Some(segment) = bytes.get(headers.l4 as usize..headers.end as usize) else {
            return false;
        };
        let Some(header) = segment.first_chunk::<20>() else { return false };
        let flags = header[13];
        if flags & RST != 0 || !answerable(tuple.src) || !answerable(tuple.dst) {
            return false;
        }
        let number = |at: usize| {
            u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        // SYN and FIN take a sequence number each.
        let length =
            payload_len(headers) + u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        let answer = if flags & ACK != 0 {
            TcpSegment { seq: number(8), flags: RST, ..TcpSegment::default() }
        } else {
            let ack = number(4).wrapping_add(length);
            TcpSegment { ack, flags: RST | ACK, ..TcpSegment::default() }
        };
        let mac = |at: usize| bytes.get(at..at + 6).and_then(|m| m.first_chunk::<6>()).copied();
        let l2 = headers.l2 as usize;
        let (Some(to), Some(from)) = (mac(l2), mac(l2 + 6)) else { return false };
        let mut builder = PacketBuilder::new(to, from);
        for (tpid, tci) in tags(bytes, headers) {
            builder = builder.tag(tpid, tci);
        }
        builder
            .ip(tuple.dst, tuple.src)
            .tcp(TcpSegment { src_port: tuple.dst_port, dst_port: tuple.src_port, ..answer })
            .build_into(&[], &mut self.packet);
        true
    }
}

fn payload_len(headers: &Headers) -> u32 {
    u32::from(headers.end.saturating_sub(headers.payload))
}

fn answerable(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(a) if a.is_broadcast());
    !address.is_multicast() && !address.is_unspecified() && !broadcast
}

/// The VLAN tags between the Ethernet addresses and the network header.
fn tags<'a>(bytes: &'a [u8], headers: &Headers) -> impl Iterator<Item = (u16, u16)> + 'a {
    let start = headers.l2 as usize + 12;
    let end = (headers.l3 as usize).saturating_sub(2).max(start);
    let (tags, _) = bytes.get(start..end).unwrap_or(&[]).as_chunks::<4>();
    tags.iter().map(|t| (u16::from_be_bytes([t[0], t[1]]), u16::from_be_bytes([t[2], t[3]])))
}

#[cfg(test)]
mod tests;
