//! Prefixes, and the ordered store of all routes that the writer keeps.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::table::HopId;

/// An IP address as a number: `u32` for IPv4, `u128` for IPv6.
pub trait Address: Copy + Ord + Hash + fmt::Debug + Send + Sync + 'static {
    /// Width in bits.
    const BITS: u8;

    /// The first address of the prefix of `len` bits that holds `self`.
    #[must_use]
    fn first(self, len: u8) -> Self;

    /// The last address of the prefix of `len` bits that holds `self`.
    #[must_use]
    fn last(self, len: u8) -> Self;

    /// Its bits from the highest one of a word of 128 on.
    fn bits_from_top(self) -> u128;

    /// Writes the address in its usual notation.
    fn write(self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

impl Address for u32 {
    const BITS: u8 = 32;

    fn first(self, len: u8) -> Self {
        self & !Self::MAX.unbounded_shr(len.into())
    }

    fn last(self, len: u8) -> Self {
        self | Self::MAX.unbounded_shr(len.into())
    }

    fn bits_from_top(self) -> u128 {
        u128::from(self) << 96
    }

    fn write(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Ipv4Addr::from(self), f)
    }
}

impl Address for u128 {
    const BITS: u8 = 128;

    fn first(self, len: u8) -> Self {
        self & !Self::MAX.unbounded_shr(len.into())
    }

    fn last(self, len: u8) -> Self {
        self | Self::MAX.unbounded_shr(len.into())
    }

    fn bits_from_top(self) -> u128 {
        self
    }

    fn write(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Ipv6Addr::from(self), f)
    }
}

/// All addresses that share their first `len` bits.
///
/// Prefixes order by first address, then by length: a prefix comes before all
/// the prefixes within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix<A> {
    first: A,
    len: u8,
}

impl<A: Address> Prefix<A> {
    /// The prefix of `len` bits that begins at `first`; `None` if `len` is
    /// above the address width or a bit of `first` after it is set.
    pub fn new(first: A, len: u8) -> Option<Self> {
        (len <= A::BITS && first.first(len) == first).then_some(Self { first, len })
    }

    /// The prefix of `len` bits (at most the address width) that holds `address`.
    #[must_use]
    pub fn holding(address: A, len: u8) -> Self {
        let len = len.min(A::BITS);
        Self { first: address.first(len), len }
    }

    /// The first address.
    pub fn first(self) -> A {
        self.first
    }

    /// The last address.
    pub fn last(self) -> A {
        self.first.last(self.len)
    }

    /// The length in bits.
    #[expect(clippy::len_without_is_empty, reason = "a prefix length, not a size")]
    pub fn len(self) -> u8 {
        self.len
    }

    /// Whether `address` is in the prefix.
    pub fn contains(self, address: A) -> bool {
        address.first(self.len) == self.first
    }

    /// The prefix itself, or the prefix of `len` bits around it when it is longer.
    #[must_use]
    pub(super) fn at_most(self, len: u8) -> Self {
        Self::holding(self.first, self.len.min(len))
    }
}

impl<A: Address> fmt::Display for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.first.write(f)?;
        write!(f, "/{}", self.len)
    }
}

/// A prefix of either IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IpPrefix {
    /// Of IPv4.
    V4(Prefix<u32>),
    /// Of IPv6.
    V6(Prefix<u128>),
}

impl IpPrefix {
    /// The prefix of one address.
    pub(super) fn of_host(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::V4(Prefix::holding(address.into(), 32)),
            IpAddr::V6(address) => Self::V6(Prefix::holding(address.into(), 128)),
        }
    }

    /// The address of a prefix of one.
    pub(super) fn host(self) -> Option<IpAddr> {
        match self {
            Self::V4(prefix) => (prefix.len() == 32).then(|| IpAddr::V4(prefix.first().into())),
            Self::V6(prefix) => (prefix.len() == 128).then(|| IpAddr::V6(prefix.first().into())),
        }
    }
}

impl From<Prefix<u32>> for IpPrefix {
    fn from(prefix: Prefix<u32>) -> Self {
        Self::V4(prefix)
    }
}

impl From<Prefix<u128>> for IpPrefix {
    fn from(prefix: Prefix<u128>) -> Self {
        Self::V6(prefix)
    }
}

