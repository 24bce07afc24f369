//! `thalweg sim sweep`: every combination of several settings.

use thalweg_sim::config::Config;
use thalweg_sim::experiment::Store;

use super::progress::Progress;
use super::{failure, load, load_by, threads};
use crate::args;
use crate::errors::Failure;

/// Simulates every combination that the output does not hold yet.
pub(super) fn sweep(options: &args::SimSweep, quiet: bool) -> Result<(), Failure> {
    let points = points(options)?;
    let mut store = Store::open(&options.output).map_err(failure)?;
    let held = points.iter().filter(|config| store.get(config).is_some()).count();
    if !quiet && held > 0 {
        log::info!("{}: holds {held} of {} already", options.output.display(), points.len());
    }
    let progress = Progress::start(quiet);
    store
        .simulate(&points, threads(options.grid.threads), |done, all| progress.show(done, all))
        .map_err(failure)
}

/// All combinations, each checked before anything runs.
fn points(options: &args::SimSweep) -> Result<Vec<Config>, Failure> {
    let file = options.grid.config.as_deref();
    // A mistake in what all combinations share is one of --set.
    load(file, &options.grid.settings)?;
    let mut combinations = vec![options.grid.settings.clone()];
    for over in &options.over {
        let (key, values) = over.split_once('=').ok_or_else(|| {
            let expected = "TABLE.KEY=VALUE,...";
            Failure::Usage(format!("--over: '{over}' is not a setting; expected {expected}"))
        })?;
        let with = |settings: &Vec<String>, value: &str| {
            let mut settings = settings.clone();
            settings.push(format!("{key}={value}"));
            settings
        };
        combinations = combinations
            .iter()
            .flat_map(|settings| values.split(',').map(move |value| with(settings, value)))
            .collect();
    }
    combinations.iter().map(|settings| load_by("--over", file, settings)).collect()
}
