//! The kinds that a chain file may name.

/// The kinds of NF and of port that a program knows: the registry that a chain file is checked
/// against.
#[derive(Clone, Debug, Default)]
pub struct Kinds {
    /// The kinds of NF.
    pub nfs: thalweg_nf::Kinds,
    /// The kinds of ports; by default those of `thalweg-io`.
    pub ports: thalweg_io::kind::Kinds,
}

impl From<thalweg_nf::Kinds> for Kinds {
    /// These kinds of NF, and the kinds of ports of `thalweg-io`.
    fn from(nfs: thalweg_nf::Kinds) -> Self {
        Self { nfs, ports: thalweg_io::kind::Kinds::default() }
    }
}

impl Kinds {
    /// This registry with one more kind of NF, which replaces one of the same name.
    #[must_use]
    pub fn with(self, kind: thalweg_nf::Kind) -> Self {
        Self { nfs: self.nfs.with(kind), ..self }
    }

    /// This registry with one more kind of port, which replaces one with the same key.
    #[must_use]
    pub fn with_port(self, kind: &'static thalweg_io::kind::Kind) -> Self {
        Self { ports: self.ports.with(kind), ..self }
    }
}
