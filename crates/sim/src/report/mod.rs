//! The figures, tables and claims of the HALO paper, from simulations.
//!
//! An artefact names the simulations that it needs, and makes its files of their reports
//! when all have ended. What the paper claims stands in `claims.toml`, which only
//! [`claims`] reads, and only then.

mod artefacts;
mod chart;
mod claims;
mod grid;
mod metrics;
#[cfg(test)]
mod tests;

pub use artefacts::Artefact;
pub use claims::{claims, machines, runs};

/// A file of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its name.
    pub name: String,
    /// Its contents.
    pub text: String,
}

impl File {
    /// Whether it holds the numbers, separated by commas.
    pub fn is_csv(&self) -> bool {
        std::path::Path::new(&self.name).extension().is_some_and(|kind| kind == "csv")
    }
}
