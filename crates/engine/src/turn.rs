//! Values that the bursts of each line use one after the other, in the order of their numbers.

use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};
use std::thread;

use sync::atomic::{AtomicU64, Ordering};
use sync::{Mutex, MutexGuard};

/// The model checker runs every order of the steps of several threads.
#[cfg(loom)]
use loom::sync;
#[cfg(not(loom))]
use std::sync;

/// A value that each burst uses once: of each line burst 0 first, then burst 1, and so on, whichever
/// thread they are on. Bursts of several lines use it in any order, one at a time.
///
/// A burst asks for its turn and, if it has not come yet, does something else and asks again: no
/// thread waits inside. The oldest burst of a line under way can use the next value on its way as
/// soon as the thread that uses it for another line has left it, so some burst always gets on.
#[derive(Debug)]
pub(crate) struct InTurn<T> {
    /// By line: the number of the burst whose turn it is.
    next: Box<[Next]>,
    // With one line, its lock is always free for the burst whose turn it is, save for a short look by
    // others.
    value: Mutex<T>,
}

/// The number of the burst of a line whose turn it is, in cache lines of its own (processors fetch
/// them in pairs).
#[derive(Debug)]
#[repr(align(128))]
struct Next(AtomicU64);

/// The use of a value by the burst whose turn it is. Dropping it leaves the value and then gives the turn
/// to the next burst of its line: when it is the turn of a burst that was not received yet, no burst of
/// the line uses the value any more.
#[derive(Debug)]
pub(crate) struct Turn<'a, T> {
    // Fields are dropped in this order.
    value: MutexGuard<'a, T>,
    _pass: Pass<'a>,
}

/// Gives the turn to the next burst of a line when it is dropped, unless the thread panics: what a panic
/// left behind is for no other burst.
#[derive(Debug)]
struct Pass<'a>(&'a AtomicU64);

/// The turns of bursts at a place that several may be in at a time: they get in in order.
#[derive(Debug)]
pub(crate) struct Turns(Box<[Next]>);

impl Turns {
    /// Turns for bursts of this many lines.
    pub(crate) fn new(lines: usize) -> Self {
        Self(turns(lines))
    }

    /// Whether it is the turn of burst `number` of `line`, which keeps it until it [passes](Self::pass)
    /// it on.
    pub(crate) fn is_of(&self, line: usize, number: u64) -> bool {
        self.0[line].0.load(Ordering::Acquire) == number
    }

    /// Gives the turn to the next burst of `line`.
    pub(crate) fn pass(&self, line: usize) {
        self.0[line].0.fetch_add(1, Ordering::Release);
    }
}

impl<T> InTurn<T> {
    /// A value for bursts of this many lines.
    pub(crate) fn new(value: T, lines: usize) -> Self {
        Self { next: turns(lines), value: Mutex::new(value) }
    }

    /// Begins again with burst 0 of each of this many lines. No burst is under way.
    pub(crate) fn begin(&mut self, lines: usize) {
        self.next = turns(lines);
    }

    /// The value, if it is the turn of burst `number` of `line`.
    #[inline]
    pub(crate) fn enter(&self, line: usize, number: u64) -> Option<Turn<'_, T>> {
        let next = &self.next[line].0;
        if next.load(Ordering::Acquire) != number {
            return None;
        }
        let value = if self.next.len() == 1 {
            self.value.lock().unwrap_or_else(PoisonError::into_inner)
        } else {
            // A burst of another line may use it, or have left it behind in a panic.
            self.value.try_lock().ok()?
        };
        Some(Turn { value, _pass: Pass(next) })
    }

    /// As [`enter`](Self::enter), for a value that other bursts use [between](Self::between) turns:
    /// `None` while one does.
    pub(crate) fn try_enter(&self, line: usize, number: u64) -> Option<Turn<'_, T>> {
        let next = &self.next[line].0;
        if next.load(Ordering::Acquire) != number {
            return None;
        }
        Some(Turn { value: self.value.try_lock().ok()?, _pass: Pass(next) })
    }

    /// The value for a burst whose turn it is not yet, if no other uses it at this moment.
    pub(crate) fn between(&self) -> Option<MutexGuard<'_, T>> {
        self.value.try_lock().ok()
    }

    /// The number of the burst of `line` whose turn it is.
    #[inline]
    pub(crate) fn next(&self, line: usize) -> u64 {
        self.next[line].0.load(Ordering::Acquire)
    }

    /// A look at the value between turns, or behind a panic, if no burst uses it at this moment.
    pub(crate) fn peek(&self) -> Option<MutexGuard<'_, T>> {
        match self.value.try_lock() {
            Ok(value) => Some(value),
            Err(TryLockError::Poisoned(value)) => Some(value.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The value, when no burst is under way.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value, when all bursts are through.
    pub(crate) fn into_inner(self) -> T {
        self.value.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The turns of burst 0 of each line.
fn turns(lines: usize) -> Box<[Next]> {
    (0..lines).map(|_| Next(AtomicU64::new(0))).collect()
}

impl<T> Deref for Turn<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Turn<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.0.fetch_add(1, Ordering::Release);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A snapshot looks at the value then. The model checker cannot switch between the two steps.
    #[test]
    fn the_value_is_free_when_the_turn_is_passed_on() {
        const BURSTS: u64 = 100_000;
        let (value, looks, mut used) = (InTurn::new(0, 1), AtomicU64::new(0), 0);
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..BURSTS {
                    while looks.load(Ordering::Acquire) < number {
                        thread::yield_now();
                    }
                    *value.enter(0, number).expect("it is its turn") += 1;
                }
            });
            for number in 1..=BURSTS {
                while value.next(0) < number {
                    std::hint::spin_loop();
                }
                used += u64::from(value.peek().is_none());
                looks.store(number, Ordering::Release);
            }
        });
        assert_eq!(used, 0, "looks at which the burst before still used it");
    }
}

