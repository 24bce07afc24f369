//! The end of sessions that were idle for long, some with each batch.
//!
//! After a pause in the traffic all sessions may be over at once. To remove them takes milliseconds, so
//! that most of them stay for some batches. They are *late* meanwhile: no packet uses them, and they are
//! removed before others when room is needed.

use thalweg_packet::{BATCH, Nanoseconds};

use super::{EndPoint, Mappings, Record, Remote};
use crate::session::Session;

/// The sessions that a batch removes, or finds to have been used since: more than it begins.
pub(crate) const STEP: usize = 2 * BATCH;

/// The sessions of a mapping that are examined to find whether it is over; one with more of them is once
/// they are removed.
const EXAMINED: usize = 8;

impl Mappings {
    /// Ends sessions that are over at `now`, and mappings without sessions. As many are removed as
    /// `step` has left; the others are late.
    #[inline]
    pub(crate) fn expire(&mut self, now: Nanoseconds, step: &mut usize) {
        if now >= self.next_due {
            self.late = Some(self.late.map_or(now, |late| late.follow(now)));
            self.remove_late(step);
        }
    }

    /// Removes all sessions that are late.
    pub(crate) fn remove_all_late(&mut self) {
        let mut all = usize::MAX;
        self.remove_late(&mut all);
    }

    fn remove_late(&mut self, step: &mut usize) {
        while *step > 0 && self.remove_first_late() {
            *step -= 1;
        }
        self.next_due = self.due.first().map_or(Nanoseconds(u64::MAX), |due| due.0);
    }

    /// Removes a session that is late, or finds that it has been used since; `false` if there is none.
    pub(super) fn remove_first_late(&mut self) -> bool {
        let Some(late) = self.late else { return false };
        let Some((_, inside, with)) = self.due.first().copied().filter(|due| due.0 <= late) else {
            self.late = None;
            return false;
        };
        if self.end_of(inside, with).is_some_and(|end| end > late) {
            self.look_at(inside, with);
        } else {
            self.expired += u64::from(self.end(inside, with).is_some());
        }
        true
    }

    /// Whether a session of a mapping of `inside` is late.
    pub(super) fn is_late(&self, inside: EndPoint, session: &Session) -> bool {
        // After a reload with shorter idle times, a session may be due later than those say.
        let is_over = |late| session.due <= late && self.end_of_session(inside, session) <= late;
        self.late.is_some_and(is_over)
    }

    /// Whether all sessions of a mapping are late.
    pub(super) fn is_over(&self, record: &Record) -> bool {
        self.late.is_some()
            && record.sessions.len() <= EXAMINED
            && record.sessions.iter().all(|(_, session)| self.is_late(record.inside, session))
    }

    /// Removes the mapping of `inside` if it is over, else its session with a remote if that is late.
    pub(super) fn remove_if_late(&mut self, inside: EndPoint, with: Remote) {
        if self.late.is_none() {
            return;
        }
        if self.by_inside.get(&inside).is_some_and(|record| self.is_over(record)) {
            self.remove(inside);
            self.expired += 1;
        } else if self.session(inside, with).is_some_and(|session| self.is_late(inside, session)) {
            self.end(inside, with);
        }
    }
}
