//! The figures, tables and claims of the HALO paper, from simulations.
//!
//! An artefact names the simulations that it needs, and makes its files of their reports
//! when all have ended. What the paper claims stands in `claims.toml`, which
//! nothing else reads, and the report only then.

mod artefacts;
mod claims;
mod figure;
mod figures;
mod grid;
mod measures;
mod metrics;
mod parts;
#[cfg(test)]
mod rule;
mod tables;
#[cfg(test)]
mod tests;
mod verdicts;

pub use artefacts::Artefact;
pub use verdicts::{Verdicts, runs, verdicts};

/// A file of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its name.
    pub name: String,
    /// Its contents.
    pub bytes: Vec<u8>,
}

impl File {
    /// Whether it holds the numbers, separated by commas.
    pub fn is_csv(&self) -> bool {
        std::path::Path::new(&self.name).extension().is_some_and(|kind| kind == "csv")
    }
}
