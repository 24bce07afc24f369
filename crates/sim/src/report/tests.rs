//! The report on a machine and runs so small that they take no time.

use super::*;
use crate::config::Config;
use crate::experiment::Store;

fn short() -> Config {
    let mut config = Config::default();
    config.sim.warmup_lookups = 20;
    config.sim.measured_lookups = 40;
    config
}

#[test]
fn every_claim_names_a_metric() {
    let config = short();
    let named = claims::read().claim;
    let known = |store: &Store| {
        let runs = metrics::Runs { base: &config, store };
        assert!(named.iter().all(|claim| runs.metric(&claim.metric).is_some()));
        assert!(runs.metric("no such metric").is_none());
    };
    let runs = Store::wanted_by(known);
    // Those under other assumptions come on top.
    let all = claims::runs(&config);
    assert!(runs.iter().all(|run| all.contains(run)) && all.len() > runs.len());
}

#[test]
fn small_artefacts_have_their_files() {
    let config = short();
    let mut store = Store::in_memory();
    for artefact in [Artefact::Figure8b, Artefact::Figure11, Artefact::Table1, Artefact::Table4] {
        store.simulate(&artefact.runs(&config), 2, |_, _| ()).unwrap();
        for file in artefact.files(&config, &store) {
            assert!(file.name.starts_with(artefact.name()));
            let drawn = file.text.starts_with("<svg") && file.text.contains("</svg>");
            assert!(drawn || file.text.lines().count() >= 4, "{}", file.text);
        }
    }
}

#[test]
fn reports_do_not_depend_on_the_number_of_threads_nor_on_what_ran_before() {
    let config = short();
    let runs = Artefact::Figure11.runs(&config);
    let files = |threads, order: Vec<Config>| {
        let mut store = Store::in_memory();
        store.simulate(&order, threads, |_, _| ()).unwrap();
        Artefact::Figure11.files(&config, &store)
    };
    let one = files(1, runs.clone());
    assert_eq!(files(4, runs.iter().rev().cloned().collect()), one);
}

#[test]
fn a_store_keeps_what_it_simulated() {
    let folder = std::env::temp_dir().join(format!("thalweg-sim-store-{}", std::process::id()));
    let config = short();
    let runs = Artefact::Table1.runs(&config);
    let mut store = Store::open(&folder).unwrap();
    store.simulate(&runs, 1, |_, _| ()).unwrap();
    let kept = Store::open(&folder).unwrap();
    assert_eq!(kept.get(&runs[0]), store.get(&runs[0]));
    assert!(kept.get(&runs[0]).is_some());
    std::fs::remove_file(&folder).unwrap();
}
