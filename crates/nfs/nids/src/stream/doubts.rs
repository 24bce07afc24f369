//! Segments that their receiver would not take: their bytes join the stream only if it acknowledges them.

use serde::{Deserialize, Serialize};

use super::{Fresh, Notes, Policy, Segment, Stream, WINDOW};
use crate::segment::distance;

/// The maximum number of doubted segments.
pub(super) const DOUBTED: usize = 64;

/// A segment that the receiver would not take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Doubted {
    pub(super) segment: Segment,
    /// The acknowledgement it carried.
    acknowledged: Option<u32>,
}

impl Stream {
    /// Bytes of memory of doubted segments.
    pub(super) fn doubts(&self) -> usize {
        self.doubted.iter().map(|doubted| doubted.segment.memory()).sum()
    }

    /// Keeps a segment that the receiver would not take, at most as many bytes as may wait.
    pub(in super::super) fn doubt(
        &mut self,
        sequence: u32,
        acknowledged: Option<u32>,
        payload: &[u8],
        policy: &Policy,
    ) {
        let Some(next) = self.next.filter(|_| !self.ended && !payload.is_empty()) else { return };
        let end = sequence.wrapping_add(payload.len() as u32);
        let (ahead, beyond) = (distance(next, sequence), distance(next, end));
        if beyond <= 0 || ahead.unsigned_abs() as usize > WINDOW {
            return;
        }
        self.doubted.retain(|doubted| doubted.segment.is_new(next));
        let segment = Segment { sequence, bytes: payload.to_vec() };
        let room = policy.waiting.saturating_sub(segment.memory());
        while self.doubted.len() == DOUBTED || self.doubts() > room && !self.doubted.is_empty() {
            self.doubted.remove(0);
        }
        self.doubted.push(Doubted { segment, acknowledged });
    }

    /// Holds the first bytes of the stream until [`acknowledged`](Self::acknowledged).
    pub(in super::super) fn hold(&mut self, bytes: &[u8]) {
        if self.next == Some(self.first) && !bytes.is_empty() {
            let segment = Segment { sequence: self.first, bytes: bytes.to_vec() };
            self.doubted.insert(0, Doubted { segment, acknowledged: None });
            self.doubted.truncate(DOUBTED);
        }
    }

    /// The receiver has everything before `acknowledged`: it took the doubted segments there, and
    /// the missing bytes that segments wait for will not arrive any more. If no segment waits,
    /// nothing is given up, because data that was never sent can be acknowledged, too. `out`
    /// becomes the tail followed by the bytes now available.
    pub(in super::super) fn acknowledged(
        &mut self,
        acknowledged: u32,
        policy: &Policy,
        notes: &mut Notes,
        out: &mut Vec<u8>,
    ) -> Fresh {
        out.clear();
        let mut fresh = Fresh::default();
        if !self.waits_for_acknowledgement() {
            return fresh;
        }
        self.past(policy.tail.searched).into_iter().for_each(|part| out.extend_from_slice(part));
        fresh.from = out.len();
        fresh.believed = self.believe(acknowledged, out);
        let (Some(next), first) = (self.next, self.waiting.first()) else { return fresh };
        let beyond = distance(next, acknowledged);
        let given_up = first.is_some_and(|first| beyond > distance(next, first.sequence));
        if given_up && beyond as usize <= WINDOW {
            self.skip_gap(notes, out, &mut fresh);
        }
        if out.len() == fresh.from {
            out.clear();
            fresh.from = 0;
        }
        self.tail.push(&out[fresh.from..], &policy.tail);
        fresh
    }

    /// Appends the doubted bytes that the receiver acknowledged, and what waited for them, to
    /// `out`. Returns what these segments acknowledged in their turn.
    fn believe(&mut self, acknowledged: u32, out: &mut Vec<u8>) -> Option<u32> {
        let mut believed = None;
        while let Some(next) = self.next.filter(|_| !self.ended)
            && distance(next, acknowledged) > 0
        {
            let covers =
                |d: &Doubted| distance(next, d.segment.sequence) <= 0 && d.segment.is_new(next);
            let Some(at) = self.doubted.iter().position(covers) else { break };
            let Doubted { segment, acknowledged: of_it } = self.doubted.remove(at);
            let old = next.wrapping_sub(segment.sequence) as usize;
            let most = distance(next, acknowledged) as usize;
            let bytes = segment.bytes.get(old..).unwrap_or(&[]);
            let bytes = &bytes[..bytes.len().min(most)];
            out.extend_from_slice(bytes);
            self.next = Some(next.wrapping_add(bytes.len() as u32));
            self.take_ready(out);
            believed = of_it.or(believed);
        }
        let next = self.next;
        self.doubted.retain(|d| next.is_some_and(|next| d.segment.is_new(next)));
        believed
    }
}
