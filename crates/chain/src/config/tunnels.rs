//! Which tunnels are looked into: `decapsulate`.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use thalweg_packet::Decapsulate;

/// The one value that is not a boolean.
const NESTED: &str = "nested";

/// The value of `decapsulate`: `true`, `false` or `"nested"`.
#[derive(Debug, Default)]
pub(super) struct Tunnels(pub(super) Decapsulate);

impl<'de> Deserialize<'de> for Tunnels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TunnelsVisitor)
    }
}

struct TunnelsVisitor;

impl Visitor<'_> for TunnelsVisitor {
    type Value = Tunnels;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "true, false or \"{NESTED}\"")
    }

    fn visit_bool<E>(self, is_wanted: bool) -> Result<Tunnels, E> {
        Ok(Tunnels(if is_wanted { Decapsulate::Yes } else { Decapsulate::No }))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Tunnels, E> {
        if text == NESTED {
            return Ok(Tunnels(Decapsulate::Nested));
        }
        Err(E::invalid_value(Unexpected::Str(text), &self))
    }
}
