//! The router's next hops for the kernel's.

use std::collections::HashMap;

use super::message::Object;
use super::rib::{Target, Way};
use crate::table::{NextHop, RouterPort, Ways};

/// The depth to which next-hop objects may name others. The kernel's groups have one.
const MOST_NESTED: usize = 2;

/// What the next hops of a route are chosen from.
pub(super) struct Known<'a> {
    /// The router's ports by the index of their interfaces.
    pub(super) ports: &'a HashMap<u32, RouterPort>,
    /// The next-hop objects.
    pub(super) objects: &'a HashMap<u32, Object>,
}

/// What the router does with a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// Nothing: its interfaces are down, so that the kernel does not use it either.
    Dead,
    /// It has this next hop.
    Hop(NextHop),
    /// It leads where the router has no port; packets must not take a shorter prefix instead.
    NoPort,
}

impl Known<'_> {
    /// The next hop for a target of the kernel.
    pub(super) fn choose(&self, target: &Target) -> Choice {
        let mut ways = Vec::new();
        match self.collect(target, 1, MOST_NESTED, &mut ways) {
            Ok(()) => self.spread(&ways),
            Err(choice) => choice,
        }
    }

    /// Adds the next hops of `target` with their weights, or returns what else is to be done.
    fn collect(
        &self,
        target: &Target,
        weight: u16,
        nested: usize,
        ways: &mut Vec<Way>,
    ) -> Result<(), Choice> {
        let hop = match target {
            Target::Ways(own) => {
                let weighed =
                    |way: &Way| Way { weight: way.weight.saturating_mul(weight), ..way.clone() };
                ways.extend(own.iter().map(weighed));
                return Ok(());
            }
            Target::Object(id) => {
                return match self.objects.get(id) {
                    Some(Object::One(target)) if nested > 0 => {
                        self.collect(target, weight, nested - 1, ways)
                    }
                    Some(Object::Group(group)) if nested > 0 => {
                        group.iter().try_for_each(|(id, weight)| {
                            self.collect(&Target::Object(*id), *weight, nested - 1, ways)
                        })
                    }
                    _ => Err(Choice::NoPort),
                };
            }
            Target::Local => NextHop::Kernel,
            Target::Blackhole => NextHop::Blackhole,
            Target::Unreachable => NextHop::Unreachable,
            Target::HostUnreachable => NextHop::HostUnreachable,
            Target::Prohibited => NextHop::Prohibited,
            Target::Unsupported => return Err(Choice::NoPort),
        };
        Err(Choice::Hop(hop))
    }

    /// One next hop for each flow, by weight.
    fn spread(&self, ways: &[Way]) -> Choice {
        let mut alive = ways.iter().filter(|way| !way.is_dead).peekable();
        if alive.peek().is_none() {
            return Choice::Dead;
        }
        let hop = |way: &Way| {
            let port = *self.ports.get(&way.link)?;
            let hop = match way.gateway {
                Some(address) => NextHop::Gateway { address, port, mac: None },
                None => NextHop::Direct { port },
            };
            Some((hop, way.weight))
        };
        let mut hops: Vec<_> = alive.filter_map(hop).take(Ways::MOST).collect();
        match &mut hops[..] {
            [] => Choice::NoPort,
            [(hop, _)] => Choice::Hop(hop.clone()),
            several => {
                let shares = shares(several.iter().map(|(_, weight)| *weight));
                let parts = several.iter().zip(shares);
                let all = parts.flat_map(|((hop, _), n)| std::iter::repeat_n(hop.clone(), n));
                Ways::new(all.collect())
                    .map_or(Choice::NoPort, |ways| Choice::Hop(NextHop::Multipath(ways)))
            }
        }
    }
}

/// How often each of up to [`Ways::MOST`] next hops is listed so that flows follow these weights, at
/// least once: exactly where the weights allow it, else as near as [`Ways::MOST`] places permit.
fn shares(weights: impl Iterator<Item = u16> + Clone) -> Vec<usize> {
    let divisor = weights.clone().fold(0, gcd).max(1);
    let weights: Vec<usize> = weights.map(|weight| usize::from(weight / divisor).max(1)).collect();
    let sum: usize = weights.iter().sum();
    if sum <= Ways::MOST {
        return weights;
    }
    // One place each, and the others by the highest averages (D'Hondt), which leaves none over.
    let mut shares = vec![1; weights.len()];
    for _ in weights.len()..Ways::MOST {
        let quotient = |n: usize| weights[n] * Ways::MOST / (shares[n] + 1);
        let most = (0..weights.len()).rev().max_by_key(|n| quotient(*n)).unwrap_or(0);
        shares[most] += 1;
    }
    shares
}

fn gcd(a: u16, b: u16) -> u16 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_follow_weights_exactly_if_they_can_and_nearly_otherwise() {
        let of = |weights: &[u16]| shares(weights.iter().copied());
        assert_eq!(of(&[1, 1]), [1, 1]);
        assert_eq!(of(&[20, 10]), [2, 1]);
        assert_eq!(of(&[3, 61]), [3, 61]);
        assert_eq!(of(&[256, 1]), [63, 1]);
        assert_eq!(of(&[200, 101]), [43, 21]);
        assert_eq!(of(&[1; 64]), [1; 64]);
        assert_eq!(of(&[2, 256, 256]).iter().sum::<usize>(), Ways::MOST);
    }
}
