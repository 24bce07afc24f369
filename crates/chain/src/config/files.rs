//! The files that a chain reads and writes: none may be overwritten that has another use.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use thalweg_io::{STANDARD_INPUT, Searched};
use thalweg_source::{FileIdentity, OutputFile, Passage, SourceError, check_folder, misplaced};

use super::exclusion::Exclusion;

/// All files that a chain file and those that it includes name, and these files themselves.
#[derive(Debug)]
pub struct Files {
    /// When the first of them was about to be read, or somewhat later.
    began: SystemTime,
    /// Each file, and what it is: "the file that input 'a' reads".
    read: Vec<(FileIdentity, String)>,
    /// The inputs that read what another part of the chain reads too, and can be read only once.
    read_twice: Vec<SourceError>,
    /// Where inputs look for captures, and what they find: "those that input 'a' reads".
    searched: Vec<(Searched, String)>,
    written: Vec<Written>,
    /// For each file that rotates, the paths to which it is renamed, and the option that names it.
    renamed: Vec<(Vec<PathBuf>, Passage)>,
    of_nfs: Vec<OutputFile>,
    /// Those whose content makes the chain.
    watched: Vec<PathBuf>,
}

#[derive(Debug)]
struct Written {
    file: OutputFile,
    identity: FileIdentity,
    exclusion: Exclusion,
    /// Whether a port writes it: its bytes make one capture, and lines of NFs would break it.
    is_of_port: bool,
    /// What another writer would overwrite: "the file that output 'a' writes".
    what: String,
    /// The option that names it.
    option: Passage,
}

impl Files {
    /// None yet; those that are added are read from now on.
    pub(super) fn new() -> Self {
        Self {
            began: SystemTime::now(),
            read: Vec::new(),
            read_twice: Vec::new(),
            searched: Vec::new(),
            written: Vec::new(),
            renamed: Vec::new(),
            of_nfs: Vec::new(),
            watched: Vec::new(),
        }
    }

    /// Adds a file that an input reads.
    pub(super) fn traffic(&mut self, path: &Path, option: Passage, what: String) {
        let identity = FileIdentity::of(path);
        let is_read_once =
            path == Path::new(STANDARD_INPUT) || Exclusion::of(path) == Exclusion::Pipe;
        if is_read_once && let Some(other) = self.read_as(&identity) {
            let message = format!("this can be read only once, and is {other}");
            self.read_twice.push(option.error(message, "a capture of its own"));
        }
        self.read.push((identity, what));
    }

    /// Adds a file whose content makes the chain.
    pub(super) fn read(&mut self, path: &Path, what: impl Into<String>) {
        self.read.push((FileIdentity::of(path), what.into()));
        self.watched.push(path.to_owned());
    }

    /// Adds a place where an input looks for its files.
    pub(super) fn searched(&mut self, place: Searched, what: String) {
        self.searched.push((place, what));
    }

    /// Adds a file that a port writes.
    pub(super) fn written_by_port(&mut self, file: OutputFile, option: Passage, what: String) {
        self.written(file, option, what, true);
    }

    fn written(&mut self, file: OutputFile, option: Passage, what: String, is_of_port: bool) {
        let (identity, exclusion) = (FileIdentity::of(file.path()), Exclusion::of(file.path()));
        self.written.push(Written { file, identity, exclusion, is_of_port, what, option });
    }

    /// Adds a file that an NF writes.
    pub(super) fn written_by_nf(&mut self, file: OutputFile, option: Passage, nf: &str) {
        self.written(file.clone(), option, format!("the file that NF '{nf}' writes"), false);
        self.of_nfs.push(file);
    }

    /// Adds the paths to which a file is renamed.
    pub(super) fn renamed(&mut self, paths: Vec<PathBuf>, option: Passage) {
        self.renamed.push((paths, option));
    }

    /// The files whose content makes the chain: the chain file, those that it includes, of routes, of
    /// rules, and those that NFs read.
    pub fn watched(&self) -> &[PathBuf] {
        &self.watched
    }

    /// When they began to be read: one that has changed since then may have been read before it did. The chain
    /// file itself is read a moment earlier.
    pub fn began(&self) -> SystemTime {
        self.began
    }

    /// The folders where inputs look for captures.
    pub fn searched_folders(&self) -> impl Iterator<Item = PathBuf> {
        self.searched.iter().map(|(place, _)| place.start())
    }

