//! The metrics that claims name: units, and the figures that show them.

use schemars::JsonSchema;
use serde::Serialize;

use crate::config::Method;
use crate::energy;

use super::artefacts::Artefact::{
    self, Figure3, Figure4, Figure8b, Figure9, Figure10, Figure11, Figure12, Figure13, Table1,
    Table4,
};
use super::grid::{self, TUPLES, report};
use super::metrics::{Metric, Runs};
use super::parts::{self, NEAR};
use super::tables;

use Unit::{Amount, PacketCycles, Percent, Times};

/// What a metric is measured in, from which follows what it is where there is no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Unit {
    /// A quotient of two results: 1 without an effect.
    Times,
    /// A difference: 0 without an effect.
    Percent,
    /// Cycles of a switch's packet, of which [`OTHER_CYCLES`] are an input.
    PacketCycles,
    /// An amount, which is no comparison.
    Amount,
}

/// A metric: its name, its unit, the artefact that shows it if one does, and how it is computed.
pub(super) struct Measure {
    name: &'static str,
    pub(super) unit: Unit,
    pub(super) shown: Option<Artefact>,
    of: fn(Runs<'_>) -> Metric,
}

impl Measure {
    /// The metric of a name; `None` where there is none.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        MEASURES.iter().find(|measure| measure.name == name)
    }

    /// Its value.
    ///
    /// # Panics
    /// When a simulation that it needs is missing.
    pub(super) fn of(&self, runs: Runs<'_>) -> Metric {
        (self.of)(runs)
    }
}

const fn measure(
    name: &'static str,
    unit: Unit,
    shown: Option<Artefact>,
    of: fn(Runs<'_>) -> Metric,
) -> Measure {
    Measure { name, unit, shown, of }
}

const LAST: usize = grid::TRAFFIC.len() - 1;

#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "a method is one of runs of a single lifetime"
)]
static MEASURES: [Measure; 31] = [
    measure("single_llc", Times, Some(Figure9), |runs| runs.single_llc()),
    measure("single_dram", Times, Some(Figure9), |runs| runs.single_dram()),
    measure("single_l1", Times, Some(Figure9), |runs| runs.gain(NEAR)),
    measure("crossover", Amount, Some(Figure9), |runs| runs.crossover().into()),
    measure("polled_percent", Percent, None, |runs| runs.polled_percent(1)),
    measure("polled_three_percent", Percent, None, |runs| runs.polled_percent(3)),
    measure("polled_eight_percent", Percent, None, |runs| runs.polled_percent(8)),
    measure("tcam_over_halo", Times, Some(Figure9), |runs| {
        runs.dependent(18, Method::HaloBlocking, Method::Tcam)
    }),
    measure("sram_over_tcam", Times, Some(Figure9), |runs| {
        runs.dependent(18, Method::SramTcam, Method::Tcam)
    }),
    measure("compute_percent", Percent, Some(Figure10), |runs| runs.compute_percent().into()),
    measure("data_llc", Times, Some(Figure10), |runs| runs.data(0).into()),
    measure("data_dram", Times, Some(Figure10), |runs| runs.data(1).into()),
    measure("lock_rw_percent", Percent, Some(Figure10), |runs| runs.lock_percent().into()),
    measure("tuples_20", Times, Some(Figure11), |runs| {
        runs.tuples(TUPLES[TUPLES.len() - 1], Method::HaloNonBlocking)
    }),
    measure("tuples_growth", Times, Some(Figure11), |runs| runs.tuples_growth().into()),
    measure("tuples_blocking_spread_percent", Percent, Some(Figure11), |runs| {
        runs.blocking_spread_percent().into()
    }),
    measure("register_error_percent", Percent, Some(Figure8b), |runs| {
        parts::register_error_percent(runs.base).into()
    }),
    measure("sfh_over_cuckoo", Times, Some(Figure4), |runs| runs.sfh_over_cuckoo().into()),
    measure("switch_cycles_least", PacketCycles, Some(Figure3), |runs| runs.traffic(0).0.into()),
    measure("switch_cycles_most", PacketCycles, Some(Figure3), |runs| runs.traffic(LAST).0.into()),
    measure("switch_share_least_percent", Percent, Some(Figure3), |runs| runs.traffic(0).1.into()),
    measure("switch_share_most_percent", Percent, Some(Figure3), |runs| {
        runs.traffic(LAST).1.into()
    }),
    measure("switch_growth", Times, Some(Figure3), |runs| runs.switch_growth().into()),
    measure("operations", Amount, Some(Table1), |runs| {
        report(runs.store, &tables::table_1_run(runs.base)).per_lookup.operations.into()
    }),
    measure("energy_ratio", Times, Some(Table4), |_| {
        (energy::TCAM[3].1.dynamic_nj / energy::HALO.dynamic_nj).into()
    }),
    measure("functions_least", Times, Some(Figure13), |runs| runs.function(f64::min)),
    measure("functions_most", Times, Some(Figure13), |runs| runs.function(f64::max)),
    measure("drop_software_percent", Percent, Some(Figure12), |runs| {
        runs.drop_percent(Method::LockFree)
    }),
    measure("drop_halo_percent", Percent, Some(Figure12), |runs| {
        runs.drop_percent(Method::HaloBlocking)
    }),
    measure("drop_ratio", Times, Some(Figure12), |runs| runs.drop_ratio().into()),
    measure("drop_misses", Times, Some(Figure12), |runs| runs.drop_misses().into()),
];
