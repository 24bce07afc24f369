//! The tables of a report, for every form of it.

use std::fmt::Display;
use std::ops::Range;

use thalweg_engine::{BatchReport, Interval, NfReport, PortReport, Report, Series, WorkerReport};

use crate::report::{TextTable, plain_table};
use crate::units::{rate, time};

/// A table: its headings, and rows of as many cells.
pub struct Table {
    pub headings: Vec<&'static str>,
    /// The columns of numbers and units. The cells of others are names that a file may hold.
    pub numbers: Range<usize>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    fn new(headings: &[&'static str], numbers: Range<usize>) -> Self {
        Self { headings: headings.to_vec(), numbers, rows: Vec::new() }
    }

    /// The table as text.
    pub fn text(&self) -> TextTable {
        let mut table = plain_table(&self.headings).with_numbers(self.numbers.clone());
        self.rows.iter().for_each(|row| table.add_row(row.clone()));
        table
    }
}

/// An NF and its counts, from a report or from the API of a run.
pub struct Nf<'a> {
    pub name: &'a str,
    pub kind: &'a str,
    /// Where it runs, if that is to be shown.
    pub place: Option<String>,
    pub packets: u64,
    pub bytes: u64,
    pub generated: u64,
    pub dropped: u64,
    /// Each reason with its number.
    pub drops: Vec<String>,
    pub cycles_per_packet: f64,
    /// Nanoseconds.
    pub p50: u64,
    pub p99: u64,
}

/// A row for each NF; with their places if they have any.
pub fn of_nfs<'a>(nfs: impl IntoIterator<Item = Nf<'a>>) -> Table {
    let nfs: Vec<_> = nfs.into_iter().collect();
    let has_places = nfs.iter().any(|nf| nf.place.is_some());
    let mut headings = vec![
        "NF",
        "kind",
        "packets",
        "bytes",
        "dropped",
        "generated",
        "cycles",
        "p50",
        "p99",
        "drops by reason",
    ];
    let first = if has_places { 3 } else { 2 };
    if has_places {
        headings.insert(2, "at");
    }
    let mut table = Table::new(&headings, first..first + 7);
    for nf in nfs {
        // An NF without packets has no time for one.
        let of_packets = |text: String| if nf.packets == 0 { "-".to_owned() } else { text };
        let mut row = vec![nf.name.to_owned(), nf.kind.to_owned()];
        row.extend(nf.place.filter(|_| has_places));
        row.extend([
            nf.packets.to_string(),
            nf.bytes.to_string(),
            nf.dropped.to_string(),
            nf.generated.to_string(),
            of_packets(format!("{:.0}", nf.cycles_per_packet)),
            of_packets(time(nf.p50)),
            of_packets(time(nf.p99)),
            nf.drops.join(", "),
        ]);
        table.rows.push(row);
    }
    table
}

/// Each NF; `None` if there is none.
pub fn nfs(report: &Report) -> Option<Table> {
    (!report.nfs.is_empty()).then(|| of_nfs(report.nfs.iter().map(Nf::from)))
}

impl<'a> From<&'a NfReport> for Nf<'a> {
    fn from(nf: &'a NfReport) -> Self {
        Self {
            name: &nf.name,
            kind: &nf.kind,
            place: None,
            packets: nf.packets,
            bytes: nf.bytes,
            generated: nf.generated,
            dropped: nf.drops.values().sum(),
            drops: list(&nf.drops),
            cycles_per_packet: nf.cycles_per_packet,
            p50: nf.latency_ns.p50,
            p99: nf.latency_ns.p99,
        }
    }
}

/// The figures of an NF that are not 0, how many packets bypassed it, and how many went to a device:
/// some NFs have dozens, and the JSON report has all.
pub fn figures(nf: &NfReport) -> Vec<String> {
    let bypassed = (nf.bypassed > 0).then(|| format!("bypassed {}", nf.bypassed));
    let figures = list(nf.figures.iter().filter(|(_, figure)| **figure > 0));
    let device = nf.device.as_ref().filter(|device| device.packets > 0).map(|device| {
        let (packets, dummies) = (device.packets, 100.0 * device.dummy_share());
        let launches = match (device.launches, device.copied_bytes) {
            (0, _) => String::new(),
            (launches, 0) => format!(", {launches} launches"),
            (launches, copied) => format!(", {launches} launches, {copied} bytes copied"),
        };
        format!("device-packets {packets} (dummies {dummies:.1} %{launches})")
    });
    bypassed.into_iter().chain(figures).chain(device).collect()
}

/// The workers.
pub fn workers(report: &Report) -> Table {
    let headings = ["worker", "core", "busy", "packets", "bursts", "taken over", "waits"];
    let mut table = Table::new(&headings, 0..headings.len());
    for worker in &report.by_worker {
        let WorkerReport { worker, core, busy_share, packets, bursts, taken_over, waits, .. } =
            *worker;
        table.rows.push(vec![
            worker.to_string(),
            core.map_or_else(|| "-".to_owned(), |core| core.to_string()),
            format!("{:.1} %", 100.0 * busy_share),
            packets.to_string(),
            bursts.to_string(),
            taken_over.to_string(),
            waits.to_string(),
        ]);
    }
    table
}

/// The packet types.
pub fn types(report: &Report) -> Table {
    let mut table = Table::new(&["packet type", "packets", "bytes"], 1..3);
    for (name, t) in &report.types {
        table.rows.push(vec![name.clone(), t.packets.to_string(), t.bytes.to_string()]);
    }
    table
}

