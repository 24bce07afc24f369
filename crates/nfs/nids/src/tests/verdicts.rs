//! Verdicts that hold for a connection, and those that hold for a packet.

use super::*;

const DROPPED: Verdict = Verdict::Drop(DropReason::Intrusion);

/// Which packets of a conversation after its handshake are dropped, as `x` and `.`; and the alerts.
fn fates(rules: &str, packets: &[Vec<u8>]) -> (String, Vec<u64>) {
    let mut bench = Bench::new(rules, "");
    let mut fates = String::new();
    for packet in packets {
        let verdict = bench.send(std::slice::from_ref(packet))[0];
        fates.push(if verdict == DROPPED { 'x' } else { '.' });
    }
    (fates, bench.sids())
}

/// A connection in which the client sends these pieces, each answered and then repeated.
fn conversation(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut talk = Talk::new();
    let mut packets = talk.handshake();
    for piece in pieces {
        let packet = talk.send(true, 24, piece);
        packets.extend([packet.clone(), talk.send(false, 24, b"ok"), packet]);
    }
    packets
}

#[test]
fn a_drop_for_a_stream_or_a_message_drops_the_rest_both_ways() {
    let rules = [
        "drop tcp any any -> any any (msg:\"x\"; flow:established; content:\"needle\"; sid:1;)\n",
        "drop http any any -> any any (msg:\"x\"; http.uri; content:\"needle\"; sid:1;)\n",
        "drop tcp any any -> any any (msg:\"x\"; content:\"needle\"; sid:1;)\n",
        "drop tcp any any -> any any (msg:\"x\"; content:\"GET\"; content:\"needle\"; sid:1;)\n",
    ];
    let whole = conversation(&[b"GET /needle HTTP/1.1\r\n\r\n", b"more"]);
    let cut = conversation(&[b"GET /nee", b"dle HTTP/1.1\r\n\r\n", b"more"]);
    for rule in rules {
        assert_eq!(fates(rule, &whole), ("...xxxxxx".into(), vec![1]), "{rule}");
        let (fates, sids) = fates(rule, &cut);
        assert_eq!((&fates[..6], &fates[7..], sids), ("......", "xxxxx", vec![1]), "{rule}");
    }
}

#[test]
fn a_drop_for_a_packet_drops_no_other() {
    let rules = [
        "drop tcp-pkt any any -> any any (msg:\"x\"; content:\"needle\"; sid:1;)\n",
        "drop tcp any any -> any any (msg:\"x\"; dsize:6; content:\"needle\"; offset:0; depth:6; sid:1;)\n",
    ];
    let mut packets = conversation(&[b"needle", b"harmless"]);
    packets.remove(5);
    for rule in rules {
        assert_eq!(fates(rule, &packets).0, "...x....", "{rule}");
    }
    let datagrams = [udp(b"needle"), udp(b"harmless"), udp(b"needle")];
    let rule = "drop udp any any -> any any (msg:\"x\"; content:\"needle\"; sid:1;)\n";
    assert_eq!(fates(rule, &datagrams), ("x.x".into(), vec![1, 1]));
}

#[test]
fn a_rule_of_addresses_decides_for_all_packets() {
    let packets = conversation(&[b"one", b"two"]);
    let drop = "drop ip 10.0.0.1 any -> any any (msg:\"x\"; sid:1;)\n";
    assert_eq!(fates(drop, &packets).0, "x".repeat(packets.len()));
    let both = "pass ip 10.0.0.1 any -> any any (msg:\"p\"; sid:2;)\n\
        drop tcp any any -> any any (msg:\"x\"; content:\"t\"; sid:1;)\n";
    assert_eq!(fates(both, &packets), (".".repeat(packets.len()), vec![]));
    let datagrams: Vec<_> = (0..4).map(|_| udp(b"x")).collect();
    assert_eq!(fates("drop udp 10.0.0.1 any -> any any (sid:1;)\n", &datagrams).0, "xxxx");
}

#[test]
fn a_pass_for_a_message_holds_for_the_connection() {
    let rules = "pass http any any -> any any (msg:\"p\"; http.host; content:\"good.example\"; sid:1;)\n\
        drop tcp any any -> any any (msg:\"x\"; content:\"needle\"; sid:2;)\n";
    let head = b"GET / HTTP/1.1\r\nHost: good.example\r\n\r\n";
    let good = conversation(&[head, b"needle", b"needle"]);
    assert_eq!(fates(rules, &good), (".".repeat(good.len()), vec![]));
    let bad = conversation(&[b"GET / HTTP/1.1\r\nHost: bad.example\r\n\r\n", b"needle"]);
    assert_eq!(fates(rules, &bad), ("......xxx".into(), vec![2]));
}

#[test]
fn a_verdict_moves_with_the_connection() {
    let rules =
        "drop tcp any any -> any any (msg:\"x\"; flow:established; content:\"needle\"; sid:1;)\n";
    let (mut one, mut two) = (Bench::new(rules, ""), Bench::new(rules, ""));
    let mut talk = Talk::new();
    one.send(&talk.handshake());
    assert_eq!(one.send(&[talk.send(true, 24, b"needle")]), [DROPPED]);
    streams::hand_over(&one, &mut two);
    let rest = [talk.send(false, 24, b"answer"), talk.send(true, 24, b"more")];
    assert_eq!(two.send(&rest), [DROPPED, DROPPED]);
    assert_eq!(two.drive.figure("packets_dropped_by_flow"), 2);
    // Another connection between the same hosts is another matter.
    let other = segment_of(9, true, 2, 1, 0, b"");
    assert_eq!(two.send(&[other]), [Verdict::Forward]);
}

#[test]
fn a_new_syn_does_not_revive_a_dropped_connection() {
    let rules =
        "drop tcp any any -> any any (msg:\"x\"; flow:established; content:\"needle\"; sid:1;)\n";
    let mut packets = conversation(&[b"needle"]);
    packets.push(segment(true, 2, 77, 0, b""));
    assert_eq!(fates(rules, &packets).0, "...xxxx");
}
