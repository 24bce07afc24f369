//! The queues of the inputs of a plan, and the order in which their packets are taken.

use std::os::fd::BorrowedFd;
use std::thread;
use std::time::{Duration, Instant};

use thalweg_chain::{InputPlan, MergeBy, Plan};
use thalweg_io::{Claims, Input, IoError, Merge, Oldest, PacketClock, Received};
use thalweg_packet::{BATCH, Batch, DropCounts, Nanoseconds, PortIndex};
use thalweg_source::poll::first_readable;

use super::{NextPort, more_segments};
use crate::counters::{PortCounters, PortTotals};
use crate::guard::{self, Place as Served};
use crate::runtime::error::RunError;

/// The longest wait for inputs; afterwards the thread checks whether the run should end.
const WAIT: Duration = Duration::from_millis(10);

/// The queues of all inputs that belong to one line. They take turns of up to 32 packets, but captures
/// are merged by time: a turn of any of them is one of all of them together.
pub(crate) struct Sources {
    all: Vec<Source>,
    merge: Merge,
    /// The queue whose turn it is, and the packets left of its turn.
    turn: usize,
    left: usize,
}

/// A queue of an input.
pub(crate) struct Source {
    /// The number of its input.
    port: usize,
    /// Its number among the queues of that.
    queue: usize,
    input: Box<dyn Input>,
    /// Whether packets can be late.
    is_live: bool,
    clock: PacketClock,
    place: Place,
    counters: PortCounters,
}

/// How the next packet of a queue is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// When it is the queue's turn.
    InTurn,
    /// By its time, which is not known yet.
    Sought,
    /// By its time.
    Merged,
    /// It has no more packets.
    Ended,
}

/// What is received from an input at once.
#[derive(Clone, Copy)]
enum Reach {
    All,
    /// No packet: only the time of the next one.
    Nothing,
    /// Packets of up to this time.
    Until(Nanoseconds),
}

/// The packets that were received at once, all from one queue.
pub(crate) struct Delivery {
    /// The place of the queue among the sources.
    pub(crate) source: usize,
    pub(crate) packets: usize,
    /// Their bytes on the wire.
    pub(crate) bytes: u64,
    /// Those of them that were dropped.
    pub(crate) drops: u64,
    /// Whether the input did something: delivered packets or passed over them, or ended.
    pub(crate) came: bool,
    /// Whether the input is a live port.
    pub(crate) is_live: bool,
    /// Whether the packets that follow, perhaps of another input, belong into the same batch.
    pub(crate) joins: bool,
    pub(crate) failure: Option<IoError>,
}

/// What inputs without packets wait for.
#[derive(Default)]
struct Awaited<'a> {
    /// Inputs, and files that become readable.
    descriptors: Vec<(usize, BorrowedFd<'a>)>,
    /// The time at which the first packet of those that have one is due.
    due: Option<Instant>,
}

/// How the first packet of each input is found.
fn places(plan: &Plan) -> Vec<Place> {
    let has_times = |at: usize| plan.inputs[at].blueprint.times().is_some();
    let captures = (0..plan.inputs.len()).filter(|at| has_times(*at)).count();
    let merges = plan.merge == MergeBy::Time && captures > 1;
    let place = |at| if merges && has_times(at) { Place::Sought } else { Place::InTurn };
    (0..plan.inputs.len()).map(place).collect()
}

fn is_live(plan: &Plan, port: usize) -> bool {
    plan.inputs[port].blueprint.is_live()
}

/// The queues of one input, which has number `port`.
fn sources(plan: &Plan, port: usize, queues: Vec<Box<dyn Input>>) -> Vec<Source> {
    let is_live = is_live(plan, port);
    let source = |(queue, input)| Source {
        port,
        queue,
        input,
        is_live,
        clock: PacketClock::default(),
        place: Place::InTurn,
        counters: PortCounters::default(),
    };
    queues.into_iter().enumerate().map(source).collect()
}

impl Sources {
    /// Opens the inputs of a plan, in its order, each by `open`; divides their queues among up to
    /// `most` lines.
    pub(crate) fn open(
        plan: &Plan,
        most: usize,
        open: impl Fn(&InputPlan) -> Result<Vec<Box<dyn Input>>, RunError>,
    ) -> Result<Vec<Self>, RunError> {
        let ports = plan.inputs.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let of = |(port, queues)| sources(plan, port, queues);
        let ports = ports.into_iter().enumerate().map(of).collect();
        Ok(Self::divide(plan, ports, most))
    }

    /// Divides the queues of each input of a plan among lines, up to `most`: as many as the input with
    /// the fewest queues has.
    fn divide(plan: &Plan, ports: Vec<Vec<Source>>, most: usize) -> Vec<Self> {
        let lines = ports.iter().map(Vec::len).min().map_or(1, |queues| queues.clamp(1, most));
        let places = places(plan);
        let empty = || Self { all: Vec::new(), merge: Merge::default(), turn: 0, left: BATCH };
        let mut divided: Vec<_> = (0..lines).map(|_| empty()).collect();
        for mut source in ports.into_iter().flatten() {
            if source.place != Place::Ended {
                source.place = places[source.port];
            }
            divided[source.queue % lines].all.push(source);
        }
        divided
    }

