//! The verdicts of the default machine, which takes minutes to simulate.

use thalweg_sim::config::Config;
use thalweg_sim::experiment::Store;
use thalweg_sim::report;

#[test]
#[ignore = "simulates for minutes"]
fn verdicts_are_those_recorded_and_a_sweep_explains_what_is_contradicted() {
    let config = Config::default();
    let mut store = Store::in_memory();
    store.simulate(&report::runs(&config), 2, |_, _| ()).unwrap();
    let verdicts = report::verdicts(&config, &store).json();
    let verdicts: serde_json::Value = serde_json::from_str(&verdicts).unwrap();
    let recorded: toml::Table = toml::from_str(include_str!("verdicts.toml")).unwrap();
    let claims = verdicts["claims"].as_array().unwrap();
    assert_eq!(claims.len(), recorded.len());
    for claim in claims {
        let of = |results: &serde_json::Value| -> Vec<String> {
            let all = results.as_array().unwrap().iter();
            all.map(|result| result["verdict"].as_str().unwrap().to_owned()).collect()
        };
        let found = of(&claim["results"]);
        let known = recorded[claim["metric"].as_str().unwrap()].as_array().unwrap();
        assert_eq!(found, known.iter().filter_map(|v| v.as_str()).collect::<Vec<_>>(), "{claim}");
        let explained = of(&claim["moved_by"]).iter().any(|verdict| verdict != "contradicted");
        assert!(explained || !found.contains(&"contradicted".to_owned()), "{claim}");
    }
}
