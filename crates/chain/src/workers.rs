//! How many workers a run has.

use std::fmt;
use std::num::NonZero;
use std::str::FromStr;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

/// The maximum number of worker threads of a run.
pub const MAX_WORKERS: usize = 256;

/// The number of workers as a user requests it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    /// One for each core that the chain file lists, or for each that the program may use.
    Auto,
    /// This many.
    Number(usize),
}

impl Workers {
    /// What is expected, for messages.
    pub const EXPECTED: &str = "1 to 256, or \"auto\"";

    /// The number of threads, of which each has one of these `cores`, if there are any.
    pub fn number_on(self, cores: usize) -> usize {
        let processors = || std::thread::available_parallelism().map_or(1, NonZero::get);
        match self {
            Self::Auto if cores > 0 => cores.min(MAX_WORKERS),
            Self::Auto => processors().min(MAX_WORKERS),
            Self::Number(number) => number,
        }
    }

    /// Whether a run may have as many.
    pub fn is_possible(self) -> bool {
        matches!(self, Self::Auto | Self::Number(1..=MAX_WORKERS))
    }
}

impl FromStr for Workers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = || text.parse().map(Self::Number).ok();
        let known = if text == "auto" { Some(Self::Auto) } else { number() };
        known.filter(|workers| workers.is_possible()).ok_or(format!("expected {}", Self::EXPECTED))
    }
}

impl<'de> Deserialize<'de> for Workers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl Visitor<'_> for Reader {
    type Value = Workers;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Workers::EXPECTED)
    }

    // Numbers out of range are a mistake of their own, with its place.
    fn visit_i64<E: Error>(self, number: i64) -> Result<Workers, E> {
        Ok(Workers::Number(usize::try_from(number).unwrap_or(0)))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Workers, E> {
        Ok(Workers::Number(usize::try_from(number).unwrap_or(0)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Workers, E> {
        if text == "auto" { Ok(Workers::Auto) } else { Err(E::custom("bad number of workers")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_or_auto_and_nothing_else() {
        assert_eq!("auto".parse(), Ok(Workers::Auto));
        assert_eq!("256".parse(), Ok(Workers::Number(256)));
        for wrong in ["", "0", "257", "-1", "Auto", "2x"] {
            assert!(wrong.parse::<Workers>().is_err(), "{wrong}");
        }
        assert!((1..=MAX_WORKERS).contains(&Workers::Auto.number_on(0)));
        assert_eq!([3, 1000].map(|cores| Workers::Auto.number_on(cores)), [3, MAX_WORKERS]);
        assert_eq!(Workers::Number(2).number_on(3), 2);
    }
}
