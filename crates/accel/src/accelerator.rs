//! A device at work: its kernel, its memory, and the syncers that feed it.

use std::iter;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use thalweg_nf::device::{DeviceFunction, DeviceTable};
use thalweg_packet::Pool;

use crate::backend::{Backend, Figures, Launch, Resident};
use crate::error::AccelError;
use crate::looks::Looks;
use crate::region::{Region, Shape, State};
use crate::syncer::{OwnGroups, Syncer};

/// A function on work-groups of a device: one NF's share of it.
#[derive(Clone, Debug)]
pub struct Partition {
    /// What its work-groups do.
    pub function: DeviceFunction,
    /// What the function reads beside packets: keys, an automaton, routes.
    pub table: DeviceTable,
    /// How many work-groups do it.
    pub work_groups: usize,
}

/// How queues are laid out, and how long a device may take.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Work-items of a work-group: the packets that it works on in step.
    pub lanes: usize,
    /// Rows of each queue; a power of two.
    pub rows: usize,
    /// Until when all work-groups must run, from the start: the first one compiles the kernel.
    pub start: Duration,
    /// How long a work-group may have work and not move on, before it is a [`Fault`](crate::Fault).
    pub patience: Duration,
    /// Until when all work-groups must have ended, from the request.
    pub stop: Duration,
}

impl Default for Options {
    fn default() -> Self {
        let [start, patience, stop] = [30, 1, 5].map(Duration::from_secs);
        Self { lanes: 32, rows: 64, start, patience, stop }
    }
}

/// A device whose work-groups wait for packets. Dropping it stops them.
pub struct Accelerator {
    device: String,
    resident: Box<dyn Resident>,
    region: Arc<Region>,
    pool: Arc<Pool>,
    /// By partition.
    shares: Vec<Share>,
    options: Options,
}

/// The work-groups of a partition.
struct Share {
    function: DeviceFunction,
    work_groups: usize,
    /// Whether their queues have their syncers.
    is_divided: bool,
}

impl Accelerator {
    /// Starts a kernel for `partitions` on a device, over the packets of `pool`; returns when all
    /// work-groups run.
    ///
    /// # Errors
    /// [`AccelError`], in words for users.
    pub fn start(
        backend: &dyn Backend,
        partitions: Vec<Partition>,
        options: Options,
        pool: Arc<Pool>,
    ) -> Result<Self, AccelError> {
        let work_groups = partitions.iter().map(|partition| partition.work_groups).sum();
        if let Some(room) = backend.room().filter(|room| work_groups > room.free) {
            let (device, needed) = (backend.name(), work_groups);
            return Err(AccelError::Residency { device, needed, runs: room.free });
        }
        let Options { lanes, rows, .. } = options;
        let shape = Shape { work_groups, lanes, rows };
        let tables: Vec<&[u8]> = partitions.iter().map(|p| &**p.table).collect();
        let memory = backend.allocate_region(Region::len_for(shape, &tables)?)?;
        let numbered = partitions.iter().enumerate();
        let of_groups: Vec<_> = numbered
            .flat_map(|(number, partition)| iter::repeat_n(number, partition.work_groups))
            .collect();
        let region = Arc::new(Region::new(memory, shape, &of_groups, &tables)?);
        let functions = partitions.iter().map(|partition| partition.function).collect();
        let share = |partition: &Partition| {
            let Partition { function, work_groups, .. } = partition;
            Share { function: *function, work_groups: *work_groups, is_divided: false }
        };
        let shares = partitions.iter().map(share).collect();
        let launch = Launch { region: region.clone(), pool: pool.clone(), functions };
        let resident = backend.start(launch)?;
        let device = backend.name();
        let mut accelerator = Self { device, resident, region, pool, shares, options };
        accelerator.wait_for_all()?;
        Ok(accelerator)
    }

    /// Waits until all work-groups run.
    fn wait_for_all(&mut self) -> Result<(), AccelError> {
        let needed = self.region.shape().work_groups;
        let mut looks = Looks::new();
        loop {
            if let Some(why) = self.failure() {
                let (device, call) = (self.device.clone(), "the kernel");
                return Err(AccelError::Call { device, call, why });
            }
            let absent = |group: &usize| self.region.state(*group) == State::Absent;
            let runs = needed - (0..needed).filter(absent).count();
            if runs == needed {
                return Ok(());
            }
            // Work-groups that run keep the others from starting if there is no room for all; those
            // that start at all do so at the same time.
            let is_late = looks.again(self.options.start) > self.options.start;
            if is_late {
                let (device, within) = (self.device.clone(), self.options.start);
                return Err(AccelError::Late { device, needed, runs, within });
            }
            thread::sleep(Duration::from_micros(200));
        }
    }

    /// Divides the work-groups of each partition among `number` syncers, which may run on threads of
    /// their own. They serve packets of the accelerator's pool.
    ///
    /// # Errors
    /// When a partition has fewer work-groups.
    ///
    /// # Panics
    /// When a partition has its syncers: a queue has one.
    pub fn syncers<T>(&mut self, number: usize) -> Result<Vec<Syncer<T>>, AccelError> {
        let mut shares = vec![Vec::new(); number];
        for partition in 0..self.shares.len() {
            for (share, groups) in shares.iter_mut().zip(self.divide(partition, number)?) {
                share.push(groups);
            }
        }
        let patience = self.options.patience;
        Ok(shares.into_iter().map(|share| self.syncer(share, patience)).collect())
    }