#[cfg(all(loom, test))]
mod model {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// The bursts that the stages of a chain have seen, each by its line and number.
    type Seen = Vec<(usize, u64)>;

    /// Two workers take three bursts of each line through two stages: both those of one line, or each
    /// those of its own. Returns what each stage saw. `enter` takes a burst into a stage, or lets it
    /// wait.
    fn run(lines: usize, enter: fn(&InTurn<Seen>, usize, u64) -> bool) -> [Seen; 2] {
        const BURSTS: u64 = 3;
        let stages = Arc::new([InTurn::new(Vec::new(), lines), InTurn::new(Vec::new(), lines)]);
        let received = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let work = |worker: usize| {
            let (stages, received) = (stages.clone(), received.clone());
            let (line, bursts) = (worker % lines, if lines == 1 { BURSTS } else { BURSTS - 1 });
            move || loop {
                let number = received[line].fetch_add(1, Ordering::Relaxed);
                if number >= bursts {
                    return;
                }
                for stage in &*stages {
                    while !enter(stage, line, number) {
                        thread::yield_now();
                    }
                }
            }
        };
        let other = thread::spawn(work(1));
        work(0)();
        other.join().unwrap();
        let seen = |stage: &InTurn<Seen>| stage.peek().unwrap().clone();
        [seen(&stages[0]), seen(&stages[1])]
    }

    fn check(lines: usize, enter: fn(&InTurn<Seen>, usize, u64) -> bool) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            for seen in run(lines, enter) {
                let of = |line| seen.iter().filter(move |of| of.0 == line).map(|of| of.1);
                if lines == 1 {
                    assert_eq!(of(0).collect::<Vec<_>>(), [0, 1, 2]);
                } else {
                    assert_eq!([of(0).collect::<Vec<_>>(), of(1).collect()], [[0, 1], [0, 1]]);
                }
            }
        });
    }

    fn in_turn(stage: &InTurn<Seen>, line: usize, number: u64) -> bool {
        let turn = stage.enter(line, number);
        turn.map(|mut turn| turn.push((line, number))).is_some()
    }

    #[test]
    fn each_stage_sees_all_bursts_in_order() {
        check(1, in_turn);
    }

    #[test]
    fn each_stage_sees_the_bursts_of_each_line_in_order() {
        check(2, in_turn);
    }

    /// Two workers take two bursts each through both halves of a stage, of which the second may wait for
    /// that of the burst before.
    #[test]
    fn each_half_of_a_stage_sees_all_bursts_in_order() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let stage = Arc::new((Turns::new(1), InTurn::new([Vec::new(), Vec::new()], 1)));
            let work = |worker: u64| {
                let stage = stage.clone();
                move || {
                    let (begins, value) = &*stage;
                    let (mut begun, mut finished) = (0, 0);
                    while finished < 2 {
                        let number = 2 * begun + worker;
                        if begun < 2
                            && begins.is_of(0, number)
                            && let Some(mut seen) = value.between()
                        {
                            seen[0].push(number);
                            drop(seen);
                            begins.pass(0);
                            begun += 1;
                        }
                        let number = 2 * finished + worker;
                        if finished < begun
                            && let Some(mut seen) = value.try_enter(0, number)
                        {
                            assert!(seen[0].contains(&number), "the first half comes first");
                            seen[1].push(number);
                            finished += 1;
                        }
                        thread::yield_now();
                    }
                }
            };
            let other = thread::spawn(work(1));
            work(0)();
            other.join().unwrap();
            assert_eq!(*stage.1.peek().unwrap(), [vec![0, 1, 2, 3], vec![0, 1, 2, 3]]);
        });
    }

    /// Without its guard the model fails.
    #[test]
    #[should_panic(expected = "assertion `left == right` failed")]
    fn without_turns_stages_see_bursts_in_other_orders() {
        check(1, |stage, line, number| {
            let mut value = stage.value.lock().unwrap();
            value.push((line, number));
            true
        });
    }

    /// A burst that leaves a stage before its changes are whole: mutual exclusion is what keeps the
    /// bursts of two lines apart.
    #[test]
    #[should_panic(expected = "assertion `left == right` failed")]
    fn without_exclusion_lines_lose_each_others_bursts() {
        check(2, |stage, line, number| {
            if stage.next(line) != number {
                return false;
            }
            let mut seen = stage.value.lock().unwrap().clone();
            thread::yield_now();
            seen.push((line, number));
            *stage.value.lock().unwrap() = seen;
            stage.next[line].0.fetch_add(1, Ordering::Release);
            true
        });
    }
}
