//! Measures the router's tables on a list of prefixes, one a line:
//!
//! ```text
//! zcat prefixes.txt.gz > prefixes.txt
//! cargo run --release -p thalweg-router --example router_load -- prefixes.txt
//! ```
//!
//! The prefixes become a route file with 64 next hops for each IP version, which
//! is parsed and loaded as the `router` NF does it. Printed are the time to
//! load, the time of lookups by batches of 32, and the time of updates.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use thalweg_packet::{BATCH, PortIndex};
use thalweg_router::{
    HopId, IpPrefix, NextHop, Port, Ports, Prefix, RouteTable, RouterPort, parse_routes,
};
use thalweg_source::Source;

const LOOKUPS: usize = 1 << 22;

fn main() {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: router_load PREFIXES");
        std::process::exit(2);
    };
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("{path}: {error}");
            std::process::exit(1);
        }
    };
    let (source, ports) = (Source::new("routes.txt", route_file(&text)), ports());

    let start = Instant::now();
    let parsed = match parse_routes(&source, &ports) {
        Ok(parsed) => parsed,
        Err(mistakes) => {
            mistakes.iter().for_each(|mistake| eprintln!("{mistake}"));
            std::process::exit(1);
        }
    };
    let parse = start.elapsed();
    let start = Instant::now();
    let table = RouteTable::new();
    let loaded = table.replace(parsed.list);
    let load = start.elapsed();
    println!("routes       {:?} (v4, v6): {loaded:?}", table.len());
    println!("parse        {parse:>10.1?}");
    println!("build        {load:>10.1?}");
    println!("both         {:>10.1?}", parse + load);

    let prefixes: Vec<IpPrefix> = text.lines().filter_map(prefix).collect();
    lookups_v4(&table, &prefixes);
    lookups_v6(&table, &prefixes);
    updates(&table, &prefixes);
}

/// The prefixes with next hops that differ from neighbour to neighbour.
fn route_file(prefixes: &str) -> String {
    let mut file = String::with_capacity(prefixes.len() * 3);
    for (i, prefix) in prefixes.lines().enumerate() {
        let n = i * 7 % 64 + 1;
        let v6 = prefix.contains(':');
        let gateway = if v6 { format!("fd00::{n:x}") } else { format!("10.0.0.{n}") };
        file.extend([prefix, " ", &gateway, " eth0\n"]);
    }
    file
}

fn ports() -> Ports {
    Ports::new(vec![Port {
        name: "eth0".into(),
        mac: [2, 0, 0, 0, 0, 1],
        ip: None,
        ipv6: None,
        output: PortIndex(0),
        output_name: "eth0".into(),
        interface: None,
        mtu: 1500,
        default_mac: Some([2, 0, 0, 0, 0, 2]),
        resolve: false,
        neighbors: Vec::new(),
    }])
}

fn prefix(text: &str) -> Option<IpPrefix> {
    let (address, len) = text.split_once('/')?;
    let len = len.parse().ok()?;
    Some(match address.parse().ok()? {
        IpAddr::V4(address) => Prefix::holding(u32::from(address), len).into(),
        IpAddr::V6(address) => Prefix::holding(u128::from(address), len).into(),
    })
}

fn report(what: &str, time: Duration, count: usize) {
    println!("{what:<12} {:>7.1} ns each", time.as_nanos() as f64 / count as f64);
}

fn lookups_v4(table: &RouteTable, prefixes: &[IpPrefix]) {
    let mut random = StdRng::seed_from_u64(1);
    let of_v4 = |p: &IpPrefix| if let IpPrefix::V4(p) = p { Some(*p) } else { None };
    let v4: Vec<Prefix<u32>> = prefixes.iter().filter_map(of_v4).collect();
    if v4.is_empty() {
        return;
    }
    let mut inside = || {
        let p = v4[random.random_range(0..v4.len())];
        p.first() | random.next_u32() & (p.first() ^ p.last())
    };
    let addresses: Vec<u32> = (0..LOOKUPS).map(|_| inside()).collect();
    let mut hops = [HopId::NO_ROUTE; BATCH];
    let (mut sum, start) = (0usize, Instant::now());
    for batch in addresses.chunks_exact(BATCH) {
        table.lookup_v4(batch, &mut hops);
        sum += hops.iter().filter(|hop| **hop == HopId::NO_ROUTE).count();
    }
    report("lookup v4", start.elapsed(), LOOKUPS);
    assert_eq!(sum, 0, "every address is in a prefix");
}

fn lookups_v6(table: &RouteTable, prefixes: &[IpPrefix]) {
    let mut random = StdRng::seed_from_u64(2);
    let of_v6 = |p: &IpPrefix| if let IpPrefix::V6(p) = p { Some(*p) } else { None };
    let v6: Vec<Prefix<u128>> = prefixes.iter().filter_map(of_v6).collect();
    if v6.is_empty() {
        return;
    }
    let mut inside = || {
        let p = v6[random.random_range(0..v6.len())];
        let low = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
        p.first() | low & (p.first() ^ p.last())
    };
    let addresses: Vec<u128> = (0..LOOKUPS).map(|_| inside()).collect();
    let mut hops = [HopId::NO_ROUTE; BATCH];
    let mut reader = table.reader_v6();
    let (mut sum, start) = (0usize, Instant::now());
    for batch in addresses.chunks_exact(BATCH) {
        reader.lookup(batch, &mut hops);
        sum += hops.iter().filter(|hop| **hop == HopId::NO_ROUTE).count();
    }
    report("lookup v6", start.elapsed(), LOOKUPS);
    assert_eq!(sum, 0, "every address is in a prefix");
}

/// Takes routes out and puts them back, drawn evenly from all.
fn updates(table: &RouteTable, prefixes: &[IpPrefix]) {
    for (what, v4) in [("update v4", true), ("update v6", false)] {
        let chosen: Vec<IpPrefix> =
            prefixes.iter().filter(|p| matches!(p, IpPrefix::V4(_)) == v4).copied().collect();
        let step = (chosen.len() / 500).max(1);
        let hop = NextHop::Direct { port: RouterPort(0) };
        let (mut count, mut longest, start) = (0, Duration::ZERO, Instant::now());
        for prefix in chosen.iter().step_by(step) {
            let one = Instant::now();
            let was = table.remove(*prefix);
            longest = longest.max(one.elapsed());
            assert!(was.is_some() && table.add(*prefix, hop.clone()) == Ok(None));
            count += 2;
        }
        report(what, start.elapsed(), count);
        println!("  longest    {longest:>10.1?}");
    }
}
