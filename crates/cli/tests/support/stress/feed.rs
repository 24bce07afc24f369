//! Packets into an input of a run, by whatever medium.

use std::path::Path;

use super::chain::{Frame, Medium, input_name};
use super::pipes::{Pipe, Shared};
use super::random::Random;
use super::rings::Rings;

/// The other side of an input.
pub enum Feed {
    Pipe(Pipe),
    Rings(Rings),
}

impl Feed {
    /// The other side of input number `input` of a run that is starting.
    ///
    /// # Errors
    /// If there is none.
    pub fn open(
        folder: &Path,
        frame: &Frame,
        input: usize,
        shared: &Shared,
    ) -> Result<Self, String> {
        let path = folder.join(frame.medium.file(input_name(input)));
        Ok(match frame.medium {
            Medium::Pipes => Self::Pipe(Pipe::open(&path, shared)?),
            Medium::Rings { is_server, .. } => {
                Self::Rings(Rings::open(&path, frame.queues(), is_server)?)
            }
        })
    }

    /// Whether the run takes no more packets.
    pub fn is_closed(&self) -> bool {
        match self {
            Self::Pipe(pipe) => pipe.is_closed,
            Self::Rings(rings) => rings.is_closed,
        }
    }

    /// Sends packets into a queue as the run takes them; fewer if the run ends.
    ///
    /// # Errors
    /// When the run takes none for long.
    pub fn send(
        &mut self,
        queue: usize,
        packets: &[Vec<u8>],
        random: &mut Random,
        shared: &Shared,
    ) -> Result<(), String> {
        match self {
            Self::Pipe(pipe) => pipe.send(packets, random, shared),
            Self::Rings(rings) => rings.send(queue, packets, shared),
        }
    }
}
