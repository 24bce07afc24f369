//! `/v1/reload`: reloads the chain file of the run.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thalweg_api::axum::extract::State as Of;
use thalweg_api::axum::http::StatusCode;
use thalweg_api::{Body, Json, Mistake, Place, Problem, Shared};
use thalweg_chain::Difference;
use thalweg_engine::{Reload, ReloadError};
use thalweg_source::{SourceError, shortened};

use crate::handlers::{Api, Served};

/// How long a client waits: large rule sets take a while.
const PATIENCE: Duration = Duration::from_secs(300);
/// The most mistakes in a problem.
const MAX_MISTAKES: usize = 100;
/// The most characters of the text that is wrong.
const QUOTED: usize = 200;

/// How the chain file is reloaded.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Wanted {
    /// Change nothing, and return what would change.
    dry_run: bool,
    /// Let NFs begin without state that they cannot take over.
    accept_loss: bool,
}

/// What a reload has changed, or would change.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Reloaded {
    /// `thalweg.reload/1`.
    #[schemars(extend("const" = "thalweg.reload/1"))]
    pub schema: &'static str,
    /// Whether nothing was changed, as requested.
    pub dry_run: bool,
    /// The parts that differ.
    pub changes: Difference,
    /// The same in words.
    pub text: Vec<String>,
}

pub(crate) async fn reload(
    Of(api): Of<Arc<Api>>,
    shared: Shared,
    Body(Wanted { dry_run, accept_loss }): Body<Wanted>,
) -> Served<Json<Reloaded>> {
    let Ok(permit) = api.reloading.clone().try_acquire_owned() else {
        let detail = "another reload is under way";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).retry_after(1));
    };
    shared.allow(PATIENCE);
    let control = api.subject.control.clone();
    let work = tokio::task::spawn_blocking(move || {
        // Held until the reload ends, even if its client has gone.
        let _permit = permit;
        control.reload(Reload { dry_run, accept_loss })
    });
    let changes = work.await.expect("waiting for a reload does not panic").map_err(problem)?;
    let text: Vec<_> = changes.0.iter().map(ToString::to_string).collect();
    let done = if dry_run { "would reload" } else { "reloaded" };
    text.iter().for_each(|change| log::info!("{done}, as requested by the control API: {change}"));
    Ok(Json(Reloaded { schema: "thalweg.reload/1", dry_run, changes, text }))
}

fn problem(error: ReloadError) -> Problem {
    let status = match &error {
        ReloadError::Mistakes(_) => StatusCode::UNPROCESSABLE_ENTITY,
        ReloadError::Port(_) | ReloadError::State { .. } => StatusCode::CONFLICT,
        ReloadError::Busy | ReloadError::Ended | ReloadError::Thread(_) => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        // A panic, or an error of a later version.
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let errors = match &error {
        ReloadError::Mistakes(mistakes) => {
            mistakes.iter().take(MAX_MISTAKES).map(mistake).collect()
        }
        _ => Vec::new(),
    };
    log::warn!("not reloaded, as requested by the control API: {error}");
    Problem::new(status, format!("not reloaded: {error}")).with(errors)
}

/// A mistake in a file.
fn mistake(error: &SourceError) -> Mistake {
    let text = match error.text() {
        "" => String::new(),
        text => format!(": '{}'", shortened(text, QUOTED)),
    };
    Mistake {
        place: Place::Source(error.place()),
        message: format!("{}{text}", error.message()),
        expected: error.expected().to_owned(),
    }
}
