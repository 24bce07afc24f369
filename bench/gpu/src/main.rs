//! Packets a second through a function on a device, by the way in which packets reach it; a line of JSON for
//! each measurement. `bench/gpu.py` runs this.
//!
//! `thalweg-bench-gpu SETTINGS`, an object of JSON: `{"device": "opencl:0", "rounds": 3, "seconds": 0.5, ...}`.
//!
//! In each round every way is measured once, one after the other. [`Settings`] has all keys.

mod clock;
mod ways;
mod works;

use std::error::Error;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use thalweg_accel::{Backend, OpenCl, Soft, Transfer};
use thalweg_nf::device::Launches;
use thalweg_packet::Pool;

use clock::Rate;
use ways::{UNDER_WAY, launched, resident, scalar, syncer};
use works::{Work, works};

/// Ways with a launch for each batch: how packets reach the device, and how many a batch has.
const LAUNCHES: [(&str, Transfer, usize); 4] = [
    ("shared 32", Transfer::Shared, 32),
    ("copied 32", Transfer::Copied, 32),
    ("shared 1024", Transfer::Shared, 1024),
    ("copied 1024", Transfer::Copied, 1024),
];

/// What to measure.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    device: String,
    rounds: u32,
    /// Of each measurement.
    seconds: f64,
    /// Work-items of a work-group.
    lanes: usize,
    work_groups: usize,
    /// Bytes of a packet on the wire, check sequence included.
    sizes: Vec<usize>,
    functions: Vec<String>,
    /// The ways to measure; those that the device does not have are left out.
    ways: Vec<String>,
    /// `literals` looks for the contents of these rule files, or for made-up ones.
    #[serde(default)]
    rules: Vec<String>,
}

/// The device, and memory that it shares.
struct Place {
    opencl: Option<OpenCl>,
    pool: Arc<Pool>,
}

impl Place {
    fn open(device: &str) -> Result<Self, Box<dyn Error>> {
        let opencl = match (device, device.strip_prefix("opencl:")) {
            (_, Some(number)) => Some(OpenCl::open(number.parse()?, Launches::Never)?),
            ("soft", None) => None,
            _ => return Err(format!("no device '{device}'; expected soft or opencl:N").into()),
        };
        let backend: &dyn Backend = opencl.as_ref().map_or(&Soft, |opencl| opencl);
        let memory = backend.allocate(Pool::region_len(2 * UNDER_WAY, 2048))?;
        let pool = Arc::new(Pool::new(memory, 2048)?);
        Ok(Self { opencl, pool })
    }

    fn backend(&self) -> &dyn Backend {
        self.opencl.as_ref().map_or(&Soft, |opencl| opencl)
    }

    /// Measures one way; `None` if the device does not have it.
    fn measure(
        &self,
        way: &str,
        work: &Work,
        size: usize,
        settings: &Settings,
    ) -> Result<Option<Rate>, Box<dyn Error>> {
        let Self { opencl, pool } = self;
        let launch = LAUNCHES.into_iter().find(|(name, ..)| *name == way);
        Ok(match (way, launch, opencl) {
            ("resident", ..) => Some(resident(self.backend(), pool, work, size, settings)?),
            ("syncer", ..) => Some(syncer(self.backend(), pool, work, size, settings)?),
            ("scalar", ..) => Some(scalar(pool, work, size, settings)),
            (_, Some((_, transfer, batch)), Some(opencl)) => {
                Some(launched(opencl, pool, work, size, settings, (transfer, batch))?)
            }
            (_, Some(_), None) => None,
            (_, None, _) => return Err(format!("no way '{way}'").into()),
        })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [settings] = &arguments[..] else {
        return Err("usage: thalweg-bench-gpu SETTINGS, an object of JSON".into());
    };
    let settings: Settings = serde_json::from_str(settings)?;
    let mut works = works(&settings.rules)?;
    works.retain(|work| settings.functions.iter().any(|name| name == work.name));
    let place = Place::open(&settings.device)?;
    for round in 0..settings.rounds {
        for (work, size) in works.iter().flat_map(|w| settings.sizes.iter().map(move |s| (w, *s))) {
            for way in &settings.ways {
                let Some(Rate { packets, seconds, cpu_seconds }) =
                    place.measure(way, work, size, &settings)?
                else {
                    continue;
                };
                let line = json!({
                    "device": place.backend().name(), "function": work.name, "size": size,
                    "way": way, "round": round, "packets": packets, "seconds": seconds,
                    "cpu_seconds": cpu_seconds,
                });
                println!("{line}");
            }
        }
    }
    Ok(())
}
