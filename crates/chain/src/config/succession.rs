//! A plan that takes the place of a running one.

use std::sync::Arc;

use thalweg_cpu::SystemMemory;
use thalweg_io::kind::PortBlueprint;
use thalweg_nf::Renewal;
use thalweg_source::{Source, SourceError};

use super::difference::Difference;
use super::file::ChainFile;
use super::needs::Needs;
use super::nfs::NfPlan;
use super::paths::is_in_memory;
use super::plan::{Plan, PlanOptions};
use super::ports::{InputPlan, MergeBy, OutputPlan, PortPlan};
use crate::route_decider::NfIndex;

/// A new plan, what becomes of the parts of the running one, and how they differ.
pub struct Succession {
    /// The new plan. It has the packet memory of the running one.
    pub plan: Plan,
    /// What is added, removed and changed.
    pub difference: Difference,
    /// Each NF of the new plan, by index.
    pub nfs: Vec<Heir>,
    /// Each input of the new plan, by index: the one of the running plan that it goes on with.
    pub inputs: Vec<Option<usize>>,
    /// Each output of the new plan likewise.
    pub outputs: Vec<Option<usize>>,
    /// Whether the packet types, their rules and the caches over them are the same.
    pub keeps_classification: bool,
}

/// What an NF of a new plan begins with.
pub enum Heir {
    /// The running instance of this NF, which stays as it is.
    Kept(NfIndex),
    /// The running instance of this NF, which is renewed.
    Renewed(NfIndex, Renewal),
    /// An instance of its own, with the state of the running one.
    Replaced(NfIndex),
    /// An instance of its own.
    New,
}

/// The settings that a run keeps to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fixed {
    frames: Option<usize>,
    frame_size: Option<usize>,
    large_frames: Option<usize>,
    huge_pages: bool,
    device: Option<String>,
    launches: Option<String>,
    workers: usize,
    cores: Vec<u32>,
    merge: MergeBy,
    seed: Option<u64>,
    user: Option<String>,
}

impl Fixed {
    pub(super) fn of(file: &ChainFile<'_>) -> Self {
        Self {
            frames: file.memory.frames.as_ref().map(|frames| *frames.get_ref()),
            frame_size: file.memory.frame_size.as_ref().map(|size| *size.get_ref()),
            large_frames: file.memory.large_frames.as_ref().map(|frames| *frames.get_ref()),
            huge_pages: *file.memory.huge_pages.get_ref(),
            device: file.memory.device.as_ref().map(|device| device.get_ref().clone()),
            launches: file.memory.launches.as_ref().map(|launches| launches.get_ref().clone()),
            workers: file.run.number_of_workers(),
            cores: file.run.cores.as_ref().map_or_else(Vec::new, |cores| cores.get_ref().numbers()),
            merge: file.run.merge,
            seed: file.run.seed,
            user: file.run.user.as_ref().map(|user| user.get_ref().clone()),
        }
    }

    /// Adds an error for each setting of `file` that is not that of the running plan.
    pub(super) fn check(&self, file: &ChainFile<'_>, errors: &mut Vec<SourceError>) {
        let new = Self::of(file);
        let (memory, run) = (&file.memory, &file.run);
        let mut check = |is_same: bool, source: &Source, key: &str, was: String| {
            if !is_same {
                let message = format!("'{key}' cannot change while the chain runs");
                errors.push(source.error(0..0, message, format!("{was}, or a restart")));
            }
        };
        let number = |frames: Option<usize>| frames.map_or("no number".into(), |n| n.to_string());
        check(self.frames == new.frames, &memory.source, "frames", number(self.frames));
        let size = self.frame_size.map_or("no frame size".into(), |size| size.to_string());
        check(self.frame_size == new.frame_size, &memory.source, "frame_size", size);
        let large = number(self.large_frames);
        check(self.large_frames == new.large_frames, &memory.source, "large_frames", large);
        let pages = self.huge_pages.to_string();
        check(self.huge_pages == new.huge_pages, &memory.source, "huge_pages", pages);
        let device = self.device.clone().unwrap_or_else(|| "no device".into());
        check(self.device == new.device, &memory.source, "device", device);
        let launches = self.launches.clone().unwrap_or_else(|| "no launches".into());
        check(self.launches == new.launches, &memory.source, "launches", launches);
        check(self.workers == new.workers, &run.source, "workers", self.workers.to_string());
        let cores = match &*self.cores {
            [] => "no cores".into(),
            cores => format!("\"{}\"", thalweg_cpu::cores::as_text(cores)),
        };
        check(self.cores == new.cores, &run.source, "cores", cores);
        let merge = format!("{:?}", self.merge).to_lowercase();
        check(self.merge == new.merge, &run.source, "merge", merge);
        let seed = self.seed.map_or("no seed".into(), |seed| seed.to_string());
        check(self.seed == new.seed, &run.source, "seed", seed);
        let user = self.user.as_ref().map_or("no user".into(), |user| format!("\"{user}\""));
        check(self.user == new.user, &run.source, "user", user);
    }
}

