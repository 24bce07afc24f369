//! A generation: everything that a reload can change, as one value.
//!
//! A reload builds the next generation beside the packets ([`Next`]). Then no more packets are
//! received until all are through, and the next generation takes the place of this one at once: so
//! each packet sees one generation from the inputs to the outputs. Parts that are the same move
//! over as they are.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use thalweg_chain::{Difference, NfIndex, Plan, StateFate};
use thalweg_cpu::cycles::Clock;
use thalweg_io::{Input, Output};
use thalweg_nf::state::{StateError, StateReader, StateWriter};
use thalweg_nf::{NetworkFunction, Renewal};

use super::error::RunError;
use super::options::RunOptions;
use super::panics;
use super::ports::{Inputs, NextPort, Outputs};
use super::state::StateFolders;
use crate::classification::Classification;
use crate::control::Control;
use crate::counters::{Former, NfCounters};
use crate::course::{Course, Seat};
use crate::device::NextDevice;
use crate::parts::Parts;
use crate::published::Published;
use crate::reload::{Reload, ReloadError};
use crate::station::Member;
use crate::tally::Run;
use crate::visit::end_nf;

/// The chain that packets take now, with its ports.
pub(super) struct Generation {
    pub(super) plan: Arc<Plan>,
    /// By line: the queues of the inputs.
    pub(super) inputs: Vec<Inputs>,
    pub(super) course: Course,
    /// By line: the queues of the outputs.
    pub(super) outputs: Vec<Outputs>,
    /// The workers of the run, which has at most as many lines.
    pub(super) workers: usize,
    /// What earlier generations had.
    pub(super) former: Arc<Former>,
}

/// All parts of a generation that does not run yet.
pub(super) struct Next {
    pub(super) plan: Plan,
    pub(super) difference: Difference,
    pub(super) reload: Reload,
    /// Each NF, by index.
    pub(super) nfs: Vec<NextNf>,
    pub(super) inputs: Vec<NextPort<dyn Input>>,
    pub(super) outputs: Vec<NextPort<dyn Output>>,
    /// Unless that of the running generation goes on.
    pub(super) classification: Option<Classification>,
}

/// An NF of a generation that does not run yet.
pub(super) struct NextNf {
    /// The running NF that it goes on with.
    pub(super) was: Option<NfIndex>,
    /// Its own instance, which takes over the state of the running one; `None` if that goes on.
    pub(super) seat: Option<Seat>,
    /// What renews the instance.
    pub(super) renewal: Option<Renewal>,
    /// Whether it may be divided.
    pub(super) may_divide: bool,
    /// The device that does a part of its work.
    pub(super) device: NextDevice,
}

/// What a generation leaves behind, to be ended and dropped where no packet waits.
#[derive(Default)]
pub(super) struct Retired {
    /// NFs that the chain no longer has.
    functions: Vec<Box<dyn NetworkFunction>>,
    /// Only their memory is left.
    rest: Vec<Box<dyn Any + Send>>,
    /// The same. Their histograms are so large that freeing one may wait for the kernel's lock on the
    /// memory of the process, which other threads hold for milliseconds.
    large: Vec<(NfCounters, Option<Parts>)>,
    inputs: Vec<Box<dyn Input>>,
    failures: Vec<String>,
}

impl Retired {
    /// Lets NFs write what they hold, and frees all; returns what failed.
    pub(super) fn end(mut self) -> Vec<String> {
        for function in &mut self.functions {
            end_nf(&mut **function, false, &mut self.failures);
        }
        self.failures
    }
}

impl Generation {
    /// Opens the first generation, with imported state.
    pub(super) fn open(
        plan: Plan,
        workers: usize,
        options: &RunOptions,
        state: &StateFolders<'_>,
        control: &Control,
    ) -> Result<Self, RunError> {
        let inputs = Inputs::open(&plan, options, workers, control)?;
        let mut course = Course::new(&plan, workers);
        course.start_devices(&plan, workers).map_err(RunError::Device)?;
        state.import_all(&plan, &mut course)?;
        // Last, because it empties files.
        let outputs = Outputs::open(&plan, options, control, inputs.len())?;
        let (plan, former) = (Arc::new(plan), Arc::default());
        Ok(Self { plan, inputs, course, outputs, workers, former })
    }

