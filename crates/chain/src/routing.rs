//! The routing data of a chain: what packet forwarding needs to know.

use thalweg_packet::Decapsulate;

use crate::route_decider::{NfIndex, RouteDecider};

/// The routing data that all workers of a run share.
#[derive(Debug)]
pub struct Routing {
    /// The next step of each packet type behind each stage.
    pub routes: RouteDecider,
    /// The order in which NFs are served, so that branches merge where they can.
    pub order: Vec<NfIndex>,
    /// The number of NFs.
    pub nfs: usize,
    /// The number of outputs.
    pub outputs: usize,
    /// The number of packet types.
    pub types: usize,
    /// Whether packets are parsed with their tunnel headers removed.
    pub decapsulate: Decapsulate,
}
