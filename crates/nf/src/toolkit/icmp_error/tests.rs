//! Hand-made errors, checked against the rules of RFC 1812 and RFC 4443.

use std::sync::Arc;

use thalweg_packet::checksum::{ChecksumStatus, verify};
use thalweg_packet::write::{IcmpEcho, PacketBuilder};
use thalweg_packet::{Lanes, ParseStatus, Pool, PortIndex};

use super::*;
use crate::{Emitted, Made};

const ROUTER4: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

fn router6() -> IpAddr {
    "2001:db8::1".parse().unwrap()
}

fn batch_of(packet: &[u8]) -> Batch {
    let mut batch = Batch::new(Arc::new(Pool::anonymous(4, 4096).unwrap()));
    batch.push_bytes(packet).unwrap();
    batch.parse(Lanes::ALL, Decapsulate::No);
    batch
}

fn answer(packet: &[u8], kind: IcmpError, source: IpAddr) -> Result<Vec<u8>, Suppressed> {
    let mut out = Vec::new();
    build(&batch_of(packet), 0, kind, source, &mut out).map(|()| out)
}

fn builder(src: &str, dst: &str) -> PacketBuilder {
    PacketBuilder::new([2, 0, 0, 0, 0, 0xa], [2, 0, 0, 0, 0, 0xb])
        .ip(src.parse().unwrap(), dst.parse().unwrap())
}

fn udp(src: &str, dst: &str, payload: usize) -> Vec<u8> {
    builder(src, dst).udp(1000, 2000).build(&vec![7; payload])
}

fn parsed(packet: &[u8]) -> (FlowKey, Headers) {
    let (key, headers) = parse(packet, PortIndex::NONE, Decapsulate::No);
    assert_eq!(headers.status, ParseStatus::Complete);
    assert_eq!(verify(packet, &headers), ChecksumStatus::Good);
    (key, headers)
}

#[test]
fn an_ipv4_error_goes_back_and_quotes_what_fits_576_bytes() {
    for payload in [0, 10, 519, 520, 521, 1400] {
        let packet = udp("10.0.0.1", "10.9.9.9", payload);
        let error = answer(&packet, IcmpError::TooBig { mtu: 1400 }, ROUTER4).unwrap();
        let (key, headers) = parsed(&error);
        assert_eq!(error.len() - 14, (28 + packet.len() - 14).min(576));
        assert_eq!((&error[..6], &error[6..12]), (&packet[6..12], &packet[..6]));
        assert_eq!(key.get(field::NW_SRC), 0xc000_0201);
        assert_eq!(key.get(field::NW_DST), 0x0a00_0001);
        assert_eq!((key.get(field::TP_SRC), key.get(field::TP_DST)), (3, 4));
        assert_eq!(error[38..42], [0, 0, 0x05, 0x78]);
        assert!(packet[14..].starts_with(&error[42..headers.end as usize]));
    }
}

#[test]
fn an_ipv6_error_quotes_what_fits_1280_bytes() {
    for payload in [0, 1183, 1184, 1185, 1400] {
        let packet = udp("2001:db8:1::1", "2001:db8:2::2", payload);
        let error = answer(&packet, IcmpError::TimeExceeded, router6()).unwrap();
        let (key, _) = parsed(&error);
        assert_eq!(error.len() - 14, (48 + packet.len() - 14).min(1280));
        assert_eq!((key.get(field::TP_SRC), key.get(field::TP_DST)), (3, 0));
        assert!(packet[14..].starts_with(&error[62..]));
    }
}

#[test]
fn every_kind_has_the_type_and_code_of_its_rfc() {
    let kinds = [
        (IcmpError::TimeExceeded, [11, 0], [3, 0]),
        (IcmpError::NetUnreachable, [3, 0], [1, 0]),
        (IcmpError::HostUnreachable, [3, 1], [1, 3]),
        (IcmpError::ProtocolUnreachable, [3, 2], [4, 1]),
        (IcmpError::PortUnreachable, [3, 3], [1, 4]),
        (IcmpError::AdminProhibited, [3, 13], [1, 1]),
        (IcmpError::TooBig { mtu: 1280 }, [3, 4], [2, 0]),
    ];
    for (kind, v4, v6) in kinds {
        let error = answer(&udp("10.0.0.1", "10.0.0.2", 1), kind, ROUTER4).unwrap();
        assert_eq!(error[34..36], v4, "{kind:?}");
        let error = answer(&udp("2001:db8::9", "2001:db8::8", 1), kind, router6()).unwrap();
        assert_eq!(error[54..56], v6, "{kind:?}");
        parsed(&error);
    }
}

