//! Metrics as text.
//!
//! The formats differ in the names of families with a suffix (OpenMetrics leaves the suffix out of
//! `TYPE` and `HELP`), in the type `info`, which 0.0.4 lacks, in what help texts escape, and in the
//! mark at the end.

use std::fmt::Write;

use super::{Family, Format, Kind, Metrics, Sample};

impl Metrics {
    /// The metrics in a text format.
    pub fn to_text(&self, format: Format) -> String {
        let mut text = String::new();
        for family in &self.families {
            family.write(&mut text, format);
        }
        if format == Format::OpenMetrics {
            text.push_str("# EOF\n");
        }
        text
    }
}

impl Family {
    fn write(&self, text: &mut String, format: Format) {
        let (suffix, kind) = match (self.kind, format) {
            (Kind::Counter, Format::OpenMetrics) => ("", "counter"),
            (Kind::Counter, Format::Text) => ("_total", "counter"),
            (Kind::Gauge, _) => ("", "gauge"),
            (Kind::Summary, _) => ("", "summary"),
            (Kind::Info, Format::OpenMetrics) => ("", "info"),
            (Kind::Info, Format::Text) => ("_info", "gauge"),
        };
        let name = &*self.name;
        // Writing to a string does not fail.
        let _ = write!(text, "# HELP {name}{suffix} ");
        escape(text, &self.help, format == Format::OpenMetrics);
        let _ = writeln!(text, "\n# TYPE {name}{suffix} {kind}");
        if let (Some(unit), Format::OpenMetrics) = (unit(self), format) {
            let _ = writeln!(text, "# UNIT {name} {unit}");
        }
        self.samples.iter().for_each(|sample| sample.write(text, name));
    }
}

/// The unit of a family, which is the end of its name.
fn unit(family: &Family) -> Option<&str> {
    let (_, last) = family.name.rsplit_once('_')?;
    // OpenMetrics forbids units of facts.
    (["seconds", "bytes", "ratio"].contains(&last) && family.kind != Kind::Info).then_some(last)
}

impl Sample {
    fn write(&self, text: &mut String, name: &str) {
        let _ = write!(text, "{name}{}", self.suffix);
        let mut separator = '{';
        for (label, value) in &self.labels {
            let _ = write!(text, "{separator}{label}=\"");
            escape(text, value, true);
            text.push('"');
            separator = ',';
        }
        if !self.labels.is_empty() {
            text.push('}');
        }
        let _ = writeln!(text, " {}", Number(self.value));
    }
}

/// A number as both formats write it.
struct Number(f64);

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            n if n.is_nan() => f.write_str("NaN"),
            n if n.is_infinite() => f.write_str(if n > 0.0 { "+Inf" } else { "-Inf" }),
            n => n.fmt(f),
        }
    }
}

/// Writes `from` with `\`, line ends and, if wanted, quotes escaped.
fn escape(text: &mut String, from: &str, quotes: bool) {
    for c in from.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '"' if quotes => text.push_str("\\\""),
            c => text.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Metrics {
        let mut metrics = Metrics::default();
        metrics.push(
            Family::new(Kind::Counter, "x_bytes", "Bytes of \"a\\b\".\nSecond line")
                .sample(&[("port", "l\"a\\n\n")], 3.0)
                .sample(&[], 1e21),
        );
        metrics.push(Family::new(Kind::Gauge, "x_ratio", "A share.").sample(&[], f64::NAN));
        metrics.push(Family::new(Kind::Info, "x_build", "Facts.").sample(&[("v", "1")], 1.0));
        let times = [(0.5, 0.001), (1.0, f64::INFINITY)];
        metrics.push(Family::new(Kind::Summary, "x_time_seconds", "Time.").quantiles(
            &[("nf", "a")],
            &times,
            7,
        ));
        metrics.push(Family::new(Kind::Gauge, "x_none", "Without samples."));
        metrics
    }

    #[test]
    fn openmetrics_text_is_as_specified() {
        let expected = r#"# HELP x_bytes Bytes of \"a\\b\".\nSecond line
# TYPE x_bytes counter
# UNIT x_bytes bytes
x_bytes_total{port="l\"a\\n\n"} 3
x_bytes_total 1000000000000000000000
# HELP x_ratio A share.
# TYPE x_ratio gauge
# UNIT x_ratio ratio
x_ratio NaN
# HELP x_build Facts.
# TYPE x_build info
x_build_info{v="1"} 1
# HELP x_time_seconds Time.
# TYPE x_time_seconds summary
# UNIT x_time_seconds seconds
x_time_seconds{nf="a",quantile="0.5"} 0.001
x_time_seconds{nf="a",quantile="1"} +Inf
x_time_seconds_count{nf="a"} 7
# HELP x_none Without samples.
# TYPE x_none gauge
# EOF
"#;
        assert_eq!(example().to_text(Format::OpenMetrics), expected);
    }

    #[test]
    fn text_of_version_0_0_4_is_as_specified() {
        let expected = r#"# HELP x_bytes_total Bytes of "a\\b".\nSecond line
# TYPE x_bytes_total counter
x_bytes_total{port="l\"a\\n\n"} 3
x_bytes_total 1000000000000000000000
# HELP x_ratio A share.
# TYPE x_ratio gauge
x_ratio NaN
# HELP x_build_info Facts.
# TYPE x_build_info gauge
x_build_info{v="1"} 1
# HELP x_time_seconds Time.
# TYPE x_time_seconds summary
x_time_seconds{nf="a",quantile="0.5"} 0.001
x_time_seconds{nf="a",quantile="1"} +Inf
x_time_seconds_count{nf="a"} 7
# HELP x_none Without samples.
# TYPE x_none gauge
"#;
        assert_eq!(example().to_text(Format::Text), expected);
    }
}
