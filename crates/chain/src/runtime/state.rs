//! State that a run takes over from another before its first packet, and leaves behind its last.
//!
//! A folder holds a file for each instance of each NF that has state: `NF.INSTANCE.state`, a
//! stream of `thalweg_nf::state`.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use thalweg_nf::state::{StateError, StateReader, StateWriter};
use thalweg_nf::{Kind, NetworkFunction};

use crate::config::{NfPlan, Plan};
use crate::route_decider::NfIndex;

/// Why a run cannot take over state, or leave it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateFolderError {
    /// A file is damaged, or of another NF.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: StateError,
    },
    /// Flows were spread over another number of workers.
    #[error(
        "{folder}: '{nf}' left the state of {found} instances, and has {expected} now; \
         expected as many workers as then, or one"
    )]
    Instances {
        /// The folder.
        folder: PathBuf,
        /// The NF.
        nf: String,
        /// Instances whose state is there.
        found: usize,
        /// Instances that there are.
        expected: usize,
    },
}

/// Where state comes from and goes to.
#[derive(Clone, Copy)]
pub(super) struct StateFolders<'a> {
    plan: &'a Plan,
    workers: usize,
    import: Option<&'a Path>,
    export: Option<&'a Path>,
}

impl<'a> StateFolders<'a> {
    pub(super) fn new(plan: &'a Plan, workers: usize, options: &'a super::RunOptions) -> Self {
        let (import, export) = (options.import_state.as_deref(), options.export_state.as_deref());
        Self { plan, workers, import, export }
    }

    /// Has instance `number` of an NF take over what its predecessors left.
    pub(super) fn import(
        &self,
        nf: NfIndex,
        number: usize,
        function: &mut dyn NetworkFunction,
    ) -> Result<(), StateFolderError> {
        let (Some(folder), Some(nf)) = (self.import, self.stateful(nf)) else { return Ok(()) };
        let there = |n: &usize| file(folder, nf, *n).exists();
        let found = (0..super::MAX_WORKERS).take_while(there).count();
        let instances = self.instances(nf);
        if found == 0 {
            log::info!("{}: no state of '{}'", folder.display(), nf.name);
        }
        if instances > 1 && found > 0 && found != instances {
            return Err(StateFolderError::Instances {
                folder: folder.into(),
                nf: nf.name.clone(),
                found,
                expected: instances,
            });
        }
        let mine = if instances > 1 { number..found.min(number + 1) } else { 0..found };
        for n in mine {
            let path = file(folder, nf, n);
            let taken = read(&path, nf, function);
            let taken = taken.map_err(|source| StateFolderError::File { path, source })?;
            log::info!("'{}' takes over {taken} records", nf.name);
        }
        Ok(())
    }

    /// Leaves the state of instance `number` of an NF; its file is there as a whole or not at all.
    pub(super) fn export(
        &self,
        nf: NfIndex,
        number: usize,
        function: &dyn NetworkFunction,
    ) -> Result<(), StateFolderError> {
        let (Some(folder), Some(nf)) = (self.export, self.stateful(nf)) else { return Ok(()) };
        let path = file(folder, nf, number);
        let partial = path.with_extension("partial");
        let written = write(&partial, nf, function)
            .and_then(|()| fs::rename(&partial, &path).map_err(StateError::from));
        // What more instances left before is not to be taken over once more.
        let stale = (self.instances(nf)..super::MAX_WORKERS).map(|n| file(folder, nf, n));
        let written = written.and_then(|()| Ok(remove(stale)?));
        written.map_err(|source| StateFolderError::File { path, source })
    }

    fn instances(&self, nf: &NfPlan) -> usize {
        if nf.has_own_worker(self.workers) { 1 } else { self.workers }
    }

    /// Looks whether the folders are there, and makes that to export to.
    pub(super) fn prepare(&self) -> Result<(), StateFolderError> {
        let make = self.export.map(|folder| (folder, fs::create_dir_all(folder)));
        let look = self.import.map(|folder| (folder, fs::read_dir(folder).map(drop)));
        for (folder, done) in make.into_iter().chain(look) {
            let fail =
                |e| StateFolderError::File { path: folder.into(), source: StateError::Io(e) };
            done.map_err(fail)?;
        }
        Ok(())
    }

    fn stateful(&self, nf: NfIndex) -> Option<&'a NfPlan> {
        let nf = self.plan.nfs.get(usize::from(nf.0))?;
        Kind::find(&nf.kind).filter(|kind| kind.has_state()).map(|_| nf)
    }
}

/// Removes files up to the first that is not there.
fn remove(mut files: impl Iterator<Item = PathBuf>) -> io::Result<()> {
    files.try_for_each(fs::remove_file).or_else(|e| match e.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(e),
    })
}

fn file(folder: &Path, nf: &NfPlan, number: usize) -> PathBuf {
    folder.join(format!("{}.{number}.state", nf.name))
}

fn read(path: &Path, nf: &NfPlan, function: &mut dyn NetworkFunction) -> Result<usize, StateError> {
    let mut input = BufReader::new(File::open(path)?);
    let version = function.state_version();
    function.import_state(&mut StateReader::new(&mut input, &nf.kind, version)?)
}

fn write(path: &Path, nf: &NfPlan, function: &dyn NetworkFunction) -> Result<(), StateError> {
    let mut out = BufWriter::new(File::create(path)?);
    let mut writer = StateWriter::new(&mut out, &nf.kind, function.state_version())?;
    function.export_state(&mut writer)?;
    writer.finish()?;
    out.flush()?;
    Ok(out.get_ref().sync_all()?)
}
