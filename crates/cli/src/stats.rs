//! Statistics of a run while it lasts: a line for each interval.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use thalweg_engine::Interval;
use thalweg_source::VisibleJson;

use crate::args::StatsFormat;
use crate::units::{rate, time};

/// The lines between two lines of headings.
const PAGE: u64 = 20;

/// The columns of numbers, and their widths.
const COLUMNS: [(&str, usize); 7] = [
    ("time (s)", 9),
    ("in", 9),
    ("out", 9),
    ("dropped", 9),
    ("bits in", 11),
    ("p50", 8),
    ("p99", 8),
];

/// What happened in one interval of a run: a line of `--stats`.
#[derive(Serialize, JsonSchema)]
pub struct StatsLine<'a> {
    #[schemars(extend("const" = "thalweg.stats/1"))]
    schema: &'static str,
    /// Whether the run has ended, so that the interval may be shorter than requested.
    last: bool,
    #[serde(flatten)]
    interval: &'a Interval,
}

/// The lines of statistics.
pub struct Stats {
    format: StatsFormat,
    interval: Duration,
    lines: u64,
}

impl Stats {
    /// The lines of statistics at this interval.
    pub fn new(format: StatsFormat, interval: Duration) -> Self {
        Self { format, interval, lines: 0 }
    }

    /// The text for the next interval of the run, which is the last one if `last`: a line, and
    /// headings before it from time to time.
    pub fn lines(&mut self, interval: &Interval, last: bool) -> Vec<u8> {
        let mut text = Vec::new();
        match self.format {
            StatsFormat::Json => {
                let line = StatsLine { schema: "thalweg.stats/1", last, interval };
                // Neither a string nor a number of it can fail to be written to memory.
                let _ = serde_json::to_writer(VisibleJson(&mut text), &line);
            }
            StatsFormat::Text => {
                if self.lines.is_multiple_of(PAGE) {
                    let headings = COLUMNS.map(|(heading, _)| heading.to_owned());
                    text = row(&headings, "drops by reason").into_bytes();
                    text.push(b'\n');
                }
                text.extend(self.text(interval, last).into_bytes());
            }
        }
        text.push(b'\n');
        self.lines += 1;
        text
    }

    fn text(&self, interval: &Interval, last: bool) -> String {
        let packets = |count| rate(interval.per_second(count), "pps");
        let is_empty = interval.packets_out == 0;
        let latency = |ns| if is_empty { "-".to_owned() } else { time(ns) };
        let numbers = [
            format!("{:.2}", interval.end_s),
            packets(interval.packets_in),
            packets(interval.packets_out),
            packets(interval.packets_dropped),
            rate(interval.bits_per_second, "bit/s"),
            latency(interval.latency_ns.p50),
            latency(interval.latency_ns.p99),
        ];
        let drops = interval.drops.iter().map(|(reason, count)| format!("{reason} {count}"));
        let note = self.note(interval, last).into_iter();
        row(&numbers, &drops.chain(note).collect::<Vec<_>>().join(", "))
    }

    /// A note on the length of an interval that is not as requested.
    fn note(&self, interval: &Interval, last: bool) -> Option<String> {
        let (seconds, requested) = (interval.seconds(), self.interval.as_secs_f64());
        let differs = (seconds - requested).abs() > requested / 10.0;
        match (last, differs) {
            (true, _) => Some(format!("(last {})", time((seconds * 1e9) as u64))),
            (false, true) => Some(format!("(over {})", time((seconds * 1e9) as u64))),
            (false, false) => None,
        }
    }
}

/// A line of aligned columns, and a text after them.
fn row(numbers: &[String; COLUMNS.len()], text: &str) -> String {
    let columns =
        numbers.iter().zip(COLUMNS).map(|(number, (_, width))| format!("{number:>width$}"));
    let line = columns.chain([text.to_owned()]).collect::<Vec<_>>().join("  ");
    line.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn interval(start_s: f64, end_s: f64) -> Interval {
        let mut interval = Interval::default();
        (interval.start_s, interval.end_s) = (start_s, end_s);
        (interval.packets_in, interval.packets_out, interval.packets_dropped) = (3000, 1000, 2000);
        interval.bits_per_second = 5.67e9;
        (interval.latency_ns.p50, interval.latency_ns.p99) = (12_300, 4_560_000);
        interval.drops.extend([("no-route", 500), ("policy", 1500)]);
        interval
    }

    fn lines(stats: &mut Stats, interval: &Interval, last: bool) -> String {
        String::from_utf8(stats.lines(interval, last)).unwrap()
    }

    #[test]
    fn a_line_of_text_stands_below_its_headings() {
        let mut stats = Stats::new(StatsFormat::Text, Duration::from_secs(1));
        let first = " time (s)         in        out    dropped      bits in       p50       p99  drops by reason
     1.00  3.00 kpps  1.00 kpps  2.00 kpps  5.67 Gbit/s   12.3 us    4.6 ms  no-route 500, policy 1500
";
        assert_eq!(lines(&mut stats, &interval(0.0, 1.0), false), first);
        let mut idle = Interval::default();
        (idle.start_s, idle.end_s) = (1.0, 3.25);
        assert_eq!(
            lines(&mut stats, &idle, false),
            "     3.25      0 pps      0 pps      0 pps      0 bit/s         -         -  (over 2.25 s)\n"
        );
        let last = lines(&mut stats, &interval(3.25, 3.5), true);
        assert!(last.ends_with("no-route 500, policy 1500, (last 250.0 ms)\n"), "{last}");
        for line in 4..=20 {
            let lines = lines(&mut stats, &idle, false);
            assert_eq!(lines.matches('\n').count(), 1, "{line}");
        }
        assert!(lines(&mut stats, &idle, false).starts_with(" time (s)"), "headings come again");
    }

    #[test]
    fn text_and_json_agree() {
        let interval = interval(4.0, 6.0);
        let mut json = Stats::new(StatsFormat::Json, Duration::from_secs(2));
        let line: Value = serde_json::from_str(&lines(&mut json, &interval, true)).unwrap();
        let mut text = Stats::new(StatsFormat::Text, Duration::from_secs(2));
        let text = lines(&mut text, &interval, true);
        let cells: Vec<_> = text.lines().nth(1).unwrap().split("  ").map(str::trim).collect();
        let cells: Vec<_> = cells.into_iter().filter(|cell| !cell.is_empty()).collect();
        let seconds = line["end_s"].as_f64().unwrap() - line["start_s"].as_f64().unwrap();
        let packets = |name: &str| rate(line[name].as_f64().unwrap() / seconds, "pps");
        let latency = |name: &str| time(line["latency_ns"][name].as_u64().unwrap());
        let drops = line["drops"].as_object().unwrap().iter();
        let drops = drops.map(|(reason, count)| format!("{reason} {count}")).collect::<Vec<_>>();
        let expected = [
            format!("{:.2}", line["end_s"].as_f64().unwrap()),
            packets("packets_in"),
            packets("packets_out"),
            packets("packets_dropped"),
            rate(line["bits_per_second"].as_f64().unwrap(), "bit/s"),
            latency("p50"),
            latency("p99"),
            format!("{}, (last 2.00 s)", drops.join(", ")),
        ];
        assert_eq!(cells, expected);
        assert_eq!((&line["schema"], &line["last"]), (&"thalweg.stats/1".into(), &true.into()));
    }
}
