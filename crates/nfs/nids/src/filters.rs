//! Limits how often rules alert: `threshold` and `detection_filter`.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use thalweg_packet::{FiveTuple, Nanoseconds};

use super::rule::{Filter, FilterKind, Track, UniqueOn};

/// The key of a count: matches with the same key are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    rule: u32,
    addresses: [Option<IpAddr>; 2],
    /// Protocol and ports, for counts by flow.
    flow: Option<(u8, u16, u16)>,
}

#[derive(Clone, Debug)]
struct Count {
    begun: Nanoseconds,
    seconds: u32,
    matches: u32,
    /// The ports of the matches that were counted.
    ports: HashSet<u16>,
}

/// The counts of matches, by what a rule tracks.
#[derive(Debug)]
pub(super) struct Counts {
    table: HashMap<Key, Count>,
    most: usize,
    /// Counts evicted before their interval was over.
    pub(super) evicted: u64,
}

impl Counts {
    /// At most `most` counts; beyond that, those whose interval is over are evicted, or else all.
    pub(super) fn new(most: usize) -> Self {
        Self { table: HashMap::new(), most, evicted: 0 }
    }

    /// Counts a match; returns whether the rule with this `number` may alert now. Counts are
    /// keyed by the rule's number in the order of the rule files, so a new rule set starts over.
    pub(super) fn allow(
        &mut self,
        number: u32,
        filter: &Filter,
        tuple: Option<&FiveTuple>,
        now: Nanoseconds,
    ) -> bool {
        let key = key(number, filter.track, tuple);
        if !self.table.contains_key(&key) && self.table.len() >= self.most {
            self.table.retain(|_, c| !c.is_over(now));
            if self.table.len() >= self.most {
                self.evicted += self.table.len() as u64;
                self.table.clear();
            }
        }
        let fresh =
            || Count { begun: now, seconds: filter.seconds, matches: 0, ports: HashSet::new() };
        let count = self.table.entry(key).or_insert_with(fresh);
        if count.is_over(now) {
            *count = fresh();
        }
        let port = filter.unique_on.zip(tuple).map(|(port, tuple)| match port {
            UniqueOn::SourcePort => tuple.src_port,
            UniqueOn::DestinationPort => tuple.dst_port,
        });
        if port.is_some_and(|port| !count.ports.insert(port)) {
            return false;
        }
        count.matches = count.matches.saturating_add(1);
        let (matches, asked) = (count.matches, filter.count);
        match filter.kind {
            FilterKind::Limit => matches <= asked,
            FilterKind::Threshold => {
                if matches >= asked {
                    self.table.remove(&key);
                }
                matches >= asked
            }
            FilterKind::Both => matches == asked,
            FilterKind::Detection => matches > asked,
        }
    }

    /// Clears all counts.
    pub(super) fn clear(&mut self) {
        self.table.clear();
    }
}

impl Count {
    fn is_over(&self, now: Nanoseconds) -> bool {
        let set_back = self.begun.follow(now) < self.begun;
        set_back || now.since(self.begun) > Nanoseconds::from_secs(u64::from(self.seconds))
    }
}

fn key(rule: u32, track: Track, tuple: Option<&FiveTuple>) -> Key {
    let mut key = Key { rule, addresses: [None; 2], flow: None };
    // A packet that is not IP has no addresses to count by.
    let Some(tuple) = tuple else { return key };
    match track {
        Track::Rule => {}
        Track::Source => key.addresses[0] = Some(tuple.src),
        Track::Destination => key.addresses[1] = Some(tuple.dst),
        Track::Both => key.addresses = [Some(tuple.src), Some(tuple.dst)],
        Track::Flow => {
            // Both directions count together.
            let (a, b) = ((tuple.src, tuple.src_port), (tuple.dst, tuple.dst_port));
            let (low, high) = (a.min(b), a.max(b));
            key.addresses = [Some(low.0), Some(high.0)];
            key.flow = Some((tuple.protocol, low.1, high.1));
        }
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(kind: FilterKind, count: u32, times: &[u64]) -> Vec<bool> {
        let filter = Filter { kind, track: Track::Source, count, seconds: 10, unique_on: None };
        let address = [10, 0, 0, 1].into();
        let tuple = FiveTuple { src: address, dst: address, protocol: 6, src_port: 1, dst_port: 2 };
        let mut counts = Counts::new(8);
        times
            .iter()
            .map(|t| counts.allow(1, &filter, Some(&tuple), Nanoseconds::from_secs(*t)))
            .collect()
    }

    #[test]
    fn filters_count_as_documented() {
        let times = [0, 1, 2, 3, 4, 20, 21];
        let as_bits =
            |v: Vec<bool>| v.iter().map(|b| if *b { 'x' } else { '.' }).collect::<String>();
        assert_eq!(as_bits(says(FilterKind::Limit, 2, &times)), "xx...xx");
        assert_eq!(as_bits(says(FilterKind::Threshold, 2, &times)), ".x.x..x");
        assert_eq!(as_bits(says(FilterKind::Both, 2, &times)), ".x....x");
        assert_eq!(as_bits(says(FilterKind::Detection, 2, &times)), "..xxx..");
    }

    #[test]
    fn counts_are_bounded() {
        let mut counts = Counts::new(4);
        let filter = Filter {
            kind: FilterKind::Limit,
            track: Track::Source,
            count: 1,
            seconds: 9,
            unique_on: None,
        };
        for i in 0..100u8 {
            let (src, dst) = ([10, 0, 0, i].into(), [10, 0, 0, 1].into());
            let tuple = FiveTuple { src, dst, protocol: 6, src_port: 1, dst_port: 2 };
            assert!(counts.allow(1, &filter, Some(&tuple), Nanoseconds::from_secs(1)));
            assert!(counts.table.len() <= 4);
        }
        assert_eq!(counts.evicted, 96);
    }
}
