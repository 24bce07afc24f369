//! Alerts as lines of Suricata's EVE JSON.

use std::borrow::Cow;
use std::io::Write;
use std::sync::Arc;

use serde_json::json;
use thalweg_nf::toolkit::output::json_text;
use thalweg_packet::wire::ip_proto::{ICMP, ICMPV6, SCTP, TCP, UDP};
use thalweg_packet::{FiveTuple, Nanoseconds, PortIndex};

use super::buffer::Protocol;
use super::rule::Rule;

/// A rule that matched a packet, and the facts about the packet that an alert reports.
#[derive(Clone, Debug)]
pub(super) struct Occasion {
    /// The number of the rule.
    pub(super) rule: u32,
    /// The time that counts go by.
    pub(super) clock: Nanoseconds,
    /// The time in its capture.
    pub(super) timestamp: Nanoseconds,
    /// 0 if no alert is written.
    pub(super) flow_hash: u32,
    /// `None` if the packet is not IP.
    pub(super) tuple: Option<FiveTuple>,
    /// None for a packet that an NF generated.
    pub(super) input: PortIndex,
    /// Whether it goes to the server, and the application of its connection, if known.
    pub(super) side: Option<(bool, Option<Protocol>)>,
}

/// The names of the chain's inputs, each as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct InputNames(Arc<[String]>);

impl InputNames {
    pub(super) fn new(inputs: &[String]) -> Self {
        Self(inputs.iter().map(|name| json!(name).to_string()).collect())
    }

    /// The name of an input as JSON; its number if the chain does not name it. `None` if no input
    /// received the packet.
    pub(super) fn name(&self, port: PortIndex) -> Option<Cow<'_, str>> {
        if port == PortIndex::NONE {
            return None;
        }
        let name = self.0.get(usize::from(port.0)).map(|name| Cow::Borrowed(name.as_str()));
        Some(name.unwrap_or_else(|| format!("\"{}\"", port.0).into()))
    }
}

/// The part of an alert that is the same for every match of the rule.
pub(super) fn of_rule(rule: &Rule) -> String {
    json_text(&json!({
        "action": rule.action.verdict(),
        "gid": rule.gid,
        "signature_id": rule.sid,
        "rev": rule.rev,
        "signature": rule.message,
        "category": rule.category,
        "severity": rule.severity,
    }))
}

/// Appends the alert of a rule as a line; `rule` is its constant [part](of_rule).
pub(super) fn line(rule: &str, occasion: &Occasion, inputs: &InputNames, out: &mut Vec<u8>) {
    // Writing to memory does not fail.
    let _ = write_line(rule, occasion, inputs, out);
}

fn write_line(
    rule: &str,
    occasion: &Occasion,
    inputs: &InputNames,
    out: &mut Vec<u8>,
) -> std::io::Result<()> {
    let Occasion { flow_hash, .. } = occasion;
    out.extend_from_slice(b"{\"timestamp\":\"");
    timestamp(occasion.timestamp, out)?;
    write!(out, "\",\"flow_id\":{flow_hash},")?;
    if let Some(interface) = inputs.name(occasion.input) {
        write!(out, "\"in_iface\":{interface},")?;
    }
    out.extend_from_slice(b"\"event_type\":\"alert\",\"alert\":");
    out.extend_from_slice(rule.as_bytes());
    if let Some(FiveTuple { src, dst, protocol: number, src_port, dst_port }) = &occasion.tuple {
        write!(
            out,
            ",\"src_ip\":\"{src}\",\"dest_ip\":\"{dst}\",\"proto\":\"{}\"",
            protocol(*number)
        )?;
        let (first, second) = match *number {
            TCP | UDP | SCTP => ("src_port", "dest_port"),
            _ => ("icmp_type", "icmp_code"),
        };
        if matches!(*number, ICMP | TCP | UDP | ICMPV6 | SCTP) {
            write!(out, ",\"{first}\":{src_port},\"{second}\":{dst_port}")?;
        }
    }
    if let Some((to_server, application)) = occasion.side {
        let direction = if to_server { "to_server" } else { "to_client" };
        write!(out, ",\"direction\":\"{direction}\"")?;
        if let Some(application) = application {
            write!(out, ",\"app_proto\":\"{}\"", application.name())?;
        }
    }
    out.extend_from_slice(b"}\n");
    Ok(())
}

fn protocol(number: u8) -> Cow<'static, str> {
    Cow::Borrowed(match number {
        ICMP => "ICMP",
        TCP => "TCP",
        UDP => "UDP",
        ICMPV6 => "IPv6-ICMP",
        SCTP => "SCTP",
        other => return Cow::Owned(format!("{other:03}")),
    })
}

/// Writes the time as Suricata does: `2026-01-31T12:00:00.123456+0000`.
fn timestamp(time: Nanoseconds, out: &mut Vec<u8>) -> std::io::Result<()> {
    let (seconds, nanoseconds) = time.split();
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let micros = nanoseconds / 1000;
    write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}+0000")
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
        let timestamp = |time| {
            let mut text = Vec::new();
            timestamp(time, &mut text).unwrap();
            String::from_utf8(text).unwrap()
        };
        assert_eq!(timestamp(Nanoseconds(0)), "1970-01-01T00:00:00.000000+0000");
        let leap = Nanoseconds(1_709_210_096_123_456_789);
        assert_eq!(timestamp(leap), "2024-02-29T12:34:56.123456+0000");
    }
}
