//! The first stage of every packet: its type, and the step that follows from it.

use thalweg_chain::Routing;
use thalweg_classify::{Classifier, Lookup};
use thalweg_packet::{BATCH, DropCounts, PacketType};

use crate::burst::{Burst, Round};
use crate::station::lose_all;

/// The classifier, with its counts.
pub(crate) struct Classification {
    pub(crate) classifier: Classifier,
    /// Packets and bytes by packet type.
    pub(crate) types: Vec<(u64, u64)>,
    /// Packets that went nowhere from the ingress.
    pub(crate) lost: DropCounts,
}

impl Classification {
    pub(crate) fn new(classifier: Classifier, types: usize) -> Self {
        Self { classifier, types: vec![(0, 0); types], lost: DropCounts::default() }
    }

    /// Gives the received packets of `burst`, which are parsed, their types, and sends them to the
    /// queues of their first steps.
    pub(crate) fn serve(&mut self, routing: &Routing, burst: &mut Burst) {
        for round in &mut burst.rounds {
            let lanes = round.batch.lanes();
            if lanes.is_empty() {
                continue;
            }
            if let Some(observed) = &mut round.observed {
                observed.begin(&round.batch, &mut self.classifier);
            }
            self.classify(round);
            let lost = round.queues.forward(routing, &round.batch, lanes, None);
            burst.drops += lose_all(round, lost, None, &mut self.lost);
        }
        burst.count(|tally| tally.add_classification(self));
    }

    fn classify(&mut self, round: &mut Round) {
        let Round { batch, clock, .. } = round;
        let lanes = batch.lanes();
        let mut found = [Lookup::default(); BATCH];
        let (keys, lens) = (batch.keys(), batch.lens());
        self.classifier.classify_batch(keys, lanes, lens, *clock, &mut found);
        let Some(first) = lanes.into_iter().next() else { return };
        let packet_type = found[first].packet_type;
        let (mut alike, mut bytes) = (true, 0);
        for lane in lanes {
            batch.meta.packet_type[lane] = found[lane].packet_type;
            alike &= found[lane].packet_type == packet_type;
            bytes += u64::from(batch.lens()[lane]);
        }
        // A batch of one type is counted as a whole, so that its packets do not wait for each
        // other's counts.
        if alike {
            self.count(packet_type, lanes.count() as u64, bytes);
            return;
        }
        for lane in lanes {
            self.count(found[lane].packet_type, 1, u64::from(batch.lens()[lane]));
        }
    }

    #[inline]
    fn count(&mut self, packet_type: PacketType, packets: u64, bytes: u64) {
        if let Some(counts) = self.types.get_mut(usize::from(packet_type.0)) {
            counts.0 += packets;
            counts.1 += bytes;
        }
    }
}
