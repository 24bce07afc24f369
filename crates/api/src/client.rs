//! A client of a server on a unix socket, for programs that wait for the answers.

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::body::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::runtime::{self, Runtime};

/// The most bytes of an answer.
const MAX_ANSWER: usize = 64 << 20;
/// The longest time without a call of the reader of a stream.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

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
        let request = build(method, target, accept, body);
        self.runtime()?.block_on(async { self.timely(self.exchange(request)).await })
    }

    /// Sends a `GET` request whose answer may have no end, and passes the bytes of its body to `read`
    /// as they arrive, or none about each 100 ms, until the body ends or `read` breaks. Returns the
    /// answer without its body; if it is not a success, with it.
    ///
    /// # Errors
    /// When there is no answer in time, or it is interrupted.
    ///
    /// # Panics
    /// When `target` is not the path and query of a URI.
    pub fn stream(
        &self,
        target: &str,
        accept: &str,
        mut read: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Answer, ClientError> {
        let request = build(Method::GET, target, accept, None);
        self.runtime()?.block_on(async {
            let answer = self.timely(self.begin(request)).await?;
            if !answer.status().is_success() {
                return self.timely(self.whole(answer)).await;
            }
            let (head, mut body) = answer.into_parts();
            let begun = Answer::new(head.status, &head.headers, Bytes::new());
            loop {
                let bytes = match tokio::time::timeout(BETWEEN_LOOKS, body.frame()).await {
                    Ok(None) => return Ok(begun),
                    Ok(Some(frame)) => {
                        let frame = frame.map_err(|e| self.failed(&e))?;
                        frame.into_data().unwrap_or_default()
                    }
                    Err(_) => Bytes::new(),
                };
                if read(&bytes).is_break() {
                    return Ok(begun);
                }
            }
        })
    }

    fn runtime(&self) -> Result<Runtime, ClientError> {
        let connect = |source| ClientError::Connect { path: self.path.clone(), source };
        runtime::Builder::new_current_thread().enable_all().build().map_err(connect)
    }

    async fn timely<T>(
        &self,
        work: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        let late = |_| ClientError::Late { path: self.path.clone(), patience: self.patience };
        tokio::time::timeout(self.patience, work).await.map_err(late)?
    }

    fn failed(&self, reason: &dyn std::error::Error) -> ClientError {
        ClientError::Failed { path: self.path.clone(), reason: reason.to_string() }
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Answer, ClientError> {
        let answer = self.begin(request).await?;
        self.whole(answer).await
    }

    /// Sends a request; returns the answer when its head has arrived.
    async fn begin(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, ClientError> {
        let connect = |source| ClientError::Connect { path: self.path.clone(), source };
        let stream = UnixStream::connect(&self.path).await.map_err(connect)?;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|e| self.failed(&e))?;
        // Ends with the runtime.
        tokio::spawn(connection);
        sender.send_request(request).await.map_err(|e| self.failed(&e))
    }

    /// An answer with its whole body.
    async fn whole(&self, answer: Response<Incoming>) -> Result<Answer, ClientError> {
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, MAX_ANSWER).collect().await;
        let body = body.map_err(|e| self.failed(&*e))?.to_bytes();
        Ok(Answer::new(head.status, &head.headers, body))
    }
}

impl Answer {
    fn new(status: StatusCode, headers: &HeaderMap, body: Bytes) -> Self {
        let media_type = headers.get(CONTENT_TYPE);
        let media_type = media_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
        Self { status, media_type: media_type.to_owned(), body }
    }
}

fn build(
    method: Method,
    target: &str,
    accept: &str,
    body: Option<Vec<u8>>,
) -> Request<Full<Bytes>> {
    let mut request = Request::builder().method(method).uri(target);
    request = request.header(HOST, "localhost").header(ACCEPT, accept);
    if body.is_some() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    let body = Full::new(Bytes::from(body.unwrap_or_default()));
    request.body(body).expect("the target is a path and a query")
}

/// A path with the parameters of its query, which may have any characters.
pub fn query(path: &str, parameters: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    format!("{path}?{}", query.extend_pairs(parameters).finish())
}
