//! The report on a machine and runs so small that they take no time.

use super::artefacts::Content;
use super::figure::{Figure, Kind};
use super::*;
use crate::config::Config;
use crate::experiment::Store;

fn short() -> Config {
    let mut config = Config::default();
    config.sim.warmup_lookups = 20;
    config.sim.measured_lookups = 40;
    config
}

/// What `read` returns of a store that has the same report for all configurations.
fn with_equal_reports<T>(read: impl FnOnce(&Store) -> T) -> T {
    let mut seen = None;
    Store::wanted_by(|store| seen = Some(read(store)));
    seen.unwrap()
}

/// All figures, with an artefact's name each; the first of an artefact is the paper's.
pub(super) fn all_figures() -> Vec<(&'static str, bool, Figure)> {
    let (config, mut all) = (short(), Vec::new());
    for artefact in Artefact::ALL {
        let contents =
            with_equal_reports(|store| artefact.contents(metrics::Runs { base: &config, store }));
        if let Content::Figures(figures) = contents {
            let named = |(n, figure)| (artefact.name(), n == 0, figure);
            all.extend(figures.into_iter().enumerate().map(named));
        }
    }
    all
}

#[test]
fn claims_are_simulated_as_they_are_and_under_other_assumptions() {
    let config = short();
    let mut plain = Vec::new();
    for claim in claims::read() {
        let measure = measures::Measure::named(&claim.metric).unwrap();
        plain.extend(Store::wanted_by(|store| {
            measure.of(metrics::Runs { base: &config, store });
        }));
    }
    let all = runs(&config);
    assert!(plain.iter().all(|run| all.contains(run)));
    assert!(all.iter().any(|run| run.llc.mib == 64) && plain.iter().all(|run| run.llc.mib == 32));
}

#[test]
fn the_page_counts_its_verdicts_links_its_figures_and_explains_what_is_contradicted() {
    let config = short();
    // Nothing has an effect, so that many claims are contradicted.
    let verdicts = with_equal_reports(|store| verdicts(&config, store));
    let json: serde_json::Value = serde_json::from_str(&verdicts.json()).unwrap();
    let page = verdicts.markdown();
    assert_eq!(json["schema"], "thalweg.sim.claims/1");
    assert_eq!((&json["seed"], json["machines"].as_array().unwrap().len()), (&1.into(), 2));
    let claims = json["claims"].as_array().unwrap();
    for (at, machine) in json["machines"].as_array().unwrap().iter().enumerate() {
        let with = |verdict: &str| {
            claims.iter().filter(|claim| claim["results"][at]["verdict"] == verdict).count()
        };
        let keys = [
            ("agrees", "agrees"),
            ("better_than_claimed", "better than claimed"),
            ("direction_agrees", "direction agrees"),
            ("contradicted", "contradicted"),
            ("not_testable", "not testable"),
        ];
        let counts = keys.map(|(key, verdict)| {
            assert_eq!(machine[key], with(verdict), "{key}");
            with(verdict)
        });
        assert_eq!(counts.iter().sum::<usize>(), claims.len());
        assert!(counts[3] > 5, "{counts:?}");
    }
    let row = json["machines"].as_array().unwrap();
    let (first, second) = (&row[0]["contradicted"], &row[1]["contradicted"]);
    assert!(page.contains(&format!("| contradicted | {first} | {second} |")), "{page}");
    let explained = page.split("## Contradicted").nth(1).unwrap().split("\n## ").next().unwrap();
    for claim in claims.iter().filter(|claim| claim["results"][0]["verdict"] == "contradicted") {
        assert!(explained.contains(claim["text"].as_str().unwrap()), "{claim}");
        for moved in claim["moved_by"].as_array().unwrap() {
            let line = format!("  - {}", moved["text"].as_str().unwrap());
            assert!(explained.contains(&line), "{line}");
        }
    }
    for file in Artefact::ALL.iter().flat_map(|artefact| artefact.names()) {
        assert!(page.contains(&format!("({file})")), "{file}");
    }
}

#[test]
fn bars_stand_where_categories_do() {
    for (name, _, figure) in all_figures() {
        let numbers = figure.points.windows(2).all(|pair| pair[0].number < pair[1].number);
        assert_eq!(matches!(figure.kind, Kind::Lines(_)), numbers, "{name}");
        assert_eq!(numbers, !matches!(name, "figure-3" | "figure-10" | "figure-12" | "figure-13"));
    }
}

#[test]
fn the_papers_numbers_are_marked_at_points_that_figures_have() {
    let figures = all_figures();
    let mut marked = 0;
    for mark in claims::read().iter().flat_map(|claim| &claim.marks) {
        let of = |(name, first, _): &&(&str, bool, Figure)| *name == mark.figure && *first;
        let (.., figure) = figures.iter().find(of).expect("a figure");
        for end in [&mark.from, &mark.to] {
            assert!(figure.points.iter().any(|point| point.name == *end), "{mark:?}");
            marked += 1;
        }
    }
    assert!(marked > 20);
}

#[test]
fn artefacts_have_their_files() {
    let config = short();
    let mut store = Store::in_memory();
    for artefact in [Artefact::Figure8b, Artefact::Figure11, Artefact::Table1, Artefact::Table4] {
        store.simulate(&artefact.runs(&config), 2, |_, _| ()).unwrap();
        let files = artefact.files(&config, &store);
        assert_eq!(
            files.iter().map(|file| &file.name).collect::<Vec<_>>(),
            artefact.names().iter().collect::<Vec<_>>()
        );
        for file in files {
            let text = String::from_utf8_lossy(&file.bytes);
            match file.name.rsplit('.').next().unwrap() {
                "svg" => {
                    let svg = roxmltree::Document::parse(&text).unwrap();
                    let texts: Vec<&str> =
                        svg.descendants().filter_map(|node| node.text()).collect();
                    let caption = texts.join(" ");
                    let version = concat!("Thalweg ", env!("CARGO_PKG_VERSION"));
                    for part in [
                        "2.1 GHz",
                        "sim.measured_lookups=40",
                        "seed 1",
                        version,
                        "The paper:",
                        "95 %",
                    ] {
                        assert!(caption.contains(part), "{part}: {caption}");
                    }
                }
                "pdf" => {
                    assert!(text.starts_with("%PDF-1.") && text.trim_end().ends_with("%%EOF"));
                    assert!(text.contains("/FontFile2") && text.contains("/WinAnsiEncoding"));
                }
                _ => assert!(text.lines().count() >= 4, "{text}"),
            }
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
    let mut runs = Artefact::Table1.runs(&config);
    // 0.760009765625 and others do not survive a sloppy reader of numbers.
    for occupancy in [0.760_009_765_625, 0.713_333_333_333_333_3, 0.1 + 0.2, 0.949_951_171_875] {
        let mut other = runs[0].clone();
        other.workload.occupancy = occupancy;
        runs.push(other);
    }
    let mut store = Store::open(&folder).unwrap();
    store.simulate(&runs, 1, |_, _| ()).unwrap();
    let kept = Store::open(&folder).unwrap();
    for run in &runs {
        assert!(kept.get(run).is_some(), "{}", run.workload.occupancy);
        assert_eq!(kept.get(run), store.get(run));
    }
    std::fs::remove_file(&folder).unwrap();
}
