//! DPDK's environment (EAL) in this process: started once, by the first port.

use std::sync::OnceLock;

use thalweg_cpu::cores;
use thalweg_source::outside;

use super::{binding, log};

/// DPDK's own memory, for queues of devices, in MiB; packets are elsewhere. Pages are used as they are
/// needed.
const MEMORY: &str = "128";
/// A PCI device that is none of anybody's: only devices that are listed are used without being
/// requested, and this is the list.
const NO_DEVICE: &str = "0000:00:00.0";
/// Processors above are unknown to DPDK (`RTE_MAX_LCORE`).
const MOST_PROCESSORS: u32 = 128;

/// Starts DPDK, unless it runs. What it needs of the system has no privileges, so that its thread for
/// interrupts has none.
///
/// # Errors
/// Why it cannot start; the same for each port.
pub(super) fn start() -> Result<(), String> {
    static STARTED: OnceLock<Result<(), String>> = OnceLock::new();
    STARTED.get_or_init(start_once).clone()
}

fn start_once() -> Result<(), String> {
    // DPDK binds the thread that starts it to processors: one that ends then.
    let thread = outside::spawn("dpdk", || {
        log::keeping(|| binding::start(&arguments())).map_err(|(error, cause)| {
            format!("DPDK cannot start: {}", cause.unwrap_or_else(|| error.to_string()))
        })
    });
    let thread = thread.map_err(|e| format!("DPDK cannot start: a thread: {e}"))?;
    thread.join().unwrap_or_else(|_| Err("DPDK cannot start".into()))
}

/// No huge pages, whose number would limit what can run: packets are in memory of ours. No files, and
/// nothing for other processes. Addresses of devices are those of the process, by an IOMMU.
fn arguments() -> Vec<String> {
    let permitted = cores::permitted();
    let known: Vec<u32> =
        permitted.iter().copied().filter(|core| *core < MOST_PROCESSORS).collect();
    let processors = if known.is_empty() { "0".into() } else { cores::as_text(&known) };
    let all = [
        "thalweg",
        "--no-huge",
        "-m",
        MEMORY,
        "--iova-mode=va",
        "--no-shconf",
        "--no-telemetry",
        "--file-prefix=thalweg",
        &format!("--lcores=0@({processors})"),
        "-a",
        NO_DEVICE,
    ];
    all.map(str::to_owned).to_vec()
}
