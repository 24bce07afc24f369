//! Threads that process packets, confined: a system call that they must not make is refused, and
//! ends the run with an error that names the NF or port in whose call it was made.
//!
//! The engine marks what a thread serves (`at`). How the system confines a thread is left to the
//! program, see [`Confinement`]; its signal handler reports a refused call by [`refuse`], and the
//! thread notices it when the call of the NF or port returns (`check`).

use std::cell::Cell;
use std::fmt::Debug;
use std::panic;
use std::thread;

use thalweg_chain::{NfIndex, Plan};
use thalweg_source::outside;

/// What confines a run.
pub trait Confinement: Debug + Send + Sync {
    /// Gives up what the run needs no more, now that all its ports are open. Called once, before the
    /// first packet.
    ///
    /// # Errors
    /// Why it cannot; the run does not start.
    fn opened(&self) -> Result<(), String>;

    /// Confines the calling thread, which is about to process packets, to its end.
    ///
    /// # Errors
    /// Why it cannot; the run ends.
    fn confine_thread(&self) -> Result<(), String>;
}

/// What a thread serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Neither an NF nor a port.
    Engine,
    Input(usize),
    Nf(NfIndex),
    Output(usize),
}

thread_local! {
    // Without destructors, so that a signal handler may use them.
    static SERVED: Cell<Place> = const { Cell::new(Place::Engine) };
    static REFUSED: Cell<Option<Refusal>> = const { Cell::new(None) };
}

/// A system call that was refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    call: &'static str,
    place: Place,
}

impl Refusal {
    /// The failure of a run of `plan`.
    pub(crate) fn message(self, plan: &Plan) -> String {
        let who = match self.place {
            Place::Engine => "a worker".to_owned(),
            Place::Input(at) => {
                plan.inputs.get(at).map_or_else(String::new, |i| format!("input '{}'", i.name))
            }
            Place::Nf(nf) => {
                let nf = plan.nfs.get(usize::from(nf.0));
                nf.map_or_else(String::new, |nf| format!("NF '{}' ({})", nf.name, nf.kind.name))
            }
            Place::Output(at) => {
                plan.outputs.get(at).map_or_else(String::new, |o| format!("output '{}'", o.name))
            }
        };
        let call = self.call;
        format!(
            "{who} made the system call '{call}', which the sandbox refuses to threads that process \
             packets; the run was ended"
        )
    }
}

/// Records that the system has refused the `call` of this thread, which ends the run. Safe in a signal
/// handler. The calls of a panic, which may look for the names of functions, are not recorded: the
/// panic ends the run.
pub fn refuse(call: &'static str) {
    if !thread::panicking() && REFUSED.get().is_none() {
        REFUSED.set(Some(Refusal { call, place: SERVED.get() }));
    }
}

/// Does `work` of an NF or a port.
#[inline]
pub(crate) fn at<T>(place: Place, work: impl FnOnce() -> T) -> T {
    let before = SERVED.replace(place);
    let result = work();
    SERVED.set(before);
    result
}

/// Ends what the thread does if one of its system calls was refused, as a panic does, but without its
/// message: the failure of the run has one.
#[inline]
pub(crate) fn check() {
    if let Some(refusal) = REFUSED.get() {
        end(refusal);
    }
}

#[cold]
fn end(refusal: Refusal) -> ! {
    REFUSED.set(None);
    panic::resume_unwind(Box::new(refusal));
}

/// Confines the calling thread, if the run is confined.
///
/// # Errors
/// The failure of the run, if that cannot be done.
pub(crate) fn confine(confinement: Option<&dyn Confinement>) -> Result<(), String> {
    let Some(confinement) = confinement else { return Ok(()) };
    confinement.confine_thread().map_err(|why| format!("sandbox: {why}"))?;
    outside::confine_thread();
    Ok(())
}
