//! What a report has about what reloads have removed.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Serialize;

use super::{TypeReport, by_name};
use crate::counters::{Former, FormerNfs, PortCounters};

/// The counts of what reloads have removed from the chain.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FormerReport {
    /// All inputs.
    pub inputs: SumReport,
    /// All outputs.
    pub outputs: SumReport,
    /// NFs, by kind.
    pub nfs: IndexMap<&'static str, FormerNf>,
    /// All packet types.
    pub types: TypeReport,
}

/// The counts of several ports.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SumReport {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets dropped or lost there, by reason.
    pub drops: IndexMap<&'static str, u64>,
}

/// The counts of NFs of one kind.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FormerNf {
    /// Packets that they received.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets they generated.
    pub generated: u64,
    /// Packets they dropped, by reason.
    pub drops: IndexMap<&'static str, u64>,
}

impl FormerReport {
    pub(super) fn of(former: &Former) -> Self {
        let sum = |port: &PortCounters| SumReport {
            packets: port.packets,
            bytes: port.bytes,
            drops: by_name(&port.drops),
        };
        let nf = |nf: &FormerNfs| FormerNf {
            packets: nf.packets,
            bytes: nf.bytes,
            generated: nf.generated,
            drops: by_name(&nf.drops),
        };
        Self {
            inputs: sum(&former.inputs),
            outputs: sum(&former.outputs),
            nfs: former.nfs.iter().map(|(kind, counters)| (*kind, nf(counters))).collect(),
            types: TypeReport { packets: former.types.0, bytes: former.types.1 },
        }
    }
}
