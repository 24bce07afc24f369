//! `thalweg devices`: what NFs could run on beside the processor's own cores.

use std::io::{self, Write};

use schemars::JsonSchema;
use serde::Serialize;
use thalweg_accel::{Device, Listing, Residency, SharedMemory};
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
    /// The memory that it shares with the processor.
    shared_memory: Shared,
    /// Whether processor and device can access shared memory atomically.
    atomics: bool,
    can: Capability,
    /// What it lacks for resident kernels.
    #[serde(skip_serializing_if = "Option::is_none")]
    lacks: Option<String>,
}

/// The memory that a device shares with the processor.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Shared {
    /// None.
    None,
    /// Coarse-grained: between kernels, not while one runs.
    Coarse,
    /// Fine-grained: memory of its driver, at any time.
    Fine,
    /// Fine-grained system memory: all memory of the process, at any time.
    FineSystem,
}

impl Shared {
    fn words(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Coarse => "coarse",
            Self::Fine => "fine",
            Self::FineSystem => "fine system",
        }
    }
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
        let Device { place, name, platform, version, kind, compute_units, .. } = device;
        let Device { shared_memory, atomics, residency, lacks, .. } = device;
        let shared_memory = match shared_memory {
            SharedMemory::None => Shared::None,
            SharedMemory::Coarse => Shared::Coarse,
            SharedMemory::Fine => Shared::Fine,
            SharedMemory::FineSystem => Shared::FineSystem,
        };
        let can = match residency {
            Residency::Resident => Capability::ResidentKernels,
            Residency::LiveMemory => Capability::LiveMemory,
            Residency::Batches => Capability::Batches,
        };
        Self {
            place,
            name,
            platform,
            version,
            kind,
            compute_units,
            shared_memory,
            atomics,
            can,
            lacks,
        }
    }
}

/// Lists the devices.
pub fn list(options: &args::Devices) -> Result<(), Failure> {
    let Listing { devices, without_opencl, without_cuda } = thalweg_accel::devices();
    let list = DeviceList {
        schema: "thalweg.devices/1",
        devices: devices.into_iter().map(Listed::new).collect(),
        without_opencl: without_opencl.map(|why| why.to_string()),
        without_cuda: without_cuda.map(|why| why.to_string()),
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
    let columns = ["device", "kind", "units", "shared memory", "atomics", "can run", "platform"];
    let mut table = plain_table(&columns);
    for device in &list.devices {
        table.add_row([
            &*device.place,
            device.kind,
            &device.compute_units.to_string(),
            device.shared_memory.words(),
            if device.atomics { "yes" } else { "no" },
            device.can.words(),
            &visible(&device.platform),
        ]);
    }
    writeln!(out, "{table}\n")?;
    for device in &list.devices {
        let name = format!("{}, {}", device.name, device.version);
        writeln!(out, "{}: {}", device.place, visible(&name))?;
        if let Some(lacks) = &device.lacks {
            writeln!(out, "  no resident kernels: {}", visible(lacks))?;
        }
    }
    for (interface, why) in [("OpenCL", &list.without_opencl), ("CUDA", &list.without_cuda)] {
        if let Some(why) = why {
            writeln!(out, "no {interface} devices: {}", visible(why))?;
        }
    }
    Ok(())
}
