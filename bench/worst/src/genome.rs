//! Payloads that evolve.

use rand::rngs::StdRng;
use rand::{Rng, RngExt};

/// What payloads are made of: contents of rules, and ports that rules name.
pub struct Material {
    pub literals: Vec<Vec<u8>>,
    pub ports: Vec<u16>,
}

/// A datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Genome {
    pub port: u16,
    pub payload: Vec<u8>,
}

impl Genome {
    /// Random bytes.
    pub fn random(port: u16, size: usize, rng: &mut StdRng) -> Self {
        let mut payload = vec![0; size];
        rng.fill_bytes(&mut payload);
        Self { port, payload }
    }

    /// A payload of one kind: a short unit again and again, or contents of rules.
    pub fn first(size: usize, material: &Material, rng: &mut StdRng) -> Self {
        let mut genome = Self::random(any(&material.ports, rng).unwrap_or(5000), size, rng);
        if rng.random_bool(0.5) {
            let unit: Vec<u8> = (0..rng.random_range(1..5)).map(|_| rng.random()).collect();
            genome.repeat(0, size, &unit);
        } else {
            for _ in 0..64 {
                genome.put_literal(material, rng);
            }
        }
        genome
    }

    /// A copy with a few changes; `other` may lend a part of its own.
    pub fn child(&self, other: &Self, material: &Material, rng: &mut StdRng) -> Self {
        let mut child = self.clone();
        for _ in 0..rng.random_range(1..5) {
            child.change(other, material, rng);
        }
        child
    }

    fn change(&mut self, other: &Self, material: &Material, rng: &mut StdRng) {
        let (at, length) = self.stretch(rng);
        match rng.random_range(0..7) {
            0 => self.put_literal(material, rng),
            1 => {
                let byte = rng.random();
                self.payload[at..at + length].fill(byte);
            }
            2 => rng.fill_bytes(&mut self.payload[at..at + length]),
            3 => {
                let from = rng.random_range(0..=self.payload.len() - length);
                self.payload.copy_within(from..from + length, at);
            }
            4 => self.payload[at..at + length].copy_from_slice(&other.payload[at..at + length]),
            5 => {
                let short = rng.random_range(1..=length.min(24));
                let unit = self.payload[at..at + short].to_vec();
                let (at, length) = self.stretch(rng);
                self.repeat(at, length, &unit);
            }
            _ => self.port = any(&material.ports, rng).unwrap_or(self.port),
        }
    }

    /// A part of the payload: where it begins, and its bytes, at least one.
    fn stretch(&self, rng: &mut StdRng) -> (usize, usize) {
        let at = rng.random_range(0..self.payload.len());
        // Short ones as often as long ones.
        let most = self.payload.len() - at;
        let length = most.min(1 << rng.random_range(0..=most.ilog2()));
        (at, length)
    }

    fn put_literal(&mut self, material: &Material, rng: &mut StdRng) {
        let Some(literal) = any(&material.literals, rng) else { return };
        let at = rng.random_range(0..self.payload.len());
        let there = &mut self.payload[at..];
        let length = there.len().min(literal.len());
        there[..length].copy_from_slice(&literal[..length]);
    }

    fn repeat(&mut self, at: usize, length: usize, unit: &[u8]) {
        let there = self.payload[at..at + length].iter_mut();
        there.zip(unit.iter().cycle()).for_each(|(byte, unit)| *byte = *unit);
    }
}

fn any<T: Clone>(of: &[T], rng: &mut StdRng) -> Option<T> {
    (!of.is_empty()).then(|| of[rng.random_range(0..of.len())].clone())
}
