//! The thread that follows the kernel, and its figures.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::feed::{Feed, Woken};
use super::follow::Follow;
use crate::prefix::IpPrefix;
use crate::table::TableError;

/// The longest wait for changes, after which memory is freed that the router no longer uses.
const IDLE: Duration = Duration::from_secs(1);
/// The least time between two dumps.
const BETWEEN_DUMPS: Duration = Duration::from_millis(100);
/// The most datagrams that are taken before their changes are published.
const MOST_TAKEN: usize = 1024;
/// The error of a socket whose buffer was full: changes are lost. The same on all architectures of
/// Linux that Rust supports but MIPS and SPARC.
const ENOBUFS: i32 = 105;
/// The longest wait for the first dump before packets pass.
const FIRST_DUMP: Duration = Duration::from_secs(60);

/// What a follower has done, for the report.
#[derive(Debug, Default)]
pub(super) struct Progress {
    changes: AtomicU64,
    dumps: AtomicU64,
    lost: AtomicU64,
    errors: AtomicU64,
    refused: AtomicU64,
    no_port: AtomicU64,
    neighbors: AtomicU64,
    lag_us: AtomicU64,
    lag_most_us: AtomicU64,
    /// Whether a route that does not fit was reported.
    has_warned: AtomicBool,
}

impl Progress {
    pub(super) fn count_change(&self) {
        self.changes.fetch_add(1, Relaxed);
    }

    pub(super) fn count_malformed(&self) {
        self.errors.fetch_add(1, Relaxed);
    }

    pub(super) fn set_no_port(&self, prefixes: usize) {
        self.no_port.store(prefixes as u64, Relaxed);
    }

    pub(super) fn set_neighbors(&self, neighbors: usize) {
        self.neighbors.store(neighbors as u64, Relaxed);
    }

    /// Counts a change that the table has no room for.
    pub(super) fn refuse(&self, prefix: IpPrefix, error: TableError) {
        self.refused.fetch_add(1, Relaxed);
        if !self.has_warned.swap(true, Relaxed) {
            log::warn!(
                "router: cannot take the kernel's route {prefix}: {error}; see 'kernel_refused'"
            );
        }
    }

    /// Notes the time that changes have waited until they were published.
    fn set_lag(&self, lag: Duration) {
        let lag = lag.as_micros() as u64;
        self.lag_us.store(lag, Relaxed);
        self.lag_most_us.fetch_max(lag, Relaxed);
    }
}

/// A running follower; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Follower {
    progress: Arc<Progress>,
    /// The thread sees its other end close.
    stop: Option<Stop>,
    thread: Option<JoinHandle<()>>,
}

/// Closes the connection that a feed waits for.
#[derive(Debug)]
pub(crate) struct Stop(
    #[expect(dead_code, reason = "it is held, to be closed")]
    pub(super)  std::os::unix::net::UnixStream,
);

impl Follower {
    /// Starts a thread, and waits for its first dump.
    pub(crate) fn start(follow: Follow, feed: Box<dyn Feed>, stop: Stop) -> Self {
        let progress = Arc::clone(&follow.progress);
        let (ready, is_ready) = mpsc::channel();
        let builder = std::thread::Builder::new().name("kernel-routes".into());
        let thread = builder.spawn(move || run(follow, feed, &ready));
        match &thread {
            Ok(_) => {
                if is_ready.recv_timeout(FIRST_DUMP).is_err() {
                    log::warn!("router: the kernel has not dumped its routes yet");
                }
            }
            Err(error) => log::error!("router: cannot start the thread for kernel routes: {error}"),
        }
        Self { progress, stop: Some(stop), thread: thread.ok() }
    }

    /// Figures for the report.
    pub(crate) fn figures(&self) -> [(&'static str, u64); 9] {
        let p = &*self.progress;
        let of = |count: &AtomicU64| count.load(Relaxed);
        [
            ("kernel_changes", of(&p.changes)),
            ("kernel_dumps", of(&p.dumps)),
            ("kernel_lost", of(&p.lost)),
            ("kernel_errors", of(&p.errors)),
            ("kernel_refused", of(&p.refused)),
            ("kernel_no_port", of(&p.no_port)),
            ("kernel_neighbors", of(&p.neighbors)),
            ("kernel_lag_us", of(&p.lag_us)),
            ("kernel_lag_max_us", of(&p.lag_most_us)),
        ]
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        drop(self.stop.take());
        // Its panic was printed.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Follows until the feed stops.
fn run(mut follow: Follow, mut feed: Box<dyn Feed>, ready: &mpsc::Sender<()>) {
    let mut next_dump = Instant::now();
    loop {
        let now = Instant::now();
        if follow.is_doubtful() && now >= next_dump {
            match follow.synchronize(&mut *feed) {
                Ok(()) => {
                    follow.progress.dumps.fetch_add(1, Relaxed);
                    // Whoever has started this thread may have stopped waiting.
                    let _ = ready.send(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return,
                Err(error) => {
                    follow.progress.errors.fetch_add(1, Relaxed);
                    log::warn!("router: cannot dump the kernel's routes: {error}");
                }
            }
            // While changes come faster than dumps, most of the time goes into changes.
            next_dump = Instant::now() + (2 * now.elapsed()).max(BETWEEN_DUMPS);
        }
        let most = if follow.is_doubtful() { next_dump - Instant::now() } else { IDLE };
        let error = match feed.wait(most) {
            Ok(Woken::Changes) => match take_all(&mut follow, &mut *feed) {
                Ok(()) => continue,
                Err(error) => error,
            },
            Ok(Woken::Nothing) => {
                follow.settle();
                continue;
            }
            Ok(Woken::Stop) => return,
            Err(error) => error,
        };
        follow.progress.errors.fetch_add(1, Relaxed);
        log::error!("router: no longer follows the kernel's routes: {error}");
        return;
    }
}

/// Takes and publishes changes until none waits.
///
/// # Errors
/// If none can be received any more.
fn take_all(follow: &mut Follow, feed: &mut dyn Feed) -> io::Result<()> {
    // The first change has arrived about now, later ones have waited for less long.
    let arrived = Instant::now();
    let (mut datagram, mut is_more) = (Vec::new(), true);
    while is_more {
        for _ in 0..MOST_TAKEN {
            match feed.receive(&mut datagram) {
                Ok(true) => follow.take(&datagram),
                Ok(false) => {
                    is_more = false;
                    break;
                }
                Err(error) if error.raw_os_error() == Some(ENOBUFS) => {
                    follow.progress.lost.fetch_add(1, Relaxed);
                    follow.doubt();
                }
                Err(error) => return Err(error),
            }
        }
        follow.publish();
        follow.progress.set_lag(arrived.elapsed());
    }
    follow.settle();
    Ok(())
}
