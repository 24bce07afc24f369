//! Problem documents: the errors of a server (RFC 9457).

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;

use crate::answer::to_json;

/// The media type of a problem document.
const MEDIA_TYPE: &str = "application/problem+json";

/// Why a request was not served, as a problem document (RFC 9457).
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Problem {
    /// The status of the answer, in words.
    title: &'static str,
    /// The status of the answer.
    status: u16,
    /// What is wrong, and what to do about it.
    detail: String,
    /// The parts of the request, or of a file that it is about, that are wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<Mistake>,
    #[serde(skip)]
    retry_after_s: Option<u16>,
}

/// A part of a request, or of a file, that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Mistake {
    /// Where it is.
    #[serde(flatten)]
    pub place: Place,
    /// What is wrong.
    pub message: String,
    /// What was expected.
    pub expected: String,
}

/// A place in a request, or in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// A value in the body, by its JSON pointer (RFC 6901).
    Pointer(String),
    /// A parameter of the query.
    Parameter(String),
    /// A header.
    Header(String),
    /// A place in a file that the request is about: `FILE:LINE:COLUMN`.
    Source(String),
}

impl Problem {
    /// A problem with the status `status`, and with `detail` in words.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            title: status.canonical_reason().unwrap_or("Error"),
            status: status.as_u16(),
            detail: detail.into(),
            errors: Vec::new(),
            retry_after_s: None,
        }
    }

    /// A part of the request is wrong.
    pub fn mistake(status: StatusCode, mistake: Mistake) -> Self {
        let detail = format!("{}; expected {}", mistake.message, mistake.expected);
        Self { errors: vec![mistake], ..Self::new(status, detail) }
    }

    /// The same, with the parts that are wrong.
    #[must_use]
    pub fn with(self, errors: Vec<Mistake>) -> Self {
        Self { errors, ..self }
    }

    /// The same, for a client that may try again after some seconds.
    #[must_use]
    pub fn retry_after(self, seconds: u16) -> Self {
        Self { retry_after_s: Some(seconds), ..self }
    }

    /// The status of the answer.
    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// What is wrong, in words.
    pub fn detail(&self) -> &str {
        &self.detail
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let content_type = HeaderValue::from_static(MEDIA_TYPE);
        let mut response = (self.status(), to_json(&self)).into_response();
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        if let Some(seconds) = self.retry_after_s {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_names_what_is_wrong_and_what_was_expected() {
        let mistake = Mistake {
            place: Place::Pointer("/level".into()),
            message: "unknown level 'loud'".into(),
            expected: "error, warn or info".into(),
        };
        let problem = Problem::mistake(StatusCode::UNPROCESSABLE_ENTITY, mistake).retry_after(2);
        assert_eq!(
            serde_json::to_value(&problem).unwrap(),
            serde_json::json!({
                "title": "Unprocessable Entity",
                "status": 422,
                "detail": "unknown level 'loud'; expected error, warn or info",
                "errors": [{
                    "pointer": "/level",
                    "message": "unknown level 'loud'",
                    "expected": "error, warn or info",
                }],
            })
        );
        let response = problem.into_response();
        assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(response.headers()[CONTENT_TYPE], MEDIA_TYPE);
        assert_eq!(response.headers()[RETRY_AFTER], "2");
    }
}
