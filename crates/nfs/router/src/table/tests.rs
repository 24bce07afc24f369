//! The numbers of next hops, which are visible only inside the module.

use std::net::Ipv4Addr;

use super::*;

fn gateway(n: u32) -> NextHop {
    NextHop::Gateway { address: Ipv4Addr::from(n).into(), port: RouterPort(0), mac: None }
}

fn number(table: &RouteTable, address: u32) -> u16 {
    let mut hop = [HopId::NO_ROUTE];
    table.lookup_v4(&[address], &mut hop);
    hop[0].0
}

#[test]
fn new_next_hops_are_numbered_by_how_many_routes_they_have() {
    let table = RouteTable::new();
    table.add(Prefix::holding(9u32 << 24, 8), gateway(0)).unwrap();
    let mut list = RouteList::default();
    list.push(Prefix::holding(9u32 << 24, 8), gateway(0));
    for n in 1..=300 {
        list.push(Prefix::holding(n << 16, 16), gateway(n));
    }
    (0..3u32).for_each(|n| list.push(Prefix::holding(n << 20, 12), gateway(300)));
    (0..2u128).for_each(|n| list.push(Prefix::holding(n << 100, 28), gateway(200)));
    table.replace(list).unwrap();
    let numbers = [9 << 24, 300 << 16, 200 << 16, 1 << 16, 299 << 16].map(|a| number(&table, a));
    assert_eq!(numbers, [1, 2, 3, 4, 301]);
}
