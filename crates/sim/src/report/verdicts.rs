//! The claims with what was simulated, as Markdown and as JSON.

use std::fmt::{self, Write};

use schemars::JsonSchema;
use serde::Serialize;

use crate::config::{Config, KeySource};
use crate::experiment::Store;

use super::artefacts::Artefact;
use super::claims::{self, Assumption, Better, Claim, NOISE, Range, TOLERANCE, Verdict};
use super::measures::{Measure, Unit};
use super::metrics::{Metric, Runs};

/// All claims of the paper with their verdicts.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Verdicts {
    #[schemars(extend("const" = "thalweg.sim.claims/1"))]
    schema: &'static str,
    version: &'static str,
    seed: u64,
    machines: Vec<Machine>,
    claims: Vec<Judged>,
    #[serde(skip)]
    config: Config,
}

/// A simulated machine, with its number of claims by verdict.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct Machine {
    name: &'static str,
    settings: Vec<String>,
    agrees: usize,
    better_than_claimed: usize,
    direction_agrees: usize,
    contradicted: usize,
    not_testable: usize,
}

/// A claim and its results.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct Judged {
    text: String,
    paper: String,
    metric: String,
    unit: Option<Unit>,
    /// The figure or table that shows it: the name of a file.
    shown: Option<String>,
    better: Option<Better>,
    #[schemars(with = "Option<(f64, Option<f64>)>")]
    direction: Option<Range>,
    /// Like the direction, from more than the first number to the second; null for no end.
    #[schemars(with = "Option<(f64, Option<f64>)>")]
    band: Option<Range>,
    /// By machine.
    results: Vec<Outcome>,
    why: String,
    moved_by: Vec<Moved>,
}

/// A result; an infinite one is null in JSON.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
struct Outcome {
    value: f64,
    /// Half the width of its 95 % interval; null for a result without one.
    half_width: Option<f64>,
    verdict: Verdict,
}

/// A result under another assumption.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct Moved {
    text: String,
    settings: Vec<String>,
    metric: String,
    #[serde(flatten)]
    outcome: Outcome,
}

/// Machines that the claims are simulated on: the one configured, and, as the paper does not
/// state where the key of a query is, one whose queries carry it.
fn machines(config: &Config) -> Vec<Config> {
    let mut inline = config.clone();
    inline.halo.key_source = KeySource::Inline;
    if inline == *config { vec![inline] } else { vec![config.clone(), inline] }
}

/// The simulations that the claims need on all machines, and under the assumptions that move
/// them.
pub fn runs(config: &Config) -> Vec<Config> {
    Store::wanted_by(|store| {
        verdicts(config, store);
    })
}

/// The claims of the paper, what was simulated for them, and the verdicts.
///
/// # Panics
/// When a simulation of [`runs`] is missing in `store`.
pub fn verdicts(config: &Config, store: &Store) -> Verdicts {
    let all = machines(config);
    let claims: Vec<Judged> =
        claims::read().iter().map(|claim| claim.judge(config, &all, store)).collect();
    let machine = |(at, machine): (usize, &Config)| {
        let count = |verdict| claims.iter().filter(|c| c.results[at].verdict == verdict).count();
        let inline = machine.halo.key_source == KeySource::Inline;
        Machine {
            name: if inline { "key in the query" } else { "key in the core's cache" },
            settings: machine.differences(),
            agrees: count(Verdict::Agrees),
            better_than_claimed: count(Verdict::Better),
            direction_agrees: count(Verdict::Direction),
            contradicted: count(Verdict::Contradicted),
            not_testable: count(Verdict::NotTestable),
        }
    };
    Verdicts {
        schema: "thalweg.sim.claims/1",
        version: env!("CARGO_PKG_VERSION"),
        seed: config.sim.seed,
        machines: all.iter().enumerate().map(machine).collect(),
        claims,
        config: config.clone(),
    }
}

impl Claim {
    fn outcome(&self, metric: &str, runs: Runs<'_>) -> Outcome {
        let measure = Measure::named(metric).expect("claims.toml names metrics that there are");
        let Metric { value, half_width } = measure.of(runs);
        let half_width = (half_width > 0.0).then_some(half_width);
        Outcome { value, half_width, verdict: self.verdict(value) }
    }

    fn judge(&self, config: &Config, machines: &[Config], store: &Store) -> Judged {
        let measure = Measure::named(&self.metric);
        let moved = |assumption: &Assumption| {
            let metric = assumption.metric.clone().unwrap_or_else(|| self.metric.clone());
            let base = &assumption.machine(config);
            Moved {
                text: assumption.text.clone(),
                settings: assumption.settings.clone(),
                outcome: self.outcome(&metric, Runs { base, store }),
                metric,
            }
        };
        let of = |base| self.outcome(&self.metric, Runs { base, store });
        Judged {
            text: self.text.clone(),
            paper: self.paper.clone(),
            metric: self.metric.clone(),
            unit: measure.map(|measure| measure.unit),
            shown: measure.and_then(|measure| measure.shown?.names().into_iter().next()),
            better: self.better,
            direction: self.direction,
            band: self.band,
            results: machines.iter().map(of).collect(),
            why: self.why.clone(),
            moved_by: self.moved_by.iter().map(moved).collect(),
        }
    }
}

impl Machine {
    fn count(&self, verdict: Verdict) -> usize {
        match verdict {
            Verdict::Agrees => self.agrees,
            Verdict::Better => self.better_than_claimed,
            Verdict::Direction => self.direction_agrees,
            Verdict::Contradicted => self.contradicted,
            Verdict::NotTestable => self.not_testable,
        }
    }
}

