//! The machine that the simulator runs on, measured: what a simulation of it is held against.
//!
//! Of several times the shortest counts, since other load on the machine only makes them longer.

mod chase;
mod lookups;

pub use chase::{clock_ghz, step_ns};
pub use lookups::{LookupTimes, lookup_times};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_measured() {
        assert!((0.1..10.0).contains(&clock_ghz()));
        assert!((0.1..1000.0).contains(&step_ns(1 << 14).unwrap()));
        let [small, large] = lookup_times(&[64, 4096], 0.75, 1, 1)[..] else {
            panic!("two tables")
        };
        for times in [small, large] {
            let LookupTimes { independent, dependent, steps } = times;
            for ns in [independent, dependent, steps] {
                assert!((0.1..10_000.0).contains(&ns), "{times:?}");
            }
        }
    }
}
