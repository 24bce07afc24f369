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
use std::process::ExitCode;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use thalweg_accel::{Backend, OpenCl, Soft, Transfer, open_cuda};
use thalweg_nf::device::Launches;
use thalweg_packet::Pool;

use clock::Rate;
use ways::{launched, resident, scalar, syncer, under_way};
use works::{Work, works};

/// Ways with a launch for each batch: how packets reach the device, and how many a batch has.
const LAUNCHES: [(&str, Transfer, usize); 4] = [
    ("shared 32", Transfer::Shared, 32),
    ("copied 32", Transfer::Copied, 32),
    ("shared 1024", Transfer::Shared, 1024),
    ("copied 1024", Transfer::Copied, 1024),
];
const LARGEST_LAUNCH: usize = 1024;

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
    device: Opened,
    pool: Arc<Pool>,
}

enum Opened {
    /// It has launches.
    OpenCl(OpenCl),
    /// It has launches only, since it cannot run resident kernels.
    Launches(OpenCl),
    Other(Box<dyn Backend>),
}

impl Opened {
    fn new(device: &str) -> Result<Self, Box<dyn Error>> {
        if let Some(opened) = open_cuda(device) {
            return Ok(Self::Other(opened?));
        }
        let number = match (device, device.strip_prefix("opencl:")) {
            (_, Some(number)) => number.parse()?,
            ("soft", None) => return Ok(Self::Other(Box::new(Soft))),
            _ => {
                let expected = "expected soft, opencl:N or cuda:N";
                return Err(format!("no device '{device}'; {expected}").into());
            }
        };
        Ok(match OpenCl::open(number, Launches::Never) {
            Ok(resident) => Self::OpenCl(resident),
            Err(_) => Self::Launches(OpenCl::open(number, Launches::Auto)?),
        })
    }

    fn backend(&self) -> &dyn Backend {
        match self {
            Self::OpenCl(opencl) | Self::Launches(opencl) => opencl,
            Self::Other(backend) => &**backend,
        }
    }

    fn can_stay(&self) -> bool {
        !matches!(self, Self::Launches(_))
    }

    fn opencl(&self) -> Option<&OpenCl> {
        match self {
            Self::OpenCl(opencl) | Self::Launches(opencl) => Some(opencl),
            Self::Other(_) => None,
        }
    }
}

impl Place {
    fn open(settings: &Settings) -> Result<Self, Box<dyn Error>> {
        let device = Opened::new(&settings.device)?;
        let frames = 2 * under_way(settings).max(LARGEST_LAUNCH);
        let memory = device.backend().allocate(Pool::region_len(frames, 2048))?;
        let pool = Arc::new(Pool::new(memory, 2048)?);
        Ok(Self { device, pool })
    }

    fn backend(&self) -> &dyn Backend {
        self.device.backend()
    }

    /// Measures one way; `None` if the device does not have it.
    fn measure(
        &self,
        way: &str,
        work: &Work,
        size: usize,
        settings: &Settings,
    ) -> Result<Option<Rate>, Box<dyn Error>> {
        let Self { device, pool } = self;
        let launch = LAUNCHES.into_iter().find(|(name, ..)| *name == way);
        Ok(match (way, launch, device.opencl()) {
            ("resident" | "syncer", ..) if !device.can_stay() => None,
            ("resident", ..) => Some(resident(self.backend(), pool, work, size, settings)?),
            ("syncer", ..) => Some(syncer(self.backend(), pool, work, size, settings)?),
            ("scalar", ..) => Some(scalar(pool, work, size, settings)),
            (_, Some((_, Transfer::Shared, _)), _) if !device.can_stay() => None,
            (_, Some((_, transfer, batch)), Some(opencl)) => {
                Some(launched(opencl, pool, work, size, settings, (transfer, batch))?)
            }
            (_, Some(_), None) => None,
            (_, None, _) => return Err(format!("no way '{way}'").into()),
        })
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [settings] = &arguments[..] else {
        return Err("usage: thalweg-bench-gpu SETTINGS, an object of JSON".into());
    };
    let settings: Settings = serde_json::from_str(settings)?;
    let mut works = works(&settings.rules)?;
    works.retain(|work| settings.functions.iter().any(|name| name == work.name));
    let place = Place::open(&settings)?;
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
