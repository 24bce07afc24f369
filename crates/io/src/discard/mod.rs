//! The output that discards all packets.

mod kind;

use thalweg_packet::{Batch, DropCounts, Lanes};

use crate::port::{Output, OutputFailure};

pub use kind::KIND;

/// Accepts packets and discards them.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiscardOutput;

impl Output for DiscardOutput {
    fn send(
        &mut self,
        _batch: &Batch,
        lanes: Lanes,
        _drops: &mut DropCounts,
    ) -> Result<Lanes, OutputFailure> {
        Ok(lanes)
    }

    fn takes_supers(&self) -> bool {
        true
    }

    fn takes_tunnelled_supers(&self) -> bool {
        true
    }

    fn flush(&mut self) -> Result<(), OutputFailure> {
        Ok(())
    }

    fn copied(&self) -> Option<u64> {
        Some(0)
    }
}