    /// Goes on with the inputs of `plan` after those of `lines`; returns those that it does not have,
    /// and adds their counts to `former`.
    pub(crate) fn renew(
        lines: Vec<Self>,
        plan: &Plan,
        most: usize,
        next: Vec<NextPort<dyn Input>>,
        former: &mut PortCounters,
    ) -> (Vec<Self>, Vec<Box<dyn Input>>) {
        let mut old: Vec<_> = lines.into_iter().flat_map(|line| line.all).collect();
        old.sort_by_key(|source| source.queue);
        let mut take = |port, next| match next {
            NextPort::Kept(was) => old
                .extract_if(.., |source| source.port == was)
                .map(|source| Source { port, is_live: is_live(plan, port), ..source })
                .collect(),
            NextPort::New(queues) => sources(plan, port, queues),
        };
        // Those that are kept are found by their old numbers, before any has a new one.
        let ports = next.into_iter().enumerate().map(|(port, next)| take(port, next)).collect();
        old.iter().for_each(|source| former.merge(&source.counters));
        let retired = old.into_iter().map(|source| source.input).collect();
        (Self::divide(plan, ports, most), retired)
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether no more packets will arrive.
    pub(crate) fn have_ended(&self) -> bool {
        self.all.iter().all(|source| source.place == Place::Ended)
    }

    /// Receives up to `most` packets of the input that is next into `batch`, whose first lanes may
    /// hold packets received before; leaves to `claims`, if there are some, what can be done without
    /// the input. An input must not have ended.
    pub(crate) fn receive(
        &mut self,
        batch: &mut Batch,
        most: usize,
        claims: Option<&mut Claims>,
    ) -> Delivery {
        let (at, reach) = self.next();
        let most = most.min(self.left);
        let start = batch.len();
        let mut delivery = self.receive_from(at, reach, batch, most, claims);
        let Source { port, input, clock, .. } = &mut self.all[at];
        clock.date(batch, start, input.upcoming());
        // The values of lanes without a packet are not used.
        batch.meta.in_port[start..].fill(PortIndex(*port as u16));
        self.settle(at);
        self.left = self.left.saturating_sub(delivery.packets);
        match reach {
            Reach::All if delivery.packets < most => self.left = 0,
            Reach::All => {}
            // If the time of its next packet is still unknown, others have their turn.
            Reach::Nothing if self.all[at].place == Place::Sought && delivery.failure.is_none() => {
                self.left = 0;
            }
            Reach::Nothing => (delivery.came, delivery.joins) = (true, true),
            // While the oldest packet is not due, inputs that are not merged have their turn.
            Reach::Until(_) if self.all[at].input.due().is_some() => self.left = 0,
            // Without a free frame, nothing is received now.
            Reach::Until(_) => delivery.joins = delivery.packets > 0 && self.left > 0,
        }
        delivery
    }

    /// Receives from a queue as far as `reach`, and counts what it delivers.
    fn receive_from(
        &mut self,
        at: usize,
        reach: Reach,
        batch: &mut Batch,
        most: usize,
        claims: Option<&mut Claims>,
    ) -> Delivery {
        let Source { port, input, is_live, place, counters, .. } = &mut self.all[at];
        let before = counters.drops.total();
        let (most, last) = match reach {
            Reach::All => (most, None),
            Reach::Nothing => (0, None),
            Reach::Until(last) => (most, Some(last)),
        };
        let there = batch.lanes();
        let received = guard::at(Served::Input(*port), || match (claims, last) {
            (Some(claims), _) => input.claim(batch, most, last, &mut counters.drops, claims),
            (None, Some(last)) => input.receive_until(batch, most, last, &mut counters.drops),
            (None, None) => input.receive(batch, most, &mut counters.drops),
        });
        let drops = counters.drops.total() - before;
        let mut delivery = Delivery {
            source: at,
            packets: 0,
            bytes: 0,
            drops,
            came: true,
            is_live: *is_live,
            joins: false,
            failure: None,
        };
        match received {
            Ok(Received { packets, bytes, passed_over, ended }) => {
                (delivery.packets, delivery.bytes) = (packets, bytes);
                delivery.came = packets > 0 || passed_over.total() > 0 || ended;
                counters.packets += packets as u64;
                counters.bytes += bytes;
                counters.more_segments += more_segments(batch, batch.lanes().without(there));
                counters.passed_over.merge(&passed_over);
                if ended {
                    *place = Place::Ended;
                }
            }
            // The packets before the damage were delivered; later calls return those of other
            // files, or that the input has ended.
            Err(failure) => delivery.failure = Some(failure),
        }
        delivery
    }

    /// The queue that is next, and how far to receive from it.
    fn next(&mut self) -> (usize, Reach) {
        // A file has its next packet, so that no other input is served before its time is known.
        // A pipe may not have it yet, and is not waited for.
        let is_sought =
            |source: &Source| source.place == Place::Sought && source.input.descriptor().is_none();
        if let Some(at) = self.all.iter().position(is_sought) {
            return (at, Reach::Nothing);
        }
        if self.left == 0 || self.all[self.turn].place == Place::Ended {
            self.pass_turn();
        }
        match self.all[self.turn].place {
            Place::InTurn | Place::Ended => (self.turn, Reach::All),
            Place::Sought => (self.turn, Reach::Nothing),
            Place::Merged => match self.merge.pop() {
                Some(Oldest { stream, until }) => (stream, Reach::Until(until)),
                None => (self.turn, Reach::All),
            },
        }
    }

    fn pass_turn(&mut self) {
        self.left = BATCH;
        for _ in 0..self.all.len() {
            self.turn = (self.turn + 1) % self.all.len();
            if self.all[self.turn].place != Place::Ended {
                return;
            }
        }
    }

    /// Finds the place of a queue by its next packet, if it goes by time.
    fn settle(&mut self, at: usize) {
        let Source { input, clock, place, .. } = &mut self.all[at];
        if matches!(place, Place::Sought | Place::Merged) {
            *place = Place::Sought;
            if let Some(time) = input.upcoming() {
                let time = clock.expect(time, || input.following());
                self.merge.push(at, time);
                *place = Place::Merged;
            }
        }
    }

    /// The packets received so far.
    pub(crate) fn packets(&self) -> u64 {
        self.all.iter().map(|source| source.counters.packets).sum()
    }

    /// The share of all inputs that was read; `None` if that is unknown.
    pub(crate) fn share(&self) -> Option<f64> {
        // Inputs are of different kinds and sizes: the packets of each are those that it has read,
        // and as many more as the rest of it will have.
        let read = |source: &Source| {
            (source.counters.packets + source.counters.passed_over.total()) as f64
        };
        let expected = |source: &Source| {
            let has_ended = source.place == Place::Ended;
            let share = if has_ended { 1.0 } else { source.input.share()? };
            (share > 0.0).then_some(read(source) / share)
        };
        let expected: f64 = self.all.iter().map(expected).sum::<Option<f64>>()?;
        (expected > 0.0).then(|| self.all.iter().map(read).sum::<f64>() / expected)
    }

    /// Waits until a queue may have packets or `also` is readable, for a while at most; not at all if
    /// one of them always may. Packets that others send are waited for only if the silence `is_long`,
    /// because they usually arrive sooner than a thread wakes up. Returns whether it waited. A queue
    /// that became readable is next.
    pub(crate) fn wait(&mut self, is_long: bool, also: Option<BorrowedFd<'_>>) -> bool {
        let Some(Awaited { descriptors, due }) = self.awaited(is_long) else { return false };
        let until_due = due.map(|due| due.saturating_duration_since(Instant::now()));
        let most = until_due.map_or(WAIT, |left| left.min(WAIT));
        if descriptors.is_empty() && also.is_none() {
            thread::sleep(most);
            return true;
        }
        let files = descriptors.iter().map(|(_, file)| *file).chain(also);
        let ready = first_readable(files, most).and_then(|n| Some(descriptors.get(n)?.0));
        if let Some(at) = ready.filter(|at| self.all[*at].place == Place::InTurn) {
            (self.turn, self.left) = (at, BATCH);
        }
        true
    }

    /// What has to happen before a queue has packets; `None` if one of them always may have some, or
    /// receives what others send and the silence is not long.
    fn awaited(&self, is_long: bool) -> Option<Awaited<'_>> {
        // Merged packets come after the oldest of them.
        let oldest = self.merge.peek().map(|(_, at)| at);
        let mut awaited = Awaited::default();
        for (at, Source { input, place, .. }) in self.all.iter().enumerate() {
            match place {
                Place::Ended => continue,
                Place::Merged if oldest != Some(at) => continue,
                _ => {}
            }
            if let Some(due) = input.due() {
                awaited.due = Some(awaited.due.map_or(due, |d| d.min(due)));
            } else if is_long {
                awaited.descriptors.push((at, input.descriptor()?));
            } else {
                return None;
            }
        }
        Some(awaited)
    }

    /// Takes the counts of the packets that a queue has dropped.
    pub(crate) fn take_drops(&mut self, source: usize) -> DropCounts {
        std::mem::take(&mut self.all[source].counters.drops)
    }

    /// Adds the counts of each queue so far.
    pub(crate) fn count(&self, totals: &mut PortTotals) {
        let sources = self.all.iter();
        sources.for_each(|source| totals.add(source.port, source.queue, &source.counters));
    }

    /// Ends the inputs; adds the counts of each queue.
    pub(crate) fn finish(mut self, totals: &mut PortTotals) {
        for Source { input, counters, .. } in &mut self.all {
            counters.shortfall = input.shortfall();
            counters.copied = input.copied();
        }
        self.count(totals);
    }
}
