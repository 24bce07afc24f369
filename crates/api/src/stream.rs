//! Answers of bytes that are added while the client reads them.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::Response;
use futures_util::stream::{self, StreamExt};
use tokio::sync::mpsc;

use crate::events::Closed;

/// The pieces that wait for a client.
const WAITING: usize = 4;

/// The end of an answer at which its bytes are added. Dropping it ends the answer.
#[derive(Debug)]
pub struct Stream(mpsc::Sender<Bytes>);

impl Stream {
    /// Adds bytes, when there is room for them.
    ///
    /// # Errors
    /// When the client has gone.
    pub async fn send(&self, bytes: Vec<u8>) -> Result<(), Closed> {
        self.0.send(bytes.into()).await.map_err(|_| Closed)
    }

    /// Waits until the client has gone.
    pub async fn closed(&self) {
        self.0.closed().await;
    }
}

/// A stream, and the answer that sends its bytes until the stream is dropped.
pub fn stream(media_type: &'static str) -> (Stream, Response) {
    let (queue, mut queued) = mpsc::channel(WAITING);
    let pieces = stream::poll_fn(move |context| queued.poll_recv(context));
    let mut response = Response::new(Body::from_stream(pieces.map(Ok::<Bytes, Infallible>)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    (Stream(queue), response)
}
