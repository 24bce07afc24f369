//! `/v1/events`: the progress or the report at an interval, and what happens to interfaces and devices.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_api::axum::extract::State as Of;
use thalweg_api::axum::http::StatusCode;
use thalweg_api::axum::response::Response;
use thalweg_api::{Closed, Event, Feed, Mistake, Place, Problem, Query, Shared, feed};
use thalweg_engine::DeviceFailure;
use thalweg_io::{LinkEvent, LinkEvents};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{MissedTickBehavior, interval};

use crate::documents::{DeviceFailureNow, Direction, LinkEventNow};
use crate::handlers::Api;

/// The most clients that read events, so that others find a connection.
pub(crate) const MAX_READERS: usize = 16;
/// The time between two looks for events of interfaces and devices.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
/// The shortest and the longest interval, in seconds.
const SECONDS: (f64, f64) = (0.1, 3600.0);

/// What a client wants to be sent.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wish {
    /// The interval, in seconds.
    #[serde(default = "second")]
    #[schemars(range(min = 0.1, max = 3600.0))]
    every: f64,
    /// What is sent: the progress of the run or its report.
    #[serde(default)]
    what: What,
}

fn second() -> f64 {
    1.0
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum What {
    /// The progress, which costs the engine nothing.
    #[default]
    Progress,
    /// The report.
    Report,
}

pub(crate) async fn events(
    Of(api): Of<Arc<Api>>,
    shared: Shared,
    Query(wish): Query<Wish>,
) -> Result<Response, Problem> {
    let (least, most) = SECONDS;
    if !(least..=most).contains(&wish.every) {
        let mistake = Mistake {
            place: Place::Parameter("every".into()),
            message: format!("interval of {} s", wish.every),
            expected: format!("{least} to {most}"),
        };
        return Err(Problem::mistake(StatusCode::BAD_REQUEST, mistake));
    }
    let Ok(permit) = api.readers.clone().try_acquire_owned() else {
        let detail = format!("{MAX_READERS} clients read events");
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).retry_after(10));
    };
    let (feed, response) = feed(&shared);
    tokio::spawn(send(api, shared, wish, feed, permit));
    Ok(response)
}

/// Sends what is wished until the client or the server ends.
async fn send(
    api: Arc<Api>,
    mut shared: Shared,
    wish: Wish,
    mut feed: Feed,
    _permit: OwnedSemaphorePermit,
) {
    let mut ticks = interval(Duration::from_secs_f64(wish.every));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut looks = interval(BETWEEN_LOOKS);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // What happened before is in the report.
    let mut last = links_since(&api, 0).last().map_or(0, |(number, _)| *number);
    let mut last_failure = failures_since(&api, 0).last().map_or(0, |(number, _)| *number);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = looks.tick() => {
                for (number, event) in links_since(&api, last) {
                    last = number;
                    if feed.push(Event::new("link", &event)).is_err() {
                        return;
                    }
                }
                for (number, failure) in failures_since(&api, last_failure) {
                    last_failure = number;
                    if feed.push(Event::new("device", &failure)).is_err() {
                        return;
                    }
                }
                continue;
            }
            () = feed.closed() => return,
            () = shared.closing() => {
                // The client may have gone as well.
                let _ = feed.push(Event::new("end", &api.progress()));
                return;
            }
        }
        if push(&api, wish.what, &mut feed).await.is_err() {
            return;
        }
    }
}

/// The failures of devices after number `last`, each with its number.
fn failures_since(api: &Api, last: u64) -> Vec<(u64, DeviceFailureNow)> {
    let now = |failure: DeviceFailure| {
        let DeviceFailure { number, time, nf, at, text } = failure;
        let time = OffsetDateTime::from(time).format(&Rfc3339).unwrap_or_default();
        (number, DeviceFailureNow { nf, at, text: text.to_string(), time })
    };
    api.subject.control.device_failures(last).into_iter().map(now).collect()
}

/// The events of the interfaces of all ports after the one with the number `last`, each with its
/// number, in their order.
fn links_since(api: &Api, last: u64) -> Vec<(u64, LinkEventNow)> {
    let Ok(plan) = api.plan() else { return Vec::new() };
    let inputs = plan.inputs.iter().map(|port| (Direction::In, &port.name, port.events()));
    let outputs = plan.outputs.iter().map(|port| (Direction::Out, &port.name, port.events()));
    let of_port = |(direction, port, events): (_, &String, Option<&LinkEvents>)| {
        let new = events.map(|events| events.since(last)).unwrap_or_default();
        let port = port.clone();
        new.into_iter().map(move |event| {
            let LinkEvent { number, time, interface, change, text } = event;
            let time = OffsetDateTime::from(time).format(&Rfc3339).unwrap_or_default();
            (number, LinkEventNow { port: port.clone(), direction, interface, change, text, time })
        })
    };
    let mut all: Vec<_> = inputs.chain(outputs).flat_map(of_port).collect();
    all.sort_by_key(|(number, _)| *number);
    all
}

async fn push(api: &Api, what: What, feed: &mut Feed) -> Result<(), Closed> {
    match what {
        What::Progress => feed.push(Event::new("progress", &api.progress())),
        What::Report => match api.report().await {
            Ok(report) => feed.push(Event::new("report", &*report)),
            // The next one may be there.
            Err(problem) => feed.push(Event::new("problem", &problem)),
        },
    }
}
