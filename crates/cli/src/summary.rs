//! The report of a run as text.

use std::io::{self, Write};

use thalweg_engine::{NfReport, PortReport, Report};
use thalweg_source::counted;

use crate::report::wrapped;
use crate::reports::tables::{self, LAYERS, Table};
use crate::units::{rate, time};

/// Writes the report as tables and lists in `width` columns.
pub fn show(out: &mut impl Write, report: &Report, width: Option<usize>) -> io::Result<()> {
    headline(out, report, width)?;
    let table = |table: Table| Some(table.text().within(width).to_string());
    let workers = (report.workers > 1).then(|| tables::workers(report));
    let sections = [
        tables::nfs(report).and_then(table),
        figures(report, width),
        table(tables::types(report)),
        table(tables::ports(report)),
        workers.and_then(table),
        modes(report, width),
        passed_over(report, width),
        link_events(report, width),
        device_drops(report, width),
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
    let latency = tables::latencies(r).map(|(name, ns)| format!("{name} {}", time(ns)));
    writeln!(out, "{}", wrapped("latency ", latency, ", ", width))?;
    let layers = LAYERS.map(|(name, layer)| format!("{name} {}", tables::classified(r, layer)));
    writeln!(out, "{}", wrapped("classified by ", layers, ", ", width))?;
    if let Some(sandbox) = r.sandbox.as_ref().filter(|sandbox| sandbox.is_live) {
        writeln!(out, "{}", wrapped("sandbox: ", sandbox.parts(), ", ", width))?;
    }
    if !r.stages.is_empty() {
        let stages = r.stages.iter().map(|(stage, cycles)| format!("{stage} {cycles:.0}"));
        writeln!(out, "{}", wrapped("cycles per packet: ", stages, ", ", width))?;
    }
    let Some(batches) = &r.batch_cpu_ns else { return Ok(()) };
    let times = tables::batch_times(batches).map(|(name, ns)| format!("{name} {}", time(ns)));
    writeln!(out, "{}", wrapped("processor time of a batch: ", times, ", ", width))
}

/// The figures of each NF that has some.
fn figures(report: &Report, width: Option<usize>) -> Option<String> {
    let of_nf = |nf: &NfReport| {
        let figures = tables::figures(nf);
        (!figures.is_empty()).then(|| wrapped(&format!("{}: ", nf.name), figures, ", ", width))
    };
    let lists: Vec<String> = report.nfs.iter().filter_map(of_nf).collect();
    (!lists.is_empty()).then(|| lists.join("\n"))
}

/// How the packets of each port have passed that others send or receive.
fn modes(report: &Report, width: Option<usize>) -> Option<String> {
    let of_port = |(direction, port): (&str, &PortReport)| {
        let mode = port.mode.as_deref().filter(|_| port.is_live)?;
        let lead = format!("mode of {direction} {}: ", port.name);
        Some(wrapped(&lead, mode.split(", "), ", ", width))
    };
    let inputs = report.inputs.iter().map(|port| ("input", port));
    let outputs = report.outputs.iter().map(|port| ("output", port));
    let lines: Vec<_> = inputs.chain(outputs).filter_map(of_port).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// The packets that each input passed over.
fn passed_over(report: &Report, width: Option<usize>) -> Option<String> {
    let of_input = |input: &PortReport| {
        let counts = tables::passed_over(input);
        let lead = format!("not received by {}: ", input.name);
        (!counts.is_empty()).then(|| wrapped(&lead, counts, ", ", width))
    };
    let lines: Vec<_> = report.inputs.iter().filter_map(of_input).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// What has happened to the interface of each port.
fn link_events(report: &Report, width: Option<usize>) -> Option<String> {
    let of_port = |(direction, port): (&str, &PortReport)| {
        let events = tables::list(&port.link_events);
        let lead = format!("events of {direction} {}: ", port.name);
        (!events.is_empty()).then(|| wrapped(&lead, events, ", ", width))
    };
    let inputs = report.inputs.iter().map(|port| ("input", port));
    let outputs = report.outputs.iter().map(|port| ("output", port));
    let lines: Vec<_> = inputs.chain(outputs).filter_map(of_port).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// The packets that interfaces have dropped before inputs could have them.
fn device_drops(report: &Report, width: Option<usize>) -> Option<String> {
    let inputs = report.inputs.iter().filter(|port| port.device_drops > 0);
    let counts: Vec<_> =
        inputs.map(|port| format!("{} {}", port.name, port.device_drops)).collect();
    let lead = "dropped by interfaces before inputs had them: ";
    (!counts.is_empty()).then(|| wrapped(lead, counts, ", ", width))
}

fn chain_drops(report: &Report, width: Option<usize>) -> Option<String> {
    let drops = tables::list(&report.chain_drops);
    (!drops.is_empty()).then(|| wrapped("dropped between NFs: ", drops, ", ", width))
}
