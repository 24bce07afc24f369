//! What is shown of a run: tables of rates.

use std::cmp::Reverse;

use indexmap::IndexMap;
use thalweg_source::{counted, visible};

use super::sample::{Counts, Nf, Port, Rates};
use crate::report::{plain_table, wrapped};
use crate::units::{rate, time, wait};

/// The most packet types that are shown: those with the most packets.
const MOST_TYPES: usize = 20;

/// The rates of the run `name`, in `columns` columns of text.
pub fn text(name: &str, rates: &Rates<'_>, columns: Option<usize>) -> String {
    let mut parts = vec![
        heading(name, rates, columns),
        ports(rates, columns),
        nfs(rates, columns),
        workers(rates, columns),
        types(rates, columns),
    ];
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n")
}

fn pps(value: f64) -> String {
    rate(value, "pps")
}

/// A time, of at least one packet.
fn latency(packets: u64, ns: u64) -> String {
    if packets == 0 { "-".into() } else { time(ns) }
}

fn heading(name: &str, rates: &Rates<'_>, columns: Option<usize>) -> String {
    let (before, now) = (rates.before, rates.now);
    let uptime = std::time::Duration::try_from_secs_f64(now.duration_s).unwrap_or_default();
    let facts = [
        visible(name).into_owned(),
        format!("running for {}", wait(uptime)),
        counted(now.workers, "worker"),
        counted(now.reloads, "reload"),
    ];
    let bits = 8.0 * rates.per_second(before.bytes_in, now.bytes_in);
    let totals = [
        format!(
            "in {}, {}",
            pps(rates.per_second(before.packets_in, now.packets_in)),
            rate(bits, "bit/s")
        ),
        format!("out {}", pps(rates.per_second(before.packets_out, now.packets_out))),
        format!("dropped {}", pps(rates.per_second(before.packets_dropped, now.packets_dropped))),
        format!("p50 {}", latency(now.packets_out, now.latency_ns.p50)),
        format!("p99 {}", latency(now.packets_out, now.latency_ns.p99)),
    ];
    let mut lines = vec![wrapped("", facts, ", ", columns), wrapped("", totals, ", ", columns)];
    let drops = drops(rates, Some(&before.drops), &now.drops);
    if !drops.is_empty() {
        lines.push(wrapped("drops: ", drops, ", ", columns));
    }
    lines.join("\n")
}

/// Drops by reason, the most frequent first.
fn drops(
    rates: &Rates<'_>,
    before: Option<&IndexMap<String, u64>>,
    now: &IndexMap<String, u64>,
) -> Vec<String> {
    let text = |(reason, rate)| format!("{} {}", visible(reason), pps(rate));
    rates.drops(before, now).into_iter().map(text).collect()
}

fn ports(rates: &Rates<'_>, columns: Option<usize>) -> String {
    let headings = ["port", "", "packets", "bits", "drops by reason"];
    let mut table = plain_table(&headings).with_numbers(2..4).within(columns);
    let sides = [
        ("in", &rates.before.inputs, &rates.now.inputs),
        ("out", &rates.before.outputs, &rates.now.outputs),
    ];
    for (direction, before, now) in sides {
        for port in now {
            let before = before.iter().find(|before| before.name == port.name);
            let counts = before.map_or_else(Counts::default, |port| port.counts);
            let Port { name, counts: now, drops: dropped } = port;
            table.add_row([
                visible(name).into_owned(),
                direction.into(),
                pps(rates.per_second(counts.packets, now.packets)),
                rate(8.0 * rates.per_second(counts.bytes, now.bytes), "bit/s"),
                drops(rates, before.map(|port| &port.drops), dropped).join(", "),
            ]);
        }
    }
    table.to_string()
}

