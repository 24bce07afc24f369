//! NFs on devices under random routes, bursts, pauses, reloads, stops and kills: every packet arrives once,
//! whole, in the order of its flow, or an NF drops it and counts it, and nothing stands still.
//!
//! `STRESS_SECONDS` makes it longer (`scripts/long.sh stress`: half an hour). `STRESS_SEED` and
//! `STRESS_ROUND`, which a failure prints, repeat its choices.

#[path = "support/places.rs"]
mod places;
#[path = "support/stress/mod.rs"]
mod stress;
mod support;

use std::env;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use places::places;
use stress::random::Random;
use stress::round::{Done, ENDS, round};

/// A number that an environment variable sets.
fn variable(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

#[test]
fn nfs_on_devices_lose_and_repeat_no_packet_whatever_happens() {
    let time = Duration::from_secs(variable("STRESS_SECONDS").unwrap_or(8));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64);
    let seed = variable("STRESS_SEED").unwrap_or(now);
    let (places, _turn) = places();
    let devices: Vec<_> = places.into_iter().filter(|at| at != "cpu").collect();
    println!("STRESS_SEED={seed}, devices {devices:?}");
    let (mut done, start, first) = (Done::default(), Instant::now(), variable("STRESS_ROUND"));
    let mut number = first.unwrap_or(0);
    while start.elapsed() < time || number == first.unwrap_or(0) {
        let folder = tempfile::tempdir().unwrap();
        let random = Random::part(seed, number);
        if let Err(failure) = round(folder.path(), random, &devices, &mut done) {
            let kept = folder.keep();
            let place = kept.display();
            panic!("STRESS_SEED={seed} STRESS_ROUND={number}, files in {place}: {failure}");
        }
        number += 1;
        if number % 50 == 0 {
            println!("{number} rounds, {:?}: {done:?}", start.elapsed());
        }
    }
    let rounds = number - first.unwrap_or(0);
    println!("{rounds} rounds in {:?}: {done:?}, ends {ENDS:?}", start.elapsed());
    assert!(done.sent > 0);
}
