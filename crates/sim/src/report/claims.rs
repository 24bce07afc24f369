//! Claims against what was simulated.

use serde::Deserialize;

use crate::config::Config;
use crate::experiment::Store;

use super::metrics::{self, Metric};

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

/// The claims of the paper, what was simulated beside them, and the verdicts, as Markdown.
///
/// # Panics
/// When a simulation that an artefact names is missing in `store`.
pub fn claims(config: &Config, store: &Store) -> String {
    let metrics = metrics::all(config, store);
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    for claim in read().claim {
        let metric = metrics.iter().find(|metric| metric.name == claim.metric);
        let verdict = metric.map_or("not testable", |metric| claim.verdict(metric.value));
        let simulated = metric.map_or_else(|| "-".to_owned(), Metric::to_string);
        let band = claim.band.map(number).join(" to ");
        let cells = [&claim.text, &claim.paper, &simulated, &band, verdict];
        rows.push(format!("| {} |\n", cells.join(" | ")));
        if verdict != "in band" && !claim.why.is_empty() {
            notes.push(format!("- **{}**: {}.\n", claim.text, claim.why));
        }
    }
    let mut text = "# The claims of the HALO paper\n\n\
        | claim | paper | simulated | band | verdict |\n| --- | --- | --- | --- | --- |\n"
        .to_owned();
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
