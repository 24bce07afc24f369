//! The route decider: maps (packet type, current NF) to the next step.

use thalweg_packet::{PacketType, PortIndex};

/// The number of an NF in its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NfIndex(pub u16);

/// The position of a packet in its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// Before the first NF, received from this input.
    Ingress(PortIndex),
    /// After an NF.
    Behind(NfIndex),
}

/// The next step of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Next {
    /// There is no route: the packet is dropped.
    #[default]
    Nowhere,
    /// An NF.
    Nf(NfIndex),
    /// The output with this number.
    Output(u16),
    /// The output that an NF chose, or the only one there is.
    Egress,
    /// Drop the packet, as the user's routes request.
    Drop,
}

/// The route table as a dense array: one lookup is one load.
#[derive(Clone, Debug)]
pub struct RouteDecider {
    /// A row for each input, then one for each NF.
    next: Vec<Next>,
    inputs: usize,
    nfs: usize,
    types: usize,
}

impl RouteDecider {
    /// Creates a table without routes, for these numbers of inputs, NFs and packet types.
    pub fn new(inputs: usize, nfs: usize, types: usize) -> Self {
        Self { next: vec![Next::Nowhere; (inputs + nfs) * types], inputs, nfs, types }
    }

    /// Sets the route of `packet_type` from `stage`; a type, input or NF that
    /// does not exist changes nothing.
    pub fn set(&mut self, packet_type: PacketType, stage: Stage, next: Next) {
        if let Some(at) = self.position(packet_type, stage)
            && let Some(place) = self.next.get_mut(at)
        {
            *place = next;
        }
    }

    /// The next step of a packet of `packet_type` at `stage`. Types, inputs and NFs that do not
    /// exist lead nowhere.
    #[inline]
    pub fn next(&self, packet_type: PacketType, stage: Stage) -> Next {
        let at = self.position(packet_type, stage);
        at.and_then(|at| self.next.get(at)).copied().unwrap_or_default()
    }

    /// Every stage of the table.
    pub fn stages(&self) -> impl Iterator<Item = Stage> + use<> {
        let inputs = (0..self.inputs).map(|i| Stage::Ingress(PortIndex(i as u16)));
        inputs.chain((0..self.nfs).map(|n| Stage::Behind(NfIndex(n as u16))))
    }

    #[inline]
    fn position(&self, packet_type: PacketType, stage: Stage) -> Option<usize> {
        let row = match stage {
            Stage::Ingress(input) => Some(usize::from(input.0)).filter(|i| *i < self.inputs)?,
            Stage::Behind(nf) => self.inputs + usize::from(nf.0),
        };
        let column = usize::from(packet_type.0);
        (column < self.types).then_some(row * self.types + column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_route_is_found_and_others_lead_nowhere() {
        let (a, b) = (NfIndex(0), NfIndex(1));
        let (left, right) = (Stage::Ingress(PortIndex(0)), Stage::Ingress(PortIndex(1)));
        let mut routes = RouteDecider::new(2, 2, 2);
        routes.set(PacketType(1), left, Next::Nf(b));
        routes.set(PacketType(1), right, Next::Drop);
        routes.set(PacketType(1), Stage::Behind(b), Next::Egress);
        assert_eq!(routes.next(PacketType(1), left), Next::Nf(b));
        assert_eq!(routes.next(PacketType(1), right), Next::Drop);
        assert_eq!(routes.next(PacketType(1), Stage::Behind(b)), Next::Egress);
        assert_eq!(routes.next(PacketType(0), left), Next::Nowhere);
        assert_eq!(routes.next(PacketType(1), Stage::Behind(a)), Next::Nowhere);
    }

    #[test]
    fn what_does_not_exist_leads_nowhere_and_is_never_set() {
        let mut routes = RouteDecider::new(1, 1, 1);
        let strange = [
            (PacketType(1), Stage::Ingress(PortIndex(0))),
            (PacketType(0), Stage::Ingress(PortIndex(1))),
            (PacketType(0), Stage::Ingress(PortIndex::NONE)),
            (PacketType(0), Stage::Behind(NfIndex(1))),
            (PacketType(u16::MAX), Stage::Behind(NfIndex(u16::MAX))),
        ];
        for (packet_type, stage) in strange {
            routes.set(packet_type, stage, Next::Egress);
            assert_eq!(routes.next(packet_type, stage), Next::Nowhere, "{packet_type:?} {stage:?}");
        }
        assert!(routes.stages().all(|s| routes.next(PacketType(0), s) == Next::Nowhere));
    }
}
