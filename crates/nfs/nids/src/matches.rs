//! The rules that match a packet, and their actions.
//!
//! A packet is evaluated in turns: its payload or its stream, then messages. The actions of all
//! turns are carried out together, in the order of the rules: a rule that passes takes precedence
//! over one that drops, whatever each of them looked at.

use thalweg_packet::{DropReason, FiveTuple};

use super::alert::Occasion;
use super::buffer::Protocol;
use super::flow::Verdict;
use super::flows::Seen;
use super::inspect::{Inspector, Packet};
use super::rule::Action;
use super::teller::Teller;

/// A rule that matched.
#[derive(Clone, Debug)]
pub(super) struct Match {
    pub(super) rule: u32,
    /// `None` if the packet is not IP.
    pub(super) tuple: Option<FiveTuple>,
    /// Whether it matched data to the server, and the application of the connection.
    pub(super) side: Option<(bool, Option<Protocol>)>,
    /// Its action holds for the connection.
    pub(super) of_flow: bool,
}

/// The matches of the current packet; reused.
#[derive(Debug, Default)]
pub(super) struct Matches(Vec<Match>);

impl Matches {
    pub(super) fn add(&mut self, found: Match) {
        self.0.push(found);
    }
}

impl Inspector {
    /// Carries out the actions of the rules that matched the packet, subject to their filters. A
    /// `pass` ends them.
    pub(super) fn act(&mut self, packet: &mut Packet<'_, '_, '_>, mut seen: Option<&mut Seen<'_>>) {
        if self.matches.0.is_empty() {
            return;
        }
        let mut matches = std::mem::take(&mut self.matches);
        matches.0.sort_by_key(|found| found.rule);
        let is_written = self.teller.as_ref().is_none_or(Teller::writes);
        let (batch, lane) = (packet.subject.batch, packet.subject.lane);
        let flow_hash = if is_written { batch.flow_hash(lane) } else { 0 };
        for found in &matches.0 {
            let rule = &packet.engine.rules[found.rule as usize];
            let sid = rule.sid;
            // A segment that its receiver would not take decides for itself alone.
            let flow = seen
                .as_deref_mut()
                .filter(|seen| found.of_flow && (seen.taken.is_ok() || rule.is_ip_only()));
            if rule.action == Action::Pass {
                if let Some(seen) = flow {
                    seen.flow.decide(Verdict::Pass { sid });
                }
                break;
            }
            let acts = self.tell(found, packet, flow_hash);
            if rule.action == Action::Drop && acts {
                packet.context.drop(packet.subject.lane, DropReason::Intrusion);
                if let Some(seen) = flow.filter(|seen| seen.flow.verdict.is_none()) {
                    seen.flow.decide(Verdict::Drop { sid });
                }
            }
        }
        matches.0.clear();
        self.matches = matches;
    }

    /// Alerts unless the rule's filters suppress it. Returns whether they let it act: always in a
    /// part, which has no rule whose action depends on its counts.
    fn tell(&mut self, found: &Match, packet: &mut Packet<'_, '_, '_>, flow_hash: u32) -> bool {
        let rule = &packet.engine.rules[found.rule as usize];
        if rule.no_alert && rule.filters.is_empty() {
            return true;
        }
        let (batch, lane) = (packet.subject.batch, packet.subject.lane);
        let occasion = Occasion {
            rule: found.rule,
            clock: batch.meta.timestamp[lane],
            timestamp: batch.meta.captured(lane),
            flow_hash,
            tuple: found.tuple,
            input: batch.meta.in_port[lane],
            side: found.side,
        };
        if let Some(teller) = &mut self.teller {
            return teller.tell(packet.engine, &occasion);
        }
        packet.context.later(lane, Box::new((packet.engine.clone(), occasion)));
        true
    }
}