    /// An error for each file that a run has to create or rename while packets pass, and that `user`,
    /// as which the calling thread acts, may not.
    pub fn check_later(&self, user: &str) -> Vec<SourceError> {
        let replaced = self.written.iter().filter(|written| written.file.is_replaced());
        let replaced = replaced.filter_map(|Written { file, option, .. }| {
            let message = format!("user '{user}' cannot write this file: {}", file.check().err()?);
            Some(
                option
                    .error(message, "a file that this user may write, or another 'user' in [run]"),
            )
        });
        let renamed =
            self.renamed.iter().filter_map(|(paths, option)| {
                let refusal = check_folder(paths.first()?).err()?;
                let message = format!("user '{user}' cannot rename this file: {refusal}");
                Some(option.error(
                    message,
                    "a folder that this user may write, or another 'user' in [run]",
                ))
            });
        replaced.chain(renamed).collect()
    }

    /// The files that NFs write.
    pub fn outputs_of_nfs(&self) -> &[OutputFile] {
        &self.of_nfs
    }

    /// Opens the files that NFs write again, where another program has renamed or removed them. One
    /// that cannot be opened is continued as it is, with a warning in the log.
    pub fn reopen(&self) {
        for file in &self.of_nfs {
            let path = file.path().display();
            match file.reopen() {
                Ok(true) => log::info!("{path} was renamed or removed, and is opened again"),
                Ok(false) => {}
                Err(e) => log::warn!("cannot open {path} again: {e}; the old file is continued"),
            }
        }
    }

    /// Adds an error for each file that would be overwritten, or read by two that need it for
    /// themselves.
    pub(super) fn check(&self, errors: &mut Vec<SourceError>) {
        errors.extend(self.read_twice.iter().cloned());
        for (n, written) in self.written.iter().enumerate() {
            let Written { file, identity, exclusion, is_of_port, option, .. } = written;
            // Lines of several NFs may share a pipe.
            let excludes = |other: &&Written| {
                let is_shared = *exclusion == Exclusion::Pipe && !is_of_port && !other.is_of_port;
                other.identity == *identity && !is_shared
            };
            let before = || self.written[..n].iter().find(excludes).map(|other| &*other.what);
            let what = match exclusion {
                Exclusion::None => None,
                _ => self.read_as(identity).or_else(before),
            };
            if let Some(what) = what {
                let message = format!("this would overwrite {what}");
                errors.push(option.error(message, "a file of its own"));
            } else if *exclusion == Exclusion::File
                && let Some(what) = self.found_as(file.path())
            {
                // The next run would read it, or refuse to overwrite it.
                let message = format!("this file would be among {what}");
                errors.push(option.error(message, "a file elsewhere"));
            }
        }
        self.check_renamed(errors);
    }

    /// Adds an error for each file that would be renamed to one that has another use.
    fn check_renamed(&self, errors: &mut Vec<SourceError>) {
        for (paths, option) in &self.renamed {
            let conflict = paths.iter().find_map(|path| {
                let found = || self.found_as(path).map(|what| format!("be among {what}"));
                let used = self.usage(path).map(|what| format!("overwrite {what}"));
                Some((path.display(), used.or_else(found)?))
            });
            if let Some((path, what)) = conflict {
                let message = format!("this file is renamed, and {path} would {what}");
                errors.push(option.error(message, "a file of another name"));
            }
        }
    }

    /// What a search for captures finds that also finds the file at `path`.
    fn found_as(&self, path: &Path) -> Option<&str> {
        let finds = |(place, _): &&(Searched, String)| place.finds(path);
        self.searched.iter().find(finds).map(|(_, what)| &**what)
    }

    /// Adds an error for each file that a run may not write.
    pub(super) fn check_access(&self, errors: &mut Vec<SourceError>) {
        // Others are reported already.
        let placed = self.written.iter().filter(|written| misplaced(written.file.path()).is_none());
        for Written { file, option, .. } in placed {
            if let Err(e) = file.check() {
                let message = format!("cannot write this file: {e}");
                errors.push(option.error(message, "a writable file"));
            }
        }
        for (paths, option) in &self.renamed {
            let placed = paths.first().filter(|path| misplaced(path).is_none());
            if let Some(Err(e)) = placed.map(|path| check_folder(path)) {
                let message = format!("cannot rename this file: {e}");
                errors.push(option.error(message, "a folder that can be written, or no 'rotate'"));
            }
        }
    }

    /// What the chain uses the file at `path` for, if it reads or writes it.
    pub fn usage(&self, path: &Path) -> Option<&str> {
        let identity = FileIdentity::of(path);
        self.read_as(&identity).or_else(|| written_as(&self.written, &identity))
    }

    /// What the chain writes to the file at `path`, if it does.
    pub fn written_to(&self, path: &Path) -> Option<&str> {
        written_as(&self.written, &FileIdentity::of(path))
    }

    fn read_as(&self, identity: &FileIdentity) -> Option<&str> {
        self.read.iter().find(|(other, _)| other == identity).map(|(_, what)| &**what)
    }
}

fn written_as<'a>(files: &'a [Written], identity: &FileIdentity) -> Option<&'a str> {
    files.iter().find(|file| file.identity == *identity).map(|file| &*file.what)
}
