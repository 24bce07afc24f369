//! The output that keeps nothing.

use thalweg_packet::{Batch, Lanes};

use crate::port::{IoError, Output};

/// Takes packets and forgets them.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiscardOutput;

impl Output for DiscardOutput {
    fn send(&mut self, _batch: &Batch, _lanes: Lanes) -> Result<(), IoError> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), IoError> {
        Ok(())
    }
}
