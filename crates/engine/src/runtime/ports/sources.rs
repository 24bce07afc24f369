//! The inputs of a plan, and the order in which their packets are taken.

use std::os::fd::BorrowedFd;
use std::thread;
use std::time::{Duration, Instant};

use thalweg_chain::{InputPlan, MergeBy, Plan};
use thalweg_io::{Claims, Input, IoError, Merge, Oldest, PacketClock, Received};
use thalweg_packet::{BATCH, Batch, Nanoseconds, PortIndex};
use thalweg_source::poll::first_readable;

use super::{NextPort, more_segments};
use crate::counters::PortCounters;
use crate::guard::{self, Place as Served};
use crate::runtime::error::RunError;

/// The longest wait for inputs; afterwards the thread checks whether the run should end.
const WAIT: Duration = Duration::from_millis(10);

/// All inputs. They take turns of up to 32 packets, but captures are merged by time: a turn of any
/// of them is one of all of them together.
pub(crate) struct Sources {
    ports: Vec<Box<dyn Input>>,
    /// By input: whether packets can be late.
    live: Vec<bool>,
    clocks: Vec<PacketClock>,
    places: Vec<Place>,
    merge: Merge,
    /// The input whose turn it is, and the packets left of its turn.
    turn: usize,
    left: usize,
    pub(crate) counters: Vec<PortCounters>,
}

/// How the next packet of an input is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// When it is the input's turn.
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

