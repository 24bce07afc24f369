//! The report of a run as text.

use std::fmt::Display;
use std::io::{self, Write};

use thalweg_engine::Report;

use crate::report::{TextTable, number_table, plain_table, wrapped};
use crate::units::{rate, time};
use thalweg_source::counted;

/// Writes the report as tables and lists in `width` columns.
pub fn show(out: &mut impl Write, report: &Report, width: Option<usize>) -> io::Result<()> {
    headline(out, report, width)?;
    let table = |table: TextTable| Some(table.within(width).to_string());
    let sections = [
        nfs(report).and_then(table),
        figures(report, width),
        table(types(report)),
        table(ports(report)),
        passed_over(report, width),
        chain_drops(report, width),
    ];
    sections.into_iter().flatten().try_for_each(|section| writeln!(out, "\n{section}"))
}

fn headline(out: &mut impl Write, r: &Report, width: Option<usize>) -> io::Result<()> {
    let seconds = time((r.duration_s * 1e9) as u64);
    let begin = format!(
        "{} in {seconds} on {}: ",
        counted(r.packets_in, "packet"),
        counted(r.workers, "worker"),
    );
    let speed = [
        rate(r.packets_per_second, "pps"),
        rate(r.bits_per_second, "bit/s"),
        format!("{:.0} cycles per packet", r.cycles_per_packet),
    ];
    writeln!(out, "{}", wrapped(&begin, speed, ", ", width))?;
    let sign = if r.conserved { "=" } else { "is NOT" };
    writeln!(
        out,
        "{} in + {} generated {sign} {} out + {} dropped",
        r.packets_in, r.generated, r.packets_out, r.packets_dropped
    )?;
    let l = r.latency_ns;
    let latency =
        [("p50", l.p50), ("p90", l.p90), ("p99", l.p99), ("p99.9", l.p999), ("max", l.max)];
    let latency = latency.map(|(name, ns)| format!("{name} {}", time(ns)));
    writeln!(out, "{}", wrapped("latency ", latency, ", ", width))?;
    let c = |name: &str| r.classification.get(name).copied().unwrap_or(0);
    let layers = [
        format!("exact-match cache {}", c("emc_hits")),
        format!("megaflow {}", c("megaflow_hits")),
        format!("rule table {}", c("rule_lookups")),
    ];
    writeln!(out, "{}", wrapped("classified by ", layers, ", ", width))
}

fn nfs(report: &Report) -> Option<TextTable> {
    if report.nfs.is_empty() {
        return None;
    }
    let headings = [
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
    let mut table = plain_table(&headings).with_numbers(2..9);
    for nf in &report.nfs {
        // An NF without packets has no time for one.
        let of_packets = |text: String| if nf.packets == 0 { "-".to_owned() } else { text };
        table.add_row([
            nf.name.clone(),
            nf.kind.clone(),
            nf.packets.to_string(),
            nf.bytes.to_string(),
            nf.drops.values().sum::<u64>().to_string(),
            nf.generated.to_string(),
            of_packets(format!("{:.0}", nf.cycles_per_packet)),
            of_packets(time(nf.latency_ns.p50)),
            of_packets(time(nf.latency_ns.p99)),
            list(&nf.drops).join(", "),
        ]);
    }
    Some(table)
}

/// The figures of each NF that has some.
fn figures(report: &Report, width: Option<usize>) -> Option<String> {
    // Some NFs have dozens; the JSON report has those that are 0 too.
    let of_nf = |nf: &thalweg_engine::NfReport| {
        let figures = list(nf.figures.iter().filter(|(_, figure)| **figure > 0));
        (!figures.is_empty()).then(|| wrapped(&format!("{}: ", nf.name), figures, ", ", width))
    };
    let lists: Vec<String> = report.nfs.iter().filter_map(of_nf).collect();
    (!lists.is_empty()).then(|| lists.join("\n"))
}

fn types(report: &Report) -> TextTable {
    let mut table = number_table(&["packet type", "packets", "bytes"], 1);
    for (name, t) in &report.types {
        table.add_row([name.clone(), t.packets.to_string(), t.bytes.to_string()]);
    }
    table
}

fn ports(report: &Report) -> TextTable {
    let headings = ["port", "", "packets", "bytes", "drops by reason"];
    let mut table = plain_table(&headings).with_numbers(2..4);
    for (what, ports) in [("in", &report.inputs), ("out", &report.outputs)] {
        for p in ports {
            table.add_row([
                p.name.clone(),
                what.into(),
                p.packets.to_string(),
                p.bytes.to_string(),
                list(&p.drops).join(", "),
            ]);
        }
    }
    table
}

/// The packets that each input passed over.
fn passed_over(report: &Report, width: Option<usize>) -> Option<String> {
    let of_input = |input: &thalweg_engine::PortReport| {
        let counts = [("outside", input.outside), ("filtered", input.filtered)];
        let counts = counts.into_iter().filter(|(_, count)| *count > 0);
        let counts: Vec<_> = counts.map(|(name, count)| format!("{name} {count}")).collect();
        let lead = format!("not received by {}: ", input.name);
        (!counts.is_empty()).then(|| wrapped(&lead, counts, ", ", width))
    };
    let lines: Vec<_> = report.inputs.iter().filter_map(of_input).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

fn chain_drops(report: &Report, width: Option<usize>) -> Option<String> {
    let drops = list(&report.chain_drops);
    (!drops.is_empty()).then(|| wrapped("dropped between NFs: ", drops, ", ", width))
}

fn list<'a, V: Display + 'a>(
    map: impl IntoIterator<Item = (&'a &'static str, &'a V)>,
) -> Vec<String> {
    map.into_iter().map(|(name, n)| format!("{name} {n}")).collect()
}
