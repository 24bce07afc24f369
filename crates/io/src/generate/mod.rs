//! Synthetic traffic: many flows, mixed as a [`Spec`] describes, identical for the
//! same seed on every machine.

mod flow;
mod hostile;
mod kind;
mod malform;
mod payload;
mod popularity;
mod sizes;
mod spec;
mod subnet;

use rand::RngExt;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use thalweg_packet::{Batch, DropCounts, Nanoseconds};

pub use kind::KIND;
pub use sizes::Sizes;
pub use spec::{Payload, Protocols, Spec, SpecError};

use crate::intake::{Arrival, Intake, Taken};
use crate::port::{Input, IoError, Received, Shortfall};
use flow::Flow;
use popularity::Popularity;
use spec::Addresses;

/// The shortest Ethernet frame without its frame check sequence; shorter packets
/// are padded.
const LEAST: usize = 60;

/// A source of synthetic packets.
pub struct GeneratorInput {
    spec: Spec,
    addresses: Addresses,
    random: ChaCha8Rng,
    flows: Vec<Flow>,
    popularity: Popularity,
    made: u64,
    gap: f64,
    packet: Vec<u8>,
    payload: Vec<u8>,
    /// Whether `packet` was generated and not delivered yet.
    waiting: bool,
    intake: Intake,
}

impl GeneratorInput {
    /// Creates a source that follows `spec`.
    ///
    /// # Errors
    /// The first invalid field of the specification.
    pub fn new(spec: Spec) -> Result<Self, SpecError> {
        spec.validate()?;
        if spec.hostile > 0.0 {
            hostile::prepare();
        }
        let mut random = ChaCha8Rng::seed_from_u64(spec.seed);
        let addresses = spec.addresses()?;
        let flows: Vec<_> =
            (0..spec.flows).map(|_| Flow::new(&spec, &addresses, &mut random)).collect();
        let popularity = Popularity::new(flows.len(), spec.zipf);
        let gap = 1e9 / spec.rate;
        Ok(Self {
            spec,
            addresses,
            random,
            flows,
            popularity,
            made: 0,
            gap,
            packet: Vec::new(),
            payload: Vec::new(),
            waiting: false,
            intake: Intake::default(),
        })
    }

    /// Generates the next packet; returns its bytes and its time, which counts from
    /// zero, or `None` after the last.
    pub fn next_packet(&mut self) -> Option<(&[u8], Nanoseconds)> {
        if !self.make() {
            return None;
        }
        self.waiting = false;
        Some((&self.packet, self.time()))
    }

    /// The time of the packet that was generated last.
    fn time(&self) -> Nanoseconds {
        self.time_of(self.made.saturating_sub(1))
    }

    /// The time of a packet by its number, from 0.
    fn time_of(&self, number: u64) -> Nanoseconds {
        Nanoseconds((number as f64 * self.gap) as u64)
    }

    /// The packets that were delivered.
    fn delivered(&self) -> u64 {
        self.made - u64::from(self.waiting)
    }

    /// Generates the next packet of one of the flows.
    fn talk(&mut self) {
        let index = self.popularity.pick(&mut self.random);
        let size = self.spec.size.pick(&mut self.random);
        let builder = self.flows[index].next_packet(
            size,
            self.spec.payload,
            &mut self.random,
            &mut self.payload,
        );
        builder.build_into(&self.payload, &mut self.packet);
    }

    fn make(&mut self) -> bool {
        if self.waiting {
            return true;
        }
        if self.made == self.spec.packets {
            return false;
        }
        // Without attacks no random number is drawn, so that a seed's traffic stays the same.
        if self.spec.hostile > 0.0 && self.random.random_bool(self.spec.hostile) {
            hostile::attack(&self.spec, &self.addresses, &mut self.random, &mut self.packet);
        } else {
            self.talk();
        }
        if self.packet.len() < LEAST {
            self.packet.resize(LEAST, 0);
        }
        if self.spec.malformed > 0.0 && self.random.random_bool(self.spec.malformed) {
            malform::malform(&mut self.packet, &mut self.random);
        }
        self.made += 1;
        self.waiting = true;
        true
    }
}

impl Input for GeneratorInput {
    fn receive(
        &mut self,
        batch: &mut Batch,
        most: usize,
        drops: &mut DropCounts,
    ) -> Result<Received, IoError> {
        let mut received = Received::default();
        while received.packets < most && !batch.is_full() && self.make() {
            let arrival = Arrival {
                header: &[],
                rest: &self.packet,
                wire_len: self.packet.len() as u32,
                timestamp: self.time(),
            };
            if self.intake.take(arrival, batch, drops, &mut received) == Taken::Later {
                break;
            }
            self.waiting = false;
        }
        received.ended = self.delivered() == self.spec.packets;
        Ok(received)
    }

    fn upcoming(&self) -> Option<Nanoseconds> {
        let next = self.delivered();
        (next < self.spec.packets).then(|| self.time_of(next))
    }

    fn following(&mut self) -> Option<Nanoseconds> {
        let following = self.delivered() + 1;
        (following < self.spec.packets).then(|| self.time_of(following))
    }

    fn share(&self) -> Option<f64> {
        Some(self.made as f64 / self.spec.packets.max(1) as f64)
    }

    fn shortfall(&self) -> Shortfall {
        self.intake.shortfall()
    }

    fn copied(&self) -> Option<u64> {
        Some(self.intake.taken())
    }
}

#[cfg(test)]
mod tests;
