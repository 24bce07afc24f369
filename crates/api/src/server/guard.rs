//! What every request passes on its way to its handler.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use thalweg_source::shortened;
use tokio::sync::Semaphore;

use super::Shared;
use crate::problem::Problem;

/// The most characters of a path in a problem.
const QUOTED: usize = 200;

/// The guard of a server.
#[derive(Clone)]
struct Guard {
    shared: Shared,
    slots: Arc<Semaphore>,
}

/// `router` within the limits, and with problems in place of empty answers.
pub(super) fn guarded(router: Router, shared: &Shared) -> Router {
    let slots = Arc::new(Semaphore::new(shared.limits.requests));
    let guard = Guard { shared: shared.clone(), slots };
    router
        .fallback(not_found)
        .method_not_allowed_fallback(not_allowed)
        .layer(middleware::from_fn_with_state(guard, pass))
}

/// Has a request answered, if few enough are under way, in a limited time, whatever happens.
async fn pass(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    let Guard { shared, slots } = guard;
    let shared = shared.for_request();
    let (counts, limits) = (&shared.counts, shared.limits);
    counts.requests.increment();
    let Ok(_slot) = slots.try_acquire() else {
        counts.requests_refused.increment();
        let detail = format!("{} requests are under way", limits.requests);
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
            .retry_after(1)
            .into_response();
    };
    request.extensions_mut().insert(shared.clone());
    // A panic leaves only its own request unanswered: what handlers share is locks, whose users
    // recover from poison, and atomic counts.
    let answer = AssertUnwindSafe(next.run(request)).catch_unwind();
    tokio::select! {
        answer = answer => answer.unwrap_or_else(|_| {
            counts.panics.increment();
            let detail = "the server has a bug: the code for this request panicked";
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail).into_response()
        }),
        waited = too_long(&shared) => {
            counts.timed_out.increment();
            let detail = format!("no answer within {} s", waited.as_secs_f64());
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).retry_after(1).into_response()
        }
    }
}

/// Waits as long as the answer to a request may take, which its handler may extend meanwhile.
async fn too_long(shared: &Shared) -> Duration {
    let start = Instant::now();
    loop {
        let patience = shared.patience();
        tokio::time::sleep_until((start + patience).into()).await;
        if shared.patience() <= patience {
            return patience;
        }
    }
}

async fn not_found(uri: Uri) -> Problem {
    let path = shortened(uri.path(), QUOTED);
    let detail = format!("no resource '{path}'; expected one that the OpenAPI document names");
    Problem::new(StatusCode::NOT_FOUND, detail)
}

async fn not_allowed(method: Method, uri: Uri) -> Problem {
    let path = shortened(uri.path(), QUOTED);
    let method = shortened(method.as_str(), QUOTED).into_owned();
    let detail = format!("'{path}' does not support {method}; expected a method of header Allow");
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}
