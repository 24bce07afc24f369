//! What a request holds, read within its limits; mistakes become problems that name their place.

use std::fmt::Write;

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_path_to_error::{Path, Segment};
use thalweg_source::shortened;

use crate::problem::{Mistake, Place, Problem};
use crate::server::Shared;

/// The most characters of a message of the JSON reader, which may quote the request.
const QUOTED: usize = 300;

/// The body of a request, which is a JSON document.
#[derive(Clone, Copy, Debug)]
pub struct Body<T>(pub T);

/// The parameters of the query of a request.
#[derive(Clone, Copy, Debug)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Sync> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let shared = Shared::of(request.extensions());
        let (counts, limits) = (shared.counts(), shared.limits());
        check_media_type(request.headers())?;
        let body = Limited::new(request.into_body(), limits.body_bytes).collect();
        let body = tokio::time::timeout(limits.body_time, body).await.map_err(|_| {
            counts.too_slow.increment();
            let waited = limits.body_time.as_secs_f64();
            let detail = format!("the body did not arrive within {waited} s");
            Problem::new(StatusCode::REQUEST_TIMEOUT, detail)
        })?;
        let bytes = match body {
            Ok(body) => body.to_bytes(),
            Err(e) if e.is::<LengthLimitError>() => {
                counts.too_large.increment();
                let detail = format!("the body exceeds {} bytes", limits.body_bytes);
                return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail));
            }
            Err(e) => {
                counts.malformed.increment();
                let detail = format!("cannot read the body: {e}");
                return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
            }
        };
        parse(&bytes).map(Self).inspect_err(|_| counts.malformed.increment())
    }
}

/// Reads a JSON document, which must be an object: serde would take a list of the values of its
/// fields, too.
fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let is_object = bytes.trim_ascii_start().starts_with(b"{");
    if !is_object && serde_json::from_slice::<IgnoredAny>(bytes).is_ok() {
        let place = Place::Pointer(String::new());
        let mistake = mistake(place, "a JSON document that is not an object", "an object");
        return Err(Problem::mistake(StatusCode::UNPROCESSABLE_ENTITY, mistake));
    }
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value: Result<T, _> = serde_path_to_error::deserialize(&mut reader);
    let value = value.map_err(|e| {
        let is_json = e.inner().is_data();
        let status =
            if is_json { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::BAD_REQUEST };
        let place = Place::Pointer(pointer(e.path()));
        Problem::mistake(status, mistake(place, &e.inner().to_string(), "a JSON document"))
    })?;
    reader.end().map_err(|e| {
        let place = Place::Pointer(String::new());
        let mistake = mistake(place, &e.to_string(), "one JSON document");
        Problem::mistake(StatusCode::BAD_REQUEST, mistake)
    })?;
    Ok(value)
}

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let query = parts.uri.query().unwrap_or_default();
        parse_query(query).map(Self).inspect_err(|_| {
            Shared::of(&parts.extensions).counts().malformed.increment();
        })
    }
}

fn parse_query<T: DeserializeOwned>(query: &str) -> Result<T, Problem> {
    let reader = serde_urlencoded::Deserializer::new(form_urlencoded::parse(query.as_bytes()));
    serde_path_to_error::deserialize(reader).map_err(|e| {
        let name = e.path().iter().find_map(|segment| match segment {
            Segment::Map { key } => Some(key.clone()),
            _ => None,
        });
        let place = Place::Parameter(shortened(&name.unwrap_or_default(), QUOTED).into_owned());
        let mistake = mistake(place, &e.inner().to_string(), "another value");
        Problem::mistake(StatusCode::BAD_REQUEST, mistake)
    })
}

/// Requires a JSON document, with any parameters.
fn check_media_type(headers: &HeaderMap) -> Result<(), Problem> {
    let given = headers.get(CONTENT_TYPE).map(|value| value.to_str().unwrap_or_default());
    let essence = given.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message = match given {
        None => "no media type".to_owned(),
        Some(given) => format!("media type '{}'", shortened(given, QUOTED)),
    };
    let place = Place::Header("content-type".into());
    let mistake = Mistake { place, message, expected: "application/json".into() };
    Err(Problem::mistake(StatusCode::UNSUPPORTED_MEDIA_TYPE, mistake))
}

