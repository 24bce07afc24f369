//! Holds `claims.toml` against the rule for directions and bands (docs/adr/0006-verdicts.md).

use super::claims::{
    Assumption, Better, Claim, Claimed, NOISE, Range, TOLERANCE, Verdict, parse, read,
};
use super::grid::OTHER_CYCLES;
use super::measures::{Measure, Unit};

impl Unit {
    /// The value that an effect is counted from.
    fn origin(self) -> f64 {
        match self {
            Self::Times => 1.0,
            Self::PacketCycles => OTHER_CYCLES,
            Self::Percent | Self::Amount => 0.0,
        }
    }
}

impl Range {
    /// Whether it is within `wider`, but for rounding to three digits.
    fn within(self, wider: Self) -> bool {
        let slack = |of: f64| 0.005 * of.abs();
        self.0 >= wider.0 - slack(wider.0) && self.1 <= wider.1 + slack(wider.1)
    }
}

impl Claim {
    /// The widest direction and band that the rule allows; no direction where the claim is
    /// about an amount.
    fn rule(&self, unit: Unit) -> (Option<Range>, Range) {
        let none = unit.origin();
        let noise = if unit == Unit::Percent { 100.0 * NOISE } else { NOISE };
        // The value whose effect is that of `value`, this many times.
        let scaled = |value: f64, times: f64| none + (value - none) * times;
        let band = match self.claimed {
            Claimed::Is(_) | Claimed::Between(_) => {
                let Range(least, most) = self.numbers().unwrap_or(Range(none, none));
                Range(scaled(least, 1.0 / TOLERANCE), scaled(most, TOLERANCE))
            }
            Claimed::AtMost(most) => Range(f64::min(0.0, none), most),
            Claimed::NoEffect => Range(f64::MIN, none + noise),
            Claimed::Words => match (self.direction, unit) {
                (Some(direction), _) => direction,
                // "Close" and "flat": the factor on the whole.
                (None, Unit::Percent) => Range(0.0, 100.0 * (TOLERANCE - 1.0)),
                (None, _) => Range(none, none * TOLERANCE),
            },
        };
        let direction = match (self.claimed, self.better) {
            (Claimed::NoEffect, _) => None,
            _ if unit == Unit::Amount || unit == Unit::PacketCycles => None,
            // A ceiling above no effect is a cost, one below it a gain that is at least so large.
            (Claimed::AtMost(most), _) if most < none => {
                Some(Range(f64::MIN, scaled(most, 1.0 / TOLERANCE)))
            }
            (Claimed::AtMost(most), _) => Some(Range(none, scaled(most, TOLERANCE))),
            (Claimed::Words, _) if self.direction.is_some_and(|Range(_, most)| most <= none) => {
                Some(Range(f64::MIN, none - noise))
            }
            (Claimed::Words, _) => Some(Range(none + noise, f64::INFINITY)),
            (_, Some(Better::More)) => Some(Range(none + noise, band.1)),
            (_, Some(Better::Less)) => Some(Range(band.0, none - noise)),
            (_, None) => None,
        };
        (direction, band)
    }

    /// What is wrong with the claim, by the rule that directions and bands follow.
    fn mistakes(&self) -> Vec<&'static str> {
        let Some(measure) = Measure::named(&self.metric) else { return vec!["unknown metric"] };
        let (direction, band) = self.rule(measure.unit);
        let ranges = || self.direction.into_iter().chain(self.band);
        let known = |wanted: &Assumption| {
            wanted.metric.as_ref().is_none_or(|name| Measure::named(name).is_some())
        };
        let numbers = self.numbers().is_some();
        let found = [
            (self.text.is_empty() || self.paper.is_empty(), "has no text"),
            (self.why.is_empty(), "has no reason"),
            (self.direction.is_none() && self.band.is_none(), "has neither direction nor band"),
            (numbers && self.band.is_none(), "has a number and no band"),
            (!ranges().all(|Range(least, most)| least < most), "has an empty range"),
            (
                numbers && !ranges().all(|range| range.0.is_finite() && range.1.is_finite()),
                "has a number and an open end",
            ),
            (
                self.direction.is_some_and(|range| range.holds(measure.unit.origin())),
                "has a direction that holds without an effect",
            ),
            (
                self.direction
                    .is_some_and(|range| !direction.is_some_and(|rule| range.within(rule))),
                "has a wider direction than the paper",
            ),
            (self.band.is_some_and(|range| !range.within(band)), "has a wider band than the paper"),
            (
                self.band.zip(self.direction).is_some_and(|(band, whole)| !band.within(whole)),
                "has a band outside its direction",
            ),
            (!self.moved_by.iter().all(known), "is moved by an unknown metric"),
        ];
        found.into_iter().filter_map(|(wrong, what)| wrong.then_some(what)).collect()
    }
}

