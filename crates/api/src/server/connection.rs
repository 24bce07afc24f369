//! One connection: HTTP/1.1 within the limits.

use std::error::Error;
use std::io;
use std::net::SocketAddr;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_io_timeout::TimeoutStream;

use super::Shared;
use crate::tls::Tls;

/// A connection, before its stream is known.
pub(super) struct Connection {
    pub(super) shared: Shared,
    pub(super) router: Router,
}

impl Connection {
    /// Answers the requests of a client over TLS.
    pub(super) async fn serve_tls(self, stream: TcpStream, from: SocketAddr, tls: &Tls) {
        let handshake = tls.acceptor().accept(stream);
        match tokio::time::timeout(self.shared.limits.head_time, handshake).await {
            Ok(Ok(stream)) => return self.serve(stream).await,
            Ok(Err(e)) => log::info!("{from}: TLS handshake: {e}"),
            Err(_) => log::info!("{from}: TLS handshake: no end in time"),
        }
        self.shared.counts.handshakes_failed.increment();
    }

    /// Answers the requests of a client, until it or the server ends.
    pub(super) async fn serve(self, stream: impl AsyncRead + AsyncWrite + Send + 'static) {
        let Self { mut shared, router } = self;
        let limits = shared.limits;
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(limits.write_time));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head_time)
            .max_buf_size(limits.head_bytes)
            .max_headers(limits.headers)
            .serve_connection(TokioIo::new(Box::pin(stream)), TowerToHyperService::new(router));
        tokio::pin!(connection);
        let ended = tokio::select! {
            ended = &mut connection => ended,
            () = shared.closing() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            count(&error, &shared);
        }
    }
}

/// Counts why a connection ended.
fn count(error: &hyper::Error, shared: &Shared) {
    let counts = &shared.counts;
    if error.is_parse_too_large() {
        counts.too_large.increment();
    } else if error.is_parse() {
        counts.malformed.increment();
    } else if error.is_timeout() {
        counts.too_slow.increment();
    } else if is_stalled(error) {
        counts.stalled.increment();
    }
    // A client that closes its connection early is not worth a count.
}

/// Whether the client did not read its answer.
fn is_stalled(error: &hyper::Error) -> bool {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(cause) = cause.downcast_ref::<io::Error>()
            && cause.kind() == io::ErrorKind::TimedOut
        {
            return true;
        }
        source = cause.source();
    }
    false
}
