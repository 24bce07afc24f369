//! Which packets a filter accepts, and how it answers the others.

use std::sync::Arc;

use thalweg_packet::checksum::{self, ChecksumStatus};
use thalweg_packet::{Decapsulate, Nanoseconds, PacketType, Pool, PortIndex, field, parse};

use super::*;
use thalweg_nf::{BuildError, Emitted, Verdict};

fn built(text: &str) -> Result<Box<dyn Blueprint>, BuildError> {
    KIND.build_alone(text)
}

fn tcp(dst_port: u16, flags: u8) -> Vec<u8> {
    let segment = TcpSegment { src_port: 1000, dst_port, seq: 5000, ack: 77, flags, window: 9 };
    PacketBuilder::new([2; 6], [4; 6])
        .vlan(10)
        .ip([10, 0, 0, 1].into(), [10, 9, 0, 2].into())
        .tcp(segment)
        .build(b"abc")
}

fn udp(dst: [u8; 4]) -> Vec<u8> {
    PacketBuilder::new([2; 6], [4; 6]).ip([10, 0, 0, 1].into(), dst.into()).udp(5, 6).build(b"")
}

/// Sends packets through; returns their verdicts, and the generated packets.
fn run(text: &str, packets: &[Vec<u8>]) -> (Vec<Verdict>, Vec<Vec<u8>>) {
    let mut filter = built(text).unwrap().instance();
    let pool = Arc::new(Pool::anonymous(128, 2048).unwrap());
    let (mut batch, mut emitted) = (Batch::new(pool.clone()), Emitted::new(pool));
    for packet in packets {
        batch.push_bytes(packet).unwrap();
    }
    batch.parse(Lanes::ALL, Decapsulate::No);
    let lanes = batch.lanes();
    let mut context = Context::new(Nanoseconds(1), &mut emitted, None);
    filter.process(&mut batch, lanes, &mut context);
    let verdicts = lanes.into_iter().map(|l| context.verdict(l)).collect();
    let made = emitted.packets().map(<[u8]>::to_vec).collect();
    (verdicts, made)
}

const RULES: &str = r#"
default = "drop"
rules = [
    "accept tcp,nw_src=10.0.0.1,nw_dst=10.9.0.2,tp_dst=80",
    "reject tcp,nw_dst=10.9.0.0/16",
    "reject udp,nw_dst=10.9.0.0/16",
]
"#;

#[test]
fn the_first_rule_that_matches_decides() {
    let (verdicts, _) =
        run(RULES, &[tcp(80, 2), tcp(81, 2), udp([10, 9, 1, 1]), udp([10, 8, 1, 1])]);
    let reject = Verdict::Drop(DropReason::FilterReject);
    let drop = Verdict::Drop(DropReason::FilterDrop);
    assert_eq!(verdicts, [Verdict::Forward, reject, reject, drop]);
}

#[test]
fn a_rejected_syn_is_answered_by_a_reset_that_acknowledges_it() {
    let (_, made) = run(RULES, &[tcp(81, 2)]);
    let (key, headers) = parse(&made[0], PortIndex::NONE, Decapsulate::No);
    assert_eq!(checksum::verify(&made[0], &headers), ChecksumStatus::Good);
    assert_eq!(key.get(field::TCP_FLAGS), u64::from(RST | ACK));
    assert_eq!((key.get(field::TP_SRC), key.get(field::TP_DST)), (81, 1000));
    assert_eq!(key.get(field::VLAN_TCI), 0x100a);
    let ack = u32::from_be_bytes(made[0][headers.l4 as usize + 8..][..4].try_into().unwrap());
    assert_eq!(ack, 5000 + 1 + 3);
}

#[test]
fn a_reset_is_not_answered_and_an_acknowledgment_gets_its_number() {
    assert!(run(RULES, &[tcp(81, RST)]).1.is_empty());
    let (_, made) = run(RULES, &[tcp(81, ACK)]);
    let (key, headers) = parse(&made[0], PortIndex::NONE, Decapsulate::No);
    assert_eq!(key.get(field::TCP_FLAGS), u64::from(RST));
    let seq = u32::from_be_bytes(made[0][headers.l4 as usize + 4..][..4].try_into().unwrap());
    assert_eq!(seq, 77);
}

