//! How long inputs are polled without a packet before their thread sleeps.

use std::time::{Duration, Instant};

use thalweg_cpu::thread;

/// Polls of this length are never cut short: a sleep costs about as much.
const SHORT: Duration = Duration::from_micros(20);
/// How long polls remain short once other threads needed the core.
const CONSIDERATE: Duration = Duration::from_millis(20);

/// The polls of a line's inputs.
///
/// A thread that polls for long keeps its core from others, maybe from those that its packets come
/// from or go to. So it goes on only while none of them takes the core from it.
pub(super) struct Polls {
    /// How long they may last.
    most: Duration,
    /// The first poll of those that have found no packet.
    vain_since: Option<Instant>,
    /// When it is due to look whether others need the core.
    look: Option<Instant>,
    /// Until when polls are short.
    short_until: Option<Instant>,
}

impl Polls {
    pub(super) fn new(most: Duration) -> Self {
        Self { most, vain_since: None, look: None, short_until: None }
    }

    /// Notes whether a poll has found packets.
    pub(super) fn found(&mut self, some: bool) {
        if some {
            self.vain_since = None;
        } else {
            self.vain_since.get_or_insert_with(Instant::now);
        }
    }

    /// Whether the thread has polled in vain for long enough.
    pub(super) fn are_over(&mut self) -> bool {
        let Some(since) = self.vain_since else { return false };
        self.are_over_at(since, Instant::now(), thread::was_preempted)
    }

    /// `was_preempted`: whether others took the core since the last call.
    fn are_over_at(
        &mut self,
        since: Instant,
        now: Instant,
        was_preempted: impl FnOnce() -> bool,
    ) -> bool {
        let past = now.saturating_duration_since(since);
        if past >= self.most {
            return true;
        }
        if past < SHORT {
            return false;
        }
        if self.look.is_none_or(|look| now >= look) {
            self.look = Some(now + SHORT);
            if was_preempted() {
                self.short_until = Some(now + CONSIDERATE);
            }
        }
        self.short_until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls once in each microsecond, until they are over; for how many, and how often they looked
    /// whether others took the core, which is so at that look.
    fn poll(polls: &mut Polls, start: Instant, taken_at: Option<u32>) -> (u32, u32) {
        let (mut us, mut looks) = (0, 0);
        while !polls.are_over_at(start, start + Duration::from_micros(us.into()), || {
            looks += 1;
            Some(looks) == taken_at
        }) {
            us += 1;
        }
        (us, looks)
    }

    #[test]
    fn polls_last_as_long_as_configured() {
        let start = Instant::now();
        for (most, looks) in [(0, 0), (7, 0), (20, 0), (1_000, 49)] {
            let mut polls = Polls::new(Duration::from_micros(most));
            assert_eq!(poll(&mut polls, start, None), (most as u32, looks));
        }
    }

    #[test]
    fn polls_are_short_for_a_while_once_others_took_the_core() {
        let mut polls = Polls::new(Duration::from_millis(1));
        let start = Instant::now();
        assert_eq!(poll(&mut polls, start, Some(3)), (60, 3));
        let ms = |ms| start + Duration::from_millis(ms);
        assert_eq!(poll(&mut polls, ms(5), None).0, 20);
        // Others are looked for meanwhile.
        assert_eq!(poll(&mut polls, ms(19), Some(1)).0, 20);
        assert_eq!(poll(&mut polls, ms(30), None).0, 20);
        assert_eq!(poll(&mut polls, ms(50), None).0, 1_000);
    }

    #[test]
    fn a_packet_begins_polls_anew() {
        let mut polls = Polls::new(Duration::ZERO);
        assert!(!polls.are_over());
        polls.found(false);
        assert!(polls.are_over());
        polls.found(true);
        assert!(!polls.are_over());
    }
}
