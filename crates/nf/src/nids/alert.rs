//! Alerts as lines of Suricata's EVE JSON.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use serde_json::{Value, json};
use thalweg_packet::{FiveTuple, Nanoseconds};

use super::flows::Seen;
use super::rule::Rule;
use crate::function::NfError;

/// The alert file, shared by all workers. It is made at the first alert or
/// flush; each write holds whole lines.
#[derive(Debug)]
pub(super) struct AlertFile {
    path: Option<PathBuf>,
    file: Option<File>,
}

impl AlertFile {
    pub(super) fn new(path: Option<PathBuf>) -> Self {
        Self { path, file: None }
    }

    /// Appends `lines`; makes the file when there is none yet.
    pub(super) fn write(&mut self, lines: &[u8]) -> Result<(), NfError> {
        let Some(path) = &self.path else { return Ok(()) };
        let failed = |source| NfError::Write { path: path.clone(), source };
        if self.file.is_none() {
            self.file = Some(File::create(path).map_err(failed)?);
        }
        match &mut self.file {
            Some(file) if !lines.is_empty() => file.write_all(lines).map_err(failed),
            _ => Ok(()),
        }
    }
}

/// What an alert tells of its packet.
pub(super) struct Occasion<'a> {
    pub(super) timestamp: Nanoseconds,
    pub(super) flow_hash: u32,
    /// `None` for what is not IP.
    pub(super) tuple: Option<&'a FiveTuple>,
    pub(super) interface: u16,
    pub(super) seen: Option<&'a Seen<'a>>,
}

/// Appends the alert of `rule` as a line.
pub(super) fn line(rule: &Rule, occasion: &Occasion<'_>, out: &mut Vec<u8>) {
    let mut alert = json!({
        "timestamp": timestamp(occasion.timestamp),
        "flow_id": occasion.flow_hash,
        "in_iface": occasion.interface.to_string(),
        "event_type": "alert",
        "alert": {
            "action": rule.action.verdict(),
            "gid": rule.gid,
            "signature_id": rule.sid,
            "rev": rule.rev,
            "signature": rule.message,
            "category": rule.category,
            "severity": rule.severity,
        },
    });
    if let Some(tuple) = occasion.tuple {
        put_ends(&mut alert, tuple);
    }
    if let Some(seen) = occasion.seen {
        alert["direction"] = json!(if seen.to_server { "to_server" } else { "to_client" });
        if let Some(application) = seen.application {
            alert["app_proto"] = json!(application.name());
        }
    }
    // Writing to memory does not fail.
    let _ = serde_json::to_writer(&mut *out, &alert);
    out.push(b'\n');
}

fn put_ends(alert: &mut Value, tuple: &FiveTuple) {
    alert["src_ip"] = json!(tuple.src);
    alert["dest_ip"] = json!(tuple.dst);
    alert["proto"] = json!(protocol(tuple.protocol));
    let (first, second) = match tuple.protocol {
        6 | 17 | 132 => ("src_port", "dest_port"),
        _ => ("icmp_type", "icmp_code"),
    };
    if matches!(tuple.protocol, 1 | 6 | 17 | 58 | 132) {
        alert[first] = json!(tuple.src_port);
        alert[second] = json!(tuple.dst_port);
    }
}

fn protocol(number: u8) -> String {
    match number {
        1 => "ICMP".into(),
        6 => "TCP".into(),
        17 => "UDP".into(),
        58 => "IPv6-ICMP".into(),
        132 => "SCTP".into(),
        other => format!("{other:03}"),
    }
}

/// As Suricata writes it: `2026-01-31T12:00:00.123456+0000`.
fn timestamp(time: Nanoseconds) -> String {
    let (seconds, nanoseconds) = time.split();
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let micros = nanoseconds / 1000;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}+0000")
}

/// Year, month and day, from days since 1970-01-01 (Hinnant's
/// "civil_from_days", <https://howardhinnant.github.io/date_algorithms.html>).
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_suricata_does() {
        assert_eq!(timestamp(Nanoseconds(0)), "1970-01-01T00:00:00.000000+0000");
        let leap = Nanoseconds(1_709_210_096_123_456_789);
        assert_eq!(timestamp(leap), "2024-02-29T12:34:56.123456+0000");
    }
}
