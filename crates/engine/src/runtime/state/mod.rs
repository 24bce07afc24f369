//! State that a run imports from another before its first packet, and exports after its last.
//!
//! A folder holds a file for each NF that has state (older ones may hold several), a stream of
//! `thalweg_nf::state`, and a [`Manifest`] that lists them, so that no run starts with a part.

mod error;
mod manifest;

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use thalweg_nf::NetworkFunction;
use thalweg_nf::state::{StateError, StateReader, StateWriter};

use super::options::RunOptions;
use crate::course::Course;
use crate::station::Member;
use error::cannot;
use manifest::{Left, Manifest};
use thalweg_chain::{NfPlan, Plan};
use thalweg_source::{counted, create, lock};

pub use error::StateFolderError;

/// The JSON Schema of `state.json` in a folder of exported state.
pub fn state_schema() -> schemars::Schema {
    thalweg_nf::toolkit::output::schema_of::<Manifest>()
}

/// The folders that state is imported from and exported to.
pub(super) struct StateFolders<'a> {
    /// The folder, and its manifest.
    import: Option<(&'a Path, Manifest)>,
    export: Option<&'a Path>,
    /// The folder that is exported to, locked for this run.
    locked: Option<File>,
}

impl<'a> StateFolders<'a> {
    /// Checks that all exported state can be imported, and creates the folder to export to.
    pub(super) fn open(plan: &Plan, options: &'a RunOptions) -> Result<Self, StateFolderError> {
        let mut state = Self { import: None, export: None, locked: None };
        if let Some(folder) = options.import_state.as_deref() {
            let entries = fs::read_dir(folder).map_err(cannot("read the state folder", folder))?;
            let manifest = Manifest::read(folder)?;
            check(plan, folder, &manifest)?;
            for file in manifest.files().map(|name| folder.join(name)) {
                let what = plan.files.written_to(&file);
                refuse(&file, what)?;
            }
            warn_of_others(folder, entries, &manifest);
            state.import = Some((folder, manifest));
        }
        if let Some(folder) = options.export_state.as_deref() {
            let mut nfs = plan.nfs.iter().filter(|nf| is_stateful(nf));
            if let Some(nf) = nfs.find(|nf| !manifest::can_name(&nf.name)) {
                return Err(StateFolderError::Name { nf: nf.name.clone() });
            }
            fs::create_dir_all(folder).map_err(cannot("create the state folder", folder))?;
            for file in exported(plan, folder) {
                for path in [partial(&file), file] {
                    refuse(&path, plan.files.usage(&path))?;
                }
            }
            let locked = File::open(folder).and_then(|open| lock(&open).map(|()| open));
            state.locked = Some(locked.map_err(cannot("use the state folder", folder))?);
            state.export = Some(folder);
        }
        Ok(state)
    }

    /// Lets the NFs import the state of their predecessors.
    pub(super) fn import_all(
        &self,
        plan: &Plan,
        course: &mut Course,
    ) -> Result<(), StateFolderError> {
        let Some((folder, manifest)) = &self.import else { return Ok(()) };
        for Member { nf, function, .. } in course.members_mut() {
            let nf = &plan.nfs[usize::from(nf.0)];
            let left = manifest.nfs.get(&nf.name).filter(|_| is_stateful(nf));
            for n in 0..left.map_or(0, |left| left.instances) {
                let taken = read(&folder.join(manifest::file(&nf.name, n)), nf, &mut **function)?;
                log::info!("NF '{}' imported {}", nf.name, counted(taken, "record"));
            }
        }
        Ok(())
    }

    /// Writes the state of the NFs and publishes it, all of it or, on an error, nothing; returns
    /// whether another run can import it.
    pub(super) fn export_all(
        &self,
        plan: &Plan,
        course: &Course,
    ) -> Result<bool, StateFolderError> {
        let Some(folder) = self.export else { return Ok(false) };
        let manifest = manifest_of(plan);
        let files: Vec<PathBuf> = manifest.files().map(|name| folder.join(name)).collect();
        let clean = || files.iter().for_each(|file| drop(fs::remove_file(partial(file))));
        for Member { nf, function, .. } in course.members() {
            let nf = &plan.nfs[usize::from(nf.0)];
            if is_stateful(nf) {
                let path = partial(&folder.join(manifest::file(&nf.name, 0)));
                write(&path, nf, &**function).inspect_err(|_| clean())?;
            }
        }
        let new = manifest.write(folder).inspect_err(|_| clean());
        let new = new.map_err(cannot("write to the state folder", folder))?;
        let replaced = replace(folder, &new, &files);
        replaced.map_err(cannot("write to the state folder", folder))?;
        Ok(true)
    }
}

