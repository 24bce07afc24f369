//! The socket of the run that is meant.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;

use thalweg_api::{Address, Folders, Listening};

use crate::errors::Failure;

/// The most runs that a message names.
const NAMED: usize = 10;

/// The socket of the run at `address`, or of the only one.
///
/// # Errors
/// When there is none, or several and no address; with the names of those that run.
pub fn socket(folders: &Folders, address: Option<&Address>) -> Result<PathBuf, Failure> {
    let Some(address) = address else { return only(folders) };
    let paths = folders.paths(address);
    let found = paths.into_iter().find(|path| path.exists());
    found.ok_or_else(|| no_run(folders, address))
}

fn only(folders: &Folders) -> Result<PathBuf, Failure> {
    let mut listening = folders.listening();
    match (listening.pop(), listening.is_empty()) {
        (None, _) => {
            let message = "no run has a control socket; expected one of thalweg run with a live \
                           interface or --control";
            Err(Failure::Run(message.into()))
        }
        (Some(only), true) => Ok(only.path),
        (Some(last), false) => {
            listening.push(last);
            let names = names(&listening);
            Err(Failure::Usage(format!(
                "several runs have a control socket; expected -s with one of {names}"
            )))
        }
    }
}

/// There is no run at `address`.
pub fn no_run(folders: &Folders, address: &dyn Display) -> Failure {
    let listening = folders.listening();
    let others = if listening.is_empty() {
        "no run has a control socket".to_owned()
    } else {
        format!("expected one of {}", names(&listening))
    };
    Failure::Run(format!("no run listens at '{address}'; {others}"))
}

/// Whether a connection failed since no server listens.
pub fn is_dead(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

fn names(listening: &[Listening]) -> String {
    let name = |run: &Listening| match run.pid {
        Some(pid) => format!("{} (process {pid})", run.name),
        None => run.name.clone(),
    };
    let mut names: Vec<_> = listening.iter().take(NAMED).map(name).collect();
    if listening.len() > NAMED {
        names.push(format!("{} more", listening.len() - NAMED));
    }
    names.join(", ")
}
