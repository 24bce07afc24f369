//! Reports of a run as files: JSON, Markdown, and an HTML page with plots.

mod html;
mod markdown;
mod plots;
pub mod tables;

use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use thalweg_engine::Report;
use thalweg_source::{OutputFile, counted};

use self::plots::Plot;
use self::tables::Table;
use crate::args::ReportFormat;
use crate::report::write_json;
use crate::shorthand::typed;
use crate::units::{date_time, rate, time};

/// The most rows of the table of a series; plots show all of it.
const ROWS: usize = 20;

/// Replaces the content of `file` by the report in `format`.
///
/// # Errors
/// When the file cannot be written; it is then as before.
pub fn write(file: &OutputFile, format: ReportFormat, report: &Report) -> io::Result<()> {
    let text = match format {
        ReportFormat::Json => {
            return file.replace(|out| write_json(out, report));
        }
        ReportFormat::Markdown => markdown::page(&Page::new(report)),
        ReportFormat::Html => html::page(&Page::new(report))?,
    };
    file.replace(|out| out.write_all(text.as_bytes()))
}

/// A report for people.
struct Page {
    /// The command line that ran.
    command: String,
    /// When the report was written, and by which version.
    written: String,
    /// The run in a sentence.
    summary: String,
    sections: Vec<Section>,
}

struct Section {
    title: &'static str,
    blocks: Vec<Block>,
}

enum Block {
    /// A sentence without names of files.
    Note(String),
    /// Texts that may hold names of files.
    List(Vec<String>),
    Table(Table),
    Plot(Plot),
}

impl Page {
    fn new(report: &Report) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = date_time(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
        // To the second.
        let now = now.split('.').next().unwrap_or_default();
        let all = [
            of_list("Failures", &report.failures),
            of_list("Warnings", &report.warnings),
            of_table("Overview", tables::overview(report)),
            Some(over_time(report)),
            tables::nfs(report).and_then(|nfs| of_nfs(report, nfs)),
            of_table("Ports", tables::ports(report)).map(|ports| with_passed_over(ports, report)),
            of_table("Workers", tables::workers(report)),
            of_table("Drops", tables::drops(report)),
            of_table("Packet types", tables::types(report)),
        ];
        Self {
            command: typed(),
            written: format!("{now} UTC, thalweg {}", env!("CARGO_PKG_VERSION")),
            summary: summary(report),
            sections: all.into_iter().flatten().collect(),
        }
    }
}

fn summary(r: &Report) -> String {
    let outcome = if r.failed() { "The run failed" } else { "The run succeeded" };
    let sign = if r.conserved { "=" } else { "is NOT" };
    format!(
        "{outcome}: {} in {} on {}, {}, {}. {} in + {} generated {sign} {} out + {} dropped.",
        counted(r.packets_in, "packet"),
        time((r.duration_s * 1e9) as u64),
        counted(r.workers, "worker"),
        rate(r.packets_per_second, "pps"),
        rate(r.bits_per_second, "bit/s"),
        r.packets_in,
        r.generated,
        r.packets_out,
        r.packets_dropped,
    )
}

/// A section with a list, unless that is empty.
fn of_list(title: &'static str, list: &[String]) -> Option<Section> {
    (!list.is_empty()).then(|| Section { title, blocks: vec![Block::List(list.to_vec())] })
}

/// A section with a table, unless that is empty.
fn of_table(title: &'static str, table: Table) -> Option<Section> {
    (!table.rows.is_empty()).then(|| Section { title, blocks: vec![Block::Table(table)] })
}

/// What happened over time.
fn over_time(report: &Report) -> Section {
    let mut blocks = Vec::new();
    match &report.series {
        Some(series) if report.packets_in > 0 => {
            let length = time((series.interval_s * 1e9) as u64);
            let intervals = match series.intervals.len() {
                1 => format!("The run was shorter than two intervals of {length}."),
                more => format!("Snapshots divide the run into {more} intervals of {length}."),
            };
            blocks.push(Block::Note(format!(
                "Times are seconds of the clock since the start of the run, not times of captured \
                 packets. {intervals}",
            )));
            blocks.extend(plots::all(series).into_iter().map(Block::Plot));
            let few = series.of_at_most(ROWS);
            if few.intervals.len() < series.intervals.len() {
                let length = time((few.interval_s * 1e9) as u64);
                let note = format!("The table has intervals of {length}.");
                blocks.push(Block::Note(note));
            }
            blocks.push(Block::Table(tables::over_time(&few)));
        }
        _ => blocks.push(Block::Note("No packets were received.".into())),
    }
    Section { title: "Over time", blocks }
}

/// The NFs, and the figures of each.
fn of_nfs(report: &Report, nfs: Table) -> Option<Section> {
    let figures = report.nfs.iter().map(|nf| (nf, tables::figures(nf)));
    let figures = figures.filter(|(_, figures)| !figures.is_empty());
    let figures = figures.map(|(nf, figures)| format!("{}: {}", nf.name, figures.join(", ")));
    let figures: Vec<_> = figures.collect();
    let mut section = of_table("Network functions", nfs)?;
    section.blocks.extend((!figures.is_empty()).then_some(Block::List(figures)));
    Some(section)
}

/// The ports, and what each input did not receive.
fn with_passed_over(mut ports: Section, report: &Report) -> Section {
    let counts = report.inputs.iter().map(|input| (input, tables::passed_over(input)));
    let counts = counts.filter(|(_, counts)| !counts.is_empty());
    let lines: Vec<_> = counts
        .map(|(input, counts)| format!("not received by {}: {}", input.name, counts.join(", ")))
        .collect();
    ports.blocks.extend((!lines.is_empty()).then_some(Block::List(lines)));
    ports
}