/// Checks that the exported state belongs to the NFs of a chain.
fn check(plan: &Plan, folder: &Path, manifest: &Manifest) -> Result<(), StateFolderError> {
    let folder = || folder.to_owned();
    for (name, left) in &manifest.nfs {
        let nf = name.clone();
        let Some(nf_plan) = plan.nfs.iter().find(|nf| nf.name == *name) else {
            let kind = left.kind.clone();
            return Err(StateFolderError::Unknown { folder: folder(), nf, kind });
        };
        if nf_plan.kind.name != left.kind {
            let (found, expected) = (left.kind.clone(), nf_plan.kind.name.to_owned());
            return Err(StateFolderError::Kind { folder: folder(), nf, found, expected });
        }
    }
    // An NF that was added to the chain has no state to continue with.
    for nf in plan.nfs.iter().filter(|nf| is_stateful(nf)) {
        if !manifest.nfs.contains_key(&nf.name) {
            let folder = folder();
            log::warn!("{}: no state of NF '{}'; it starts without", folder.display(), nf.name);
        }
    }
    Ok(())
}

/// The manifest of the state that a run of `plan` exports.
fn manifest_of(plan: &Plan) -> Manifest {
    let nfs = plan.nfs.iter().filter(|nf| is_stateful(nf));
    Manifest::new(
        nfs.map(|nf| (nf.name.clone(), Left { kind: nf.kind.name.to_owned(), instances: 1 })),
    )
}

/// The files that a run of `plan` exports to `folder`.
fn exported(plan: &Plan, folder: &Path) -> Vec<PathBuf> {
    let states = manifest_of(plan).files().map(|name| folder.join(name)).collect::<Vec<_>>();
    states.into_iter().chain([manifest::path(folder)]).collect()
}

/// Refuses a state file that the chain uses for something else.
fn refuse(path: &Path, what: Option<&str>) -> Result<(), StateFolderError> {
    let refused = |what: &str| StateFolderError::InUse { path: path.into(), what: what.into() };
    what.map_or(Ok(()), |what| Err(refused(what)))
}

fn is_stateful(nf: &NfPlan) -> bool {
    nf.kind.state.is_some()
}

/// Warns of files that look like state and are ignored.
fn warn_of_others(folder: &Path, entries: fs::ReadDir, manifest: &Manifest) {
    for name in entries.flatten().map(|entry| entry.file_name()) {
        let is_state = Path::new(&name).extension().is_some_and(|e| e == "state");
        if is_state && !manifest.files().any(|file| *file == *name) {
            log::warn!(
                "{}: ignored, because state.json does not name it",
                folder.join(name).display()
            );
        }
    }
}

/// Replaces the state in `folder` by `files` and the manifest `new`. At no time does the folder
/// hold a manifest with files that are not its own, even if the power fails meanwhile.
fn replace(folder: &Path, new: &Path, files: &[PathBuf]) -> io::Result<()> {
    let sync = || File::open(folder)?.sync_all();
    let before = Manifest::read(folder);
    remove(&manifest::path(folder))?;
    sync()?;
    for stale in before.iter().flat_map(Manifest::files).map(|name| folder.join(name)) {
        remove(&stale)?;
    }
    for file in files {
        fs::rename(partial(file), file)?;
    }
    sync()?;
    fs::rename(new, manifest::path(folder))?;
    sync()
}

/// Removes a file if it exists.
fn remove(path: &Path) -> io::Result<()> {
    fs::remove_file(path).or_else(|e| match e.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(e),
    })
}

/// The path of a file until it is complete.
fn partial(path: &Path) -> PathBuf {
    path.with_extension("partial")
}

fn read(
    path: &Path,
    nf: &NfPlan,
    function: &mut dyn NetworkFunction,
) -> Result<usize, StateFolderError> {
    let mut input = BufReader::new(File::open(path).map_err(cannot("read", path))?);
    let mut take = || {
        let mut reader = StateReader::new(&mut input, nf.kind.name, function.state_version())?;
        let taken = function.import_state(&mut reader)?;
        reader.finish()?;
        Ok(taken)
    };
    take().map_err(|source| StateFolderError::File { path: path.into(), source })
}

fn write(path: &Path, nf: &NfPlan, function: &dyn NetworkFunction) -> Result<(), StateFolderError> {
    let mut out = BufWriter::new(create(path).map_err(cannot("write", path))?);
    let give = |out: &mut BufWriter<File>| -> Result<(), StateError> {
        let mut writer = StateWriter::new(out, nf.kind.name, function.state_version())?;
        function.export_state(&mut writer)?;
        writer.finish()?;
        out.flush()?;
        Ok(out.get_ref().sync_all()?)
    };
    give(&mut out).map_err(|source| StateFolderError::File { path: path.into(), source })
}