    /// Divides the work-groups of one partition among `number` syncers, for which it is number 0. A
    /// work-group may have work for `patience` and not move on.
    ///
    /// # Errors
    /// As [`syncers`](Self::syncers).
    ///
    /// # Panics
    /// As there.
    pub fn share<T>(
        &mut self,
        partition: usize,
        number: usize,
        patience: Duration,
    ) -> Result<Vec<Syncer<T>>, AccelError> {
        let shares = self.divide(partition, number)?;
        Ok(shares.into_iter().map(|groups| self.syncer(vec![groups], patience)).collect())
    }

    /// The work-groups of a partition, in disjoint sets.
    fn divide(&mut self, partition: usize, number: usize) -> Result<Vec<OwnGroups>, AccelError> {
        let first = self.shares[..partition].iter().map(|share| share.work_groups).sum::<usize>();
        let Share { function, work_groups, is_divided } = &mut self.shares[partition];
        if *work_groups < number.max(1) {
            let (function, has) = (function.name, *work_groups);
            return Err(AccelError::TooFewWorkGroups { syncers: number, function, has });
        }
        assert!(!std::mem::replace(is_divided, true), "a queue has one syncer");
        let (all, split) = (first..first + *work_groups, function.split);
        let own = |of| (all.clone().skip(of).step_by(number).collect(), split);
        Ok((0..number).map(own).collect())
    }

    /// What launches did, if there are any.
    pub(crate) fn figures(&self) -> Option<Arc<Figures>> {
        self.resident.figures()
    }

    fn syncer<T>(&self, partitions: Vec<OwnGroups>, patience: Duration) -> Syncer<T> {
        Syncer::new(self.region.clone(), self.pool.clone(), partitions, patience)
    }

    /// Why the kernel has ended, as the driver reports it, if it has by an error.
    pub fn failure(&self) -> Option<String> {
        self.resident.failure()
    }

    /// The work-groups that have ended on their own, in words: they have found more rows than their queue has.
    fn astray(&self) -> impl Iterator<Item = String> {
        let groups = 0..self.region.shape().work_groups;
        groups.filter(|group| self.region.state(*group) != State::Ended).map(|group| {
            let (done, sealed) = (self.region.done(group), self.region.sealed(group));
            format!("work-group {group} has ended on its own, at row {done} of {sealed}")
        })
    }

    /// Stops the work-groups when they have worked on what they have; returns whether they have ended. Does
    /// not wait for those that were given up.
    pub fn stop(&mut self) -> bool {
        self.region.end();
        if !self.region.has_given_up() {
            return self.resident.stop(self.options.stop);
        }
        let until = Instant::now() + self.options.stop;
        while !self.region.has_ended_but_for_given_up()
            && self.failure().is_none()
            && Instant::now() < until
        {
            thread::sleep(Duration::from_micros(100));
        }
        self.resident.stop(Duration::ZERO)
    }
}

impl Drop for Accelerator {
    fn drop(&mut self) {
        // Asked before the kernel is let go of: one that failed explains its work-groups.
        let has_failed = self.failure().is_some();
        if !self.stop() {
            log::warn!("{}: work-groups do not end; their memory is not freed", self.device);
        } else if !has_failed {
            self.astray().for_each(|lost| log::warn!("{}: {lost}", self.device));
        }
    }
}

#[cfg(test)]
mod tests {
    use thalweg_nf::device::Launches;
    use thalweg_testkit::peer;

    use super::*;
    use crate::opencl::OpenCl;
    use crate::reflect::REFLECT;
    use crate::soft::Soft;

    /// As if its memory were freed and used for something else: a queue has 64 rows.
    #[test]
    fn a_work_group_ends_that_finds_more_rows_than_its_queue_has() {
        let mut backends: Vec<Box<dyn Backend>> = vec![Box::new(Soft)];
        match OpenCl::open(0, Launches::Never) {
            Ok(device) => backends.push(Box::new(device)),
            Err(e) => peer::missing(&e.to_string()),
        }
        for backend in backends {
            let len = Pool::region_len(8, 2048);
            let pool = Arc::new(Pool::new(backend.allocate(len).unwrap(), 2048).unwrap());
            for (sealed, is_astray) in [(64, false), (65, true), (u32::MAX, true)] {
                let partition =
                    Partition { function: REFLECT, table: DeviceTable::default(), work_groups: 1 };
                let options = Options::default();
                let started = Accelerator::start(&*backend, vec![partition], options, pool.clone());
                let mut accelerator = started.unwrap();
                accelerator.region.seal(0, sealed);
                assert!(accelerator.stop(), "{}: {sealed} rows", backend.name());
                let found: Vec<_> = accelerator.astray().collect();
                let what = format!("work-group 0 has ended on its own, at row 0 of {sealed}");
                assert_eq!(found, Vec::from_iter(is_astray.then_some(what)));
            }
        }
    }
}