#[test]
fn tags_stay_and_padding_is_not_quoted() {
    let mut packet = builder("10.0.0.1", "10.0.0.2").vlan(10).udp(1, 2).build(b"");
    packet.resize(64, 0xee);
    let error = answer(&packet, IcmpError::TimeExceeded, ROUTER4).unwrap();
    let (key, _) = parsed(&error);
    assert_eq!(key.get(field::VLAN_TCI), 0x100a);
    assert_eq!(error.len(), 18 + 28 + 28);
}

#[test]
fn silence_is_kept_where_the_rfcs_ask_for_it() {
    let echo = |src, dst| builder(src, dst).echo(IcmpEcho::default()).build(b"ping");
    let with = |mut packet: Vec<u8>, at: usize, value: u8| {
        packet[at] = value;
        packet
    };
    let silent = |packet: &[u8], source| answer(packet, IcmpError::TimeExceeded, source).err();
    let v4 = |packet: &[u8]| silent(packet, ROUTER4);
    let v6 = |packet: &[u8]| silent(packet, router6());
    let plain = || udp("10.0.0.1", "10.0.0.2", 8);
    let (a, b) = ("2001:db8::a", "2001:db8::b");

    assert_eq!(v4(&plain()), None);
    assert_eq!(v4(&echo("10.0.0.1", "10.0.0.2")), None);
    assert_eq!(v4(&with(echo("10.0.0.1", "10.0.0.2"), 34, 3)), Some(Suppressed::AboutError));
    assert_eq!(v4(&with(echo("10.0.0.1", "10.0.0.2"), 34, 99)), Some(Suppressed::AboutError));
    assert_eq!(v4(&with(plain(), 21, 1)), Some(Suppressed::LaterFragment));
    assert_eq!(v4(&with(plain(), 20, 0x20)), None);
    assert_eq!(v4(&with(plain(), 0, 1)), Some(Suppressed::Broadcast));
    for dst in ["224.0.0.1", "255.255.255.255", "240.0.0.1"] {
        assert_eq!(v4(&udp("10.0.0.1", dst, 8)), Some(Suppressed::Broadcast), "{dst}");
    }
    for src in ["0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.1", "255.255.255.255"] {
        assert_eq!(v4(&udp(src, "10.0.0.2", 8)), Some(Suppressed::BadSource), "{src}");
    }
    assert_eq!(v6(&plain()), Some(Suppressed::NoSource));
    assert_eq!(v4(&with(plain(), 12, 0x86)), Some(Suppressed::NotIp));

    assert_eq!(v6(&udp(a, b, 8)), None);
    assert_eq!(v6(&echo(a, b)), None);
    for kind in [1, 2, 127, 137] {
        assert_eq!(v6(&with(echo(a, b), 54, kind)), Some(Suppressed::AboutError), "{kind}");
    }
    assert_eq!(v6(&udp(a, "ff02::1", 8)), Some(Suppressed::Broadcast));
    for src in ["::", "::1", "ff02::1"] {
        assert_eq!(v6(&udp(src, b, 8)), Some(Suppressed::BadSource), "{src}");
    }
}

#[test]
fn the_rate_limit_allows_a_burst_and_then_the_rate() {
    let mut limit = RateLimit::new(100, 5);
    let start = Nanoseconds::from_secs(1_700_000_000);
    let burst = (0..50).filter(|_| limit.allow(start)).count();
    assert_eq!(burst, 5);
    // Ten seconds in steps of 3 ms: 100 a second, and packet time never runs backwards.
    let allowed = (1..=3333)
        .filter(|i| limit.allow(start.plus(Nanoseconds(i * 3_000_000))) | limit.allow(start))
        .count();
    assert_eq!(allowed, 999);
    let mut off = RateLimit::new(0, 5);
    assert!(!off.allow(start));
}

#[test]
fn a_sender_counts_what_it_sent_and_what_not() {
    let batch = batch_of(&udp("10.0.0.1", "10.0.0.2", 8));
    let mut emitted = Emitted::new(batch.pool().clone());
    let mut sender = IcmpSender::new(1);
    let mut context = Context::new(Nanoseconds(0), &mut emitted, None);
    let mut send = |source| sender.send(&mut context, &batch, 0, IcmpError::TimeExceeded, source);
    // The pool holds four frames, one of which is the packet's.
    let lanes: Vec<_> = (0..4).map(|_| send(ROUTER4)).collect();
    let made = |lane| Ok(Made { batch: 0, lane });
    assert_eq!(lanes, [made(0), made(1), made(2), Err(Suppressed::NoFrame)]);
    assert_eq!(send(router6()), Err(Suppressed::NoSource));
    assert_eq!((sender.sent(), sender.suppressed()), (3, 2));
    assert_eq!(emitted.len(), 3);
}
