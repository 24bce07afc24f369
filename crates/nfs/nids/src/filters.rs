//! Limits how often rules alert: `threshold` and `detection_filter`.

use std::collections::HashSet;
use std::net::IpAddr;

use thalweg_nf::toolkit::flow_table::{FlowTable, FlowWords, Hand, NoPlace, Slot};
use thalweg_packet::{FiveTuple, Nanoseconds, address_bits};

use super::rule::{Filter, FilterKind, Track, UniqueOn};

/// The key of a count: matches with the same key are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    rule: u32,
    addresses: [Option<IpAddr>; 2],
    /// Protocol and ports, for counts by flow.
    flow: Option<(u8, u16, u16)>,
}

impl FlowWords<6> for Key {
    fn words(&self) -> [u64; 6] {
        let Self { rule, addresses, flow } = *self;
        let version = |address: IpAddr| if address.is_ipv4() { 4 } else { 6 };
        let [[a, b, v], [c, d, w]] = addresses.map(|address| {
            let bits = address.map_or(0, address_bits);
            [(bits >> 64) as u64, bits as u64, address.map_or(0, version)]
        });
        let ends = flow.map_or(0, |(protocol, low, high)| {
            1 << 40 | u64::from(protocol) << 32 | u64::from(low) << 16 | u64::from(high)
        });
        [a, b, c, d, u64::from(rule) << 32 | v << 8 | w, ends]
    }
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
    table: FlowTable<Key, Count, 6>,
    hand: Hand,
    most: usize,
    /// Counts evicted before their interval was over.
    pub(super) evicted: u64,
}

impl Counts {
    /// At most `most` counts; beyond that, that whose interval ends first of a few is evicted.
    pub(super) fn new(most: usize) -> Self {
        Self { table: FlowTable::new(most), hand: Hand::default(), most, evicted: 0 }
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
        let mut fresh = Count::new(filter, now);
        let known = self.table.slot(&key).map_or_else(|| self.begin(key, &fresh, now), Ok);
        let Some((_, count)) = known.ok().and_then(|slot| self.table.at_mut(slot)) else {
            // Without a place it is evicted at once.
            self.evicted += 1;
            return fresh.allow(filter, tuple).0;
        };
        if count.is_over(now) {
            *count = fresh;
        }
        let (may_alert, is_complete) = count.allow(filter, tuple);
        if is_complete {
            self.table.remove(&key);
        }
        may_alert
    }

    /// Adds a count; makes room for it.
    fn begin(&mut self, key: Key, count: &Count, now: Nanoseconds) -> Result<Slot, NoPlace> {
        if self.table.len() >= self.most
            && let Some((_, evicted)) =
                self.table.evict(0, &mut self.hand, |_, count| (!count.is_over(now), count.end()))
        {
            self.evicted += u64::from(!evicted.is_over(now));
        }
        self.table.insert(key, count.clone())
    }

    /// Clears all counts.
    pub(super) fn clear(&mut self) {
        self.table.clear();
    }
}

impl Count {
    fn new(filter: &Filter, now: Nanoseconds) -> Self {
        Self { begun: now, seconds: filter.seconds, matches: 0, ports: HashSet::new() }
    }

    /// Counts a match; returns whether the rule may alert, and whether the count is complete.
    fn allow(&mut self, filter: &Filter, tuple: Option<&FiveTuple>) -> (bool, bool) {
        let port = filter.unique_on.zip(tuple).map(|(port, tuple)| match port {
            UniqueOn::SourcePort => tuple.src_port,
            UniqueOn::DestinationPort => tuple.dst_port,
        });
        if port.is_some_and(|port| !self.ports.insert(port)) {
            return (false, false);
        }
        self.matches = self.matches.saturating_add(1);
        let (matches, asked) = (self.matches, filter.count);
        match filter.kind {
            FilterKind::Limit => (matches <= asked, false),
            FilterKind::Threshold => (matches >= asked, matches >= asked),
            FilterKind::Both => (matches == asked, false),
            FilterKind::Detection => (matches > asked, false),
        }
    }

    /// The end of its interval.
    fn end(&self) -> Nanoseconds {
        self.begun.plus(Nanoseconds::from_secs(u64::from(self.seconds)))
    }

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
