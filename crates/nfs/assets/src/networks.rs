//! The networks whose hosts are recorded.

use std::net::IpAddr;

use thalweg_packet::address_bits;

/// Prefixes, IPv4 mapped to IPv6; an empty list stands for all networks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Networks(Vec<(u128, u128)>);

impl Networks {
    /// Adds `address/length`, or a single address.
    ///
    /// # Errors
    /// When it is neither.
    pub(super) fn add(&mut self, text: &str) -> Result<(), &'static str> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| "not an IP address")?;
        let mapped = if address.is_ipv4() { 96 } else { 0 };
        let length = match length {
            Some(length) => {
                let length: u8 = length.parse().map_err(|_| "bad prefix length")?;
                u32::from(length) + mapped
            }
            None => 128,
        };
        let mask = match length {
            0 => 0,
            1..=128 => u128::MAX << (128 - length),
            _ => return Err("the prefix is longer than the address"),
        };
        let value = address_bits(address);
        if value & !mask != 0 {
            return Err("bits set past the prefix length");
        }
        self.0.push((value, mask));
        Ok(())
    }

    pub(super) fn contain(&self, address: IpAddr) -> bool {
        let address = address_bits(address);
        self.0.is_empty() || self.0.iter().any(|(value, mask)| address & mask == *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_both_versions_contain_their_addresses() {
        let mut networks = Networks::default();
        assert!(networks.contain("1.2.3.4".parse().unwrap()));
        for text in ["10.0.0.0/8", "fe80::/10", "192.0.2.1"] {
            networks.add(text).unwrap();
        }
        let inside = |text: &str| networks.contain(text.parse().unwrap());
        assert!(inside("10.255.0.1") && inside("fe80::1") && inside("192.0.2.1"));
        assert!(!inside("11.0.0.1") && !inside("2001::1") && !inside("192.0.2.2"));
    }

    #[test]
    fn what_is_no_prefix_is_refused() {
        let mut networks = Networks::default();
        let texts =
            ["", "x", "1.2.3.4/8", "1.0.0.0/33", "::/129", "1.0.0.0/4294967295", "1.0.0.0/"];
        for text in texts {
            assert!(networks.add(text).is_err(), "{text}");
        }
    }
}
