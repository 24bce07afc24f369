//! Packets that their tunnel makes longer than the MTU of its path.

use std::net::IpAddr;

use super::*;

/// The same packet, which may be fragmented.
fn divisible(mut packet: Vec<u8>) -> Vec<u8> {
    packet[18 + 6] &= !0x40;
    packet[18 + 10..18 + 12].fill(0);
    let sum = thalweg_packet::checksum::checksum(&packet[18..38]);
    packet[18 + 10..18 + 12].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// A tunnel whose path has an MTU of 1000 bytes, or 1300 over IPv6.
fn narrow(suite: Suite, v6_tunnel: bool, more: &str) -> Box<dyn NetworkFunction> {
    instance(&narrow_text(suite, v6_tunnel, more))
}

fn narrow_text(suite: Suite, v6_tunnel: bool, more: &str) -> String {
    let mtu = if v6_tunnel { 1300 } else { 1000 };
    let mtu = format!("mtu = {mtu}\n{more}\nesn =");
    options(suite, false, v6_tunnel, true).replace("esn =", &mtu)
}

#[test]
fn packets_too_long_for_the_path_are_cut_before_they_are_protected() {
    for suite in Suite::ALL {
        let mut back = instance(&options(suite, false, false, false));
        let clear = divisible(packet(false, 2000, 0));
        let (first, later) = pass_all(&mut *narrow(suite, false, ""), &clear);
        let mut data = Vec::new();
        for esp in [vec![first.unwrap()], later].concat() {
            assert!(esp.len() <= 18 + 1000, "{suite:?}: {}", esp.len());
            let fragment = pass(&mut *back, &esp).unwrap();
            let (_, headers) =
                thalweg_packet::parse(&fragment, PortIndex::default(), Decapsulate::No);
            assert!(headers.fragment);
            data.extend_from_slice(&fragment[18 + 20..headers.end.into()]);
        }
        assert_eq!(data, clear[18 + 20..], "{suite:?}");
        let whole = pass_all(&mut *narrow(suite, false, "fragment = false"), &clear);
        assert!(whole.0.unwrap().len() > 2000 && whole.1.is_empty());
    }
}

#[test]
fn senders_of_packets_that_must_not_be_cut_are_told_what_fits() {
    for (v6, more) in [(false, ""), (true, ""), (false, "df = 'clear'"), (true, "df = 'clear'")] {
        let clear = packet(v6, 1400, 0);
        let mut nf = narrow(GCM, v6, more);
        let (fate, emitted) = pass_all(&mut *nf, &clear);
        if more.is_empty() {
            assert_eq!(fate, Err(DropReason::TooBig));
            let error = &emitted[0][18 + if v6 { 40 } else { 20 }..];
            let mtu = usize::from(u16::from_be_bytes([error[6], error[7]]));
            assert_eq!(error[..2], if v6 { [2, 0] } else { [3, 4] });
            if v6 {
                // A lower MTU must not be reported.
                assert_eq!(mtu, 1280);
                let fits = packet(true, 1280 - 48, 0);
                assert!(pass(&mut *nf, &fits).is_ok());
            } else {
                let header = 28;
                let fits = pass(&mut *nf, &packet(v6, mtu - header, 0)).unwrap();
                assert!((997..=1000).contains(&(fits.len() - 18)), "{}", fits.len());
            }
        } else {
            let esp = fate.unwrap();
            assert!(emitted.len() == usize::from(v6) && (v6 || esp[18 + 6] & 0x40 == 0));
        }
    }
}

#[test]
fn senders_of_the_other_ip_version_hear_from_the_gateways_own_address() {
    let own = "icmp_source = '192.0.2.77'\nicmp6_source = '2001:db8::77'\n";
    for v6_tunnel in [false, true] {
        let clear = packet(!v6_tunnel, 1400, 0);
        let text = narrow_text(GCM, v6_tunnel, "");
        let mut nf = instance(&(own.to_owned() + &text));
        let (fate, emitted) = pass_all(&mut *nf, &clear);
        assert_eq!((fate, emitted.len()), (Err(DropReason::TooBig), 1));
        let (key, _) = thalweg_packet::parse(&emitted[0], PortIndex::default(), Decapsulate::No);
        let ends = FiveTuple::from_key(&key).map(|tuple| (tuple.src, tuple.dst)).unwrap();
        let expected = if v6_tunnel {
            (IpAddr::from([192, 0, 2, 77]), IpAddr::from([10, 1, 0, 1]))
        } else {
            ("2001:db8::77".parse().unwrap(), "2001:db8:1::1".parse().unwrap())
        };
        assert_eq!(ends, expected);
        // It is preferred for senders of the tunnel's version, too.
        let (_, emitted) = pass_all(&mut *nf, &packet(v6_tunnel, 1400, 0));
        let last = if v6_tunnel { emitted[0][18 + 23] } else { emitted[0][18 + 15] };
        assert_eq!(last, if v6_tunnel { 0x77 } else { 77 });

        let mut nf = instance(&text);
        let mut trace = Vec::new();
        let (fate, emitted) = pass_traced(&mut *nf, &clear, Some(&mut trace));
        assert_eq!((fate, emitted.len()), (Err(DropReason::TooBig), 0));
        assert!(
            trace[0].1.ends_with("no ICMP error: no source address of the packet's IP version")
        );
        assert!(nf.figures().contains(&("icmp_no_source", 1)), "{:?}", nf.figures());
    }
}

#[test]
fn a_tunnel_whose_senders_cannot_hear_of_its_mtu_is_warned_of() {
    let warnings = |text: &str| {
        let blueprint = built(text).unwrap();
        blueprint.warnings().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for (v6_tunnel, version) in [(false, "IPv6"), (true, "IPv4")] {
        let text = narrow_text(GCM, v6_tunnel, "");
        let told = warnings(&text);
        let what = format!("no ICMP error is sent for {version} packets too long for this tunnel");
        assert!(told.len() == 1 && told[0].contains(&what), "{told:?}");
        let both = "icmp_source = '192.0.2.77'\nicmp6_source = '2001:db8::77'\n";
        assert!(warnings(&(both.to_owned() + &text)).is_empty());
        // No packet is too long, or too long a packet passes, or none is of that version.
        assert!(warnings(&options(GCM, false, v6_tunnel, true)).is_empty());
        assert!(warnings(&narrow_text(GCM, v6_tunnel, "df = 'clear'")).is_empty());
        let other = if v6_tunnel { "'ip'" } else { "'ipv6'" };
        assert!(warnings(&text.replace(other, "'arp'")).is_empty());
        let of_any = "'dl_dst=02:00:00:00:00:01'";
        assert_eq!(warnings(&text.replace(other, of_any)).len(), 1);
    }
}

/// The packet reassembled from IPv6 fragments after a VLAN tag.
fn put_together(fragments: &[Vec<u8>]) -> Vec<u8> {
    const HEADERS: usize = 18 + 40;
    let mut whole = fragments[0][..HEADERS].to_vec();
    whole[18 + 6] = fragments[0][HEADERS];
    for (n, fragment) in fragments.iter().enumerate() {
        let header = &fragment[HEADERS..HEADERS + 8];
        assert_eq!((fragment[18 + 6], header[0]), (44, whole[18 + 6]));
        assert_eq!(header[4..], fragments[0][HEADERS + 4..HEADERS + 8]);
        let place = u16::from_be_bytes([header[2], header[3]]);
        assert_eq!(usize::from(place & !7), whole.len() - HEADERS);
        assert_eq!(place & 7, u16::from(n + 1 < fragments.len()));
        whole.extend_from_slice(&fragment[HEADERS + 8..]);
    }
    let len = (whole.len() - HEADERS) as u16;
    whole[18 + 4..18 + 6].copy_from_slice(&len.to_be_bytes());
    whole
}

#[test]
fn ipv6_of_1280_bytes_gets_through_any_tunnel() {
    let clear = packet(true, 1280 - 48, 0);
    for df in ["copy", "set", "clear"] {
        let more = format!("df = '{df}'");
        let mut nf = narrow(GCM, false, &more);
        let esp = pass(&mut *nf, &clear).unwrap();
        assert!(esp.len() > 18 + 1280 && esp[18 + 6] & 0x40 == 0, "routers may fragment it");
        assert_eq!(thalweg_packet::checksum::checksum(&esp[18..38]), 0);
        assert_eq!(
            pass(&mut *instance(&options(GCM, false, false, false)), &esp),
            Ok(clear.clone())
        );
        let short = pass(&mut *nf, &packet(true, 100, 0)).unwrap();
        assert_eq!(short[18 + 6] & 0x40 == 0, df == "clear");

        for udp in ["", "\nudp_ports = [4500, 4500]"] {
            let mut nf = narrow(CBC, true, &(more.clone() + udp));
            let (first, later) = pass_all(&mut *nf, &clear);
            let fragments = [vec![first.unwrap()], later].concat();
            assert_eq!(fragments.len(), 2);
            assert!(fragments.iter().all(|fragment| fragment.len() <= 18 + 1300));
            let back = options(CBC, false, true, false).replace("esn =", &format!("{udp}\nesn ="));
            assert_eq!(pass(&mut *instance(&back), &put_together(&fragments)), Ok(clear.clone()));
            assert!(nf.figures().contains(&("fragmented_outside", 1)));
            let (_, again) = pass_all(&mut *nf, &clear);
            assert_ne!(again[0][18 + 44..18 + 48], fragments[0][18 + 44..18 + 48]);
        }
    }
}

#[test]
fn what_no_router_cuts_over_ipv6_is_cut_with_its_tunnel() {
    for (clear, more) in [
        (packet(false, 1400, 0), "df = 'clear'"),
        (packet(true, 1400, 0), "df = 'clear'"),
        (divisible(packet(false, 3000, 0)), "fragment = false"),
    ] {
        let (first, later) = pass_all(&mut *narrow(GCM, true, more), &clear);
        let fragments = [vec![first.unwrap()], later].concat();
        assert!(fragments.len() > 1 && fragments.iter().all(|part| part.len() <= 18 + 1300));
        let mut back = instance(&options(GCM, false, true, false));
        assert_eq!(pass(&mut *back, &put_together(&fragments)), Ok(clear));
    }
}

/// A frame whose link header holds its length.
#[test]
fn a_packet_in_an_802_3_frame_is_not_cut() {
    let tagged = packet(true, 1280 - 48, 0);
    let len = (tagged.len() - 18 + 8) as u16;
    let snap = [0xaa, 0xaa, 3, 0, 0, 0, 0x86, 0xdd];
    let frame = [&tagged[..12], &len.to_be_bytes(), &snap, &tagged[18..]].concat();
    let (fate, emitted) = pass_all(&mut *narrow(GCM, true, ""), &frame);
    assert!(fate.unwrap().len() > frame.len() && emitted.is_empty());
}

#[test]
fn an_mtu_is_one_that_the_ip_version_knows() {
    let text = |v6: bool, mtu: u16| {
        options(GCM, false, v6, true).replace("esn =", &format!("mtu = {mtu}\nesn ="))
    };
    for (v6, least) in [(false, 576), (true, 1280)] {
        assert!(built(&text(v6, least)).is_ok());
        let told = built(&text(v6, least - 1)).err().unwrap().to_string();
        assert!(told.contains("too small") && told.contains(&format!("{least} or more")), "{told}");
    }
}
