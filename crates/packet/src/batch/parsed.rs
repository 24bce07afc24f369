//! The parsed headers and keys of a batch's packets.

use super::Batch;
use crate::headers::Headers;
use crate::key::{Field, FlowKey};
use crate::lanes::Lanes;
#[cfg(target_arch = "x86_64")]
use crate::parse::quick;
use crate::parse::{Decapsulate, parse, plain};
use crate::transposed::TransposedKeys;
use crate::tuple::symmetric_hash;

impl Batch {
    /// Marks the headers of `lanes` as changed since they were parsed, so that their next reader
    /// has them [parsed](Self::parse_changed) first.
    #[inline]
    pub fn mark_changed(&mut self, lanes: Lanes) {
        self.changed = self.changed.or(lanes);
    }

    /// Parses, without decapsulation, the packets that [are marked](Self::mark_changed).
    #[inline]
    pub fn parse_changed(&mut self) {
        if !self.changed.is_empty() {
            self.parse(self.changed, Decapsulate::No);
        }
    }

    /// Parses the packets of `lanes`: sets their headers and keys.
    pub fn parse(&mut self, lanes: Lanes, decapsulate: Decapsulate) {
        self.changed = self.changed.without(lanes);
        let lanes = lanes.and(self.occupied);
        if lanes == self.occupied {
            self.keys.clear();
        }
        let parsed = self.parse_quickly(lanes, decapsulate);
        self.plain = self.plain.without(lanes).or(parsed);
        for lane in lanes.without(parsed) {
            let (bytes, in_port) = (self.bytes(lane), self.meta.in_port[lane]);
            self.headers[lane] =
                if let Some((words, headers)) = plain::parse(bytes, in_port, decapsulate) {
                    self.keys.set_only(lane, plain::WORDS, words);
                    self.plain.insert(lane);
                    headers
                } else {
                    let (key, headers) = parse(bytes, in_port, decapsulate);
                    self.keys.set(lane, &key);
                    headers
                };
        }
    }

    /// Parses what can be parsed many packets at a time; returns those lanes.
    #[cfg(target_arch = "x86_64")]
    fn parse_quickly(&mut self, lanes: Lanes, decapsulate: Decapsulate) -> Lanes {
        // Below, the scalar parser is as fast.
        const LEAST: usize = 3;
        let mut parsed = Lanes::NONE;
        let Some(right) = self.quick else { return parsed };
        for first in [0, quick::GROUP] {
            let of_group = lanes.and(Lanes(0xffff << first));
            if of_group.count() < LEAST {
                continue;
            }
            let (frames, offsets, pool) = (&self.frames, &self.offsets, &self.pool);
            let head = |i: usize| {
                let lane = first + i;
                let frame = frames[lane].as_ref().filter(|_| of_group.contains(lane))?;
                let start = usize::from(offsets[lane]).checked_sub(quick::BEFORE)?;
                pool.bytes(frame).get(start..)?.first_chunk()
            };
            let lens = self.lens[first..].first_chunk();
            let in_ports = self.meta.in_port[first..].first_chunk();
            let headers = self.headers[first..].first_chunk_mut();
            let (Some(lens), Some(in_ports), Some(headers)) = (lens, in_ports, headers) else {
                continue;
            };
            let heads = std::array::from_fn(|i| head(i).unwrap_or(&[0; quick::HEAD]));
            let group = quick::Group { first, heads, lens, in_ports };
            let good = quick::parse(right, &group, decapsulate, &mut self.keys, headers);
            parsed = parsed.or(Lanes(u32::from(good) << first));
        }
        parsed
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn parse_quickly(&mut self, _lanes: Lanes, _decapsulate: Decapsulate) -> Lanes {
        Lanes::NONE
    }

    /// Packets that are known to be plain, as of the last parse: TCP, UDP or ESP over IPv4, not
    /// fragmented, without VLAN tags, tunnels and IP options, and with complete headers. Others may be,
    /// too: this follows from what parsed them.
    #[inline]
    pub fn plain(&self) -> Lanes {
        self.plain
    }

    /// Where the headers of the packet lie, as of the last parse.
    #[inline]
    pub fn headers(&self, lane: usize) -> &Headers {
        &self.headers[lane]
    }

    /// The flow key of the packet, as of the last parse.
    ///
    /// For a single field use [`field`](Self::field).
    #[inline]
    pub fn key(&self, lane: usize) -> FlowKey {
        self.keys.key(lane)
    }

    /// One field of the packet's flow key, as of the last parse.
    #[inline]
    pub fn field(&self, lane: usize, field: Field) -> u64 {
        self.keys.get(lane, field)
    }

    /// A 128-bit field, likewise.
    #[inline]
    pub fn field128(&self, lane: usize, [high, low]: [Field; 2]) -> u128 {
        u128::from(self.field(lane, high)) << 64 | u128::from(self.field(lane, low))
    }

    /// The flow keys of all lanes; those of empty lanes are unspecified.
    #[inline]
    pub fn keys(&self) -> &TransposedKeys {
        &self.keys
    }

    /// Hash of the packet's flow, equal for both of its directions.
    #[inline]
    pub fn flow_hash(&self, lane: usize) -> u32 {
        symmetric_hash(&self.key(lane))
    }
}
