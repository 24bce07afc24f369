//! Prefixes from which addresses are drawn.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rand::RngExt;

/// An IP prefix.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subnet {
    address: IpAddr,
    len: u32,
}

impl Subnet {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (address, len) = text.split_once('/').map_or((text, None), |(a, l)| (a, Some(l)));
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let len = len.map_or(Some(most), |len| len.parse().ok())?;
        (len <= most).then_some(Self { address, len })
    }

    pub(super) fn is_ipv4(&self) -> bool {
        self.address.is_ipv4()
    }

    /// Draws an address of the prefix; not its first or last if it has more than
    /// two, since those belong to no host.
    pub(super) fn pick(&self, random: &mut impl RngExt) -> IpAddr {
        let (base, bits) = match self.address {
            IpAddr::V4(a) => (u128::from(u32::from(a)), 32 - self.len),
            IpAddr::V6(a) => (u128::from(a), 128 - self.len),
        };
        // 2^64 hosts are enough for any prefix.
        let bits = bits.min(64);
        let hosts = 1u128 << bits;
        let host = if bits >= 2 {
            random.random_range(1..hosts - 1)
        } else {
            random.random_range(0..hosts)
        };
        let address = base & !(hosts - 1) | host;
        match self.address {
            IpAddr::V4(_) => Ipv4Addr::from(address as u32).into(),
            IpAddr::V6(_) => Ipv6Addr::from(address).into(),
        }
    }
}
