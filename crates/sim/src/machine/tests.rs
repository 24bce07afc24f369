//! Latencies of an idle machine, and queues against theory.

use proptest::prelude::*;

use super::*;
use crate::calibrate::simulated_chase as chase;
use crate::config::Config;

#[test]
fn a_chase_takes_the_latency_of_the_level_it_fits_into() {
    let config = Config::default();
    assert!((chase(&config, 16 << 10) - 5.0).abs() < 0.1);
    assert!((chase(&config, 256 << 10) - 14.0).abs() < 1.5);
    let llc = chase(&config, 8 << 20);
    assert!((llc - 62.0).abs() < 6.0, "{llc}");
    // A cycle through twice what it holds leaves no line in the last-level cache for its next use.
    let dram = chase(&config, 64 << 20) - llc;
    assert!((70.0..130.0).contains(&dram), "{dram}");
}

#[test]
fn slices_have_equal_parts_of_the_lines() {
    let memory = Memory::new(&Config::default());
    let region = Layout::default().region(16 << 20);
    let mut counts = [0u32; 16];
    for line in 0..(16 << 20) / LINE {
        counts[memory.slice(memory.line(region.at(line * LINE))).0] += 1;
    }
    assert!(counts.iter().all(|n| n.abs_diff(16 << 10) < 400), "{counts:?}");
}

#[test]
fn an_accelerator_is_nearer_to_the_cache_than_the_core() {
    let mut memory = Memory::new(&Config::default());
    let region = Layout::default().region(1 << 20);
    let address = region.at(4096);
    memory.warm(address, false);
    let home = memory.slice(memory.line(address));
    let here = memory.accelerator_read(home, address, 1000);
    assert_eq!(here, Done { at: 1012, level: Level::Llc });
    let there = memory.accelerator_read(Tile((home.0 + 2) % 16), address, 2000);
    assert!(there.at > 2012 && there.at < 2012 + 2 * 2 * 6 + 1, "{there:?}");
    let core = memory.core(CoreId(0), address, Access::Read, 3000);
    assert!(core.at > 3045 && core.level == Level::Llc, "{core:?}");
}

#[test]
fn a_line_that_the_core_wrote_is_fetched_from_it_once() {
    let mut memory = Memory::new(&Config::default());
    let address = Layout::default().region(64).at(0);
    memory.core(CoreId(0), address, Access::Write, 100);
    let home = memory.slice(memory.line(address));
    let first = memory.accelerator_read(home, address, 1000);
    assert_eq!(first.level, Level::Snooped);
    assert!(first.at >= 1012 + 14, "{first:?}");
    let second = memory.accelerator_read(home, address, 2000);
    assert_eq!((second.level, memory.counts.snoops), (Level::Llc, 1));
    // And the core still has it.
    assert_eq!(memory.core(CoreId(0), address, Access::Read, 3000).level, Level::L1);
    memory.accelerator_write(home, address, 4000);
    assert_eq!(memory.core(CoreId(0), address, Access::Read, 5000).level, Level::Llc);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A writer of a line holds it exclusively, and no other core reads an older value.
    #[test]
    fn a_line_that_was_written_has_one_holder(
        accesses in prop::collection::vec((0usize..3, 0u64..24, 0u32..4), 1..200),
    ) {
        let mut memory = Memory::with_cores(&Config::default(), 3);
        let region = Layout::default().region(24 * LINE);
        for (now, (core, line, kind)) in accesses.into_iter().enumerate() {
            let (address, now) = (region.at(line * LINE), 1000 * now as u64);
            let before = memory.holders(address);
            let other = before.iter().any(|(id, wrote)| id.0 != core && *wrote);
            match kind {
                0 | 1 => {
                    let done = memory.core(CoreId(core), address, Access::Read, now);
                    prop_assert_eq!(done.level == Level::Snooped, other);
                }
                2 => {
                    memory.core(CoreId(core), address, Access::Write, now);
                    prop_assert_eq!(memory.holders(address), vec![(CoreId(core), true)]);
                }
                _ => {
                    memory.accelerator_write(Tile(core), address, now);
                    prop_assert_eq!(memory.holders(address), vec![]);
                }
            }
            let holders = memory.holders(address);
            prop_assert!(holders.iter().all(|(_, wrote)| !wrote) || holders.len() == 1);
        }
    }
}

#[test]
fn taking_a_line_from_another_core_takes_a_way_there_and_back() {
    let mut memory = Memory::with_cores(&Config::default(), 2);
    let address = Layout::default().region(64).at(0);
    memory.core(CoreId(0), address, Access::Write, 100);
    let own = memory.core(CoreId(0), address, Access::Write, 1000).at;
    assert_eq!(own, 1005);
    let read = memory.core(CoreId(1), address, Access::Read, 2000);
    assert!(read.level == Level::Snooped && read.at > 2062, "{read:?}");
    let write = memory.core(CoreId(1), address, Access::Write, 3000);
    assert!(write.at > 3030 && memory.counts.invalidations == 1, "{write:?}");
}

/// The part of a channel's bandwidth that a stream of reads gets, with so many misses
/// under way.
fn stream(misses: usize) -> f64 {
    let mut config = Config::default();
    config.core.mshr = misses;
    let mut memory = Memory::new(&config);
    let lines = 20_000;
    let region = Layout::default().region(lines * LINE);
    let read = |n| memory.core(CoreId(0), region.at(n * LINE), Access::Read, 1).at;
    let last = (0..lines).map(read).max().unwrap_or(0);
    let seconds = last as f64 / (config.core.ghz * 1e9);
    (lines * LINE) as f64 / seconds / 19.2e9
}

#[test]
fn memory_gives_three_quarters_of_its_bandwidth_to_a_stream() {
    let rate = stream(20);
    assert!((0.75..1.0).contains(&rate), "{rate}");
    // Four lines in the time of one, and more only up to the bus.
    assert!(stream(4) < rate / 2.0 && stream(64) < 1.0);
}

/// Mean wait of random requests to a server of one request in `service` cycles, each at
/// the rate `load / service`.
fn mean_wait(load: f64, service: u64, mut reserve: impl FnMut(u64, u64) -> u64) -> f64 {
    let mut random = 0x2545_f491_4f6c_dd1du64;
    let (mut now, mut waited) = (0.0f64, 0);
    let requests = 400_000;
    for _ in 0..requests {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let uniform = ((random >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        now += -uniform.ln() * service as f64 / load;
        let arrival = now.ceil() as u64;
        waited += reserve(arrival, service) - arrival;
    }
    waited as f64 / f64::from(requests)
}

#[test]
fn a_resource_queues_as_m_d_1_does() {
    use crate::calendar::Calendar;
    // A long service time, so that rounding to whole cycles is negligible.
    let service = 40;
    for load in [0.3, 0.5, 0.7] {
        let mut calendar = Calendar::new(1);
        let wait = mean_wait(load, service, |at, duration| calendar.reserve_run(at, duration));
        // Pollaczek and Khinchine, for a constant service time.
        let theory = load / (2.0 * (1.0 - load)) * service as f64;
        assert!((wait / theory - 1.0).abs() < 0.03, "{load}: {wait}, not {theory}");
    }
}
