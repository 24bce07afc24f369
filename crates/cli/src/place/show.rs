//! The measurements as a table.

use std::io::{self, Write};

use thalweg_source::visible;

use super::{Criterion, Measured, Placement};
use crate::report::{columns, number_table, wrapped};
use crate::units;

/// Prints the measurements and the cheapest placement.
pub(super) fn show(out: &mut impl Write, placement: &Placement) -> io::Result<()> {
    let joules = placement.without_joules.is_none();
    let mut headings = vec!["NF", "traffic", "place", "packets/s", "min", "max", "CPU ns/packet"];
    headings.extend(joules.then_some("uJ/packet"));
    headings.push("dropped");
    let mut table = number_table(&headings, 3);
    for measured in &placement.measurements {
        table.add_row(row(measured, joules));
    }
    writeln!(out, "{table}")?;
    let prose = |text: &str| wrapped("", text.split(' '), " ", columns());
    for measured in &placement.measurements {
        if let Some(why) = &measured.failure {
            let Measured { nf, at, traffic, .. } = measured;
            writeln!(out, "{}", prose(&visible(&format!("{nf} at {at}, {traffic}: {why}"))))?;
        }
    }
    if let Some(why) = &placement.without_opencl {
        writeln!(out, "{}", prose(&visible(&format!("no OpenCL devices: {why}"))))?;
    }
    if let Some(why) = &placement.without_joules {
        writeln!(out, "{}", prose(&visible(&format!("joules are unavailable: {why}"))))?;
    }
    let by = match placement.cheapest.by {
        Criterion::Joules => "joules a packet",
        Criterion::ProcessorTime => "processor time a packet",
    };
    writeln!(out, "\ncheapest by {by}, traffic '{}':", placement.cheapest.traffic)?;
    for placed in &placement.cheapest.nfs {
        writeln!(out, "  [nf.{}]  at = \"{}\"", visible(&placed.nf), placed.at)?;
    }
    let missing =
        |measured: &&Measured| placement.cheapest.nfs.iter().all(|placed| placed.nf != measured.nf);
    let mut before = None;
    for measured in placement.measurements.iter().filter(missing) {
        if before.replace(&measured.nf) != Some(&measured.nf) {
            let nf = visible(&measured.nf);
            writeln!(out, "  [nf.{nf}]  no place: it failed or dropped all packets")?;
        }
    }
    Ok(())
}

fn row(measured: &Measured, joules: bool) -> Vec<String> {
    let mut row =
        vec![visible(&measured.nf).into_owned(), measured.traffic.clone(), measured.at.clone()];
    let Some(figures) = measured.median else {
        row.push("failed".into());
        row.resize(if joules { 9 } else { 8 }, String::new());
        return row;
    };
    let [least, most] = figures.packets_per_second_spread;
    for rate in [figures.packets_per_second, least, most] {
        row.push(units::rate(rate, "pps"));
    }
    row.push(format!("{:.0}", figures.cpu_ns_per_packet));
    if joules {
        let each = figures.joules_per_packet.map(|joules| format!("{:.2}", joules * 1e6));
        row.push(each.unwrap_or_default());
    }
    row.push(format!("{:.1} %", 100.0 * figures.dropped));
    row
}