/// The claims of a file with one, and what is wrong with it.
fn mistakes(claim: &str) -> Vec<&'static str> {
    let claims = parse(&format!("[[claim]]\ntext = \"it is fast\"\npaper = \"3\"\n{claim}"));
    claims.unwrap().remove(0).mistakes()
}

#[test]
fn claims_follow_the_rule() {
    for claim in read() {
        assert_eq!(claim.mistakes(), [""; 0], "{}", claim.text);
    }
}

#[test]
fn contradicted_claims_have_sweeps_and_the_documentation_counts_verdicts() {
    let recorded: toml::Table = toml::from_str(include_str!("../../tests/verdicts.toml")).unwrap();
    let claims = read();
    assert_eq!(recorded.len(), claims.len());
    let verdicts = |metric: &str, at: usize| recorded[metric][at].as_str().unwrap();
    for claim in &claims {
        let contradicted = (0..2).any(|at| verdicts(&claim.metric, at) == "contradicted");
        assert!(!contradicted || !claim.moved_by.is_empty(), "{}", claim.text);
    }
    for verdict in Verdict::ALL {
        let count =
            |at| claims.iter().filter(|c| verdicts(&c.metric, at) == verdict.name()).count();
        let row = format!("| {} | {} | {} |\n", verdict.name(), count(0), count(1));
        assert!(include_str!("../../../../docs/sim.md").contains(&row), "{row}");
    }
}

