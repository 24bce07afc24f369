//! Segments that only continue their stream.
//!
//! Most do: they are next in their stream, their receiver takes them, and no rule may match their
//! bytes. They skip all other work, with the same effect.

use thalweg_packet::Nanoseconds;
use thalweg_packet::wire::tcp_flags::{ACK, FIN, RST, SYN};

use super::engine::Engine;
use super::flow::{Flow, Tracked};
use super::inspect::Settings;
use super::receiver::Target;
use super::segment::Segment;
use super::stream::Policy;

/// What decides, the same for all packets of a batch.
pub(super) struct Terms {
    target: Target,
    midstream: bool,
    policy: Policy,
    /// Bytes of the past that are searched with a segment.
    reach: usize,
    /// The rule set.
    rules: u64,
    applications: bool,
}

impl Terms {
    pub(super) fn new(engine: &Engine, settings: &Settings) -> Self {
        let Settings { target, midstream, .. } = *settings;
        Self {
            target,
            midstream,
            policy: settings.policy(engine),
            reach: engine.reach,
            rules: engine.fingerprint,
            applications: engine.needs.applications,
        }
    }
}

impl Flow {
    /// Accepts a segment if it only continues its stream: it changes nothing else, and only its new
    /// bytes could require a rule to be evaluated. With `past`, only if that is the end of the stream.
    /// Returns the bytes of its past that the stream kept before and keeps now.
    #[inline(always)]
    pub(super) fn go_on(
        &mut self,
        to_server: bool,
        segment: &Segment,
        payload: &[u8],
        past: Option<&[u8]>,
        terms: &Terms,
        now: Nanoseconds,
    ) -> Option<(usize, usize)> {
        let (established, steady) =
            (self.is_established(), self.is_steady(usize::from(!to_server)));
        let tracked = self.tracked.as_deref_mut()?;
        let (own, other) = (usize::from(!to_server), usize::from(to_server));
        let Tracked { streams, ends, open, app, rules } = tracked;
        let first = streams[other].first();
        let stream = &streams[own];
        let only_goes_on = segment.has(ACK, SYN | RST | FIN)
            && self.verdict.is_none()
            && stream.goes_on_at(segment.sequence)
            && !stream.has_ended()
            && past.is_none_or(|past| stream.has_past(past, terms.reach))
            && !streams[other].waits_for_acknowledgement()
            && open.is_empty_in(own)
            && steady
            // Midstream, it establishes the connection.
            && (established || !terms.midstream && !ends.is_open())
            && *rules == terms.rules
            && (!terms.applications || app.is_none())
            && ends.follow(to_server, segment, payload.len(), first, terms.target);
        if !only_goes_on {
            return None;
        }
        let kept = streams[own].append(payload, &terms.policy);
        self.last = self.last.follow(now);
        self.seen[own] = true;
        Some(kept)
    }
}
