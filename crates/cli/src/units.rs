//! Rates and times in their handiest units.

use std::time::Duration;

use ::time::OffsetDateTime;

/// A rate in its handiest unit, to three digits: `12.3 kpps` of 12300 and `pps`.
pub fn rate(value: f64, unit: &str) -> String {
    let prefixes = ["", "k", "M", "G", "T"];
    let (mut value, mut prefixes) = (value.max(0.0), prefixes.iter().peekable());
    while let Some(prefix) = prefixes.next() {
        if round(value) < 1000.0 || prefixes.peek().is_none() {
            return format!("{} {prefix}{unit}", digits(value));
        }
        value /= 1000.0;
    }
    String::new()
}

/// A time in its handiest unit.
pub fn time(nanoseconds: u64) -> String {
    let units = [("ns", 1e3), ("us", 1e3), ("ms", 1e3), ("s", f64::INFINITY)];
    let mut value = nanoseconds as f64;
    for (unit, next) in units {
        let decimals = match unit {
            "ns" => 0,
            "s" => 2,
            _ => 1,
        };
        let text = format!("{value:.decimals$}");
        if text.parse::<f64>().is_ok_and(|shown| shown < next) {
            return format!("{text} {unit}");
        }
        value /= next;
    }
    String::new()
}

/// A date and time of day, UTC, in microseconds: `2026-01-31 12:00:00.123456`.
pub fn date_time(nanoseconds_since_1970: u64) -> String {
    // 64 bits reach until the year 2554.
    let time = OffsetDateTime::from_unix_timestamp_nanos(nanoseconds_since_1970.into());
    let time = time.unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (hour, minute, second, micros) = time.to_hms_micro();
    format!("{} {hour:02}:{minute:02}:{second:02}.{micros:06}", time.date())
}

/// A time as a person waits for it: `2 h 5 min`, `3 min 20 s`, `8 s`.
pub fn wait(time: Duration) -> String {
    let seconds = (time.as_secs_f64()).round() as u64;
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds} s"),
        (0, _) => format!("{minutes} min {} s", seconds % 60),
        _ => format!("{hours} h {minutes} min"),
    }
}

/// To three digits.
fn digits(value: f64) -> String {
    match round(value) {
        0.0 => "0".into(),
        small if small < 10.0 => format!("{small:.2}"),
        medium if medium < 100.0 => format!("{medium:.1}"),
        large => format!("{large:.0}"),
    }
}

/// Rounds to the digits that are shown.
fn round(value: f64) -> f64 {
    let at = |decimals: f64| (value * decimals).round() / decimals;
    match value {
        small if small < 9.995 => at(100.0),
        medium if medium < 99.95 => at(10.0),
        _ => at(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_has_the_unit_that_suits_it() {
        for (value, text) in [
            (0.0, "0 pps"),
            (0.004, "0 pps"),
            (0.21, "0.21 pps"),
            (1.0, "1.00 pps"),
            (9.996, "10.0 pps"),
            (12.34, "12.3 pps"),
            (99.96, "100 pps"),
            (999.4, "999 pps"),
            (999.6, "1.00 kpps"),
            (12_300.0, "12.3 kpps"),
            (999_600.0, "1.00 Mpps"),
            (1_234_567.0, "1.23 Mpps"),
            (5.67e9, "5.67 Gpps"),
            (7e15, "7000 Tpps"),
            (f64::NAN, "0 pps"),
        ] {
            assert_eq!(rate(value, "pps"), text, "{value}");
        }
    }

    #[test]
    fn a_time_has_the_unit_that_suits_it() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1000, "1.0 us"),
            (999_949, "999.9 us"),
            (999_950, "1.0 ms"),
            (12_345_678, "12.3 ms"),
            (999_999_999, "1.00 s"),
            (61_234_000_000, "61.23 s"),
        ] {
            assert_eq!(time(ns), text, "{ns}");
        }
        assert_eq!(date_time(1_769_860_800_123_456_789), "2026-01-31 12:00:00.123456");
        assert_eq!(date_time(u64::MAX), "2554-07-21 23:34:33.709551");
        let waits =
            [(0.4, "0 s"), (59.6, "1 min 0 s"), (200.0, "3 min 20 s"), (7500.0, "2 h 5 min")];
        for (seconds, text) in waits {
            assert_eq!(wait(Duration::from_secs_f64(seconds)), text);
        }
    }
}
