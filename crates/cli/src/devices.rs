//! `thalweg devices`: what NFs could run on beside the processor's own cores.

use std::io::{self, Write};

use schemars::JsonSchema;
use serde::Serialize;
use thalweg_accel::{Device, Residency};
use thalweg_source::visible;

use crate::args;
use crate::errors::Failure;
use crate::report::{plain_table, write_json};

/// The devices of this machine.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DeviceList {
    #[schemars(extend("const" = "thalweg.devices/1"))]
    schema: &'static str,
    devices: Vec<Listed>,
    /// Why there are no devices of OpenCL, if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    without_opencl: Option<String>,
    /// Why there are no devices of CUDA, if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    without_cuda: Option<String>,
}

/// A device.
#[derive(Debug, Serialize, JsonSchema)]
struct Listed {
    /// Its name in this program.
    place: String,
    /// The name that it has by its driver.
    name: String,
    platform: String,
    /// The version of its interface.
    version: String,
    /// `gpu`, `cpu` or `other`.
    kind: &'static str,
    compute_units: u32,
    can: Capability,
    /// What it lacks for resident kernels.
    #[serde(skip_serializing_if = "Option::is_none")]
    lacks: Option<String>,
}

/// How an NF could run on a device.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Capability {
    /// By a resident kernel: packets pass through shared memory while it runs.
    ResidentKernels,
    /// Memory is shared while a kernel runs, but without atomics.
    LiveMemory,
    /// Batches only, each a launch of its own.
    Batches,
}

impl Capability {
    fn words(self) -> &'static str {
        match self {
            Self::ResidentKernels => "resident kernels",
            Self::LiveMemory => "live shared memory",
            Self::Batches => "batches",
        }
    }
}

impl Listed {
    fn new(device: Device) -> Self {
        let Device { place, name, platform, version, kind, compute_units, residency, lacks } =
            device;
        let can = match residency {
            Residency::Resident => Capability::ResidentKernels,
            Residency::LiveMemory => Capability::LiveMemory,
            Residency::Batches => Capability::Batches,
        };
        Self { place, name, platform, version, kind, compute_units, can, lacks }
    }
}

/// Lists the devices.
pub fn list(options: &args::Devices) -> Result<(), Failure> {
    let (devices, why) = thalweg_accel::devices();
    let list = DeviceList {
        schema: "thalweg.devices/1",
        devices: devices.into_iter().map(Listed::new).collect(),
        without_opencl: why.map(|why| why.to_string()),
        without_cuda: thalweg_accel::cuda_devices().err().map(|why| why.to_string()),
    };
    let mut out = io::stdout().lock();
    if options.json {
        write_json(&mut out, &list)?;
    } else {
        show(&mut out, &list)?;
    }
    Ok(())
}

fn show(out: &mut impl Write, list: &DeviceList) -> io::Result<()> {
    let mut table = plain_table(&["device", "kind", "units", "can run", "name"]);
    for device in &list.devices {
        let can = match &device.lacks {
            Some(lacks) => format!("{}: {lacks}", device.can.words()),
            None => device.can.words().to_owned(),
        };
        let name = format!("{}, {}", device.name, device.version);
        table.add_row([
            &*device.place,
            device.kind,
            &device.compute_units.to_string(),
            &visible(&can),
            &visible(&name),
        ]);
    }
    writeln!(out, "{table}")?;
    for (interface, why) in [("OpenCL", &list.without_opencl), ("CUDA", &list.without_cuda)] {
        if let Some(why) = why {
            writeln!(out, "no {interface} devices: {}", visible(why))?;
        }
    }
    Ok(())
}
