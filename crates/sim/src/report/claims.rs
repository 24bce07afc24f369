//! Claims against what was simulated.

use serde::Deserialize;

use crate::config::{Config, KeySource};
use crate::experiment::Store;

use super::metrics::{Metric, Runs};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Claims {
    pub(super) claim: Vec<Claim>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Claim {
    text: String,
    paper: String,
    pub(super) metric: String,
    direction: [f64; 2],
    band: [f64; 2],
    why: String,
    /// Assumptions that move it.
    #[serde(default)]
    moved_by: Vec<Assumption>,
}

/// Other settings, or another metric, under which a claim is looked at again.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Assumption {
    text: String,
    #[serde(default)]
    settings: Vec<String>,
    metric: Option<String>,
}

impl Assumption {
    /// The machine of `base` under it.
    fn machine(&self, base: &Config) -> Config {
        let changed = Config::with_settings(&base.to_toml(), &self.settings);
        changed.expect("claims.toml changes settings that there are")
    }
}

/// The claims as they stand in the file.
pub(super) fn read() -> Claims {
    // Ours, and a test reads it.
    toml::from_str(include_str!("../../claims.toml")).expect("claims.toml is well formed")
}

impl Claim {
    fn verdict(&self, value: f64) -> &'static str {
        let within = |[least, most]: [f64; 2]| (least..=most).contains(&value);
        match (within(self.band), within(self.direction)) {
            (true, _) => "in band",
            (false, true) => "direction only",
            (false, false) => "contradicted",
        }
    }
}

impl std::fmt::Display for Metric {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&number(self.value))?;
        if self.half_width > 0.0 { write!(out, " ± {}", number(self.half_width)) } else { Ok(()) }
    }
}

fn number(value: f64) -> String {
    if value.is_infinite() {
        return "none".into();
    }
    if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

/// Machines that the claims are simulated on: the one configured, and, as the paper does not
/// state where the key of a query is, one whose queries carry it.
pub fn machines(config: &Config) -> Vec<Config> {
    let mut inline = config.clone();
    inline.halo.key_source = KeySource::Inline;
    if inline == *config { vec![inline] } else { vec![config.clone(), inline] }
}

/// The simulations that the claims need on all [`machines`], and under the assumptions that
/// move them.
pub fn runs(config: &Config) -> Vec<Config> {
    Store::wanted_by(|store| {
        claims(config, store);
    })
}

/// The claims of the paper, what was simulated beside them, and the verdicts, as Markdown.
///
/// # Panics
/// When a simulation of [`runs`] is missing in `store`.
pub fn claims(config: &Config, store: &Store) -> String {
    let machines = machines(config);
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    for claim in read().claim {
        let of = |base: &Config| {
            let metric = Runs { base, store }.metric(&claim.metric);
            let verdict = metric.map_or("not testable", |metric| claim.verdict(metric.value));
            (metric.map_or_else(|| "-".to_owned(), |metric| metric.to_string()), verdict)
        };
        let seen: Vec<(String, &str)> = machines.iter().map(of).collect();
        let moved = claim.moved(config, store);
        let band = claim.band.map(number).join(" to ");
        let cells = seen.iter().flat_map(|(value, verdict)| [value.as_str(), *verdict]);
        let cells: Vec<&str> =
            [&*claim.text, &*claim.paper, &*band].into_iter().chain(cells).collect();
        rows.push(format!("| {} |\n", cells.join(" | ")));
        if seen[0].1 != "in band" && !claim.why.is_empty() {
            notes.push(format!("- **{}**: {}.\n{moved}", claim.text, claim.why));
        }
    }
    let mut text = "# The claims of the HALO paper\n\n\
        | claim | paper | band | simulated | verdict |"
        .to_owned();
    text += if machines.len() > 1 {
        " key in the query | verdict |\n| --- | --- | --- | --- | --- | --- | --- |\n"
    } else {
        "\n| --- | --- | --- | --- | --- |\n"
    };
    text += &rows.concat();
    if !notes.is_empty() {
        text += "\n## What moves those outside their bands\n\n";
        text += &notes.concat();
    }
    text += "\nIntervals are of 95 %. Differences between runs (data, computing, locking) and \
        extremes have none. The machine:\n\n```toml\n";
    text += &config.to_toml();
    text + "```\n"
}

impl Claim {
    /// The result under each assumption that moves it, as lines of Markdown.
    fn moved(&self, config: &Config, store: &Store) -> String {
        let line = |assumption: &Assumption| {
            let base = assumption.machine(config);
            let name = assumption.metric.as_ref().unwrap_or(&self.metric);
            let metric = Runs { base: &base, store }.metric(name);
            let metric = metric.expect("claims.toml names metrics that there are");
            let settings = assumption.settings.join("`, `");
            let settings = if settings.is_empty() { settings } else { format!(" (`{settings}`)") };
            let verdict = self.verdict(metric.value);
            format!("  - {}{settings}: {metric}, {verdict}\n", assumption.text)
        };
        self.moved_by.iter().map(line).collect()
    }
}
