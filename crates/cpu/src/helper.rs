//! A thread for work that would hold up packets: memory that the system has to fill or to take back.
//!
//! A large table takes milliseconds to allocate and to free, which a worker must not spend between
//! two batches.

use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc::{self, Sender};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;

use crate::cores;

type Job = Box<dyn FnOnce() + Send>;

/// The way to the thread, which the first job starts; `None` if it cannot be started.
static HELPER: LazyLock<Option<Mutex<Sender<Job>>>> = LazyLock::new(|| {
    let (jobs, queue) = mpsc::channel::<Job>();
    let work = move || {
        // The thread that starts this one may be kept on a core.
        cores::release();
        for job in queue {
            // Whoever waits for the job notices its end; the others still need the thread.
            let _ = panic::catch_unwind(AssertUnwindSafe(job));
        }
    };
    let started = thread::Builder::new().name("helper".into()).spawn(work);
    started.ok().map(|_| Mutex::new(jobs))
});

/// Starts the helper thread, which else the first job starts: a thread that the system forbids to start
/// others may then have jobs, too.
pub fn start() {
    LazyLock::force(&HELPER);
}

/// Runs `job` on the helper thread, after those before it; here and now if the system has no thread
/// for that.
pub fn run(job: impl FnOnce() + Send + 'static) {
    let job: Job = Box::new(job);
    let refused = match &*HELPER {
        Some(jobs) => {
            let jobs = jobs.lock().unwrap_or_else(PoisonError::into_inner);
            jobs.send(job).err().map(|refused| refused.0)
        }
        None => Some(job),
    };
    if let Some(job) = refused {
        job();
    }
}

/// Drops `value`, which may hold much memory, on the helper thread.
pub fn discard(value: impl Send + 'static) {
    run(move || drop(value));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_run_in_order_and_survive_the_panic_of_one() {
        let (done, order) = mpsc::channel();
        for n in 0..5 {
            let done = done.clone();
            run(move || {
                assert!(n != 2, "this job panics");
                done.send((n, thread::current().name().map(str::to_owned))).unwrap();
            });
        }
        discard(done);
        let all: Vec<_> = order.iter().collect();
        let helper = || Some("helper".to_owned());
        assert_eq!(all, [0, 1, 3, 4].map(|n| (n, helper())));
    }
}
