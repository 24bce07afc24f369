//! Snapshots of the counters, shared by all requests.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use thalweg_api::Problem;
use thalweg_api::axum::http::StatusCode;
use thalweg_chain::Plan;
use thalweg_engine::{Control, Report};
use tokio::sync::Mutex;

/// The age up to which a snapshot serves further requests: a worker spends up to a millisecond on
/// one, which must not become its main work when requests flood.
const FRESH: Duration = Duration::from_millis(100);
/// How long the engine may take: a worker may wait for a pipe that is full.
const PATIENCE: Duration = Duration::from_secs(2);

/// The last snapshot. The lock is held while one is taken, so that the requests of that time share
/// it.
#[derive(Default)]
pub(crate) struct Snapshots(Mutex<Option<Snapshot>>);

struct Snapshot {
    at: Instant,
    /// The plan that packets took: what a reload has changed is not shown as it was.
    of: Weak<Plan>,
    report: Arc<Report>,
}

impl Snapshots {
    /// The report of the run up to now, or up to a tenth of a second ago if there was no reload since.
    ///
    /// # Errors
    /// When the engine does not answer.
    pub(crate) async fn now(&self, control: &Arc<Control>) -> Result<Arc<Report>, Problem> {
        let mut last = self.0.lock().await;
        let plan = control.plan().map_or_else(Weak::new, |plan| Arc::downgrade(&plan));
        if let Some(Snapshot { at, of, report }) = &*last
            && at.elapsed() < FRESH
            && of.ptr_eq(&plan)
        {
            return Ok(report.clone());
        }
        let control = control.clone();
        let taken = tokio::task::spawn_blocking(move || control.snapshot(PATIENCE));
        // It has panicked if it cannot be joined: so does the request, which is counted.
        let report = taken.await.expect("taking a snapshot does not panic").ok_or_else(|| {
            let detail = "the engine does not answer: the run ends, or an output blocks it";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).retry_after(1)
        })?;
        let report = Arc::new(report);
        *last = Some(Snapshot { at: Instant::now(), of: plan, report: report.clone() });
        Ok(report)
    }
}
