//! The trie of devices against the tables that the router reads.

use std::net::IpAddr;

use proptest::prelude::*;
use thalweg_testkit::cases;

use super::trie::{UNKNOWN, hop};
use super::{HOP, MOST_BYTES};
use crate::{IpPrefix, NextHop, Prefix, RouteTable, RouterPort};

/// Prefixes that lie in each other, and addresses at their ends.
fn routes() -> impl Strategy<Value = (Vec<IpPrefix>, Vec<IpAddr>)> {
    let bits = || {
        prop_oneof![
            Just(0u128),
            Just(u128::MAX),
            any::<u128>(),
            any::<u16>().prop_map(|n| { u128::from(n) << 96 | 0x2001_0db8 << 64 })
        ]
    };
    let prefix = (any::<bool>(), bits(), 0..=128u8).prop_map(|(is_v4, bits, len)| {
        if is_v4 {
            IpPrefix::V4(Prefix::holding((bits >> 96) as u32, len % 33))
        } else {
            IpPrefix::V6(Prefix::holding(bits, len))
        }
    });
    let others = proptest::collection::vec(bits(), 0..20);
    (proptest::collection::vec(prefix, 0..60), others).prop_map(|(prefixes, others)| {
        let mut addresses: Vec<IpAddr> = Vec::new();
        for prefix in &prefixes {
            match prefix {
                IpPrefix::V4(prefix) => {
                    let ends = [prefix.first(), prefix.last(), prefix.last().wrapping_add(1)];
                    addresses.extend(ends.map(|end| IpAddr::V4(end.into())));
                }
                IpPrefix::V6(prefix) => {
                    let ends = [prefix.first(), prefix.last(), prefix.first().wrapping_sub(1)];
                    addresses.extend(ends.map(|end| IpAddr::V6(end.into())));
                }
            }
        }
        addresses.extend(others.iter().map(|bits| IpAddr::V6((*bits).into())));
        addresses.extend(others.iter().map(|bits| IpAddr::V4(((*bits >> 96) as u32).into())));
        (prefixes, addresses)
    })
}

fn bytes_of(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(100)))]
    #[test]
    fn devices_find_the_next_hops_of_the_table_or_leave_them_to_it((prefixes, addresses) in routes()) {
        let table = RouteTable::new();
        for (number, prefix) in prefixes.iter().enumerate() {
            table.add(*prefix, NextHop::Direct { port: RouterPort(number as u16) }).unwrap();
        }
        // Without bounds, with room for some, and for none but the first entries.
        for most in [MOST_BYTES, (2 << 18) + 16 + 20 * 64, 0] {
            let (words, mark) = table.for_device(most);
            let mut unknown = 0;
            for address in &addresses {
                let result = (HOP.scalar)(&mut bytes_of(*address), [0; 2], &words);
                match hop(result, mark) {
                    Some(hop) => prop_assert_eq!(table.hop(hop), &table.lookup(*address)),
                    None => unknown += 1,
                }
                prop_assert_eq!(hop(result, mark ^ 2), None, "a table of other routes");
            }
            prop_assert!(words.len() <= most.max((2 << 18) + 16));
            prop_assert!(unknown == 0 || most < MOST_BYTES);
        }
    }
}

#[test]
fn no_address_and_no_table_is_harmful() {
    let (words, mark) = RouteTable::new().for_device(0);
    for len in (0..40).filter(|len| ![4, 16].contains(len)) {
        assert_eq!((HOP.scalar)(&mut vec![7; len], [3, 4], &words), [UNKNOWN, mark]);
    }
    for len in [0, 3, 4, 9, 300] {
        for byte in [0, 0xff] {
            let [entry, _] = (HOP.scalar)(&mut [9; 16], [0; 2], &vec![byte; len]);
            assert!(hop([entry, 0], 0).is_none() || byte == 0, "{entry}");
        }
    }
    assert_eq!(hop([5, 0], mark), None, "a device that does nothing");
}
