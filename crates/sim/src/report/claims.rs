//! What the paper claims: `claims.toml`, the rule for its bands, and verdicts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::Config;

/// How far the effect may be from the paper's, as a factor, where magnitudes agree.
pub(super) const TOLERANCE: f64 = 1.5;
/// What a quotient of two simulated means cannot be distinguished from none by: each is known
/// within 2 %, so that their quotient is within 2.8 %.
pub(super) const NOISE: f64 = 0.03;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Claims {
    claim: Vec<Claim>,
}

/// A claim of the paper; the head of `claims.toml` describes its fields.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Claim {
    pub(super) text: String,
    pub(super) paper: String,
    pub(super) claimed: Claimed,
    pub(super) metric: String,
    pub(super) better: Option<Better>,
    pub(super) direction: Option<Range>,
    pub(super) band: Option<Range>,
    pub(super) why: String,
    #[serde(default)]
    pub(super) moved_by: Vec<Assumption>,
    /// Where figures show the paper's number.
    #[serde(default)]
    pub(super) marks: Vec<Mark>,
}

/// The number of a claim.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Claimed {
    Is(f64),
    Between([f64; 2]),
    AtMost(f64),
    /// The paper gives none.
    Words,
    /// That there is no effect.
    NoEffect,
}

/// The side on which a result is better than a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Better {
    More,
    Less,
}

/// More than the first number, at most the second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Range(pub(super) f64, pub(super) f64);

/// Other settings, or another metric, under which a claim is simulated again.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Assumption {
    pub(super) text: String,
    #[serde(default)]
    pub(super) settings: Vec<String>,
    pub(super) metric: Option<String>,
}

/// A place in a figure, from one point of its x axis to another, that has the paper's number, or
/// `value` where that is another.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mark {
    pub(super) figure: String,
    pub(super) from: String,
    pub(super) to: String,
    pub(super) value: Option<f64>,
}

/// What a simulation yields for a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub(super) enum Verdict {
    #[serde(rename = "agrees")]
    Agrees,
    #[serde(rename = "better than claimed")]
    Better,
    #[serde(rename = "direction agrees")]
    Direction,
    #[serde(rename = "contradicted")]
    Contradicted,
    #[serde(rename = "not testable")]
    NotTestable,
}

impl Verdict {
    pub(super) const ALL: [Self; 5] =
        [Self::Agrees, Self::Better, Self::Direction, Self::Contradicted, Self::NotTestable];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Better => "better than claimed",
            Self::Direction => "direction agrees",
            Self::Contradicted => "contradicted",
            Self::NotTestable => "not testable",
        }
    }
}

/// The claims of the file.
pub(super) fn read() -> Vec<Claim> {
    // Ours, and a test reads it.
    parse(include_str!("../../claims.toml")).expect("claims.toml is well formed")
}

pub(super) fn parse(text: &str) -> Result<Vec<Claim>, toml::de::Error> {
    toml::from_str::<Claims>(text).map(|claims| claims.claim)
}

impl Range {
    pub(super) fn holds(self, value: f64) -> bool {
        self.0 < value && value <= self.1
    }
}

impl Claim {
    /// The verdict about a result; that of none is that the claim cannot be tested.
    pub(super) fn verdict(&self, value: f64) -> Verdict {
        if value.is_nan() {
            return Verdict::NotTestable;
        }
        let whole = self.band.or(self.direction);
        let beyond = |range: Range| match self.better {
            Some(Better::More) => value > range.1,
            Some(Better::Less) => value <= range.0,
            None => false,
        };
        if whole.is_some_and(|range| range.holds(value)) {
            Verdict::Agrees
        } else if whole.is_some_and(beyond) {
            Verdict::Better
        } else if self.direction.is_some_and(|range| range.holds(value)) {
            Verdict::Direction
        } else {
            Verdict::Contradicted
        }
    }

    /// The paper's number; both ends of a range.
    pub(super) fn numbers(&self) -> Option<Range> {
        match self.claimed {
            Claimed::Is(value) | Claimed::AtMost(value) => Some(Range(value, value)),
            Claimed::Between([least, most]) => Some(Range(least, most)),
            Claimed::Words | Claimed::NoEffect => None,
        }
    }
}

impl Assumption {
    /// The machine of `base` under it.
    pub(super) fn machine(&self, base: &Config) -> Config {
        let changed = Config::with_settings(&base.to_toml(), &self.settings);
        changed.expect("claims.toml changes settings that there are")
    }
}
