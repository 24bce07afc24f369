//! The gate through which the bursts of a line enter a generation, and behind which they may all be
//! through.

use std::ops::Range;

use sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The model checker runs every order of the steps of several threads.
#[cfg(loom)]
use loom::sync;
#[cfg(not(loom))]
use std::sync;

/// Counts the bursts of a line that were received, until it is closed. One thread at a time receives,
/// under a lock.
#[derive(Debug)]
pub(crate) struct Gate {
    received: AtomicU64,
    is_closed: AtomicBool,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self { received: AtomicU64::new(0), is_closed: AtomicBool::new(false) }
    }

    /// Lets a burst in, after which `received` bursts are.
    pub(crate) fn enter(&self, received: u64) {
        self.received.store(received, Ordering::Release);
    }

    /// Lets no more bursts in.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// The numbers of the bursts that are not through, if all before `through` are.
    pub(crate) fn under_way(&self, through: u64) -> Range<u64> {
        through..self.received.load(Ordering::Acquire)
    }

    /// Whether no burst is under way, and none will be, if all before `through` are through.
    pub(crate) fn is_over(&self, through: impl FnOnce() -> u64) -> bool {
        // In this order: what was received is final once the gate is closed.
        self.is_closed.load(Ordering::Acquire) && self.under_way(through()).is_empty()
    }
}

#[cfg(all(loom, test))]
mod model {
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    use super::*;
    use crate::turn::InTurn;

    /// A generation with one stage, which two workers take two bursts through until a reload closes
    /// the gate. Each returns the bursts that were through when it left, of those received by then.
    fn run(is_over: fn(&Gate, u64) -> bool) {
        let gate = Arc::new(Gate::new());
        let intake = Arc::new(Mutex::new(0));
        let stage = Arc::new(InTurn::new(Vec::new(), 1));
        let work = {
            let (gate, intake, stage) = (gate.clone(), intake.clone(), stage.clone());
            move || {
                while !is_over(&gate, stage.next(0)) {
                    let number = {
                        let mut next = intake.lock().unwrap();
                        if *next == 2 {
                            gate.close();
                            None
                        } else {
                            *next += 1;
                            gate.enter(*next);
                            Some(*next - 1)
                        }
                    };
                    while let Some(number) = number {
                        if let Some(mut turn) = stage.enter(0, number) {
                            turn.push(number);
                            break;
                        }
                        thread::yield_now();
                    }
                    thread::yield_now();
                }
                // Here the stage belongs to the next generation.
                assert_eq!(*stage.peek().expect("the stage is free"), [0, 1]);
            }
        };
        let other = thread::spawn(work.clone());
        work();
        other.join().unwrap();
    }

    fn check(is_over: fn(&Gate, u64) -> bool) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || run(is_over));
    }

    #[test]
    fn a_generation_ends_when_all_its_bursts_are_through() {
        check(|gate, through| gate.is_over(|| through));
    }

    /// Without its guard the model fails.
    #[test]
    #[should_panic]
    fn a_closed_gate_alone_is_no_end() {
        check(|gate, _| gate.is_closed.load(Ordering::Acquire));
    }

    /// A generation with one stage and two lines, each with a worker. The first line ends the generation
    /// after a burst; each closes its own gate when it finds that, as `closes` has it.
    fn run_lines(closes: fn(&Gate, &AtomicBool) -> bool) {
        let gates = Arc::new([Gate::new(), Gate::new()]);
        let (stage, is_closing) =
            (Arc::new(InTurn::new([0, 0], 2)), Arc::new(AtomicBool::new(false)));
        let work = |line: usize| {
            let (gates, stage, is_closing) = (gates.clone(), stage.clone(), is_closing.clone());
            move || {
                let (gate, mut received) = (&gates[line], 0);
                while !gate.is_over(|| stage.next(line)) {
                    let ends = closes(gate, &is_closing);
                    if !ends && received < 1 {
                        received += 1;
                        gate.enter(received);
                        loop {
                            if let Some(mut seen) = stage.enter(line, received - 1) {
                                seen[line] += 1;
                                break;
                            }
                            thread::yield_now();
                        }
                        if line == 0 {
                            is_closing.store(true, Ordering::Release);
                        }
                    }
                    thread::yield_now();
                }
                received
            }
        };
        let other = thread::spawn(work(1));
        let received = [work(0)(), other.join().unwrap()];
        assert_eq!(*stage.peek().expect("the stage is free"), received);
        assert!(gates.iter().all(|gate| gate.is_over(|| gate.received.load(Ordering::Acquire))));
    }

    #[test]
    fn a_generation_of_two_lines_ends_when_the_bursts_of_both_are_through() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            run_lines(|gate, is_closing| {
                let ends = is_closing.load(Ordering::Acquire);
                if ends {
                    gate.close();
                }
                ends
            });
        });
    }
}
