//! The router's route file.

use thalweg_router::{Ports, parse_routes};
use thalweg_source::Source;

/// Reads a route file.
pub fn routes(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Err(errors) = parse_routes(&Source::new("table.txt", text), &Ports::default()) {
        assert!(!errors.is_empty());
        for error in errors {
            assert!(error.span().end <= text.len() && !error.to_string().is_empty());
        }
    }
}