impl fmt::Display for IpPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(prefix) => prefix.fmt(f),
            Self::V6(prefix) => prefix.fmt(f),
        }
    }
}

/// Every route of one IP version in order. The lookup structures are built
/// from it; only the writer uses it.
#[derive(Debug)]
pub(super) struct PrefixStore<A>(BTreeMap<Prefix<A>, HopId>);

impl<A: Address> Default for PrefixStore<A> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<A: Address> FromIterator<(Prefix<A>, HopId)> for PrefixStore<A> {
    fn from_iter<I: IntoIterator<Item = (Prefix<A>, HopId)>>(routes: I) -> Self {
        Self(routes.into_iter().collect())
    }
}

impl<A: Address> PrefixStore<A> {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&self, prefix: Prefix<A>) -> Option<HopId> {
        self.0.get(&prefix).copied()
    }

    /// Sets or removes the next hop of `prefix`; returns the previous one.
    pub(super) fn set(&mut self, prefix: Prefix<A>, hop: Option<HopId>) -> Option<HopId> {
        match hop {
            Some(hop) => self.0.insert(prefix, hop),
            None => self.0.remove(&prefix),
        }
    }

    /// All routes in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Prefix<A>, HopId)> + '_ {
        self.0.iter().map(|(prefix, hop)| (*prefix, *hop))
    }

    /// The routes to `prefix` and to all prefixes within it, in order.
    pub(super) fn within(
        &self,
        prefix: Prefix<A>,
    ) -> impl Iterator<Item = (Prefix<A>, HopId)> + use<'_, A> {
        let end = Prefix { first: prefix.last(), len: A::BITS };
        self.0.range(prefix..=end).map(|(prefix, hop)| (*prefix, *hop))
    }

    /// The longest route around `address` of at most `len` bits.
    pub(super) fn longest(&self, address: A, len: u8) -> Option<(Prefix<A>, HopId)> {
        (0..=len).rev().find_map(|len| {
            let prefix = Prefix::holding(address, len);
            Some((prefix, self.get(prefix)?))
        })
    }

    /// The next hop of the longest route that is shorter than `prefix` and covers it.
    pub(super) fn around(&self, prefix: Prefix<A>) -> HopId {
        let shorter = prefix.len.checked_sub(1);
        let cover = shorter.and_then(|len| self.longest(prefix.first, len));
        cover.map_or(HopId::NO_ROUTE, |(_, hop)| hop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p4(text: &str) -> Prefix<u32> {
        let (address, len) = text.split_once('/').unwrap();
        let address: Ipv4Addr = address.parse().unwrap();
        Prefix::new(address.into(), len.parse().unwrap()).unwrap()
    }

    #[test]
    fn the_ends_of_the_longest_and_shortest_prefixes_are_right() {
        assert_eq!((p4("0.0.0.0/0").first(), p4("0.0.0.0/0").last()), (0, u32::MAX));
        assert_eq!(p4("10.1.2.3/32").last(), 0x0a01_0203);
        assert_eq!(p4("10.0.0.0/8").last(), 0x0aff_ffff);
        assert_eq!(Prefix::new(0u128, 0).unwrap().last(), u128::MAX);
        assert_eq!(Prefix::new(1u32, 31), None);
        assert_eq!(Prefix::new(0u32, 33), None);
    }

    #[test]
    fn within_and_around_split_the_nested_prefixes() {
        let routes = ["0.0.0.0/0", "10.0.0.0/8", "10.0.0.0/16", "10.0.1.0/24", "11.0.0.0/8"];
        let store: PrefixStore<u32> =
            routes.iter().enumerate().map(|(i, t)| (p4(t), HopId::test(i as u16 + 1))).collect();
        let inside: Vec<_> = store.within(p4("10.0.0.0/8")).map(|(p, _)| p.to_string()).collect();
        assert_eq!(inside, ["10.0.0.0/8", "10.0.0.0/16", "10.0.1.0/24"]);
        assert_eq!(store.around(p4("10.0.0.0/16")), HopId::test(2));
        assert_eq!(store.around(p4("0.0.0.0/0")), HopId::NO_ROUTE);
        assert_eq!(store.longest(0x0a00_01ff, 32).unwrap().0, p4("10.0.1.0/24"));
    }
}
