//! Memory stays within its limits for any traffic.

use super::*;

/// A SYN from one of many hosts.
pub(super) fn from(host: u32) -> Vec<u8> {
    let mut packet = syn(true, &LINUX);
    packet[26..30].copy_from_slice(&(0x0b00_0000 + host).to_be_bytes());
    packet
}

#[test]
fn hosts_and_conversations_stay_within_their_numbers() {
    let mut bench = Bench::new("max_hosts = 1000\nmax_conversations = 500");
    let packets: Vec<_> = (0..5_000).map(from).collect();
    bench.send(&packets);
    assert!(bench.figure("hosts") <= 1000 && bench.figure("conversations") <= 500);
    assert!(bench.figure("hosts_evicted") >= 4_000);
    assert!(bench.figure("conversations_evicted") >= 4_000);
}

#[test]
fn hosts_of_which_nothing_is_known_go_first() {
    let mut bench = Bench::new("max_hosts = 1000");
    bench.send(&[syn(true, &LINUX), segment(true, 0x18, b"SSH-2.0-PuTTY_Release_0.78\r\n")]);
    // Unanswered datagrams reveal nothing about their sender.
    let packets: Vec<_> = (0..5_000u32)
        .map(|host| {
            let [_, b, c, d] = host.to_be_bytes();
            between([11, b, c, d], SERVER).udp(9, 9).build(b"noise")
        })
        .collect();
    bench.send(&packets);
    assert!(bench.figure("hosts_evicted") > 3_900);
    assert_eq!(bench.host("10.0.0.1")["services"][0]["says"]["service.product"], "PuTTY");
}

#[test]
fn memory_stays_within_its_limit() {
    let mut bench = Bench::new("memory_mib = 1\nmax_hosts = 1000000");
    // A host takes some 60 KiB.
    for host in 0..60u8 {
        let packets: Vec<_> = (0..200u16)
            .map(|port| {
                let mut packet =
                    segment(false, 0x12, &[b"SSH-2.0-", &[b'x'; 200][..], b"\n"].concat());
                packet[29] = host;
                packet[34..36].copy_from_slice(&(1000 + port).to_be_bytes());
                packet
            })
            .collect();
        bench.send(&packets);
        assert!(bench.figure("host_memory") <= 1 << 20, "{}", bench.figure("host_memory"));
    }
    assert!(bench.figure("hosts_evicted") > 0);
}

#[test]
fn a_host_has_no_more_services_than_may_be() {
    let mut bench = Bench::new("max_services = 10");
    let offers = |port: u16, banner: &[u8]| {
        let mut packet = segment(false, 0x12, banner);
        packet[34..36].copy_from_slice(&port.to_be_bytes());
        packet
    };
    bench.send(&[offers(2222, b"SSH-2.0-OpenSSH_9.2p1\r\n")]);
    let noise: Vec<_> = (3000..4000).map(|port| offers(port, b"????????")).collect();
    bench.send(&noise);
    let host = bench.host("192.0.2.1");
    let services = host["services"].as_array().unwrap();
    assert_eq!(services.len(), 10);
    assert!(services.iter().any(|s| s["port"] == 2222), "what is known best stays");
    assert_eq!(bench.figure("services_evicted"), 991);
}