#[test]
fn a_rejected_datagram_is_answered_by_icmp_but_not_to_many() {
    let (_, made) = run(RULES, &[udp([10, 9, 1, 1])]);
    let (key, _) = parse(&made[0], PortIndex::NONE, Decapsulate::No);
    assert_eq!((key.get(field::TP_SRC), key.get(field::TP_DST)), (3, 13));
    let (verdicts, made) = run("default = \"reject\"", &[udp([224, 0, 0, 5])]);
    assert_eq!(verdicts, [Verdict::Drop(DropReason::FilterReject)]);
    assert!(made.is_empty());
}

/// A flood of segments must not make the filter reflect as many resets to a forged sender.
#[test]
fn resets_are_limited_in_rate_and_counted() {
    let mut filter = built("default = \"reject\"").unwrap().instance();
    let pool = Arc::new(Pool::anonymous(256, 2048).unwrap());
    let mut send = |batches: u64, at: Nanoseconds| {
        let mut emitted = Emitted::new(pool.clone());
        for _ in 0..batches {
            let mut batch = Batch::new(pool.clone());
            for lane in 0..BATCH {
                batch.push_bytes(&tcp(81, SYN)).unwrap();
                batch.meta.timestamp[lane] = at;
            }
            batch.parse(Lanes::ALL, Decapsulate::No);
            let lanes = batch.lanes();
            filter.process(&mut batch, lanes, &mut Context::new(at, &mut emitted, None));
        }
        let figures = filter.figures();
        let figure = |name: &str| figures.iter().find(|(n, _)| *n == name).unwrap().1;
        (emitted.packets().count(), figure("resets_sent"), figure("resets_suppressed"))
    };
    let start = Nanoseconds::from_secs(5);
    assert_eq!(send(3, start), (50, 50, 46));
    // 20 more within 20 ms.
    assert_eq!(send(1, start.plus(Nanoseconds::from_millis(20))), (20, 70, 58));
}

#[test]
fn packets_without_ip_meet_the_default() {
    let arp = [&[0xff; 12][..], &[8, 6], &[0; 46]].concat();
    assert_eq!(run("", &[arp]).0, [Verdict::Forward]);
}

#[test]
fn mistakes_are_named_with_line_and_column() {
    let text = "rules = [\n  \"allow tcp\",\n  \"drop tcp,tp_dst=99999\",\n]\n";
    let errors = built(text).err().unwrap().0;
    let at: Vec<_> = errors.iter().map(|e| (e.line(), e.column(), e.text())).collect();
    assert_eq!(at, [(2, 4, "allow"), (3, 20, "99999")]);
    let text = "rules = [\n  \"drop priority=32768,tcp\",\n  \"drop in_port=0\",\n]\n";
    let errors = built(text).err().unwrap().0;
    let at: Vec<_> = errors.iter().map(|e| (e.line(), e.column(), e.text())).collect();
    assert_eq!(at, [(2, 9, "priority=32768"), (3, 9, "in_port=0")]);
    assert!(built("defualt = \"drop\"").is_err());
    assert!(built("file = \"/nonexistent\"").is_err());
}

#[test]
fn a_rule_that_an_earlier_one_covers_is_a_mistake_also_in_a_file_and_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wall.rules");
    std::fs::write(&file, "accept arp\n").unwrap();
    let text = format!("rules = ['drop ip']\nfile = '{}'\n", file.display());
    let mut filter = built(&text).unwrap_or_else(|e| panic!("{e}"));
    let mut nf = filter.instance();
    let mut reload =
        || thalweg_testkit::renew(&KIND, &text, &Environment::default(), &mut filter, &mut *nf);
    std::fs::write(&file, "accept arp\n accept tcp,tp_dst=80 # never\n").unwrap();
    let expected = "wall.rules:2:2: this rule can never match: 'drop ip' in chain.toml:1 covers it: \
                    'accept tcp,tp_dst=80'; expected the narrower rule first, and each rule once";
    for error in [built(&text).err(), reload().err()] {
        let told = error.unwrap().to_string();
        assert!(told.ends_with(expected), "{told}");
    }
    std::fs::write(&file, "reject arp\n").unwrap();
    assert!(reload().is_ok());
    assert!(built("rules = ['drop udp', 'drop udp']").is_err(), "twice the same");
    assert!(built("rules = ['drop udp', 'accept ip', 'drop eth']").is_ok(), "ever wider");
}

#[test]
fn actions_survive_as_packet_types() {
    assert_eq!(Action::of(PacketType(1)), Action::Drop);
    assert_eq!(Action::of(PacketType(9)), Action::Accept);
}
