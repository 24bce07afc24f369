//! Packets that are longer with their tunnel than its path takes.

use super::*;

/// The same packet, which may be cut.
fn divisible(mut packet: Vec<u8>) -> Vec<u8> {
    packet[18 + 6] &= !0x40;
    packet[18 + 10..18 + 12].fill(0);
    let sum = thalweg_packet::checksum::checksum(&packet[18..38]);
    packet[18 + 10..18 + 12].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// A tunnel whose path takes 1000 bytes.
fn narrow(suite: Suite, v6_tunnel: bool, more: &str) -> Box<dyn NetworkFunction> {
    let mtu = format!("mtu = 1000\n{more}\nesn =");
    instance(&options(suite, false, v6_tunnel, true).replace("esn =", &mtu))
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
                // Less must not be asked for.
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
            assert!(emitted.is_empty() && (v6 || esp[18 + 6] & 0x40 == 0));
        }
    }
    // No address of the tunnel is one that an IPv6 sender can hear of it from.
    let (fate, emitted) = pass_all(&mut *narrow(GCM, false, ""), &packet(true, 1400, 0));
    assert_eq!((fate, emitted.len()), (Err(DropReason::TooBig), 0));
}