/// The ports.
pub fn ports(report: &Report) -> Table {
    let headings = ["port", "", "packets", "bytes", "drops by reason"];
    let mut table = Table::new(&headings, 2..4);
    for (what, ports) in [("in", &report.inputs), ("out", &report.outputs)] {
        for p in ports {
            table.rows.push(vec![
                p.name.clone(),
                what.into(),
                p.packets.to_string(),
                p.bytes.to_string(),
                list(&p.drops).join(", "),
            ]);
            for (number, queue) in p.queues.iter().enumerate() {
                table.rows.push(vec![
                    format!("{}, queue {number}", p.name),
                    what.into(),
                    queue.packets.to_string(),
                    queue.bytes.to_string(),
                    list(&queue.drops).join(", "),
                ]);
            }
        }
    }
    table
}

/// The packets that an input passed over, by reason; empty if there are none.
pub fn passed_over(input: &PortReport) -> Vec<String> {
    let counts = [("outside", input.outside), ("filtered", input.filtered)];
    let counts = counts.into_iter().filter(|(_, count)| *count > 0);
    counts.map(|(name, count)| format!("{name} {count}")).collect()
}

/// The packets dropped, by place and reason.
pub fn drops(report: &Report) -> Table {
    let mut table = Table::new(&["dropped by", "reason", "packets", "share of received"], 2..4);
    let ports = report.inputs.iter().chain(&report.outputs).map(|port| (&port.name, &port.drops));
    let between = "between NFs".to_owned();
    let nfs = report.nfs.iter().map(|nf| (&nf.name, &nf.drops));
    for (place, drops) in ports.chain(nfs).chain([(&between, &report.chain_drops)]) {
        for (reason, count) in drops.iter().filter(|(_, count)| **count > 0) {
            // More than all where a kernel lost packets before they were received.
            let share = 100.0 * *count as f64 / report.packets_in.max(1) as f64;
            table.rows.push(vec![
                place.clone(),
                (*reason).to_owned(),
                count.to_string(),
                format!("{share:.3} %"),
            ]);
        }
    }
    table
}

/// The run as a whole.
pub fn overview(r: &Report) -> Table {
    let mut table = Table::new(&["run", ""], 1..2);
    let mut row = |name: &str, value: String| table.rows.push(vec![name.to_owned(), value]);
    row("duration", time((r.duration_s * 1e9) as u64));
    row("workers", r.workers.to_string());
    row("vector instructions", r.isa.to_owned());
    row("packets received", r.packets_in.to_string());
    row("bytes received", r.bytes_in.to_string());
    row("packets generated", r.generated.to_string());
    row("packets transmitted", r.packets_out.to_string());
    row("bytes transmitted", r.bytes_out.to_string());
    row("packets dropped", r.packets_dropped.to_string());
    row("rate", rate(r.packets_per_second, "pps"));
    row("bit rate", rate(r.bits_per_second, "bit/s"));
    row("cycles per packet", format!("{:.0}", r.cycles_per_packet));
    for (name, ns) in latencies(r) {
        row(&format!("latency {name}"), time(ns));
    }
    for (name, layer) in LAYERS {
        row(&format!("classified by {name}"), classified(r, layer).to_string());
    }
    table
}

/// The percentiles of the time from receive to transmit, in nanoseconds.
pub fn latencies(report: &Report) -> [(&'static str, u64); 5] {
    let l = report.latency_ns;
    [("p50", l.p50), ("p90", l.p90), ("p99", l.p99), ("p99.9", l.p999), ("max", l.max)]
}

/// The percentiles of the processor time of a batch, in nanoseconds.
pub fn batch_times(batches: &BatchReport) -> [(&'static str, u64); 5] {
    let &BatchReport { p50, p99, p999, p9999, max, .. } = batches;
    [("p50", p50), ("p99", p99), ("p99.9", p999), ("p99.99", p9999), ("max", max)]
}

/// The layers of classification, and their names in the report.
pub const LAYERS: [(&str, &str); 3] = [
    ("exact-match cache", "emc_hits"),
    ("megaflow", "megaflow_hits"),
    ("rule table", "rule_lookups"),
];

/// The packets that a layer of classification answered.
pub fn classified(report: &Report, layer: &str) -> u64 {
    report.classification.get(layer).copied().unwrap_or(0)
}

/// The intervals of a series.
pub fn over_time(series: &Series) -> Table {
    let headings =
        ["from (s)", "to (s)", "in", "bits in", "out", "dropped", "p50", "p99", "p99.9", "max"];
    let mut table = Table::new(&headings, 0..headings.len());
    for interval in &series.intervals {
        let packets = |count| rate(interval.per_second(count), "pps");
        let l = interval.latency_ns;
        let latency = |ns| latency(interval, ns);
        table.rows.push(vec![
            format!("{:.3}", interval.start_s),
            format!("{:.3}", interval.end_s),
            packets(interval.packets_in),
            rate(interval.bits_per_second, "bit/s"),
            packets(interval.packets_out),
            packets(interval.packets_dropped),
            latency(l.p50),
            latency(l.p99),
            latency(l.p999),
            latency(l.max),
        ]);
    }
    table
}

/// A time of an interval, which has none if no packet was transmitted in it.
pub fn latency(interval: &Interval, nanoseconds: u64) -> String {
    if interval.packets_out == 0 { "-".into() } else { time(nanoseconds) }
}

/// Counts with their names.
pub fn list<'a, K: Display + 'a, V: Display + 'a>(
    map: impl IntoIterator<Item = (&'a K, &'a V)>,
) -> Vec<String> {
    map.into_iter().map(|(name, n)| format!("{name} {n}")).collect()
}
