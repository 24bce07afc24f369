//! A server: one thread that accepts connections and answers requests.

mod connection;
mod guard;

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::Router;
use axum::extract::FromRequestParts;
use axum::http::Extensions;
use axum::http::request::Parts;
use tokio::net;
use tokio::runtime;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::counts::Counts;
use crate::limits::Limits;
use crate::socket::Socket;
use crate::tls::Tls;
use connection::Connection;

/// Threads for work that would block the server, such as a request to the engine.
const BLOCKING_THREADS: usize = 4;
/// The pause after a connection could not be accepted, as when descriptors run out.
const PAUSE: Duration = Duration::from_millis(100);

/// Where a server accepts connections.
#[derive(Debug, Default)]
pub struct Listeners {
    /// A unix socket.
    pub unix: Option<Socket>,
    /// A TCP socket, and what its connections are encrypted with.
    pub tcp: Option<(TcpListener, Tls)>,
}

/// What the requests of a server share: its limits, its counts, and the request to end.
#[derive(Clone, Debug)]
pub struct Shared {
    limits: Limits,
    counts: Arc<Counts>,
    closing: watch::Receiver<bool>,
    /// How long the answer to the request may take; of each request its own.
    patience: Arc<Mutex<Duration>>,
}

impl Default for Shared {
    fn default() -> Self {
        Self::new(Limits::default()).0
    }
}

impl Shared {
    fn new(limits: Limits) -> (Self, watch::Sender<bool>) {
        let (close, closing) = watch::channel(false);
        let patience = Arc::new(Mutex::new(limits.request_time));
        (Self { limits, counts: Arc::default(), closing, patience }, close)
    }

    /// The same for one request.
    fn for_request(&self) -> Self {
        Self { patience: Arc::new(Mutex::new(self.limits.request_time)), ..self.clone() }
    }

    /// How long the answer to the request may take.
    fn patience(&self) -> Duration {
        *self.patience.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the answer to this request take `time` instead of the usual limit.
    pub fn allow(&self, time: Duration) {
        *self.patience.lock().unwrap_or_else(PoisonError::into_inner) = time;
    }

    /// What the server of a request shares with it; of its own outside of a server, as in tests.
    pub fn of(extensions: &Extensions) -> Self {
        extensions.get::<Self>().cloned().unwrap_or_default()
    }

    /// The limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The counts.
    pub fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }

    /// Waits until the server ends, as streams of events should.
    pub async fn closing(&mut self) {
        // Without a sender the server has ended.
        let _ = self.closing.wait_for(|closing| *closing).await;
    }
}

impl<S: Sync> FromRequestParts<S> for Shared {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.extensions))
    }
}

/// A server under way. Dropping it ends it: requests under way may finish in a limited time.
#[derive(Debug)]
pub struct Server {
    close: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
    counts: Arc<Counts>,
}

impl Server {
    /// Starts a thread `name` that answers the requests of `listeners` by `router`.
    ///
    /// # Errors
    /// When the system refuses the thread or a listener.
    pub fn start(
        name: &str,
        listeners: Listeners,
        limits: Limits,
        router: Router,
    ) -> io::Result<Self> {
        let (shared, close) = Shared::new(limits);
        let counts = shared.counts.clone();
        let (started, starts) = mpsc::channel();
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            let serving = Serving::new(listeners, shared, router);
            let (serving, runtime) = match serving {
                Ok(serving) => serving,
                Err(e) => return drop(started.send(Err(e))),
            };
            // The receiver waits.
            let _ = started.send(Ok(()));
            runtime.block_on(serving.run());
            runtime.shutdown_timeout(limits.closing_time);
        })?;
        let died = || io::Error::other("the thread of the server ended");
        let server = Self { close, thread: Some(thread), counts };
        starts.recv().map_err(|_| died())??;
        Ok(server)
    }

    /// Its counts.
    pub fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.close.send(true);
        if let Some(thread) = self.thread.take() {
            // One that panicked has reported it.
            let _ = thread.join();
        }
    }
}

/// What the thread of a server has.
struct Serving {
    shared: Shared,
    router: Router,
    unix: Option<net::UnixListener>,
    tcp: Option<(net::TcpListener, Tls)>,
    /// Removed when the server has ended.
    _socket: Option<Socket>,
}

/// A client that has connected.
enum Client {
    Unix(net::UnixStream),
    Tcp(net::TcpStream, SocketAddr),
}

impl Serving {
    /// Takes over `listeners`, on a runtime of this thread.
    fn new(
        listeners: Listeners,
        shared: Shared,
        router: Router,
    ) -> io::Result<(Self, runtime::Runtime)> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(BLOCKING_THREADS)
            .build()?;
        // Listeners belong to the runtime that they are made in.
        let entered = runtime.enter();
        let Listeners { unix: socket, tcp } = listeners;
        let unix = match &socket {
            Some(socket) => {
                let listener = socket.listener()?;
                listener.set_nonblocking(true)?;
                Some(net::UnixListener::from_std(listener)?)
            }
            None => None,
        };
        let tcp = match tcp {
            Some((listener, tls)) => {
                listener.set_nonblocking(true)?;
                Some((net::TcpListener::from_std(listener)?, tls))
            }
            None => None,
        };
        drop(entered);
        let router = guard::guarded(router, &shared);
        Ok((Self { shared, router, unix, tcp, _socket: socket }, runtime))
    }

    /// Accepts connections until the server ends; then waits for them, for a limited time.
    async fn run(mut self) {
        let slots = Arc::new(Semaphore::new(self.shared.limits.connections));
        let mut connections = JoinSet::new();
        let mut shared = self.shared.clone();
        loop {
            let client = tokio::select! {
                client = self.accept() => client,
                // What has ended is released.
                Some(_) = connections.join_next() => continue,
                () = shared.closing() => break,
            };
            match client {
                Ok(client) => {
                    shared.counts.connections.increment();
                    let Ok(slot) = slots.clone().try_acquire_owned() else {
                        shared.counts.connections_refused.increment();
                        continue;
                    };
                    let connection = self.connection();
                    let tls = self.tcp.as_ref().map(|(_, tls)| tls.clone());
                    connections.spawn(async move {
                        let _slot = slot;
                        match (client, tls) {
                            (Client::Unix(stream), _) => connection.serve(stream).await,
                            (Client::Tcp(stream, from), Some(tls)) => {
                                connection.serve_tls(stream, from, &tls).await;
                            }
                            (Client::Tcp(..), None) => {}
                        }
                    });
                }
                Err(e) => {
                    log::warn!("cannot accept a connection: {e}");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        let all = async { while connections.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(shared.limits.closing_time, all).await;
    }

    fn connection(&self) -> Connection {
        Connection { shared: self.shared.clone(), router: self.router.clone() }
    }

    async fn accept(&mut self) -> io::Result<Client> {
        let unix = async {
            match &self.unix {
                Some(listener) => listener.accept().await.map(|(stream, _)| Client::Unix(stream)),
                None => std::future::pending().await,
            }
        };
        let tcp = async {
            match &self.tcp {
                Some((listener, _)) => {
                    listener.accept().await.map(|(stream, from)| Client::Tcp(stream, from))
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            client = unix => client,
            client = tcp => client,
        }
    }
}
