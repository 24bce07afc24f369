//! `thalweg sim claims`, `figure` and `table`: the experiments of the HALO paper.

use std::io::{self, Write};
use std::path::Path;

use thalweg_sim::config::Config;
use thalweg_sim::experiment::Store;
use thalweg_sim::report::{self, Artefact, File};

use super::progress::Progress;
use super::{failure, load, threads};
use crate::args;
use crate::errors::Failure;

/// Simulates what the artefacts need, and `more`; returns the simulations and the artefacts'
/// files.
fn produce(
    options: &args::SimPaper,
    config: &Config,
    artefacts: &[Artefact],
    more: Vec<Config>,
    quiet: bool,
) -> Result<(Store, Vec<File>), Failure> {
    let wrong = |e: io::Error| Failure::Run(format!("{}: {e}", options.out.display()));
    std::fs::create_dir_all(&options.out).map_err(wrong)?;
    let mut store = Store::open(&options.out.join("runs.jsonl")).map_err(failure)?;
    let of_artefacts = artefacts.iter().flat_map(|artefact| artefact.runs(config));
    let runs: Vec<Config> = of_artefacts.chain(more).collect();
    let progress = Progress::start(quiet);
    store
        .simulate(&runs, threads(options.grid.threads), |done, all| progress.show(done, all))
        .map_err(failure)?;
    let files: Vec<File> =
        artefacts.iter().flat_map(|artefact| artefact.files(config, &store)).collect();
    files.iter().try_for_each(|file| write(&options.out, file))?;
    Ok((store, files))
}

fn write(folder: &Path, file: &File) -> Result<(), Failure> {
    let path = folder.join(&file.name);
    std::fs::write(&path, &file.bytes).map_err(|e| Failure::Run(format!("{}: {e}", path.display())))
}

pub(super) fn claims(options: &args::SimClaims, quiet: bool) -> Result<(), Failure> {
    let paper = &options.paper;
    let config = load(paper.grid.config.as_deref(), &paper.grid.settings)?;
    let (store, _) = produce(paper, &config, &Artefact::ALL, report::runs(&config), quiet)?;
    let verdicts = report::verdicts(&config, &store);
    let (markdown, json) = (verdicts.markdown(), verdicts.json());
    for (name, text) in [("claims.md", &markdown), ("claims.json", &json)] {
        write(&paper.out, &File { name: name.into(), bytes: text.clone().into_bytes() })?;
    }
    let shown = if options.json { json } else { markdown };
    Ok(io::stdout().write_all(shown.as_bytes())?)
}

pub(super) fn figure(options: &args::SimNumber, quiet: bool) -> Result<(), Failure> {
    one(options, quiet, "figure")
}

pub(super) fn table(options: &args::SimNumber, quiet: bool) -> Result<(), Failure> {
    one(options, quiet, "table")
}

/// Writes the files of one figure or table, and prints its numbers.
fn one(options: &args::SimNumber, quiet: bool, kind: &str) -> Result<(), Failure> {
    let wanted = format!("{kind}-{}", options.number);
    let artefact = Artefact::ALL.into_iter().find(|artefact| artefact.name() == wanted);
    let artefact = artefact.ok_or_else(|| {
        let known = Artefact::ALL.into_iter().map(Artefact::name);
        let numbers: Vec<_> =
            known.filter_map(|name| name.strip_prefix(kind)?.strip_prefix('-')).collect();
        Failure::Usage(format!(
            "cannot simulate {kind} {}; expected one of {}",
            options.number,
            numbers.join(", ")
        ))
    })?;
    let config = load(options.paper.grid.config.as_deref(), &options.paper.grid.settings)?;
    let (_, files) = produce(&options.paper, &config, &[artefact], Vec::new(), quiet)?;
    let mut out = io::stdout().lock();
    for file in files.iter().filter(|file| file.is_csv()) {
        out.write_all(&file.bytes)?;
    }
    Ok(())
}
