//! Where bodies end (RFC 9112, section 6.3), as leniently as receivers decide it.

use serde::{Deserialize, Serialize};

use super::head::{Field, is_chunked, length, method};

/// What kind of response a request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Asked {
    Head,
    Connect,
    Other,
}

/// The expected next element of a direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum State {
    #[default]
    Head,
    /// This number of body bytes.
    Length(u64),
    ChunkSize,
    /// This number of bytes of a chunk.
    Chunk(u64),
    /// The line end after a chunk.
    ChunkEnd,
    Trailer,
    /// Body up to the end of the connection.
    UntilClose,
    /// No longer parseable as HTTP.
    Lost,
}

/// The body that a response declares but should not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Rest {
    #[default]
    UntilClose,
    Length(u64),
    Chunked,
}

pub(super) fn asked(line: &[u8]) -> Asked {
    match method(line) {
        b"HEAD" => Asked::Head,
        b"CONNECT" => Asked::Connect,
        _ => Asked::Other,
    }
}

pub(super) fn request_body(fields: &[Field<'_>]) -> State {
    match length(fields) {
        _ if is_chunked(fields) => State::ChunkSize,
        None | Some(0) => State::Head,
        Some(length) => State::Length(length),
    }
}

pub(super) fn response_body(status: u16, asked: Asked, fields: &[Field<'_>]) -> State {
    match status {
        101 if declared(fields) == Rest::UntilClose => State::Lost,
        100..200 | 204 | 304 => State::Head,
        200..300 if asked == Asked::Connect => State::Lost,
        _ if asked == Asked::Head => State::Head,
        _ if is_chunked(fields) => State::ChunkSize,
        _ => length(fields).map_or(State::UntilClose, State::Length),
    }
}

/// The body that a response declares.
pub(super) fn declared(fields: &[Field<'_>]) -> Rest {
    match length(fields) {
        _ if is_chunked(fields) => Rest::Chunked,
        Some(length @ 1..) => Rest::Length(length),
        _ => Rest::UntilClose,
    }
}
