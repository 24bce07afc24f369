//! The kinds that a chain file may name.

use std::sync::Arc;

use thalweg_nf::device::Devices;

/// The kinds of NF and of port that a program knows: the registry that a chain file is checked
/// against.
#[derive(Clone, Debug, Default)]
pub struct Kinds {
    /// The kinds of NF.
    pub nfs: thalweg_nf::Kinds,
    /// The kinds of ports; by default those of `thalweg-io`.
    pub ports: thalweg_io::kind::Kinds,
    /// The devices that can do a part of the work of NFs; `None` for a program without any.
    pub devices: Option<Arc<dyn Devices>>,
}

impl From<thalweg_nf::Kinds> for Kinds {
    /// These kinds of NF, and the kinds of ports of `thalweg-io`.
    fn from(nfs: thalweg_nf::Kinds) -> Self {
        Self { nfs, ..Self::default() }
    }
}

impl Kinds {
    /// This registry with one more kind of NF, which replaces one of the same name.
    #[must_use]
    pub fn with(self, kind: thalweg_nf::Kind) -> Self {
        Self { nfs: self.nfs.with(kind), ..self }
    }

    /// This registry with these devices.
    #[must_use]
    pub fn with_devices(self, devices: Arc<dyn Devices>) -> Self {
        Self { devices: Some(devices), ..self }
    }

    /// This registry with one more kind of port, which replaces one with the same key.
    #[must_use]
    pub fn with_port(self, kind: &'static thalweg_io::kind::Kind) -> Self {
        Self { ports: self.ports.with(kind), ..self }
    }
}
