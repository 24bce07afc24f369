//! Tables 1 and 4.

use crate::config::{Config, Method, Stream};
use crate::energy;
use crate::experiment::Store;

use super::grid::{OCCUPANCY, cycles, report, single};

pub(super) fn table_1_run(base: &Config) -> Config {
    single(base, 12, OCCUPANCY, Method::LockFree, Stream::Independent)
}

pub(super) fn table_1(base: &Config, store: &Store) -> String {
    let of = &report(store, &table_1_run(base)).per_lookup;
    let share = |n: f64| format!("{n:.1},{:.1}", 100.0 * n / of.operations);
    let arithmetic = of.operations - of.loads - of.stores - of.branches;
    format!(
        "operations,a lookup,percent\nall,{}\nloads,{}\nstores,{}\nbranches,{}\narithmetic,{}\n",
        share(of.operations),
        share(of.loads),
        share(of.stores),
        share(of.branches),
        share(arithmetic),
    )
}

/// The run that yields the rate of queries for static power.
fn halo_rate(base: &Config) -> Config {
    single(base, 18, OCCUPANCY, Method::HaloNonBlocking, Stream::Independent)
}

/// Table 4, with the energy of a query: static power counts as much as there are queries.
pub(super) fn table_4(base: &Config, store: &Store) -> String {
    let rate = base.core.ghz * 1e9 / cycles(store, &halo_rate(base));
    let heading = "unit,area in tiles,static mW,dynamic nJ a query,all nJ a query,\
                   dynamic over HALO\n";
    let mut rows = Vec::new();
    let slices = base.llc.slices as f64;
    let mut row = |name: String, unit: energy::Unit, units: f64| {
        let numbers = [
            unit.area * units,
            unit.static_mw * units,
            unit.dynamic_nj,
            energy::query_nj(unit, units, rate),
            unit.dynamic_nj / energy::HALO.dynamic_nj,
        ];
        let numbers = numbers.map(|number| format!("{number:.3}")).join(",");
        rows.push(format!("{name},{numbers}\n"));
    };
    row(format!("HALO x {slices}"), energy::HALO, slices);
    for (bytes, unit) in energy::TCAM {
        let (power, area) = energy::SRAM_TCAM;
        row(format!("TCAM {} KB", bytes / 1024.0), unit, 1.0);
        let sram = energy::Unit {
            area: unit.area * area,
            static_mw: unit.static_mw * power,
            dynamic_nj: unit.dynamic_nj * power,
        };
        row(format!("SRAM-TCAM {} KB", bytes / 1024.0), sram, 1.0);
    }
    heading.to_owned()
        + &rows.concat()
        + "# Area and power are inputs (Table 4 of the paper), not results. From 1 KB to 10 KB its\n\
            # area grows 66 times, which no physics explains.\n"
}
