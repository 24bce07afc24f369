//! The simulations that figures are made of.

use crate::config::{Beside, Config, Function, Method, Stream, Table};
use crate::experiment::{Report, Store};

/// Sizes of single tables, as powers of two.
pub(super) const SIZES: [u32; 8] = [3, 6, 9, 12, 15, 18, 21, 24];
/// How full they are.
pub(super) const OCCUPANCIES: [f64; 4] = [0.25, 0.5, 0.75, 0.9];
/// How full where that is not varied.
pub(super) const OCCUPANCY: f64 = 0.75;
/// Numbers of tables of a tuple space.
pub(super) const TUPLES: [u64; 4] = [5, 10, 15, 20];
/// Flows of the comparison of both kinds of table: 95 % of a power of two each, from a
/// thousand to four million.
pub(super) const FLOWS: [u64; 5] = [972, 7_782, 124_518, 996_147, 3_984_588];
/// About a million.
pub(super) const MILLION: u64 = FLOWS[3];
/// Methods that figures show.
pub(super) const SHOWN: [Method; 6] = [
    Method::LockFree,
    Method::Bulk,
    Method::HaloBlocking,
    Method::HaloNonBlocking,
    Method::Tcam,
    Method::SramTcam,
];

/// A lookup in one table of `2^bits` places.
pub(super) fn single(
    base: &Config,
    bits: u32,
    occupancy: f64,
    method: Method,
    stream: Stream,
) -> Config {
    let mut config = base.clone();
    let work = &mut config.workload;
    (work.entries, work.occupancy, work.tuples) = (1 << bits, occupancy, 1);
    (work.method, work.stream) = (method, stream);
    config
}

/// Lookups one after the other, with fences that take no time themselves: they are there to
/// tell what a lookup takes, not part of it.
pub(super) fn fenced(base: &Config, bits: u32, method: Method) -> Config {
    let mut config = single(base, bits, OCCUPANCY, method, Stream::Fenced);
    config.core.fence_cycles = 0;
    config
}

/// A search through `tuples` tables of 1024 places.
pub(super) fn tuples(base: &Config, tuples: u64, method: Method) -> Config {
    let mut config = single(base, 10, OCCUPANCY, method, Stream::Independent);
    config.workload.tuples = tuples;
    config
}

/// The same by accelerators that have so many queries of a table under way, asked for so
/// many keys at a time.
pub(super) fn tuples_as(base: &Config, n: u64, in_flight: usize, keys: u64) -> Config {
    let mut config = tuples(base, n, Method::HaloNonBlocking);
    config.halo.in_flight_per_table = in_flight;
    config.halo.nb_batch = keys;
    config
}

/// Non-blocking lookups whose results are requested `keys` at a time, at accelerators that
/// serve a table's queries one after the other.
pub(super) fn polled(base: &Config, bits: u32, keys: u64) -> Config {
    let mut config = single(base, bits, OCCUPANCY, Method::HaloNonBlocking, Stream::Dependent);
    config.halo.in_flight_per_table = 1;
    config.halo.nb_batch = keys;
    config
}

/// A table of so many flows: a cuckoo table as full as it can be, or a single-function
/// table a fifth full.
pub(super) fn flows(base: &Config, flows: u64, table: Table) -> Config {
    let part = if table == Table::SingleFunction { 0.2 } else { 0.95 };
    // The nearest power of two, so that both are about as full as they should be.
    let entries = 1u64 << (flows as f64 / part).log2().round() as u32;
    let mut config =
        single(base, entries.trailing_zeros(), OCCUPANCY, Method::LockFree, Stream::Independent);
    config.workload.table = table;
    config.workload.occupancy = flows as f64 / entries as f64;
    config
}

/// Traffic of a switch: its name, flows, and rules, each of which is a tuple.
pub(super) const TRAFFIC: [(&str, u64, u64); 5] = [
    ("10K flows 1 rule", 10_000, 1),
    ("100K flows 1 rule", 100_000, 1),
    ("100K flows 5 rules", 100_000, 5),
    ("1M flows 10 rules", 1_000_000, 10),
    ("1M flows 20 rules", 1_000_000, 20),
];
/// Cycles of a packet outside classification: an input. 340 and 993 cycles less their
/// parts of 30.9 and 77.8 % leave 235 and 220.
pub(super) const OTHER_CYCLES: f64 = 225.0;

/// A switch under `flows` flows, with `rules` tuples of megaflows.
pub(super) fn switch(base: &Config, flows: u64, rules: u64) -> Config {
    let mut config = tuples(base, rules, Method::LockFree);
    config.workload.flows = flows;
    config
}

/// Network functions with the number of their flows, hosts or rules.
pub(super) const FUNCTIONS: [(&str, Function, u64); 9] = [
    ("NAT 1K", Function::Nat, 1_000),
    ("NAT 10K", Function::Nat, 10_000),
    ("NAT 100K", Function::Nat, 100_000),
    ("assets 1K", Function::Assets, 1_000),
    ("assets 10K", Function::Assets, 10_000),
    ("assets 100K", Function::Assets, 100_000),
    ("filter 100", Function::Filter, 100),
    ("filter 1K", Function::Filter, 1_000),
    ("filter 10K", Function::Filter, 10_000),
];

/// What runs beside a switch, and the switch's flows.
pub(super) const BESIDE: [(&str, Beside, u64); 9] = [
    ("ACL 1K", Beside::Acl, 1_000),
    ("ACL 10K", Beside::Acl, 10_000),
    ("ACL 100K", Beside::Acl, 100_000),
    ("Snort 1K", Beside::Snort, 1_000),
    ("Snort 10K", Beside::Snort, 10_000),
    ("Snort 100K", Beside::Snort, 100_000),
    ("mTCP 1K", Beside::Mtcp, 1_000),
    ("mTCP 10K", Beside::Mtcp, 10_000),
    ("mTCP 100K", Beside::Mtcp, 100_000),
];

/// A table of `keys` keys, at most three quarters full.
fn holding(base: &Config, keys: u64, method: Method) -> Config {
    let entries = (keys * 4).div_ceil(3).next_power_of_two();
    let occupancy = keys as f64 / entries as f64;
    single(base, entries.trailing_zeros(), occupancy, method, Stream::Independent)
}

/// A network function over the given number of keys.
pub(super) fn function(base: &Config, function: Function, keys: u64, method: Method) -> Config {
    let mut config = holding(base, keys, method);
    config.workload.function = function;
    config
}

/// What runs beside lookups among so many keys by a method; or alone.
pub(super) fn beside(base: &Config, beside: Beside, keys: u64, method: Option<Method>) -> Config {
    let mut config = holding(base, keys, method.unwrap_or_default());
    (config.workload.beside, config.workload.alone) = (beside, method.is_none());
    config
}

/// The report of a configuration that is in the grid.
///
/// # Panics
/// When it was not simulated.
pub(super) fn report<'a>(store: &'a Store, config: &Config) -> &'a Report {
    store.get(config).expect("an artefact's runs were simulated")
}

/// Its cycles a lookup.
pub(super) fn cycles(store: &Store, config: &Config) -> f64 {
    report(store, config).cycles.mean
}
