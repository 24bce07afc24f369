//! `/v1/trace`: traces of the next packets that match a pattern.

use std::sync::Arc;
use std::sync::mpsc::TryRecvError;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thalweg_api::axum::extract::State as Of;
use thalweg_api::axum::response::Response;
use thalweg_api::{Closed, Event, Feed, Query, Shared, feed};
use thalweg_engine::Traces;

use crate::handlers::{Api, Served};
use crate::watching::{EndOf, Looks, refused};

/// Which packets are traced.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wish {
    /// A flow in the syntax of rules, whose `in_port` is the name of an input; all packets if absent.
    #[serde(default)]
    pattern: String,
    /// The number of packets.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1000))]
    count: usize,
    /// How long to wait for them, in seconds.
    #[serde(default = "ten")]
    #[schemars(range(min = 0.1, max = 3600.0))]
    seconds: f64,
}

fn one() -> usize {
    1
}

fn ten() -> f64 {
    10.0
}

/// The data of the event `end` after traces.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct TraceEnd {
    /// The number of traces sent.
    pub traced: u64,
    /// Packets that matched and were not traced, because the client was too slow.
    pub passed_over: u64,
    /// Why there are no more.
    pub because: EndOf,
}

pub(crate) async fn trace(
    Of(api): Of<Arc<Api>>,
    shared: Shared,
    Query(wish): Query<Wish>,
) -> Served<Response> {
    let looks = Looks::new(wish.seconds, shared.clone())?;
    let traces = api.subject.control.traces(&wish.pattern, wish.count).map_err(refused)?;
    let (feed, response) = feed(&shared);
    tokio::spawn(send(traces, wish.count as u64, looks, feed));
    Ok(response)
}

/// Sends the traces as they come, and then their number.
async fn send(mut traces: Traces, count: u64, mut looks: Looks, mut feed: Feed) {
    let mut traced = 0;
    while let Some(mut ends) = looks.next(feed.closed()).await {
        match pass(&mut traces, &mut feed, &mut traced).await {
            Err(Closed) => return,
            Ok(true) => ends = Some(if traced == count { EndOf::Count } else { EndOf::Run }),
            Ok(false) => {}
        }
        if let Some(because) = ends {
            let end = TraceEnd { traced, passed_over: traces.passed_over(), because };
            // The client may have gone meanwhile.
            let _ = feed.send(Event::new("end", &end)).await;
            return;
        }
    }
}

/// Sends the traces that are there; returns whether there will be no more.
async fn pass(traces: &mut Traces, feed: &mut Feed, traced: &mut u64) -> Result<bool, Closed> {
    loop {
        match traces.try_next() {
            Ok(trace) => feed.send(Event::new("trace", &trace)).await?,
            Err(end) => return Ok(end == TryRecvError::Disconnected),
        }
        *traced += 1;
    }
}
