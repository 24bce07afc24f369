//! Work for threads that the sandbox confines: a thread that is not confined opens their files and
//! starts their threads.
//!
//! A sandboxed run confines the threads that process packets ([`confine_thread`]): the kernel lets
//! them open nothing and start nothing. What such a thread needs all the same, the next file of a
//! rotation for instance, it requests here, and waits for it. On any other thread the work is done
//! in place, so that callers need not know.
#![allow(unsafe_code)] // work borrows from the thread that waits for it

use std::cell::Cell;
use std::io;
use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};

type Job = Box<dyn FnOnce() + Send>;
type Jobs = OnceLock<Mutex<Sender<Job>>>;

/// The way to the thread that works for confined threads.
static OUTSIDE: Jobs = OnceLock::new();
/// The way to the thread that keeps the privileges of the start.
static PRIVILEGED: Jobs = OnceLock::new();

thread_local! {
    static IS_CONFINED: Cell<bool> = const { Cell::new(false) };
    static IS_PRIVILEGED: Cell<bool> = const { Cell::new(false) };
}

/// Starts the thread that works for confined threads, with what the calling thread is permitted.
/// Does nothing if it runs already.
///
/// # Errors
/// When the system refuses to start a thread.
pub fn start() -> io::Result<()> {
    start_thread("outside", &OUTSIDE, || {})
}

/// Starts the thread for [`privileged`] work, with the privileges of the calling thread. Does nothing
/// if it runs already.
///
/// # Errors
/// When the system refuses to start a thread.
pub fn start_privileged() -> io::Result<()> {
    start_thread("privileged", &PRIVILEGED, || IS_PRIVILEGED.set(true))
}

fn start_thread(
    name: &str,
    jobs: &'static Jobs,
    begin: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    if jobs.get().is_some() {
        return Ok(());
    }
    let (sender, queue) = mpsc::channel::<Job>();
    let work = move || {
        begin();
        queue.iter().for_each(|job| job());
    };
    thread::Builder::new().name(name.into()).spawn(work)?;
    // A second thread, of two calls at once, ends with its queue.
    let _ = jobs.set(Mutex::new(sender));
    Ok(())
}

/// Marks the calling thread as confined: from now on its work is done elsewhere.
pub fn confine_thread() {
    IS_CONFINED.set(true);
}

/// Does `work`, on a thread that is not confined; waits for it. The work must be short: that of all
/// confined threads is done in turn.
///
/// # Panics
/// If `work` does.
pub fn call<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    match OUTSIDE.get() {
        Some(jobs) if IS_CONFINED.get() => hand_over(jobs, work),
        _ => work(),
    }
}

/// Starts a thread, which is not confined even if the calling one is.
///
/// # Errors
/// When the system refuses to start it.
pub fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    call(|| thread::Builder::new().name(name.into()).spawn(work))
}

/// Does `work` with the privileges that the program keeps for it, such as opening a network
/// interface, which no other thread has; waits for it. The work must be short, and must not start a
/// thread, which would inherit the privileges.
///
/// # Panics
/// If `work` does.
pub fn privileged<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    match PRIVILEGED.get() {
        Some(_) if IS_PRIVILEGED.get() => work(),
        Some(jobs) => hand_over(jobs, work),
        None => call(work),
    }
}

/// Has the thread of `jobs` do `work`, and waits for it.
fn hand_over<T: Send>(jobs: &Mutex<Sender<Job>>, work: impl FnOnce() -> T + Send) -> T {
    let (done, outcome) = mpsc::sync_channel(1);
    let job: Box<dyn FnOnce() + Send + '_> = Box::new(move || {
        let result = panic::catch_unwind(AssertUnwindSafe(work));
        // It waits for the result until it has it.
        let _ = done.send(result);
    });
    // SAFETY: only the lifetime changes. The job, with all that it borrows, has run or was dropped
    // when `recv` returns, because the job alone holds the other end of the channel and sends on it
    // last; and this function returns only then.
    let job: Job = unsafe { mem::transmute::<Box<dyn FnOnce() + Send + '_>, Job>(job) };
    let refused = jobs.lock().unwrap_or_else(PoisonError::into_inner).send(job).err();
    // Its thread never ends. Were it gone, the work would be done here, and the sandbox decides.
    if let Some(refused) = refused {
        (refused.0)();
    }
    match outcome.recv().expect("the job sends its result") {
        Ok(result) => result,
        Err(cause) => panic::resume_unwind(cause),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> Option<String> {
        thread::current().name().map(str::to_owned)
    }

    #[test]
    fn confined_threads_have_their_work_done_elsewhere_and_others_do_it_themselves() {
        start().unwrap();
        let own = name();
        assert_eq!(call(name), own);
        let confined = thread::Builder::new().name("confined".into()).spawn(|| {
            confine_thread();
            let mut borrowed = vec![1];
            call(|| borrowed.push(2));
            assert_eq!(borrowed, [1, 2]);
            let started = spawn("started", name).unwrap().join().unwrap();
            let panicked = panic::catch_unwind(|| call(|| panic!("on purpose"))).is_err();
            (call(name), started, panicked, call(|| 5))
        });
        let (outside, started, panicked, after) = confined.unwrap().join().unwrap();
        assert_eq!((outside.as_deref(), started.as_deref()), (Some("outside"), Some("started")));
        assert!(panicked && after == 5, "a panic of the work is one of its caller");
    }
}
