//! What the servers of this project share: sockets, HTTP/1.1 with limits, problems, events,
//! metrics and OpenAPI documents.
//!
//! A server runs on one thread of its own, with all its connections. [`Server::start`] takes a
//! [`Router`](axum::Router), which [`Operations`] builds together with its OpenAPI document; each
//! request passes the [`Limits`], and what they refuse or interrupt is [counted](Counted).
//!
//! Packet paths do not use this crate, and do not wait for it.

mod address;
mod answer;
mod client;
mod counts;
mod event_reader;
mod events;
mod extract;
mod limits;
pub mod metrics;
mod openapi;
mod problem;
mod server;
mod socket;
mod stream;
mod tls;

pub use address::{Address, AddressError, Folders, Listening};
pub use answer::Json;
pub use client::{Answer, Client, ClientError, query};
pub use counts::{Counted, Counts};
pub use event_reader::{EventReader, EventTooLong};
pub use events::{Closed, Event, Feed, feed};
pub use extract::{Body, Query};
pub use limits::Limits;
pub use openapi::{About, Operation, Operations};
pub use problem::{Mistake, Place, Problem};
pub use server::{Listeners, Server, Shared};
pub use socket::{Socket, SocketError};
pub use stream::{Stream, stream};
pub use tls::{Tls, TlsError, TlsFiles};

pub use axum;
