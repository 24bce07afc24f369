//! How long inputs are polled without a packet before their thread sleeps.

use std::time::{Duration, Instant};

use thalweg_cpu::thread;

/// Polls of this length are never cut short: a sleep costs about as much.
const SHORT: Duration = Duration::from_micros(20);
/// Others need the core if they take it at least twice, and as often as once in this time.
const OFTEN: Duration = Duration::from_millis(1);
/// How long polls remain short once others needed the core.
const CONSIDERATE: Duration = Duration::from_millis(20);

/// The polls of a line's inputs.
///
/// A thread that polls for long keeps its core from others, maybe from those that its packets come
/// from or go to. So it goes on only while they do not take the core from it again and again; once is
/// maybe what has to be done for a single packet.
pub(super) struct Polls {
    /// How long they may last.
    most: Duration,
    /// The first poll of those that have found no packet.
    vain_since: Option<Instant>,
    /// When it is due to look whether others need the core.
    look: Option<Instant>,
    /// How often others took the core since a time.
    taken: Option<(Instant, u64)>,
    /// Until when polls are short.
    short_until: Option<Instant>,
}

impl Polls {
    pub(super) fn new(most: Duration) -> Self {
        Self { most, vain_since: None, look: None, taken: None, short_until: None }
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
        self.are_over_at(since, Instant::now(), || {
            // Who waits for the core may have to wait for the end of a slice of it, of milliseconds.
            std::thread::yield_now();
            thread::new_preemptions()
        })
    }

    /// `preemptions`: how often others took the core since this thread looked the last time.
    fn are_over_at(
        &mut self,
        since: Instant,
        now: Instant,
        preemptions: impl FnOnce() -> u64,
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
            if self.is_needed(now, preemptions()) {
                self.short_until = Some(now + CONSIDERATE);
            }
        }
        self.short_until.is_some_and(|until| now < until)
    }

    /// Whether others need the core, which they took so often since the last look.
    fn is_needed(&mut self, now: Instant, more: u64) -> bool {
        let (since, before) = self.taken.unwrap_or((now, 0));
        let (past, times) = (now - since, before + more);
        let is_needed = times >= 2 && u128::from(times) >= past.as_micros() / OFTEN.as_micros();
        let begins_anew = is_needed || past >= OFTEN;
        self.taken = Some(if begins_anew { (now, 0) } else { (since, times) });
        is_needed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls once in each microsecond, until they are over; for how many, and how often they looked
    /// how often others took the core, which is so often before each look.
    fn poll(polls: &mut Polls, start: Instant, taken: impl Fn(u32) -> u64) -> (u32, u32) {
        let (mut us, mut looks) = (0, 0);
        while !polls.are_over_at(start, start + Duration::from_micros(us.into()), || {
            looks += 1;
            taken(looks)
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
            assert_eq!(poll(&mut polls, start, |_| 0), (most as u32, looks));
        }
    }

    #[test]
    fn polls_are_short_for_a_while_once_others_took_the_core_again() {
        let mut polls = Polls::new(Duration::from_millis(1));
        let start = Instant::now();
        assert_eq!(poll(&mut polls, start, |look| u64::from(look > 2)), (80, 4));
        let ms = |ms| start + Duration::from_millis(ms);
        assert_eq!(poll(&mut polls, ms(5), |_| 1).0, 20);
        // Others are looked for meanwhile: 20 times in 14 ms.
        assert_eq!(poll(&mut polls, ms(19), |_| 20).0, 20);
        assert_eq!(poll(&mut polls, ms(30), |_| 0).0, 20);
        assert_eq!(poll(&mut polls, ms(50), |_| 0).0, 1_000);
    }

    #[test]
    fn others_may_take_the_core_once_in_a_while() {
        let mut polls = Polls::new(Duration::from_millis(1));
        let start = Instant::now();
        let ms = |ms| start + Duration::from_millis(ms);
        for number in 0..10 {
            assert_eq!(poll(&mut polls, ms(3 * number), |look| u64::from(look == 5)).0, 1_000);
        }
        // As often as 9 times in 23 ms.
        let taken = |look| if look == 1 { 9 } else { 0 };
        assert_eq!(poll(&mut polls, ms(50), taken).0, 1_000);
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