fn nfs(rates: &Rates<'_>, columns: Option<usize>) -> String {
    if rates.now.nfs.is_empty() {
        return String::new();
    }
    let headings = ["NF", "kind", "packets", "cycles", "p99", "generated", "drops by reason"];
    let mut table = plain_table(&headings).with_numbers(2..6).within(columns);
    for nf in &rates.now.nfs {
        let same = |before: &&Nf| before.name == nf.name && before.kind == nf.kind;
        let before = rates.before.nfs.iter().find(same);
        let packets = before.map_or(0, |nf| nf.counts.packets);
        let generated = before.map_or(0, |nf| nf.generated);
        let bypassed = rates.per_second(before.map_or(0, |nf| nf.bypassed), nf.bypassed);
        let bypassed = (bypassed > 0.0).then(|| format!("bypassed {}", pps(bypassed)));
        let drops = drops(rates, before.map(|nf| &nf.drops), &nf.drops);
        table.add_row([
            visible(&nf.name).into_owned(),
            visible(&nf.kind).into_owned(),
            pps(rates.per_second(packets, nf.counts.packets)),
            Rates::cycles(before, nf).map_or_else(|| "-".into(), |cycles| format!("{cycles:.0}")),
            latency(nf.counts.packets, nf.latency_ns.p99),
            pps(rates.per_second(generated, nf.generated)),
            bypassed.into_iter().chain(drops).collect::<Vec<_>>().join(", "),
        ]);
    }
    table.to_string()
}

fn workers(rates: &Rates<'_>, columns: Option<usize>) -> String {
    let headings = ["worker", "core", "busy", "packets", "taken over", "waits"];
    let mut table = plain_table(&headings).with_numbers(0..6).within(columns);
    for now in &rates.now.by_worker {
        let before = rates.before.by_worker.iter().find(|before| before.worker == now.worker);
        let before = before.copied().unwrap_or_default();
        let times = |before, now| rate(rates.per_second(before, now), "/s");
        table.add_row([
            now.worker.to_string(),
            now.core.map_or_else(|| "-".into(), |core| core.to_string()),
            format!("{:.0} %", 100.0 * rates.busy(&before, now)),
            pps(rates.per_second(before.packets, now.packets)),
            times(before.taken_over, now.taken_over),
            times(before.waits, now.waits),
        ]);
    }
    table.to_string()
}

