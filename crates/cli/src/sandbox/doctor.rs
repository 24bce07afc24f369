//! What this machine has for sandboxes.

use super::{calls, files, user};

/// A means of the system to confine a run.
pub struct Means {
    pub name: &'static str,
    pub found: bool,
    pub detail: String,
    pub gain: &'static str,
}

/// The means that this machine has, and does not have.
pub fn findings() -> [Means; 3] {
    let usual = user::usual();
    [
        Means {
            name: "Landlock",
            found: files::are_confinable(),
            detail: String::new(),
            gain: "runs open only the files that the chain uses",
        },
        Means {
            name: "seccomp filters",
            found: calls::are_confinable(),
            detail: String::new(),
            gain: "threads that process packets open, connect and start nothing",
        },
        Means {
            name: "user thalweg",
            found: usual.is_some(),
            detail: usual.unwrap_or_else(|| user::REMEDY.into()),
            gain: "live runs of root become this user; [run] user names another",
        },
    ]
}
