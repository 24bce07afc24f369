//! Packets into a run by shared memory (memif), in a ring for each of its workers.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use thalweg_io::{MemifOutput, MemifRole, MemifSettings, Output};
use thalweg_packet::{Batch, DropCounts, DropReason, Lanes, Pool};

use super::pipes::{LOOK, Shared};
use super::waited::Waited;

/// The peer's side of an input. A ring that is full delays the peer, so nothing is lost on the way.
pub struct Rings {
    /// By ring.
    outputs: Vec<MemifOutput>,
    batch: Batch,
    /// The run has been there.
    was_connected: bool,
    /// The run is not there any more.
    pub is_closed: bool,
}

impl Rings {
    /// The other side of the input of a run at `socket`, which has this number of rings, and is the server or
    /// the client.
    ///
    /// # Errors
    /// When there is no such socket.
    pub fn open(socket: &Path, rings: usize, is_server: bool) -> Result<Self, String> {
        let role = if is_server { MemifRole::Client } else { MemifRole::Server };
        let settings = MemifSettings::new(&socket.to_string_lossy(), role)?;
        let settings = settings.with_queues(rings as u16);
        let pool = Arc::new(Pool::anonymous(64, 2048).map_err(|e| e.to_string())?);
        let outputs = MemifOutput::open(&settings, &pool, rings).map_err(|e| e.to_string())?;
        Ok(Self { outputs, batch: Batch::new(pool), was_connected: false, is_closed: false })
    }

    /// Sends packets through a ring as the run takes them; fewer if the run ends.
    ///
    /// # Errors
    /// When the run takes none for long.
    pub fn send(
        &mut self,
        ring: usize,
        packets: &[Vec<u8>],
        shared: &Shared,
    ) -> Result<(), String> {
        for packet in packets {
            self.batch.release(Lanes::ALL);
            let lane = self.batch.push_bytes(packet).expect("a frame for one packet");
            self.send_one(ring, lane, shared)?;
        }
        Ok(())
    }

    fn send_one(&mut self, ring: usize, lane: usize, shared: &Shared) -> Result<(), String> {
        let mut waited = Waited::new();
        while !self.is_closed && !shared.is_over() {
            let mut drops = DropCounts::default();
            // One at a time: of several, a later one may find room when an earlier one has found none.
            let sent = self.outputs[ring].send(&self.batch, Lanes::one(lane), &mut drops);
            if !sent.map_err(|failure| failure.to_string())?.is_empty() {
                self.was_connected = true;
                return Ok(());
            }
            self.is_closed = self.was_connected && drops.get(DropReason::NoPeer) > 0;
            if shared.is_out_of_patience(&mut waited) {
                let (drops, patience) = (drops.iter().collect::<Vec<_>>(), shared.patience);
                return Err(format!("no packet was received for {patience:?}: {drops:?}"));
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }
}