fn types(rates: &Rates<'_>, columns: Option<usize>) -> String {
    let mut found: Vec<_> = rates.now.types.iter().collect();
    let increase = |name: &str, counts: &Counts| {
        let before = rates.before.types.get(name).copied().unwrap_or_default();
        (counts.packets.saturating_sub(before.packets), before)
    };
    found.sort_by_cached_key(|(name, counts)| Reverse(increase(name, counts).0));
    let more = found.len().saturating_sub(MOST_TYPES);
    let mut table =
        plain_table(&["packet type", "packets", "bits"]).with_numbers(1..3).within(columns);
    for (name, counts) in found.into_iter().take(MOST_TYPES) {
        let (_, before) = increase(name, counts);
        table.add_row([
            visible(name).into_owned(),
            pps(rates.per_second(before.packets, counts.packets)),
            rate(8.0 * rates.per_second(before.bytes, counts.bytes), "bit/s"),
        ]);
    }
    let more = (more > 0).then(|| format!("\n{}", counted(more as u64, "more type")));
    format!("{table}{}", more.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::sample::Sample;
    use super::*;

    fn port(name: &str, packets: u64, drops: &Value) -> Value {
        json!({"name": name, "packets": packets, "bytes": 100 * packets, "drops": drops})
    }

    /// The report of a run after a time, in which an NF has taken so many cycles.
    fn report(seconds: u64, packets: u64, cycles: f64) -> Value {
        json!({
            "duration_s": seconds, "workers": 2, "packets_in": packets, "bytes_in": 100 * packets,
            "packets_out": packets / 2, "packets_dropped": packets / 2,
            "drops": {"no-route": 7, "filter-drop": packets / 2},
            "latency_ns": {"p50": 1000, "p99": 2000},
            "inputs": [port("lan", packets, &json!({}))],
            "outputs": [port("wan", packets / 2, &json!({}))],
            "nfs": [{"name": "gate", "kind": "acl", "packets": packets, "bytes": 100 * packets,
                "generated": 0, "drops": {"filter-drop": packets / 2},
                "cycles_per_packet": cycles / packets as f64,
                "latency_ns": {"p50": 500, "p99": 900}}],
            "types": {"web": {"packets": packets, "bytes": 100 * packets}},
            "by_worker": [{"worker": 0, "core": 3, "busy_s": seconds as f64 / 4.0,
                "busy_share": 0.25, "bursts": 9, "packets": packets, "taken_over": 0,
                "waits": packets / 10}],
        })
    }

    fn sample(report: &Value) -> Sample {
        serde_json::from_value(report.clone()).unwrap()
    }

    fn lines(before: &Value, now: &Value, columns: Option<usize>) -> Vec<String> {
        let (before, now) = (sample(before), sample(now));
        let text = text("edge", &Rates::between(&before, &now), columns);
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn rates_are_those_between_the_two_reports() {
        // 2000 packets in two seconds, at 60 cycles each; before, an average of 100.
        let before = report(10, 1000, 100_000.0);
        let now = report(12, 3000, 220_000.0);
        let expected = "\
edge, running for 12 s, 2 workers, 0 reloads
in 1.00 kpps, 800 kbit/s, out 500 pps, dropped 500 pps, p50 1.0 us, p99 2.0 us
drops: filter-drop 500 pps

port         packets        bits  drops by reason
lan   in   1.00 kpps  800 kbit/s
wan   out    500 pps  400 kbit/s

NF    kind    packets  cycles     p99  generated  drops by reason
gate  acl   1.00 kpps      60  900 ns      0 pps  filter-drop 500 pps

worker  core  busy    packets  taken over   waits
     0     3  25 %  1.00 kpps        0 /s  100 /s

packet type    packets        bits
web          1.00 kpps  800 kbit/s";
        let lines = lines(&before, &now, None);
        assert_eq!(lines, expected.lines().collect::<Vec<_>>(), "{lines:#?}");
    }

    #[test]
    fn what_a_reload_has_added_or_replaced_counts_from_zero() {
        let before = report(10, 1000, 100_000.0);
        let mut now = report(11, 3000, 300_000.0);
        now["nfs"][0]["packets"] = 400.into();
        now["nfs"][0]["cycles_per_packet"] = 50.into();
        now["inputs"].as_array_mut().unwrap().push(port("new", 700, &json!({"no-room": 3})));
        let text = lines(&before, &now, None).join("\n");
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("gate acl 400 pps 50 "), "{text}");
        assert!(text.contains("new in 700 pps 560 kbit/s no-room 3.00 pps"), "{text}");
    }

    #[test]
    fn many_types_are_counted_and_those_with_the_most_packets_shown() {
        let before = report(10, 1000, 1.0);
        let mut now = report(11, 1000, 1.0);
        for number in 0..30 {
            now["types"][format!("type-{number}")] = json!({"packets": number, "bytes": 0});
        }
        let lines = lines(&before, &now, None);
        assert_eq!(lines.last().unwrap(), "11 more types");
        assert!(lines.iter().any(|line| line.starts_with("type-29 ")));
        assert!(!lines.iter().any(|line| line.starts_with("type-1 ")));
    }

    #[test]
    fn hostile_names_do_not_steer_the_terminal() {
        let before = report(10, 1000, 1.0);
        let mut now = report(11, 2000, 1.0);
        let hostile = "a\u{1b}[2Jb\u{202e}";
        now["inputs"][0]["name"] = hostile.into();
        now["nfs"][0]["name"] = hostile.into();
        now["drops"][hostile] = 9.into();
        now["types"][hostile] = json!({"packets": 9, "bytes": 0});
        let (before, now) = (sample(&before), sample(&now));
        let text = text(hostile, &Rates::between(&before, &now), Some(80));
        assert!(text.chars().all(|c| c == '\n' || thalweg_source::is_visible(c)), "{text:?}");
    }

    #[test]
    fn no_two_reports_are_too_close_or_in_the_wrong_order() {
        let (early, late) = (report(10, 1000, 1.0), report(12, 3000, 1.0));
        for (before, now) in [(&late, &late), (&late, &early)] {
            assert!(lines(before, now, Some(20)).join("").contains("in 0 pps"));
        }
    }

    #[test]
    fn a_table_fits_a_narrow_terminal() {
        let (before, now) = (report(10, 1000, 1.0), report(11, 3000, 1.0));
        for columns in [40, 60, 80] {
            for line in lines(&before, &now, Some(columns)) {
                assert!(line.trim_end().chars().count() <= columns, "{columns}: {line}");
            }
        }
    }
}
