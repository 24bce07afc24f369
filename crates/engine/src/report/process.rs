//! What a report has about the process: its threads, and what confines it.

use schemars::JsonSchema;
use serde::Serialize;

use crate::published::WorkerCounts;

/// What confined a run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SandboxReport {
    /// The user as which packets were processed.
    pub user: String,
    /// The capabilities that a thread of its own keeps, to open interfaces again. Threads that process
    /// packets have none.
    pub capabilities: Vec<String>,
    /// Whether the program can open only files in the folders that the run uses (Landlock).
    pub files: bool,
    /// Whether threads that process packets can make only the system calls for that (seccomp).
    pub calls: bool,
    /// Whether an input was live.
    #[serde(skip)]
    pub is_live: bool,
}

impl SandboxReport {
    /// What holds, in words.
    pub fn parts(&self) -> Vec<String> {
        let or_not = |holds, what: &str, by: &str| {
            if holds {
                format!("{what} ({by})")
            } else {
                format!("no {by}, so {what} not confined")
            }
        };
        let capabilities = match &*self.capabilities {
            [] => "no capabilities".into(),
            all => format!("{} to open interfaces", all.join(" and ")),
        };
        vec![
            format!("user {}", self.user),
            capabilities,
            or_not(self.files, "files", "Landlock"),
            or_not(self.calls, "system calls", "seccomp"),
        ]
    }
}

/// What a worker has done.
///
/// In a report of a run that has not ended, the time of the burst at hand is not counted yet.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct WorkerReport {
    /// Its number, from 0.
    pub worker: usize,
    /// The core that it was on, as of its last looks; absent if that is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub core: Option<u32>,
    /// The time in which it had something to do, in seconds.
    pub busy_s: f64,
    /// That time as a share of the run, from 0 to 1.
    pub busy_share: f64,
    /// Bursts of packets that it received.
    pub bursts: u64,
    /// The packets in them.
    pub packets: u64,
    /// Times that it took a burst further that another worker had received.
    pub taken_over: u64,
    /// Times that a burst which it took through the chain had to wait for its turn.
    pub waits: u64,
}

impl WorkerReport {
    pub(super) fn of((worker, counts): (usize, &WorkerCounts), duration_s: f64, ns: f64) -> Self {
        let WorkerCounts { busy_cycles, bursts, packets, taken_over, waits, core } = *counts;
        let busy_s = busy_cycles as f64 * ns / 1e9;
        // The two clocks may differ by a little.
        let busy_share = (busy_s / duration_s.max(1e-9)).min(1.0);
        Self { worker, core, busy_s, busy_share, bursts, packets, taken_over, waits }
    }
}
