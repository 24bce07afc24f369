//! The report of a run as text.

use std::fmt::Display;
use std::io::{self, Write};

use thalweg_chain::Report;

use crate::report::{number_table, plain_table};
use thalweg_source::counted;

/// Writes the report as tables.
pub fn show(out: &mut impl Write, report: &Report) -> io::Result<()> {
    headline(out, report)?;
    nfs(out, report)?;
    figures(out, report)?;
    types(out, report)?;
    ports(out, report)
}

fn headline(out: &mut impl Write, r: &Report) -> io::Result<()> {
    writeln!(
        out,
        "{} in {:.3} s on {}: {:.2} Mpps, {:.2} Gbit/s, {:.0} cycles per packet",
        counted(r.packets_in, "packet"),
        r.duration_s,
        counted(r.workers, "worker"),
        r.packets_per_second / 1e6,
        r.bits_per_second / 1e9,
        r.cycles_per_packet
    )?;
    let sign = if r.conserved { "=" } else { "is NOT" };
    writeln!(
        out,
        "{} in + {} generated {sign} {} out + {} dropped",
        r.packets_in, r.generated, r.packets_out, r.packets_dropped
    )?;
    let l = r.latency_ns;
    writeln!(
        out,
        "latency p50 {}, p90 {}, p99 {}, p99.9 {}, max {}",
        time(l.p50),
        time(l.p90),
        time(l.p99),
        time(l.p999),
        time(l.max)
    )?;
    let c = |name: &str| r.classification.get(name).copied().unwrap_or(0);
    writeln!(
        out,
        "classified by exact-match cache {}, megaflow {}, rule table {}",
        c("emc_hits"),
        c("megaflow_hits"),
        c("rule_lookups")
    )
}

fn nfs(out: &mut impl Write, report: &Report) -> io::Result<()> {
    if report.nfs.is_empty() {
        return Ok(());
    }
    let mut table = number_table(
        &[
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
        ],
        2,
    );
    if let Some(column) = table.column_mut(9) {
        column.set_cell_alignment(comfy_table::CellAlignment::Left);
    }
    for nf in &report.nfs {
        table.add_row([
            nf.name.clone(),
            nf.kind.clone(),
            nf.packets.to_string(),
            nf.bytes.to_string(),
            nf.drops.values().sum::<u64>().to_string(),
            nf.generated.to_string(),
            format!("{:.0}", nf.cycles_per_packet),
            time(nf.latency_ns.p50),
            time(nf.latency_ns.p99),
            list(&nf.drops),
        ]);
    }
    writeln!(out, "\n{table}")
}

fn figures(out: &mut impl Write, report: &Report) -> io::Result<()> {
    // Some NFs have dozens; the JSON report has those that are 0 too.
    let lines: Vec<String> = report
        .nfs
        .iter()
        .map(|nf| (nf, list(nf.figures.iter().filter(|(_, figure)| **figure > 0))))
        .filter(|(_, figures)| !figures.is_empty())
        .map(|(nf, figures)| format!("{}: {figures}", nf.name))
        .collect();
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{}", lines.join("\n"))
}

fn types(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let mut table = number_table(&["packet type", "packets", "bytes"], 1);
    for (name, t) in &report.types {
        table.add_row([name.clone(), t.packets.to_string(), t.bytes.to_string()]);
    }
    writeln!(out, "\n{table}")
}

fn ports(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let mut table = plain_table(&["port", "", "packets", "bytes", "drops by reason"]);
    for (what, ports) in [("in", &report.inputs), ("out", &report.outputs)] {
        for p in ports {
            table.add_row([
                p.name.clone(),
                what.into(),
                p.packets.to_string(),
                p.bytes.to_string(),
                list(&p.drops),
            ]);
        }
    }
    writeln!(out, "\n{table}")?;
    if !report.chain_drops.is_empty() {
        writeln!(out, "\ndropped between NFs: {}", list(&report.chain_drops))?;
    }
    Ok(())
}

fn list<'a, V: Display + 'a>(map: impl IntoIterator<Item = (&'a &'static str, &'a V)>) -> String {
    let parts: Vec<_> = map.into_iter().map(|(name, n)| format!("{name} {n}")).collect();
    parts.join(", ")
}

/// A time in its handiest unit.
fn time(nanoseconds: u64) -> String {
    let n = nanoseconds as f64;
    match nanoseconds {
        0..1_000 => format!("{nanoseconds} ns"),
        1_000..1_000_000 => format!("{:.1} us", n / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", n / 1e6),
        _ => format!("{:.2} s", n / 1e9),
    }
}
