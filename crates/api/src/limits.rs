//! The limits that every request passes.

use std::time::Duration;

/// What a server accepts from all its clients together, and from each.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time; further ones are closed.
    pub connections: usize,
    /// Requests at a time; further ones are answered with 503.
    pub requests: usize,
    /// Bytes of the request line and the headers together.
    pub head_bytes: usize,
    /// Headers of a request.
    pub headers: usize,
    /// Bytes of a body.
    pub body_bytes: usize,
    /// The time in which a client must send the head of a request, the next one on an open
    /// connection included.
    pub head_time: Duration,
    /// The time in which a client must send the body of a request.
    pub body_time: Duration,
    /// The time that the answer to a request may take; longer than `body_time`.
    pub request_time: Duration,
    /// The time for which a client may read nothing of an answer.
    pub write_time: Duration,
    /// The events that wait for a client; further ones are lost.
    pub events: usize,
    /// The time in which open requests may end when the server stops.
    pub closing_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 64,
            requests: 16,
            head_bytes: 16 << 10,
            headers: 64,
            body_bytes: 64 << 10,
            head_time: Duration::from_secs(5),
            body_time: Duration::from_secs(5),
            request_time: Duration::from_secs(10),
            write_time: Duration::from_secs(10),
            events: 16,
            closing_time: Duration::from_secs(1),
        }
    }
}
