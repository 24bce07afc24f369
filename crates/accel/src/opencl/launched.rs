//! Launches instead of a kernel that stays.

use std::thread;
use std::time::Duration;

use thalweg_packet::{LARGE_FRAME_SIZE, Pool};

use super::OpenCl;
use super::flight::{Launched, Launcher, Transfer};
use crate::backend::{Launch, Resident};
use crate::error::AccelError;
use crate::looks::Looks;
use crate::relay::{self, Flight, Limits};

/// The most rows of a launch.
const ROWS: usize = 64;
/// Launches that are prepared or under way at a time.
const FLIGHTS: usize = 2;
/// Bytes of most packets at most.
const COMMON: usize = 2048;
/// How long the first launch may take, for which drivers may compile.
const FIRST: Duration = Duration::from_secs(30);

/// Compiles the kernel of `launch`, tries it, and starts the thread that launches it. Packets are in memory that the
/// device shares, unless they are copied.
pub(super) fn start(
    opencl: &OpenCl,
    launch: Launch,
    transfer: Transfer,
) -> Result<Box<dyn Resident>, AccelError> {
    let Launch { region, pool, functions } = &launch;
    let lanes = region.shape().lanes;
    let limits = Limits { lanes, rows: ROWS, bytes: bytes(pool, lanes) };
    let launcher = Launcher::new(opencl, functions, region.tables(), limits)?;
    let flight = |_| Launched::new(opencl, &launcher, pool, transfer);
    let mut flights = (0..FLIGHTS).map(flight).collect::<Result<Vec<_>, _>>()?;
    for flight in &mut flights {
        try_out(&opencl.found.name, flight, lanes)?;
    }
    relay::start(&opencl.found.name, launch, (limits, transfer == Transfer::Copied), flights)
}

/// The bytes of packets in a launch: those of a row fit whatever they are, and common ones of all rows do.
fn bytes(pool: &Pool, lanes: usize) -> usize {
    let largest = if pool.large_frames() > 0 { LARGE_FRAME_SIZE } else { pool.frame_size() };
    lanes * largest.max(ROWS * pool.frame_size().min(COMMON))
}

/// Launches a row without packets, and waits for it.
fn try_out(device: &str, flight: &mut Launched, lanes: usize) -> Result<(), AccelError> {
    let failed =
        |why: String| AccelError::Call { device: device.to_owned(), call: "a launch", why };
    flight.lay_out(1);
    flight.head(0, 0, (0, 0));
    (0..lanes).for_each(|lane| flight.put(0, lane, None, false));
    flight.depart().map_err(failed)?;
    let mut looks = Looks::new();
    loop {
        if let Some(ended) = flight.is_over() {
            return ended.map_err(failed);
        }
        if looks.again(FIRST) > FIRST {
            return Err(failed(format!("it has not ended within {} s", FIRST.as_secs())));
        }
        thread::sleep(Duration::from_micros(200));
    }
}
