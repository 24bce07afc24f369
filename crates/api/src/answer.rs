//! Answers with a JSON document.

use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use thalweg_source::VisibleJson;

/// An answer that is a JSON document, and that no cache keeps.
#[derive(Clone, Copy, Debug)]
pub struct Json<T>(pub T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        let mut response = to_json(&self.0).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

/// The JSON form of a document of ours, without characters that a terminal would obey.
pub(crate) fn to_json(document: &impl Serialize) -> String {
    let mut text = Vec::new();
    serde_json::to_writer(VisibleJson(&mut text), document)
        .expect("keys of our documents are strings, and memory takes all bytes");
    String::from_utf8(text).expect("JSON is UTF-8")
}