#[test]
fn directions_and_bands_that_cannot_fail_are_refused() {
    let wide = "has a wider direction than the paper";
    let wide_band = "has a wider band than the paper";
    let none = "has a direction that holds without an effect";
    for (claim, wrong) in [
        // As they once were.
        (
            "claimed = { at_most = 5.3 }\nmetric = 'polled_percent'\nbetter = 'less'\n\
          direction = [0.0, 1000.0]\nband = [0.0, 12.0]",
            wide,
        ),
        (
            "claimed = { at_most = 5.3 }\nmetric = 'polled_percent'\nbetter = 'less'\n\
          direction = [0.0, 7.9]\nband = [0.0, 12.0]",
            wide_band,
        ),
        (
            "claimed = { between = [10.0, 64.0] }\nmetric = 'crossover'\nbetter = 'less'\n\
          direction = [1.0, 16777216.0]\nband = [10.0, 64.0]",
            wide,
        ),
        ("claimed = 'words'\nmetric = 'tcam_over_halo'\nband = [1.0, 100.0]", wide_band),
        ("claimed = 'words'\nmetric = 'tuples_growth'\ndirection = [1.0, 100.0]", wide),
        (
            "claimed = { is = 3.3 }\nmetric = 'single_llc'\nbetter = 'more'\n\
          direction = [0.0, 4.0]\nband = [3.0, 4.0]",
            none,
        ),
        (
            "claimed = { is = 3.3 }\nmetric = 'single_llc'\nbetter = 'more'\n\
          direction = [1.03, 4.0]\nband = [1.5, 4.0]",
            wide_band,
        ),
        // A slowdown that is claimed to be one.
        (
            "claimed = { is = 2.1 }\nmetric = 'single_llc'\nbetter = 'less'\n\
          direction = [0.5, 1.2]\nband = [1.8, 2.6]",
            none,
        ),
        (
            "claimed = { is = 3.3 }\nmetric = 'single_llc'\nbetter = 'more'\n\
          direction = [1.03, 2.0]\nband = [3.0, 4.0]",
            "has a band outside its direction",
        ),
        (
            "claimed = { is = 3.3 }\nmetric = 'single_llc'\nbetter = 'more'\n\
          direction = [1.03, inf]\nband = [3.0, inf]",
            "has a number and an open end",
        ),
        (
            "claimed = { is = 13.1 }\nmetric = 'lock_rw_percent'\n\
          direction = [0.0, 100.0]\nband = [10.0, 15.0]",
            wide,
        ),
        (
            "claimed = { is = 340.0 }\nmetric = 'switch_cycles_least'\nband = [226.0, 390.0]",
            wide_band,
        ),
        ("claimed = 'words'\nmetric = 'tuples_growth'", "has neither direction nor band"),
        (
            "claimed = { is = 3.3 }\nmetric = 'single_llc'\nbetter = 'more'\n\
          direction = [1.03, 4.0]",
            "has a number and no band",
        ),
        (
            "claimed = 'words'\nmetric = 'tuples_growth'\ndirection = [2.0, 1.5]",
            "has an empty range",
        ),
        ("claimed = 'words'\nmetric = 'no such'\ndirection = [1.03, inf]", "unknown metric"),
        (
            "claimed = 'words'\nmetric = 'tuples_growth'\ndirection = [1.03, inf]\n\
          moved_by = [{ text = 'x', metric = 'no such' }]",
            "is moved by an unknown metric",
        ),
    ] {
        let found = mistakes(&format!("{claim}\nwhy = 'so'\n"));
        assert!(found.contains(&wrong), "{claim}: {found:?}");
    }
    let fine = "claimed = { is = 3.3 }\nmetric = 'single_llc'\nbetter = 'more'\n\
                direction = [1.03, 4.9]\nband = [2.54, 4.9]\n";
    assert_eq!(mistakes(&format!("{fine}why = ''")), ["has no reason", wide, wide_band]);
}

#[test]
fn verdicts_have_their_words() {
    let of = |metric: &str, value: f64| {
        let claim = read().into_iter().find(|claim| claim.metric == metric).unwrap();
        claim.verdict(value)
    };
    for (metric, results) in [
        // At most 5.3 % slower.
        (
            "polled_percent",
            &[
                (80.0, Verdict::Contradicted),
                (8.0, Verdict::Contradicted),
                (7.0, Verdict::Direction),
                (5.3, Verdict::Agrees),
                (0.0, Verdict::Better),
                (-70.0, Verdict::Better),
                (f64::NAN, Verdict::NotTestable),
            ][..],
        ),
        // 3.3 times as fast.
        (
            "single_llc",
            &[
                (0.9, Verdict::Contradicted),
                (1.0, Verdict::Contradicted),
                (1.02, Verdict::Contradicted),
                (1.4, Verdict::Direction),
                (3.3, Verdict::Agrees),
                (9.0, Verdict::Better),
            ],
        ),
        // Faster from 10 or 64 entries.
        (
            "crossover",
            &[
                (262_144.0, Verdict::Contradicted),
                (f64::INFINITY, Verdict::Contradicted),
                (64.0, Verdict::Agrees),
                (2.0, Verdict::Better),
            ],
        ),
        // An amount has no better side.
        ("operations", &[(400.0, Verdict::Contradicted), (100.0, Verdict::Contradicted)]),
        ("tuples_growth", &[(1.0, Verdict::Contradicted), (1.2, Verdict::Agrees)]),
        ("tcam_over_halo", &[(4.0, Verdict::Contradicted), (0.9, Verdict::Better)]),
    ] {
        for (value, verdict) in results {
            assert_eq!(of(metric, *value), *verdict, "{metric} {value}");
        }
    }
}