/// The packets that were received at once, all from one input.
pub(crate) struct Delivery {
    pub(crate) input: usize,
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

fn live(plan: &Plan) -> Vec<bool> {
    plan.inputs.iter().map(|input| input.blueprint.is_live()).collect()
}

impl Sources {
    /// Opens the inputs of a plan, in its order, each by `open`.
    pub(crate) fn open(
        plan: &Plan,
        open: impl Fn(&InputPlan) -> Result<Box<dyn Input>, RunError>,
    ) -> Result<Self, RunError> {
        let ports = plan.inputs.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            live: live(plan),
            clocks: ports.iter().map(|_| PacketClock::default()).collect(),
            places: places(plan),
            merge: Merge::default(),
            turn: 0,
            left: BATCH,
            counters: vec![PortCounters::default(); ports.len()],
            ports,
        })
    }

    /// Goes on with the inputs of `plan`; returns those that it does not have, and adds their counts
    /// to `former`.
    pub(crate) fn renew(
        &mut self,
        plan: &Plan,
        next: Vec<NextPort<dyn Input>>,
        former: &mut PortCounters,
    ) -> Vec<Box<dyn Input>> {
        let mut old: Vec<_> = self.ports.drain(..).map(Some).collect();
        let (clocks, counters) = (self.clocks.clone(), self.counters.clone());
        let had_ended = self.places.iter().map(|place| *place == Place::Ended).collect::<Vec<_>>();
        (self.places, self.merge, self.live) = (places(plan), Merge::default(), live(plan));
        (self.turn, self.left) = (0, BATCH);
        self.clocks.clear();
        self.counters.clear();
        for (at, next) in next.into_iter().enumerate() {
            let kept = match next {
                NextPort::Kept(was) => old[was].take().map(|port| (was, port)),
                NextPort::New(port) => {
                    self.ports.push(port);
                    None
                }
            };
            self.clocks.push(kept.as_ref().map_or_else(Default::default, |(was, _)| clocks[*was]));
            self.counters
                .push(kept.as_ref().map_or_else(Default::default, |(was, _)| counters[*was]));
            if let Some((was, port)) = kept {
                self.ports.push(port);
                if had_ended[was] {
                    self.places[at] = Place::Ended;
                }
            }
        }
        let gone = old.iter().zip(&counters).filter(|(port, _)| port.is_some());
        gone.for_each(|(_, counters)| former.merge(counters));
        old.into_iter().flatten().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.ports.len()
    }

    /// Whether no more packets will arrive.
    pub(crate) fn have_ended(&self) -> bool {
        self.places.iter().all(|place| *place == Place::Ended)
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
        let (input, reach) = self.next();
        let most = most.min(self.left);
        let start = batch.len();
        let mut delivery = self.receive_from(input, reach, batch, most, claims);
        self.clocks[input].date(batch, start, self.ports[input].upcoming());
        // The values of lanes without a packet are not used.
        batch.meta.in_port[start..].fill(PortIndex(input as u16));
        self.settle(input);
        self.left = self.left.saturating_sub(delivery.packets);
        match reach {
            Reach::All if delivery.packets < most => self.left = 0,
            Reach::All => {}
            // If the time of its next packet is still unknown, others have their turn.
            Reach::Nothing if self.places[input] == Place::Sought && delivery.failure.is_none() => {
                self.left = 0;
            }
            Reach::Nothing => (delivery.came, delivery.joins) = (true, true),
            // While the oldest packet is not due, inputs that are not merged have their turn.
            Reach::Until(_) if self.ports[input].due().is_some() => self.left = 0,
            // Without a free frame, nothing is received now.
            Reach::Until(_) => delivery.joins = delivery.packets > 0 && self.left > 0,
        }
        delivery
    }

    /// Receives from an input as far as `reach`, and counts what it delivers.
    fn receive_from(
        &mut self,
        input: usize,
        reach: Reach,
        batch: &mut Batch,
        most: usize,
        claims: Option<&mut Claims>,
    ) -> Delivery {
        let (port, counters) = (&mut self.ports[input], &mut self.counters[input]);
        let before = counters.drops.total();
        let (most, last) = match reach {
            Reach::All => (most, None),
            Reach::Nothing => (0, None),
            Reach::Until(last) => (most, Some(last)),
        };
        let there = batch.lanes();
        let received = guard::at(Served::Input(input), || match (claims, last) {
            (Some(claims), _) => port.claim(batch, most, last, &mut counters.drops, claims),
            (None, Some(last)) => port.receive_until(batch, most, last, &mut counters.drops),
            (None, None) => port.receive(batch, most, &mut counters.drops),
        });
        let drops = counters.drops.total() - before;
        let mut delivery = Delivery {
            input,
            packets: 0,
            bytes: 0,
            drops,
            came: true,
            is_live: self.live[input],
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
                    self.places[input] = Place::Ended;
                }
            }
            // The packets before the damage were delivered; later calls return those of other
            // files, or that the input has ended.
            Err(failure) => delivery.failure = Some(failure),
        }
        delivery
    }

    /// The input that is next, and how far to receive from it.
    fn next(&mut self) -> (usize, Reach) {
        // A file has its next packet, so that no other input is served before its time is known.
        // A pipe may not have it yet, and is not waited for.
        let is_sought = |at: &usize| {
            self.places[*at] == Place::Sought && self.ports[*at].descriptor().is_none()
        };
        if let Some(input) = (0..self.ports.len()).find(is_sought) {
            return (input, Reach::Nothing);
        }
        if self.left == 0 || self.places[self.turn] == Place::Ended {
            self.pass_turn();
        }
        match self.places[self.turn] {
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
        for _ in 0..self.ports.len() {
            self.turn = (self.turn + 1) % self.ports.len();
            if self.places[self.turn] != Place::Ended {
                return;
            }
        }
    }

    /// Finds the place of an input by its next packet, if it goes by time.
    fn settle(&mut self, input: usize) {
        let place = &mut self.places[input];
        if matches!(place, Place::Sought | Place::Merged) {
            let port = &mut self.ports[input];
            *place = Place::Sought;
            if let Some(time) = port.upcoming() {
                let time = self.clocks[input].expect(time, || port.following());
                self.merge.push(input, time);
                *place = Place::Merged;
            }
        }
    }

    /// The packets received so far.
    pub(crate) fn packets(&self) -> u64 {
        self.counters.iter().map(|input| input.packets).sum()
    }

    /// The share of all inputs that was read; `None` if that is unknown.
    pub(crate) fn share(&self) -> Option<f64> {
        // Inputs are of different kinds and sizes: the packets of each are those that it has read,
        // and as many more as the rest of it will have.
        let read = |at: usize| {
            let counters = &self.counters[at];
            (counters.packets + counters.passed_over.total()) as f64
        };
        let expected = |at: usize| {
            let has_ended = self.places[at] == Place::Ended;
            let share = if has_ended { 1.0 } else { self.ports[at].share()? };
            (share > 0.0).then_some(read(at) / share)
        };
        let all = 0..self.ports.len();
        let expected: f64 = all.clone().map(expected).sum::<Option<f64>>()?;
        (expected > 0.0).then(|| all.map(read).sum::<f64>() / expected)
    }

    /// Waits until an input may have packets, for a while at most; not at all if one of them always
    /// may. Packets that others send are waited for only if the silence `is_long`, because they
    /// usually arrive sooner than a thread wakes up. Returns whether it waited. An input that became
    /// readable is next.
    pub(crate) fn wait(&mut self, is_long: bool) -> bool {
        let Some(Awaited { descriptors, due }) = self.awaited(is_long) else { return false };
        let until_due = due.map(|due| due.saturating_duration_since(Instant::now()));
        let most = until_due.map_or(WAIT, |left| left.min(WAIT));
        if descriptors.is_empty() {
            thread::sleep(most);
            return true;
        }
        let files = descriptors.iter().map(|(_, file)| *file);
        let ready = first_readable(files, most).map(|n| descriptors[n].0);
        if let Some(input) = ready.filter(|input| self.places[*input] == Place::InTurn) {
            (self.turn, self.left) = (input, BATCH);
        }
        true
    }

    /// What has to happen before an input has packets; `None` if one of them always may have some, or
    /// receives what others send and the silence is not long.
    fn awaited(&self, is_long: bool) -> Option<Awaited<'_>> {
        // Merged packets come after the oldest of them.
        let oldest = self.merge.peek().map(|(_, input)| input);
        let mut awaited = Awaited::default();
        for (at, port) in self.ports.iter().enumerate() {
            match self.places[at] {
                Place::Ended => continue,
                Place::Merged if oldest != Some(at) => continue,
                _ => {}
            }
            if let Some(due) = port.due() {
                awaited.due = Some(awaited.due.map_or(due, |d| d.min(due)));
            } else if is_long {
                awaited.descriptors.push((at, port.descriptor()?));
            } else {
                return None;
            }
        }
        Some(awaited)
    }

    /// Ends the inputs; returns their counts.
    pub(crate) fn finish(mut self) -> Vec<PortCounters> {
        for (input, counts) in self.ports.iter().zip(&mut self.counters) {
            counts.shortfall = input.shortfall();
        }
        self.counters
    }
}
