//! The user that a run started by root becomes once its ports are open.

use std::ffi::CString;
use std::fs::OpenOptions;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;
use std::thread;

use nix::unistd::{self, Gid, Uid};
use rustix::thread as own;
use thalweg_chain::Plan;
use thalweg_source::{SourceError, end_of_links};

use crate::errors::Failure;

/// The user of live runs, where it exists; `packaging/systemd` creates it.
const USUAL: &str = "thalweg";

/// What makes runs of root another user's.
pub const REMEDY: &str = "useradd --system --shell /usr/sbin/nologin thalweg creates it; or name \
                          another: user = \"NAME\" in [run]";

/// Whether the run of `plan` becomes the usual user if it exists: a live one of root that names no other.
pub fn wants_usual(plan: &Plan) -> bool {
    let is_live = plan.inputs.iter().any(|input| input.blueprint.is_live());
    is_live && plan.user.is_none() && Uid::effective().is_root()
}

/// A user, with the groups that it is in.
#[derive(Debug)]
pub struct User {
    pub name: String,
    id: Uid,
    group: Gid,
    groups: Vec<Gid>,
}

impl User {
    /// The user that the run of `plan` becomes: `user` of `[run]`; else, of a live run, the usual one
    /// if it exists. `None` if the program stays what it is.
    ///
    /// # Errors
    /// A user that does not exist, or that the program cannot become.
    pub fn of(plan: &Plan) -> Result<Option<Self>, Failure> {
        let Some((name, place)) = &plan.user else {
            // One that cannot be looked up is treated as one that does not exist.
            return Ok(if wants_usual(plan) { find(USUAL).ok().flatten() } else { None });
        };
        let mistake = |message: String, expected: &str| {
            Err(Failure::Configuration(vec![place.error(message, expected)]))
        };
        match find(name) {
            Err(why) => {
                mistake(format!("cannot look up user '{name}': {why}"), "a user of this system")
            }
            Ok(None) => mistake(format!("there is no user '{name}'"), "a user of this system"),
            Ok(Some(user)) if user.id == Uid::effective() => Ok(None),
            Ok(Some(_)) if !Uid::effective().is_root() => {
                let message = format!("only root can become user '{name}'");
                mistake(message, "a run that root starts, or no 'user'")
            }
            Ok(Some(user)) => Ok(Some(user)),
        }
    }

    /// Returns the result of `check` as this user finds it.
    ///
    /// # Errors
    /// When a thread cannot become this user.
    pub fn check<T: Send>(&self, check: impl FnOnce() -> T + Send) -> Result<T, String> {
        // Unlike the C library's calls, these change only the thread that makes them.
        let work = || {
            let groups: Vec<_> = self.groups.iter().map(|group| id_of_group(*group)).collect();
            let (user, group) = (own::Uid::from_raw(self.id.as_raw()), id_of_group(self.group));
            own::set_thread_groups(&groups)?;
            own::set_thread_res_gid(group, group, group)?;
            own::set_thread_res_uid(user, user, user)?;
            Ok(check())
        };
        let outcome = thread::scope(|scope| scope.spawn(work).join());
        let outcome = outcome.map_err(|_| "a thread has panicked".to_owned())?;
        outcome.map_err(|e: rustix::io::Errno| format!("cannot become user '{}': {e}", self.name))
    }

    /// Errors about files that this user may not create or rename while packets pass.
    ///
    /// # Errors
    /// When a thread cannot become this user.
    pub fn check_files(&self, plan: &Plan) -> Result<Vec<SourceError>, String> {
        self.check(|| plan.files.check_later(&self.name))
    }

    /// Gives this user the file at `path` if root owns it and it has no other name, so that the user
    /// can open it again: at a reload, or after another program has renamed it.
    pub fn own(&self, path: &Path) {
        let options = &mut OpenOptions::new();
        options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let Ok(file) = options.open(end_of_links(path)) else { return };
        let is_roots = file.metadata().is_ok_and(|m| m.is_file() && m.nlink() == 1 && m.uid() == 0);
        if is_roots {
            // A file system may have no owners.
            let _ = fchown(&file, Some(self.id.as_raw()), Some(self.group.as_raw()));
        }
    }

    /// Lets the whole program become this user, without a way back.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn become_it(&self) -> Result<(), String> {
        let failed = |e| format!("cannot become user '{}': {e}", self.name);
        unistd::setgroups(&self.groups).map_err(failed)?;
        unistd::setresgid(self.group, self.group, self.group).map_err(failed)?;
        unistd::setresuid(self.id, self.id, self.id).map_err(failed)
    }

    /// The numbers of the user and of its group.
    pub fn ids(&self) -> (u32, u32) {
        (self.id.as_raw(), self.group.as_raw())
    }
}

fn id_of_group(group: Gid) -> own::Gid {
    own::Gid::from_raw(group.as_raw())
}

/// Looks a user up.
///
/// # Errors
/// Why it cannot be looked up.
fn find(name: &str) -> Result<Option<User>, String> {
    let Some(found) = unistd::User::from_name(name).map_err(|e| e.to_string())? else {
        return Ok(None);
    };
    let text = CString::new(name).map_err(|e| e.to_string())?;
    let groups = unistd::getgrouplist(&text, found.gid).map_err(|e| e.to_string())?;
    Ok(Some(User { name: name.to_owned(), id: found.uid, group: found.gid, groups }))
}

/// The name of the user that the program is, or its number.
pub fn current() -> String {
    let id = Uid::effective();
    let found = unistd::User::from_uid(id).ok().flatten();
    found.map_or_else(|| id.to_string(), |user| user.name)
}

/// The number of the usual user, if it exists.
pub fn usual() -> Option<String> {
    find(USUAL).ok().flatten().map(|user| format!("uid {}", user.id))
}
