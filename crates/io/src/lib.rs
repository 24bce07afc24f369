//! Ports: the inputs and outputs of packets.
//!
//! An [`Input`] fills batches, an [`Output`] sends them. All packets inside are
//! Ethernet: an input of another link type gives its packets an Ethernet
//! header, and counts those that it cannot convert.
//!
//! Each [kind] of port is a folder, which gives the chain file its keys and opens the ports that its
//! sections describe. [`kind::Kinds::default`] lists the kinds of this crate.
//!
//! ```no_run
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use thalweg_io::{CaptureInput, CaptureOutput, Input, Output};
//! use thalweg_packet::{BATCH, Batch, DropCounts, Lanes, Pool};
//!
//! let mut batch = Batch::new(Arc::new(Pool::anonymous(64, 2048)?));
//! let mut drops = DropCounts::default();
//! let mut input = CaptureInput::open(Path::new("in.pcapng.gz"), 1)?;
//! let mut output = CaptureOutput::create(Path::new("out.pcap"))?;
//! loop {
//!     let received = input.receive(&mut batch, BATCH, &mut drops)?;
//!     output.send(&batch, batch.lanes(), &mut drops)?;
//!     batch.release(Lanes::ALL);
//!     if received.ended {
//!         break;
//!     }
//! }
//! output.flush()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(target_os = "linux")]
mod bpf;
mod capture;
mod claims;
mod clock;
mod discard;
#[cfg(target_os = "linux")]
mod dpdk;
mod filter;
#[cfg(all(test, target_os = "linux"))]
mod foreign;
pub mod generate;
#[cfg(target_os = "linux")]
mod host;
#[cfg(target_os = "linux")]
mod inspect;
mod intake;
#[cfg(target_os = "linux")]
mod interface;
#[cfg(not(target_os = "linux"))]
#[path = "no_interface.rs"]
mod interface;
pub mod kind;
mod link_model;
mod links;
#[cfg(target_os = "linux")]
mod memif;
mod memory;
mod merge;
pub mod offload;
#[cfg(target_os = "linux")]
mod outgoing;
mod paced;
mod passes;
mod port;
mod searched;
mod segmenting;
mod selection;
#[cfg(target_os = "linux")]
mod silence;
#[cfg(target_os = "linux")]
mod steer;
#[cfg(target_os = "linux")]
mod tap;
#[cfg(target_os = "linux")]
mod xdp;

pub use capture::{
    CaptureFiles, CaptureInput, CaptureOutput, CommentedCapture, CommentedPacket, DirectInput,
    ReadAhead, STANDARD_INPUT, STANDARD_OUTPUT,
};
pub use claims::Claims;
pub use clock::PacketClock;
pub use discard::DiscardOutput;
#[cfg(target_os = "linux")]
pub use dpdk::HAS_DPDK;
pub use filter::{FILTER, Filter, HAS_FILTERS};
#[cfg(target_os = "linux")]
pub use host::note_sessions;
#[cfg(target_os = "linux")]
pub use inspect::{
    Inspected, Interrupt, Offloads, PciDevice, Setting, XdpFeatures, has_iommu, inspect,
    pci_network_devices,
};
pub use interface::{
    InterfaceInput, InterfaceOutput, check_interface, interfaces, may_use_interfaces,
};
pub use link_model::{LinkModel, ModelledInput};
pub use links::{LinkChange, LinkEvent, LinkEvents};
#[cfg(all(fuzzing, target_os = "linux"))]
pub use memif::replay as replay_memif;
#[cfg(target_os = "linux")]
pub use memif::{MemifInput, MemifOutput, MemifSettings, Role as MemifRole};
pub use memory::MemoryInput;
pub use merge::{Merge, Oldest};
pub use paced::{Pace, PacedInput, PacedStart};
pub use port::{Input, IoError, Lost, Output, OutputFailure, Received, Shortfall};
pub use searched::Searched;
pub use segmenting::SegmentingOutput;
pub use selection::{PassedOver, Selection, TIME, TimeRange, parse_time};
#[cfg(all(fuzzing, target_os = "linux"))]
pub use xdp::replay as replay_xdp;
#[cfg(target_os = "linux")]
pub use xdp::{XdpInput, XdpMode, XdpOutput, XdpSettings};
