//! Which packets of a capture an input receives.

use thalweg_packet::Nanoseconds;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::filter::Filter;

/// What [`parse_time`] accepts, for messages.
pub const TIME: &str = "a time such as 2024-05-01T12:00:00Z or 2024-05-01T14:00:00.5+02:00 (RFC 3339), or seconds \
     since 1970";

/// The packets that an input receives. Others are passed over: they are only counted.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Those captured in this range of time.
    pub times: TimeRange,
    /// Those that match; all if it is `None`.
    pub filter: Option<Filter>,
}

/// A range of captured times; each end is open if it is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeRange {
    /// The first time inside.
    pub from: Option<Nanoseconds>,
    /// The first time after it.
    pub to: Option<Nanoseconds>,
}

impl TimeRange {
    /// Whether `time` is inside.
    pub fn contains(&self, time: Nanoseconds) -> bool {
        self.from.is_none_or(|from| from <= time) && self.to.is_none_or(|to| time < to)
    }

    /// Whether no time is inside.
    pub fn is_empty(&self) -> bool {
        matches!((self.from, self.to), (Some(from), Some(to)) if to <= from)
    }

    /// This range, with the ends of `other` where that has some.
    #[must_use]
    pub fn replaced_by(self, other: Self) -> Self {
        Self { from: other.from.or(self.from), to: other.to.or(self.to) }
    }
}

/// Packets that were passed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassedOver {
    /// Those outside of the range of time.
    pub outside: u64,
    /// Those inside that do not match the filter.
    pub filtered: u64,
}

impl PassedOver {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.outside + self.filtered
    }

    /// Adds the packets of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.outside += other.outside;
        self.filtered += other.filtered;
    }
}

/// Reads a point in time: in the form of RFC 3339, with an offset from UTC, or as seconds since
/// 1970 with up to nine decimals. `None` if it is neither, before 1970, or after the year 2554.
pub fn parse_time(text: &str) -> Option<Nanoseconds> {
    let is_seconds = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let nanoseconds = if is_seconds {
        parse_seconds(text)?
    } else {
        let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
        u64::try_from(time.unix_timestamp_nanos()).ok()?
    };
    Some(Nanoseconds(nanoseconds))
}

/// Seconds with up to nine decimals, in nanoseconds.
fn parse_seconds(text: &str) -> Option<u64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    if decimals.len() > 9 {
        return None;
    }
    let fraction: u64 = format!("{decimals:0<9}").parse().ok().filter(|_| !decimals.is_empty())?;
    whole.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_both_forms() {
        for (text, nanoseconds) in [
            ("0", 0),
            ("1714564800", 1_714_564_800_000_000_000),
            ("1714564800.25", 1_714_564_800_250_000_000),
            ("1.000000001", 1_000_000_001),
            ("1970-01-01T00:00:00Z", 0),
            ("2024-05-01T12:00:00Z", 1_714_564_800_000_000_000),
            ("2024-05-01T14:00:00.5+02:00", 1_714_564_800_500_000_000),
            ("2024-04-30T23:59:59.123456789-12:00", 1_714_564_799_123_456_789),
        ] {
            assert_eq!(parse_time(text), Some(Nanoseconds(nanoseconds)), "{text}");
        }
        for wrong in [
            "",
            ".",
            "1.",
            ".5",
            "1.2.3",
            "-1",
            "1e9",
            "1.0000000001",
            "99999999999",
            "2024-05-01",
            "2024-05-01T12:00:00",
            "2024-05-01T25:00:00Z",
            "1969-12-31T23:59:59Z",
            "9999-12-31T23:59:59Z",
        ] {
            assert_eq!(parse_time(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_range_has_its_start_and_not_its_end() {
        let [from, to] = [10, 20].map(|time| Some(Nanoseconds(time)));
        let inside = |range: TimeRange| -> Vec<u64> {
            (8..22).filter(|time| range.contains(Nanoseconds(*time))).collect()
        };
        assert_eq!(inside(TimeRange { from, to }), (10..20).collect::<Vec<_>>());
        assert_eq!(inside(TimeRange { from, to: None }), (10..22).collect::<Vec<_>>());
        assert_eq!(inside(TimeRange { from: None, to }), (8..20).collect::<Vec<_>>());
        assert_eq!(inside(TimeRange::default()).len(), 14);
        assert!(TimeRange { from: to, to: from }.is_empty());
        assert!(TimeRange { from, to: from }.is_empty() && !TimeRange { from, to }.is_empty());
    }
}
