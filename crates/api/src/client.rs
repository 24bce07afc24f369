//! A client of a server on a unix socket, for programs that wait for the answers.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::body::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::runtime;

/// The most bytes of an answer.
const MAX_ANSWER: usize = 64 << 20;

/// A client of the server at a path. Each request has a connection of its own.
#[derive(Clone, Debug)]
pub struct Client {
    path: PathBuf,
    patience: Duration,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its media type, empty if it has none.
    pub media_type: String,
    /// Its body.
    pub body: Bytes,
}

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No server listens there.
    #[error("{}: {source}", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The server does not speak HTTP, or closed the connection.
    #[error("{}: {reason}", path.display())]
    Failed {
        /// The socket.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The server did not answer in time.
    #[error("{}: no answer within {} s", path.display(), patience.as_secs_f64())]
    Late {
        /// The socket.
        path: PathBuf,
        /// How long the client waited.
        patience: Duration,
    },
}

impl Client {
    /// A client of the server at `path` that waits for `patience` for each answer.
    pub fn new(path: &Path, patience: Duration) -> Self {
        Self { path: path.into(), patience }
    }

    /// Sends a request, with a JSON document as its body if there is one; returns the answer,
    /// whatever its status.
    ///
    /// # Errors
    /// When there is no answer.
    ///
    /// # Panics
    /// When `target` is not the path and query of a URI.
    pub fn request(
        &self,
        method: Method,
        target: &str,
        accept: &str,
        body: Option<Vec<u8>>,
    ) -> Result<Answer, ClientError> {
        let mut request = Request::builder().method(method).uri(target);
        request = request.header(HOST, "localhost").header(ACCEPT, accept);
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let body = Full::new(Bytes::from(body.unwrap_or_default()));
        let request = request.body(body).expect("the target is a path and a query");
        let connect = |source| ClientError::Connect { path: self.path.clone(), source };
        let runtime =
            runtime::Builder::new_current_thread().enable_all().build().map_err(connect)?;
        runtime.block_on(async {
            let late = |_| ClientError::Late { path: self.path.clone(), patience: self.patience };
            tokio::time::timeout(self.patience, self.exchange(request)).await.map_err(late)?
        })
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Answer, ClientError> {
        let connect = |source| ClientError::Connect { path: self.path.clone(), source };
        let failed = |reason: String| ClientError::Failed { path: self.path.clone(), reason };
        let stream = UnixStream::connect(&self.path).await.map_err(connect)?;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|e| failed(e.to_string()))?;
        // Ends with the runtime.
        tokio::spawn(connection);
        let answer = sender.send_request(request).await.map_err(|e| failed(e.to_string()))?;
        let status = answer.status();
        let media_type = answer.headers().get(CONTENT_TYPE);
        let media_type = media_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
        let media_type = media_type.to_owned();
        let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
        let body = body.map_err(|e| failed(e.to_string()))?.to_bytes();
        Ok(Answer { status, media_type, body })
    }
}
