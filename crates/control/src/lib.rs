//! The API of a run: what it is, what it has counted, and requests to it, over HTTP.
//!
//! [`serve`] starts the server. It observes the run by its [`Control`](thalweg_engine::Control)
//! only: packets do not wait for a request, and the work that requests can cause is limited,
//! whatever their number ([`Limits`], a snapshot each tenth of a second, an
//! export each second, one reload at a time, four traces and four captures of dropped packets).

mod documents;
mod drops;
mod events;
mod handlers;
mod metrics;
mod reload;
mod snapshots;
mod subject;
mod trace;
mod watching;

use std::io;

use thalweg_api::{Limits, Listeners, Server};

pub use documents::{
    Direction, Level, LinkEventNow, LogLevel, NfState, Nfs, PortState, Ports, ProgressNow,
    RuleState, Rules, State, Status,
};
pub use handlers::document;
pub use reload::Reloaded;
pub use subject::Subject;
pub use trace::TraceEnd;
pub use watching::EndOf;

/// Starts the server of the run `subject`.
///
/// # Errors
/// When the system refuses the thread or a listener.
pub fn serve(subject: Subject, listeners: Listeners, limits: Limits) -> io::Result<Server> {
    Server::start("control", listeners, limits, handlers::router(subject))
}
