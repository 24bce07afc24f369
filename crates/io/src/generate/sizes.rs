//! Mixes of frame sizes.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use rand::RngExt;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The range from the shortest Ethernet frame to the longest that is generated, in bytes with
/// the frame check sequence.
const RANGE: std::ops::RangeInclusive<u32> = 64..=10_000;

/// A mix of frame sizes in bytes, with the frame check sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Ranges and their weights.
    ranges: Vec<(u32, u32, u32)>,
    total: u32,
    text: String,
}

impl Sizes {
    /// The simple IMIX: 64, 594 and 1518 bytes as 7 to 4 to 1.
    pub fn imix() -> Self {
        let ranges = vec![(64, 64, 7), (594, 594, 4), (1518, 1518, 1)];
        Self { ranges, total: 12, text: "imix".into() }
    }

    /// Draws a size of the mix.
    pub(super) fn pick(&self, random: &mut impl RngExt) -> usize {
        let mut at = random.random_range(0..self.total);
        for &(low, high, weight) in &self.ranges {
            if at < weight {
                return random.random_range(low..=high) as usize;
            }
            at -= weight;
        }
        *RANGE.start() as usize
    }
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "imix" {
            return Ok(Self::imix());
        }
        let wrong = || {
            let (low, high) = (RANGE.start(), RANGE.end());
            format!(
                "'{text}' is not a mix of sizes; expected imix, a size from {low} to {high}, a \
                 range such as 64-1500, or weighted sizes such as 64:7,594:4,1518:1"
            )
        };
        let size = |t: &str| t.trim().parse().ok().filter(|n| RANGE.contains(n)).ok_or_else(wrong);
        let mut ranges = Vec::new();
        for part in text.split(',') {
            let (sizes, weight) = part.split_once(':').unwrap_or((part, "1"));
            let (low, high) = sizes.split_once('-').unwrap_or((sizes, sizes));
            let (low, high) = (size(low)?, size(high)?);
            let weight: u32 =
                weight.trim().parse().ok().filter(|w| *w <= 1_000_000).ok_or_else(wrong)?;
            if low > high {
                return Err(wrong());
            }
            ranges.push((low, high, weight));
        }
        let total = ranges.iter().try_fold(0u32, |sum, (_, _, w)| sum.checked_add(*w));
        let total = total.filter(|t| *t > 0).ok_or_else(wrong)?;
        Ok(Self { ranges, total, text: text.into() })
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl JsonSchema for Sizes {
    fn schema_name() -> Cow<'static, str> {
        "Sizes".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "integer"] })
    }
}

impl Serialize for Sizes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Sizes {
    /// Reads a number or a string.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Sizes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a frame size or a mix of them")
            }
            fn visit_u64<E: de::Error>(self, size: u64) -> Result<Sizes, E> {
                self.visit_str(&size.to_string())
            }
            fn visit_i64<E: de::Error>(self, size: i64) -> Result<Sizes, E> {
                self.visit_str(&size.to_string())
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Sizes, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}