    /// What a tally needs to know.
    pub(super) fn run(&self, workers: Arc<[Published]>, clock: Clock) -> Run {
        Run { plan: self.plan.clone(), workers, clock, former: self.former.clone() }
    }

    /// Lets `next` take the place of this generation, in which there is no packet; on an error this
    /// one stays as it was. Returns what has changed, and what is left over.
    pub(super) fn follow(
        &mut self,
        mut next: Next,
        control: &Control,
    ) -> Result<(Difference, Retired), ReloadError> {
        let moved = panic::catch_unwind(AssertUnwindSafe(|| self.move_state(&mut next)));
        let moved = moved.unwrap_or_else(|cause| Err(panics::of_reload(&*cause)))?;
        if next.reload.dry_run {
            return Ok((next.difference, Retired::default()));
        }
        empty_new(&mut next.outputs)?;
        // From here on nothing fails.
        let Next { plan, difference, nfs, inputs, outputs, classification, .. } = next;
        let has_same_device = |name: &str| {
            let mut all = plan.nfs.iter().zip(&nfs);
            all.any(|(nf, next)| nf.name == name && matches!(next.device, NextDevice::Same))
        };
        control.failed_devices.retain(has_same_device);
        let mut retired = Retired::default();
        let mut former = (*self.former).clone();
        former.reloads += 1;
        let old = std::mem::take(&mut self.inputs);
        let (workers, gone) = (self.workers, &mut retired.inputs);
        self.inputs = Inputs::renew(old, &plan, inputs, workers, &mut former.inputs, gone);
        let old = std::mem::take(&mut self.outputs);
        let lines = self.inputs.len();
        self.outputs = Outputs::renew(old, outputs, lines, &mut former.outputs, control);
        let (seats, lost) = self.course.take_seats();
        former.chain_drops.merge(&lost);
        let seats = seats.into_iter().map(Some).collect();
        let seats = Seats { plan: &self.plan, seats, moved: &moved };
        let seats = seats.renew(nfs, &mut former, &mut retired);
        self.course.place(&plan, seats);
        if let Some(new) = classification {
            let old = std::mem::replace(&mut self.course.classification, new);
            self.reclassify(&plan, old, &mut former, &mut retired);
        }
        retired.rest.push(Box::new(std::mem::replace(&mut self.plan, Arc::new(plan))));
        retired.rest.push(Box::new(control.set_plan(Some(self.plan.clone()))));
        self.former = Arc::new(former);
        Ok((difference, retired))
    }

    /// Adds the counts of the `old` classification to those of the one in its place, for types that
    /// the new plan has, too.
    fn reclassify(
        &mut self,
        next: &Plan,
        old: Classification,
        former: &mut Former,
        retired: &mut Retired,
    ) {
        for (name, (packets, bytes)) in self.plan.types.iter().zip(&old.types) {
            let counts = match next.types.get_index_of(name) {
                Some(at) => &mut self.course.classification.types[at],
                None => &mut former.types,
            };
            counts.0 += packets;
            counts.1 += bytes;
        }
        former.chain_drops.merge(&old.lost);
        former.layers.merge(&old.classifier.stats());
        retired.rest.push(Box::new(old.classifier));
    }

