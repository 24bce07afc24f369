//! Server-sent events: a stream of events to one client, with a bounded queue.

use std::convert::Infallible;
use std::sync::Arc;

use axum::response::sse::{self, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, StreamExt};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::answer::to_json;
use crate::counts::Counts;
use crate::server::Shared;

/// An event: its name, and its data as JSON.
#[derive(Clone, Debug)]
pub struct Event {
    name: &'static str,
    data: String,
}

impl Event {
    /// An event `name` with the JSON form of `data`.
    pub fn new(name: &'static str, data: &impl Serialize) -> Self {
        Self { name, data: to_json(data) }
    }
}

/// The client of a feed does not read it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

/// The end of a stream of events at which they are added.
///
/// A client that reads too slowly loses events, and no others wait for it: an event for which its
/// queue has no room is counted, and the client receives the number as an event `lost` ahead of the
/// next one.
pub struct Feed {
    queue: mpsc::Sender<Queued>,
    /// Those since the last event that was queued.
    lost: u64,
    counts: Arc<Counts>,
}

struct Queued {
    /// The events that were lost ahead of it.
    lost: u64,
    event: Event,
}

/// The data of the event `lost`.
#[derive(Serialize)]
struct Lost {
    events: u64,
}

impl Feed {
    /// Adds an event, or counts it as lost.
    ///
    /// # Errors
    /// When the client has gone.
    pub fn push(&mut self, event: Event) -> Result<(), Closed> {
        match self.queue.try_send(Queued { lost: self.lost, event }) {
            Ok(()) => {
                self.lost = 0;
                self.counts.events.increment();
                Ok(())
            }
            Err(TrySendError::Full(_)) => {
                self.lost += 1;
                self.counts.events_lost.increment();
                Ok(())
            }
            Err(TrySendError::Closed(_)) => Err(Closed),
        }
    }

    /// Adds an event when there is room for it: where events wait elsewhere, none is lost here.
    ///
    /// # Errors
    /// When the client has gone.
    pub async fn send(&mut self, event: Event) -> Result<(), Closed> {
        let queued = Queued { lost: self.lost, event };
        self.queue.send(queued).await.map_err(|_| Closed)?;
        self.lost = 0;
        self.counts.events.increment();
        Ok(())
    }

    /// Waits until the client has gone.
    pub async fn closed(&self) {
        self.queue.closed().await;
    }
}

/// A feed, and the answer that sends its events until the feed is dropped.
pub fn feed(shared: &Shared) -> (Feed, Response) {
    let (queue, mut queued) = mpsc::channel(shared.limits().events);
    let events = stream::poll_fn(move |context| queued.poll_recv(context))
        .flat_map(|Queued { lost, event }| {
            let lost = (lost > 0).then(|| Event::new("lost", &Lost { events: lost }));
            stream::iter(lost.into_iter().chain([event]))
        })
        .map(|event| {
            let event = sse::Event::default().event(event.name).data(event.data);
            Ok::<_, Infallible>(event)
        });
    let feed = Feed { queue, lost: 0, counts: shared.counts().clone() };
    (feed, Sse::new(events).into_response())
}