/// A message of serde's, which often ends with what was expected.
fn mistake(place: Place, message: &str, otherwise: &str) -> Mistake {
    // The place in the text follows; the pointer is more useful.
    let message = message.rsplit_once(" at line ").map_or(message, |(message, _)| message);
    let (message, expected) = message.rsplit_once(", expected ").unwrap_or((message, otherwise));
    Mistake {
        place,
        message: shortened(message, QUOTED).into_owned(),
        expected: shortened(expected, QUOTED).into_owned(),
    }
}

/// A path into a document as a JSON pointer (RFC 6901, section 3).
/// Abridged, since its keys are those of the request.
fn pointer(path: &Path) -> String {
    let mut pointer = String::new();
    for segment in path {
        // Writing to a string does not fail.
        let _ = match segment {
            Segment::Seq { index } => write!(pointer, "/{index}"),
            Segment::Map { key } | Segment::Enum { variant: key } => {
                write!(pointer, "/{}", key.replace('~', "~0").replace('/', "~1"))
            }
            Segment::Unknown => Ok(()),
        };
    }
    shortened(&pointer, QUOTED).into_owned()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Wanted {
        levels: Vec<Level>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "lowercase")]
    enum Level {
        Info,
        Debug,
    }

    fn problem<T>(result: Result<T, Problem>) -> Value {
        serde_json::to_value(result.err().unwrap()).unwrap()
    }

    #[test]
    fn a_mistake_in_a_body_has_its_pointer_and_what_was_expected() {
        let good: Result<Wanted, _> = parse(br#"{"levels": ["info"]}"#);
        assert_eq!(good.unwrap(), Wanted { levels: vec![Level::Info] });
        let of = |text: &str| problem(parse::<Wanted>(text.as_bytes()));
        let wrong = of(r#"{"levels": ["info", "loud"]}"#);
        assert_eq!(wrong["status"], 422);
        assert_eq!(
            wrong["errors"][0],
            json!({
                "pointer": "/levels/1",
                "message": "unknown variant `loud`",
                "expected": "`info` or `debug`",
            })
        );
        for other in [r#"[["info"]]"#, "7", "null", " \"info\""] {
            assert_eq!(of(other)["errors"][0]["expected"], "an object", "{other}");
        }
        assert_eq!(of(r#"{"levels": 7}"#)["errors"][0]["expected"], "a sequence");
        assert_eq!(of(r#"{"a/b": 7}"#)["errors"][0]["message"], "unknown field `a/b`");
        let deep = "[".repeat(10_000);
        for not_json in ["", "{", &deep, r#"{"levels": []} {}"#, "\u{0}", r#"{"levels": []} x"#] {
            assert_eq!(of(not_json)["status"], 400, "{not_json}");
        }
    }

    #[test]
    fn a_mistake_in_a_query_names_its_parameter() {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Page {
            #[serde(default)]
            limit: u8,
        }
        assert_eq!(parse_query::<Page>("limit=7").unwrap().limit, 7);
        assert_eq!(parse_query::<Page>("").unwrap().limit, 0);
        let wrong = problem(parse_query::<Page>("limit=700"));
        assert_eq!(wrong["errors"][0]["parameter"], "limit");
        assert_eq!(wrong["status"], 400);
        assert_eq!(problem(parse_query::<Page>("x=1"))["errors"][0]["expected"], "`limit`");
    }

    #[test]
    fn a_message_is_short_whatever_the_request_holds() {
        let wrong =
            problem(parse::<Wanted>(format!(r#"{{"{}": 1}}"#, "x".repeat(60_000)).as_bytes()));
        assert!(wrong.to_string().len() < 2000);
    }
}