impl Plan {
    /// Loads the chain file again, whole, while this plan runs.
    ///
    /// # Errors
    /// Every mistake found, with its place: also what cannot change while a chain runs.
    pub fn succession(&self) -> Result<Succession, Vec<SourceError>> {
        let text = if is_in_memory(&self.source) {
            self.source.clone()
        } else {
            Source::read(self.source.path()).map_err(|e| vec![e])?
        };
        let mut plan = Self::build(&text, &self.kinds, PlanOptions::default(), Some(self))?;
        let nfs = (0..plan.nfs.len()).map(|at| self.heir(&mut plan, at)).collect::<Vec<_>>();
        let needs = Needs::of(plan.nfs.iter().zip(&nfs).map(|(nf, heir)| self.need(nf, heir)), 0);
        if let Some(mistake) = needs.beyond_available(SystemMemory::read()) {
            return Err(vec![mistake]);
        }
        let inputs = pairs(&plan.inputs, &self.inputs, same_input);
        let outputs = pairs(&plan.outputs, &self.outputs, same_output);
        keep(&mut plan.inputs, &self.inputs, &inputs);
        keep(&mut plan.outputs, &self.outputs, &outputs);
        let keeps_classification = plan.types == self.types
            && plan.classifier == self.classifier
            && *plan.rules.load() == *self.rules.load()
            // Rules know inputs by their numbers.
            && (0..plan.inputs.len()).all(|at| inputs[at] == Some(at));
        let mut succession = Succession {
            difference: Difference::default(),
            plan,
            nfs,
            inputs,
            outputs,
            keeps_classification,
        };
        succession.difference = Difference::of(self, &succession);
        Ok(succession)
    }

    /// The bytes that a new NF may take beside the running ones: all of its own, or those by which
    /// a running one may grow.
    fn need<'a>(&self, nf: &'a NfPlan, heir: &Heir) -> (&'a NfPlan, u64) {
        let bytes = nf.blueprint.memory();
        let more = match heir {
            Heir::Kept(_) => 0,
            Heir::Renewed(was, _) => {
                bytes.saturating_sub(self.nfs[usize::from(was.0)].blueprint.memory())
            }
            Heir::Replaced(_) | Heir::New => bytes,
        };
        (nf, more)
    }

    /// What NF number `at` of `new` begins with.
    fn heir(&self, new: &mut Self, at: usize) -> Heir {
        let nf = &mut new.nfs[at];
        let same = |old: &NfPlan| old.name == nf.name && old.kind.name == nf.kind.name;
        let Some(index) = self.nfs.iter().position(same) else { return Heir::New };
        let (old, index) = (&self.nfs[index], NfIndex(index as u16));
        if old.origin == nf.origin {
            nf.blueprint = old.blueprint.clone();
            return Heir::Kept(index);
        }
        let blueprint = Arc::get_mut(&mut nf.blueprint).expect("the new plan has no other owner");
        match blueprint.renew(&*old.blueprint) {
            Some(renewal) => Heir::Renewed(index, renewal),
            None => Heir::Replaced(index),
        }
    }
}

/// For each new port: the running one that is the same.
fn pairs<T>(new: &[T], running: &[T], same: fn(&T, &T) -> bool) -> Vec<Option<usize>> {
    let mut pairs = Vec::with_capacity(new.len());
    for new in new {
        let is_free = |at: &usize| !pairs.contains(&Some(*at)) && same(new, &running[*at]);
        pairs.push((0..running.len()).find(is_free));
    }
    pairs
}

/// Inputs are the same only under the same name, which routes and rules know.
fn same_input(a: &InputPlan, b: &InputPlan) -> bool {
    a.name == b.name && a.blueprint.is_same(&*b.blueprint)
}

/// Outputs that write the same are the same, whatever their names: their files go on.
fn same_output(a: &OutputPlan, b: &OutputPlan) -> bool {
    a.blueprint.is_same(&*b.blueprint)
}

/// Lets the ports of a new plan go on as those of the running one that they are `paired` with.
fn keep<B: PortBlueprint + ?Sized>(
    new: &mut [PortPlan<B>],
    running: &[PortPlan<B>],
    paired: &[Option<usize>],
) {
    for (port, pair) in new.iter_mut().zip(paired) {
        if let Some(at) = pair {
            port.keep(&running[*at]);
        }
    }
}