impl Verdicts {
    /// The same as JSON.
    ///
    /// # Panics
    /// Never: all of it has a form in JSON.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("verdicts have a form in JSON") + "\n"
    }

    /// The same as Markdown, with links to the files of the artefacts.
    pub fn markdown(&self) -> String {
        let mut text = "# The claims of the HALO paper\n\n".to_owned();
        text += &self.counts();
        text += "\n## Claims\n\n";
        text += &self.table();
        for (verdict, heading) in [
            (Verdict::Contradicted, "Contradicted, and the sweeps that explain it"),
            (Verdict::Direction, "Magnitudes that differ, and what moves them"),
            (Verdict::Better, "Better than claimed"),
            (Verdict::NotTestable, "Not testable"),
        ] {
            text += &self.notes(verdict, heading);
        }
        text += &files();
        let _ = write!(
            text,
            "\nA direction excludes that there is no effect, within {:.0} %; a band has the \
             paper's effect, divided or multiplied by at most {TOLERANCE}. ",
            100.0 * NOISE
        );
        text += "± is half of the 95 % interval of a run's \
            batches; differences between runs (data, computing, locking), counts and extremes \
            have none. ";
        let _ = writeln!(text, "Thalweg {}, seed {}. The machine:\n", self.version, self.seed);
        text + "```toml\n" + &self.config.to_toml() + "```\n"
    }

    /// A table of how many claims have which verdict, by machine.
    fn counts(&self) -> String {
        let names: Vec<&str> = self.machines.iter().map(|machine| machine.name).collect();
        let mut text = format!("| verdict | {} |\n", names.join(" | "));
        let _ = writeln!(text, "| --- |{}", " --- |".repeat(names.len()));
        for verdict in Verdict::ALL {
            let counts = self.machines.iter().map(|machine| machine.count(verdict).to_string());
            let _ = writeln!(
                text,
                "| {} | {} |",
                verdict.name(),
                counts.collect::<Vec<_>>().join(" | ")
            );
        }
        let all = vec![self.claims.len().to_string(); names.len()];
        let _ = writeln!(text, "| all | {} |", all.join(" | "));
        text
    }

    fn table(&self) -> String {
        let mut text = "| claim | paper | direction | band | shown in |".to_owned();
        let mut rule = "| --- | --- | --- | --- | --- |".to_owned();
        for machine in &self.machines {
            let _ = write!(text, " {} | verdict |", machine.name);
            rule += " --- | --- |";
        }
        let _ = writeln!(text, "\n{rule}");
        for claim in &self.claims {
            let range = |range: Option<Range>| range.map_or_else(|| "-".into(), |r| r.to_string());
            let link = |file: &String| format!("[{}]({file})", stem(file));
            let _ = write!(
                text,
                "| {} | {} | {} | {} | {} |",
                claim.text,
                claim.paper,
                range(claim.direction),
                range(claim.band),
                claim.shown.as_ref().map_or_else(|| "-".to_owned(), link)
            );
            for outcome in &claim.results {
                let _ = write!(text, " {outcome} | {} |", outcome.verdict.name());
            }
            text.push('\n');
        }
        text
    }

    /// Why claims have `verdict` on any machine, which is the worst of theirs.
    fn notes(&self, verdict: Verdict, heading: &str) -> String {
        let worst =
            |claim: &&Judged| claim.results.iter().map(|r| r.verdict).max() == Some(verdict);
        let mut text = String::new();
        for claim in self.claims.iter().filter(worst) {
            let seen = self.machines.iter().zip(&claim.results).map(|(machine, outcome)| {
                format!("{} with the {}, {}", outcome, machine.name, outcome.verdict.name())
            });
            let seen = seen.collect::<Vec<_>>().join("; ");
            let _ = writeln!(text, "- **{}** (paper: {}): {seen}.", claim.text, claim.paper);
            let _ = writeln!(text, "  {}.", capital(&claim.why));
            if claim.moved_by.is_empty() && verdict == Verdict::Contradicted {
                text += "  - No assumption was simulated that explains it.\n";
            }
            for Moved { text: assumption, settings, outcome, .. } in &claim.moved_by {
                let settings = settings.iter().map(|s| format!("`{s}`")).collect::<Vec<_>>();
                let settings = if settings.is_empty() {
                    String::new()
                } else {
                    format!(" ({})", settings.join(", "))
                };
                let verdict = outcome.verdict.name();
                let _ = writeln!(text, "  - {assumption}{settings}: {outcome}, {verdict}");
            }
        }
        if text.is_empty() { text } else { format!("\n## {heading}\n\n{text}") }
    }
}

/// A file's name without its kind.
fn stem(file: &str) -> &str {
    file.split('.').next().unwrap_or(file)
}

/// The files of all figures and tables, as a list of links.
fn files() -> String {
    let mut text = "\n## Figures and tables\n".to_owned();
    let mut last = String::new();
    for file in Artefact::ALL.iter().flat_map(|artefact| artefact.names()) {
        let (name, kind) = file.split_once('.').unwrap_or((&file, ""));
        let start = if name == last { ", ".to_owned() } else { format!("\n- {name}: ") };
        let _ = write!(text, "{start}[{}]({file})", kind.to_uppercase());
        name.clone_into(&mut last);
    }
    text + "\n"
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&number(self.value))?;
        self.half_width.map_or(Ok(()), |half| write!(out, " ± {}", number(half)))
    }
}

impl fmt::Display for Range {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.1.is_infinite() {
            write!(out, "above {}", number(self.0))
        } else {
            write!(out, "{} to {}", number(self.0), number(self.1))
        }
    }
}

fn number(value: f64) -> String {
    if value.is_nan() {
        return "-".into();
    }
    if value.is_infinite() {
        return "none".into();
    }
    if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}
