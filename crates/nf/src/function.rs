//! The trait of all network functions.

use std::any::Any;
use std::path::PathBuf;

use thalweg_packet::{Batch, Lanes};

use crate::context::Context;
use crate::division::Note;
use crate::state::{StateError, StateReader, StateWriter};

/// What can fail in an NF outside the packet path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NfError {
    /// An output file could not be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
}

/// A network function: a value with state.
///
/// A run has one of each `[nf.NAME]` section, whatever the number of workers. Workers take turns at
/// it, so that one call at a time reaches it and batches come in the order in which they arrived;
/// its limits hold for the whole run. An NF that is worth dividing by flow has
/// [parts](crate::Division).
pub trait NetworkFunction: Any + Send {
    /// Processes the packets of `lanes`. Other lanes of the batch belong to
    /// other branches of the chain and must not be touched.
    ///
    /// All these lanes are parsed. Verdicts go into `context`. An NF that changes
    /// headers or lengths calls [`Batch::mark_changed`] or [`Batch::parse`] for the
    /// lanes it changed before it returns. It neither takes packets out of the batch
    /// nor releases them.
    fn process(&mut self, batch: &mut Batch, lanes: Lanes, context: &mut Context<'_>);

    /// Settles what a part left for the whole, in the order of the packets; see
    /// [`Division`](crate::Division).
    fn settle(&mut self, note: Note) {
        drop(note);
    }

    /// Writes one record for each flow that the NF has state of, in a form that
    /// [`import_state`](Self::import_state) of the same NF kind reads. An NF
    /// without per-flow state writes none.
    ///
    /// # Errors
    /// When the writer fails.
    fn export_state(&self, writer: &mut StateWriter<'_>) -> Result<(), StateError> {
        let _ = writer;
        Ok(())
    }

    /// Takes over the flows that `reader` holds; returns how many. Either all
    /// records are taken over or, on an error, none.
    ///
    /// # Errors
    /// When the stream is corrupt, of another NF kind, or of another version.
    fn import_state(&mut self, reader: &mut StateReader<'_>) -> Result<usize, StateError> {
        reader.expect_end()
    }

    /// Notifies the NF that another run continues the state that
    /// [`export_state`](Self::export_state) wrote. That run reports the flows in it; the next
    /// [`flush`](Self::flush) here, which is the last, no longer does.
    fn handed_over(&mut self) {}

    /// The version of the NF's state records; raised when they change.
    fn state_version(&self) -> u16 {
        1
    }

    /// NF-specific figures for the report, by name (counts of mappings, alerts,
    /// routes, ...).
    fn figures(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Writes out what the NF collects (flow records, pending alerts). Called
    /// on request during a run and at its end.
    ///
    /// # Errors
    /// When an output cannot be written.
    fn flush(&mut self) -> Result<(), NfError> {
        Ok(())
    }
}