    /// Lets new instances take over the state of running ones, which keep it; returns which NFs of
    /// this generation gave theirs.
    fn move_state(&self, next: &mut Next) -> Result<Vec<NfIndex>, ReloadError> {
        let Next { plan, nfs, difference, reload, .. } = next;
        let mut moved = Vec::new();
        for (at, nf) in nfs.iter_mut().enumerate() {
            let Some(was) = nf.was else { continue };
            let Some((member, is_divided)) = self.course.member(was) else { continue };
            if is_divided && !nf.may_divide && nf.seat.is_none() {
                nf.seat = Some(Seat::new(plan, NfIndex(at as u16), 1, false));
            }
            let (Some(seat), kind) = (&mut nf.seat, plan.nfs[at].kind) else { continue };
            if kind.state.is_none() {
                continue;
            }
            match hand_over(kind.name, &*member.function, &mut *seat.member.function) {
                Ok(()) => moved.push(was),
                Err(_) if reload.accept_loss => {
                    difference.set_state(&plan.nfs[at].name, StateFate::Lost);
                }
                Err(source) => {
                    return Err(ReloadError::State { nf: plan.nfs[at].name.clone(), source });
                }
            }
        }
        Ok(moved)
    }
}

/// Lets `new` take over the state of `old`, which keeps it.
fn hand_over(
    kind: &str,
    old: &dyn NetworkFunction,
    new: &mut dyn NetworkFunction,
) -> Result<(), StateError> {
    let mut stream = Vec::new();
    let mut writer = StateWriter::new(&mut stream, kind, old.state_version())?;
    old.export_state(&mut writer)?;
    writer.finish()?;
    let mut stream = &stream[..];
    let mut reader = StateReader::new(&mut stream, kind, new.state_version())?;
    new.import_state(&mut reader)?;
    reader.finish()
}

/// Empties the files of new outputs.
fn empty_new(outputs: &mut [NextPort<dyn Output>]) -> Result<(), RunError> {
    for port in outputs {
        if let NextPort::New(queues) = port {
            for queue in queues {
                queue.flush().map_err(|failure| failure.error)?;
            }
        }
    }
    Ok(())
}

/// The NFs of a generation that ends, by index, without those that have gone on.
struct Seats<'a> {
    plan: &'a Plan,
    seats: Vec<Option<Seat>>,
    /// Those that have given their state away.
    moved: &'a [NfIndex],
}

impl Seats<'_> {
    /// The NFs of the next generation.
    fn renew(mut self, nfs: Vec<NextNf>, former: &mut Former, retired: &mut Retired) -> Vec<Seat> {
        let mut seats = Vec::with_capacity(nfs.len());
        for (at, NextNf { was, seat, renewal, device, .. }) in nfs.into_iter().enumerate() {
            let running = was.and_then(|was| self.seats[usize::from(was.0)].take());
            let mut seat = match (seat, running) {
                (Some(seat), Some(running)) => self.replace(running, seat, retired),
                (seat, running) => seat.or(running).expect("an NF runs, or has an instance"),
            };
            let left = renewal.and_then(|renewal| renewal(&mut *seat.member.function));
            retired.rest.extend(left);
            if let NextDevice::Other(device) = device {
                let old = std::mem::replace(&mut seat.member.device, device);
                seat.member.counters.add_former_device(old.as_ref());
                retired.rest.push(Box::new(old));
            }
            seat.renumber(NfIndex(at as u16));
            seats.push(seat);
        }
        for seat in self.seats.into_iter().flatten() {
            let Seat { member: Member { nf, function, counters, device, .. }, parts } = seat.sum();
            retired.rest.push(Box::new(device));
            former.add_nf(self.plan.nfs[usize::from(nf.0)].kind.name, &counters);
            retired.functions.push(function);
            retired.large.push((counters, parts));
        }
        seats
    }

    /// Lets the instance of `new` take the place of the `running` one, with its counts.
    fn replace(&self, running: Seat, mut new: Seat, retired: &mut Retired) -> Seat {
        let Seat { member: Member { nf, mut function, counters, device, .. }, parts } =
            running.sum();
        retired.rest.push(Box::new(device));
        let unused = std::mem::replace(&mut new.member.counters, counters);
        retired.large.push((unused, parts));
        if self.moved.contains(&nf) {
            // What it holds for its file comes before what its successor writes.
            end_nf(&mut *function, true, &mut retired.failures);
            retired.rest.push(Box::new(function));
        } else {
            retired.functions.push(function);
        }
        new
    }
}
