//! Packets that their tunnel makes longer than the MTU of its path.

use thalweg_packet::{Batch, Cut, Decapsulate, DropReason, Lanes};

use super::outbound::{Departure, Fate};
use super::{Departures, Ipsec, sa};
use thalweg_nf::Context;
use thalweg_nf::toolkit::icmp_error::{IcmpError, Suppressed};

impl Ipsec {
    /// Fragments tunnel packets that are too long for their path and that no router fragments.
    pub(super) fn cut_outside(
        &mut self,
        departures: &[Departure<'_>],
        batch: &mut Batch,
        context: &mut Context<'_>,
    ) {
        for departure in departures.iter().filter(|departure| departure.is_to_cut()) {
            let lane = departure.lane;
            if context.dropped().contains(lane) {
                continue;
            }
            // It must not be predictable (RFC 7739).
            let [a, b, c, d, ..] = self.ivs.next();
            let identification = u32::from_be_bytes([a, b, c, d]);
            let how = Cut { longest: departure.sa.path.mtu, identification };
            batch.parse(Lanes::one(lane), Decapsulate::No);
            let Some(later) = self.cutter.cut_own_ipv6(how, batch, context, lane) else {
                context.drop(lane, DropReason::PoolExhausted);
                continue;
            };
            let parts = later.len() + 1;
            if parts > 1 {
                self.figures.cut_outside += 1;
                context.explain(lane, || format!("tunnel packet split into {parts} fragments"));
            }
        }
    }

    /// Handles a packet that its tunnel makes too long. Returns what stays in its lane, and appends
    /// the later fragments to those of the batches that they are emitted to.
    pub(super) fn shorten<'a>(
        &mut self,
        sa: &'a sa::Outbound,
        batch: &mut Batch,
        lane: usize,
        fate: Fate,
        fragments: &mut Vec<Departures<'a>>,
        context: &mut Context<'_>,
    ) -> Option<Departure<'a>> {
        match fate {
            Fate::Fits => {}
            Fate::TooBig(mtu) => {
                let error = IcmpError::TooBig { mtu };
                let own = self.databases.own.of_version(batch.headers(lane).is_ipv4());
                let source = own.unwrap_or(sa.association.source);
                let told = self.icmp.send(context, batch, lane, error, source);
                self.figures.no_source += u64::from(told == Err(Suppressed::NoSource));
                context.explain(lane, || match told {
                    Ok(_) => format!("too long for its tunnel: ICMP error with MTU {mtu} sent"),
                    Err(why) => format!("too long for its tunnel: no ICMP error: {}", why.name()),
                });
                context.drop(lane, DropReason::TooBig);
                return None;
            }
            Fate::Cut(mtu) => {
                let Some(later) = self.cutter.cut(batch, context, lane, mtu) else {
                    context.drop(lane, DropReason::PoolExhausted);
                    return None;
                };
                self.figures.cut += 1;
                context.explain(lane, || format!("split into {} fragments", later.len() + 1));
                for made in later {
                    let emitted = context.emitted().batch_of(*made);
                    fragments.resize_with(fragments.len().max(made.batch + 1), Departures::new);
                    fragments[made.batch].push(Departure::new(sa, emitted, made.lane));
                }
            }
        }
        Some(Departure::new(sa, batch, lane))
    }
}
