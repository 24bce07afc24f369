//! The trait of all network functions.

use std::any::Any;
use std::path::PathBuf;

use thalweg_packet::{BATCH, Batch, Lanes};

use crate::context::Context;
use crate::device::OnDevice;
use crate::division::Note;
use crate::state::{StateError, StateReader, StateWriter};
use crate::steering::Units;

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

impl dyn NetworkFunction {
    /// This instance as one of type `N`, if it is.
    pub fn downcast_mut<N: NetworkFunction>(&mut self) -> Option<&mut N> {
        (self as &mut dyn Any).downcast_mut()
    }
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

    /// Whether it processes the super-packet of `lane` whole: called for NFs of kinds that take
    /// super-packets ([`Kind::takes_supers`](crate::Kind)), before they process it. The lane is
    /// parsed. An NF gets the segments of others.
    ///
    /// The default is those without a tunnel. Segments of UDP are datagrams, each a message of its own: an NF
    /// that looks into payloads must not take them whole. An NF that leaves what is in a tunnel alone takes others
    /// too; the outermost header then is not that of the transport that is segmented.
    fn takes_whole(&self, batch: &Batch, lane: usize) -> bool {
        batch.meta.inner_len[lane] == 0
    }

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

    /// The units that the packets of `lanes`, which are parsed, belong to, by lane: where the
    /// state is that they read and change.
    ///
    /// The default is the steering hash. An NF whose state of a fragment is not that of its
    /// addresses overrides it.
    fn units_of(&self, batch: &Batch, lanes: Lanes, units: Units) -> [u16; BATCH] {
        let buckets = units.steering().of_packets(batch, lanes);
        buckets.map(|bucket| units.of_bucket(bucket))
    }

    /// Prepares for moving state to another instance in `units`, those of the kind's
    /// [`Grain`](crate::Grain): indexes the flows by unit, at most 2,000 at a call, so that no
    /// batch waits for a scan of all. Returns whether all are indexed; until then the caller calls
    /// again, between batches. Flows that begin or end meanwhile are indexed, too.
    ///
    /// The default, for a grain of one unit, has nothing to prepare.
    fn begin_move(&mut self, units: Units) -> bool {
        let _ = units;
        true
    }

    /// Whether a unit can move now. One that cannot is worth waiting for: it holds state that
    /// does not move.
    fn is_ready(&self, unit: u16) -> bool {
        let _ = unit;
        true
    }

    /// Writes the records of one unit, as [`export_state`](Self::export_state) does those of all.
    ///
    /// The default is for a grain of one unit, number 0.
    ///
    /// # Errors
    /// When the writer fails.
    fn export_unit(&self, unit: u16, writer: &mut StateWriter<'_>) -> Result<(), StateError> {
        if unit == 0 { self.export_state(writer) } else { Ok(()) }
    }

    /// Forgets one unit, whose state another instance has imported and whose packets it gets from
    /// now on. Nothing is reported: that instance reports the flows.
    ///
    /// The default is for a grain of one unit, after which no packet comes here:
    /// [`handed_over`](Self::handed_over).
    fn forget_unit(&mut self, unit: u16) {
        if unit == 0 {
            self.handed_over();
        }
    }

    /// Ends a move, complete or not: drops the index by unit. Units that did not move stay.
    fn end_move(&mut self) {}

    /// This NF as one whose work a device can do in part; `None` for others.
    fn on_device(&mut self) -> Option<&mut dyn OnDevice> {
        None
    }

    /// The version of the NF's state records; raised when they change.
    fn state_version(&self) -> u16 {
        1
    }

    /// NF-specific figures for the report, by name (counts of mappings, alerts,
    /// routes, ...).
    fn figures(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Writes out what the NF collects (flow records, pending alerts). Called at the end of a run.
    ///
    /// # Errors
    /// When an output cannot be written.
    fn flush(&mut self) -> Result<(), NfError> {
        Ok(())
    }

    /// As [`flush`](Self::flush), on request while packets pass: writes as much as holds none of them up,
    /// and returns whether it was all. If not, it is called again with the next bursts of packets, or
    /// without any, until it is.
    ///
    /// # Errors
    /// When an output cannot be written; then it is not called again.
    fn flush_some(&mut self) -> Result<bool, NfError> {
        self.flush().map(|()| true)
    }
}
