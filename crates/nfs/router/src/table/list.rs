//! Routes to be installed together.

use std::collections::HashMap;

use super::NextHop;
use crate::prefix::{IpPrefix, Prefix};

/// Routes to be installed together.
#[derive(Clone, Debug, Default)]
pub struct RouteList {
    pub(super) hops: Vec<NextHop>,
    ids: HashMap<NextHop, u32>,
    pub(super) v4: Vec<(Prefix<u32>, u32)>,
    pub(super) v6: Vec<(Prefix<u128>, u32)>,
}

impl RouteList {
    /// Appends a route; if several have the same prefix, the last one counts.
    pub fn push(&mut self, prefix: impl Into<IpPrefix>, hop: NextHop) {
        let id = self.intern(hop);
        self.push_interned(prefix.into(), id);
    }

    /// The list's number for `hop`.
    pub(crate) fn intern(&mut self, hop: NextHop) -> u32 {
        if let Some(id) = self.ids.get(&hop) {
            return *id;
        }
        let id = self.hops.len() as u32;
        self.hops.push(hop.clone());
        self.ids.insert(hop, id);
        id
    }

    /// The next hop that [`intern`](Self::intern) numbered `id`.
    pub(crate) fn hop(&self, id: u32) -> &NextHop {
        &self.hops[id as usize]
    }

    /// Appends a route to the next hop that [`intern`](Self::intern) numbered.
    #[inline]
    pub(crate) fn push_interned(&mut self, prefix: IpPrefix, id: u32) {
        match prefix {
            IpPrefix::V4(prefix) => self.v4.push((prefix, id)),
            IpPrefix::V6(prefix) => self.v6.push((prefix, id)),
        }
    }

    /// The numbers of IPv4 and of IPv6 routes.
    pub fn len(&self) -> (usize, usize) {
        (self.v4.len(), self.v6.len())
    }

    /// The routes as they were appended, first those of IPv4.
    pub fn iter(&self) -> impl Iterator<Item = (IpPrefix, &NextHop)> {
        let v4 = self.v4.iter().map(|(prefix, id)| (IpPrefix::V4(*prefix), self.hop(*id)));
        v4.chain(self.v6.iter().map(|(prefix, id)| (IpPrefix::V6(*prefix), self.hop(*id))))
    }

    /// Whether there is no route.
    pub fn is_empty(&self) -> bool {
        self.len() == (0, 0)
    }
}
