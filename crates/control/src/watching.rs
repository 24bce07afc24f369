//! What `/v1/trace` and `/v1/drops` share: how long packets are observed, and how it ends.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use thalweg_api::axum::http::StatusCode;
use thalweg_api::{Mistake, Place, Problem, Shared};
use thalweg_engine::ObserveError;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};

use crate::handlers::Served;

/// How often is looked for what the engine has recorded, which has room for that of a while: waking
/// a reader for each packet would take the time of the packets.
const PERIOD: Duration = Duration::from_millis(20);
/// The shortest and the longest time, in seconds.
const SECONDS: (f64, f64) = (0.1, 3600.0);

/// Why packets are no longer observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EndOf {
    /// There are as many as requested.
    Count,
    /// The time is over.
    Time,
    /// The run ends.
    Run,
}

/// The times at which a request looks for packets, until its own time is over.
pub(crate) struct Looks {
    ticks: Interval,
    end: Instant,
    shared: Shared,
}

impl Looks {
    /// The looks of a request that lasts for `seconds`.
    ///
    /// # Errors
    /// When they are out of range.
    pub(crate) fn new(seconds: f64, shared: Shared) -> Served<Self> {
        let (least, most) = SECONDS;
        if !(least..=most).contains(&seconds) {
            let message = format!("time of {seconds} s");
            return Err(mistake("seconds", message, format!("{least} to {most}")));
        }
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self { ticks, end: Instant::now() + Duration::from_secs_f64(seconds), shared })
    }

    /// Waits for the next look; returns why it is the last one, if it is. `None` if the client has
    /// gone.
    pub(crate) async fn next(&mut self, closed: impl Future<Output = ()>) -> Option<Option<EndOf>> {
        tokio::select! {
            () = closed => None,
            _ = self.ticks.tick() => Some(None),
            () = sleep_until(self.end) => Some(Some(EndOf::Time)),
            () = self.shared.closing() => Some(Some(EndOf::Run)),
        }
    }
}

/// A parameter is wrong.
pub(crate) fn mistake(parameter: &str, message: String, expected: String) -> Problem {
    let mistake = Mistake { place: Place::Parameter(parameter.into()), message, expected };
    Problem::mistake(StatusCode::BAD_REQUEST, mistake)
}

/// Why packets are not observed.
pub(crate) fn refused(error: ObserveError) -> Problem {
    let parameter = match &error {
        ObserveError::Pattern { .. } => "pattern",
        ObserveError::Nf { .. } => "nf",
        ObserveError::Count(_) => "count",
        _ => {
            let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string());
            return problem.retry_after(1);
        }
    };
    let expected = error.expected().unwrap_or_default().into_owned();
    mistake(parameter, error.message(), expected)
}
