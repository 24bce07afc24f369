//! The route decider: (packet type, current NF) to what comes next.

use thalweg_packet::PacketType;

/// The number of an NF in its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NfIndex(pub u16);

/// Where in its chain a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// Before the first NF.
    Ingress,
    /// Behind an NF.
    Behind(NfIndex),
}

/// What comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Next {
    /// There is no route: the packet is lost.
    #[default]
    Nowhere,
    /// An NF.
    Nf(NfIndex),
    /// The output of this number.
    Output(u16),
    /// The output that an NF chose, or else the first.
    Egress,
    /// The end, by the user's wish.
    Drop,
}

/// The route table as a dense array: one lookup is one load.
#[derive(Clone, Debug)]
pub struct RouteDecider {
    next: Vec<Next>,
    types: usize,
}

impl RouteDecider {
    /// A table without routes for `nfs` NFs and `types` packet types.
    pub fn new(nfs: usize, types: usize) -> Self {
        Self { next: vec![Next::Nowhere; (nfs + 1) * types], types }
    }

    /// Sets the route of `packet_type` from `stage`.
    ///
    /// # Panics
    /// When there is no such type or NF.
    pub fn set(&mut self, packet_type: PacketType, stage: Stage, next: Next) {
        let at = self.position(packet_type, stage);
        self.next[at] = next;
    }

    /// What comes next for a packet of `packet_type` at `stage`. Types and NFs
    /// that do not exist lead nowhere.
    #[inline]
    pub fn next(&self, packet_type: PacketType, stage: Stage) -> Next {
        if usize::from(packet_type.0) >= self.types {
            return Next::Nowhere;
        }
        self.next.get(self.position(packet_type, stage)).copied().unwrap_or_default()
    }

    fn position(&self, packet_type: PacketType, stage: Stage) -> usize {
        let row = match stage {
            Stage::Ingress => 0,
            Stage::Behind(nf) => usize::from(nf.0) + 1,
        };
        row * self.types + usize::from(packet_type.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_route_is_found_and_others_lead_nowhere() {
        let (a, b) = (NfIndex(0), NfIndex(1));
        let mut routes = RouteDecider::new(2, 2);
        routes.set(PacketType(1), Stage::Ingress, Next::Nf(b));
        routes.set(PacketType(1), Stage::Behind(b), Next::Egress);
        assert_eq!(routes.next(PacketType(1), Stage::Ingress), Next::Nf(b));
        assert_eq!(routes.next(PacketType(1), Stage::Behind(b)), Next::Egress);
        assert_eq!(routes.next(PacketType(0), Stage::Ingress), Next::Nowhere);
        assert_eq!(routes.next(PacketType(1), Stage::Behind(a)), Next::Nowhere);
        assert_eq!(routes.next(PacketType(9), Stage::Ingress), Next::Nowhere);
    }
}
