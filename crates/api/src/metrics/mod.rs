//! Metrics as text, for Prometheus and its like: OpenMetrics 1.0, and the text format 0.0.4.

mod accept;
mod text;

use std::borrow::Cow;

pub use accept::Format;

/// Metrics, by family.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    families: Vec<Family>,
}

/// The metrics with one name.
#[derive(Clone, Debug)]
pub struct Family {
    name: Cow<'static, str>,
    help: String,
    kind: Kind,
    samples: Vec<Sample>,
}

/// The kind of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number that only grows; its samples end in `_total`.
    Counter,
    /// A number that grows and shrinks.
    Gauge,
    /// Quantiles of a distribution, and the number of values.
    Summary,
    /// Facts in labels, with the value 1; its samples end in `_info`.
    Info,
}

/// A label: its name and its value.
pub type Label<'a> = (&'static str, &'a str);

#[derive(Clone, Debug)]
struct Sample {
    suffix: &'static str,
    labels: Vec<(&'static str, String)>,
    value: f64,
}

impl Metrics {
    /// Adds a family. One without samples is described all the same, so that readers find out what
    /// there may be.
    pub fn push(&mut self, family: Family) {
        self.families.push(family);
    }
}

impl Extend<Family> for Metrics {
    fn extend<T: IntoIterator<Item = Family>>(&mut self, families: T) {
        self.families.extend(families);
    }
}

impl Family {
    /// A family without samples. Its name has the base unit and no suffix of a kind: a counter
    /// `thalweg_packets` has samples `thalweg_packets_total`.
    ///
    /// # Panics
    /// When the name is not one (letters, digits and `_`), or the help text is empty.
    pub fn new(kind: Kind, name: impl Into<Cow<'static, str>>, help: impl Into<String>) -> Self {
        let (name, help) = (name.into(), help.into());
        assert!(is_name(&name), "'{name}' is not the name of a metric");
        assert!(!help.trim().is_empty(), "'{name}' has no help text");
        Self { name, help, kind, samples: Vec::new() }
    }

    /// Adds a sample. No other one has the same labels.
    #[must_use]
    pub fn sample(mut self, labels: &[Label<'_>], value: f64) -> Self {
        let suffix = match self.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Summary => "",
        };
        self.add(suffix, labels, value);
        self
    }

    /// Adds the quantiles (0 to 1) of a distribution of `count` values.
    #[must_use]
    pub fn quantiles(mut self, labels: &[Label<'_>], quantiles: &[(f64, f64)], count: u64) -> Self {
        for (quantile, value) in quantiles {
            let quantile = quantile.to_string();
            self.add("", &[labels, &[("quantile", &quantile)]].concat(), *value);
        }
        self.add("_count", labels, count as f64);
        self
    }

    fn add(&mut self, suffix: &'static str, labels: &[Label<'_>], value: f64) {
        let labels: Vec<_> = labels.iter().map(|(name, value)| (*name, (*value).into())).collect();
        debug_assert!(labels.iter().all(|(name, _)| is_name(name)), "{labels:?}");
        self.samples.push(Sample { suffix, labels, value });
    }
}

/// Whether `text` can be the name of a metric or a label, in both formats. A colon, which the
/// formats allow, is for rules of the reader.
fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
