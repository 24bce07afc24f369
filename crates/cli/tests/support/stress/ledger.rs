//! What was sent and what arrived: each packet once, whole, in the order of its flow, or dropped by an NF
//! that may have dropped it.

use super::chain::{ARRIVING, Fate, Generation};
use super::packet::{FLOWS, Packet};
use super::random::Random;

/// A packet that was sent.
#[derive(Clone, Copy, Debug)]
struct Sent {
    packet: Packet,
    /// The generation that a reload had reported by then.
    since: usize,
    has_arrived: bool,
}

/// All packets of a run.
#[derive(Debug)]
pub struct Ledger {
    /// By flow, in its order.
    flows: Vec<Vec<Sent>>,
    /// By stream, which is a queue of an input: flows and numbers in the order in which they were sent.
    order: Vec<Vec<(usize, u32)>>,
    /// By flow: the least number that may arrive next.
    next: Vec<u32>,
    /// Those that were requested so far.
    generations: Vec<Generation>,
    /// The last one that is known to be running.
    running: usize,
    pub arrived: u64,
    /// What was wrong with the packets that arrived.
    pub failure: Option<String>,
}

impl Ledger {
    /// For a run that begins with `first`.
    pub fn new(streams: usize, first: Generation) -> Self {
        Self {
            flows: vec![Vec::new(); FLOWS],
            order: vec![Vec::new(); streams],
            next: vec![0; FLOWS],
            generations: vec![first],
            running: 0,
            arrived: 0,
            failure: None,
        }
    }

    /// The bytes of the next packet of a flow, which no NF drops if `is_kept`.
    pub fn send(
        &mut self,
        stream: usize,
        flow: usize,
        is_kept: bool,
        random: &mut Random,
    ) -> Vec<u8> {
        let number = self.flows[flow].len() as u32;
        let make = if is_kept { Packet::kept } else { Packet::random };
        let packet = make(random, flow, number);
        self.flows[flow].push(Sent { packet, since: self.running, has_arrived: false });
        self.order[stream].push((flow, number));
        packet.bytes(ARRIVING)
    }

    /// Records that a reload was requested.
    pub fn requested(&mut self, generation: Generation) {
        self.generations.push(generation);
    }

    /// Records that the last reload was reported as done.
    pub fn reloaded(&mut self) {
        self.running = self.generations.len() - 1;
    }

    pub fn sent(&self) -> u64 {
        self.flows.iter().map(|flow| flow.len() as u64).sum()
    }

    /// Whether the last packet of each flow has arrived.
    pub fn has_all(&self) -> bool {
        self.flows.iter().zip(&self.next).all(|(flow, next)| flow.len() == *next as usize)
    }

    /// What may have become of a packet, in the generations that may have had it.
    fn fates(&self, sent: &Sent) -> impl Iterator<Item = Fate> {
        let Sent { packet: Packet { flow, mark, .. }, since, .. } = *sent;
        self.generations[since..].iter().map(move |generation| generation.fate(flow, mark))
    }

    /// Records a packet that arrives.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn arrive(&mut self, bytes: &[u8]) -> Result<(), String> {
        let (flow, number) =
            Packet::claimed(bytes).ok_or_else(|| format!("not clear: {bytes:02x?}"))?;
        let sent = self.flows[flow].get(number as usize);
        let sent = *sent.ok_or_else(|| format!("flow {flow}: {number} was never sent"))?;
        let next = self.next[flow];
        if number < next {
            let how = if sent.has_arrived { "twice" } else { "out of order" };
            return Err(format!("flow {flow}: {number} arrived {how}, after {}", next - 1));
        }
        for skipped in &self.flows[flow][next as usize..number as usize] {
            if self.fates(skipped).all(|fate| fate.is_some()) {
                let Packet { number: lost, .. } = skipped.packet;
                return Err(format!("flow {flow}: {lost} did not arrive before {number}"));
            }
        }
        let mac = sent.packet.check(bytes)?;
        if !self.fates(&sent).any(|fate| fate == Some(mac)) {
            let may: Vec<_> = self.fates(&sent).collect();
            let packet = sent.packet;
            return Err(format!("{packet:?} arrived to {mac:#04x}, expected one of {may:x?}"));
        }
        self.flows[flow][number as usize].has_arrived = true;
        (self.next[flow], self.arrived) = (number + 1, self.arrived + 1);
        Ok(())
    }

    /// Checks a run that has ended: of each stream, it has received the first `received` packets, and all
    /// of them have arrived, or were dropped by an NF that may have dropped them. Returns how many were.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self, received: &[u64]) -> Result<u64, String> {
        let mut dropped = 0;
        for (stream, (order, received)) in self.order.iter().zip(received).enumerate() {
            if *received > order.len() as u64 {
                let sent = order.len();
                return Err(format!("stream {stream} has {received} packets of {sent} sent"));
            }
            for (at, &(flow, number)) in order.iter().enumerate() {
                let sent = &self.flows[flow][number as usize];
                let was_received = (at as u64) < *received;
                if sent.has_arrived && !was_received {
                    let packet = sent.packet;
                    return Err(format!("{packet:?} arrived, which was not received"));
                }
                if !sent.has_arrived && was_received {
                    dropped += 1;
                    if self.fates(sent).all(|fate| fate.is_some()) {
                        return Err(format!("{:?} is lost: no NF drops it", sent.packet));
                    }
                }
            }
        }
        Ok(dropped)
    }
}
