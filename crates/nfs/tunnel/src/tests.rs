//! Tunnels against themselves, our parser, scapy, and forged packets.

mod supers;

use proptest::prelude::*;
use thalweg_packet::Nanoseconds;
use thalweg_packet::write::PacketBuilder;

use super::*;
use thalweg_testkit::peer::scapy_each;

const PROTOCOLS: [&str; 5] = ["vxlan", "geneve", "gretap", "gre", "gre without key"];

/// One end of a tunnel that takes all packets.
fn end(protocol: &str, v6: bool, here: bool) -> Box<dyn NetworkFunction> {
    let ends = if v6 { ["2001:db8::1", "2001:db8::2"] } else { ["192.0.2.1", "192.0.2.2"] };
    let (local, remote) = if here { (ends[0], ends[1]) } else { (ends[1], ends[0]) };
    let id = if protocol == "gre without key" { "" } else { "id = 4711\n" };
    let protocol = protocol.split(' ').next().unwrap();
    let patterns = if here { "match = 'eth'\n" } else { "" };
    instance(&format!(
        "[[tunnel]]\nname = 'x'\nprotocol = '{protocol}'\nlocal = '{local}'\nremote = '{remote}'\n\
         {id}{patterns}"
    ))
}

fn built(text: &str) -> Result<Box<dyn Blueprint>, BuildError> {
    KIND.build_alone(text)
}

fn instance(text: &str) -> Box<dyn NetworkFunction> {
    built(text).unwrap().instance()
}

/// Sends packets through; returns each packet afterwards, or why it was dropped.
fn pass(nf: &mut dyn NetworkFunction, packets: &[Vec<u8>]) -> Vec<Result<Vec<u8>, DropReason>> {
    thalweg_testkit::pass(nf, (64, 4096), packets, Nanoseconds(0), None).0
}

fn pass_one(nf: &mut dyn NetworkFunction, packet: &[u8]) -> Result<Vec<u8>, DropReason> {
    pass(nf, &[packet.to_vec()]).remove(0)
}

fn packet(v6: bool, tagged: bool, tos: u8, len: usize) -> Vec<u8> {
    let (src, dst) = if v6 {
        ("2001:db8:1::1".parse().unwrap(), "2001:db8:2::1".parse().unwrap())
    } else {
        ([10, 1, 0, 1].into(), [10, 2, 0, 1].into())
    };
    let builder = PacketBuilder::new([2; 6], [4; 6]);
    let builder = if tagged { builder.vlan(7) } else { builder };
    builder.ip(src, dst).tos(tos).udp(1, len as u16).build(&vec![9; len])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn what_goes_in_comes_out_as_it_was(
        protocol in proptest::sample::select(&PROTOCOLS[..]), v6_tunnel: bool,
        packets in proptest::collection::vec((any::<bool>(), any::<bool>(), 0usize..1600), 1..32),
    ) {
        let (mut here, mut there) = (end(protocol, v6_tunnel, true), end(protocol, v6_tunnel, false));
        let clear: Vec<Vec<u8>> =
            packets.into_iter().map(|(v6, tagged, len)| packet(v6, tagged, 0xb8, len)).collect();
        let inside: Result<Vec<_>, _> = pass(&mut *here, &clear).into_iter().collect();
        let inside = inside.unwrap();
        for (packet, clear) in inside.iter().zip(&clear) {
            let (outer, _) = parse(packet, PortIndex::NONE, Decapsulate::No);
            prop_assert_eq!(outer.get(field::NW_TOS), 0xb8);
            let (key, headers) = parse(packet, PortIndex::NONE, Decapsulate::Yes);
            let (own, _) = parse(clear, PortIndex::NONE, Decapsulate::No);
            prop_assert_eq!(headers.status, ParseStatus::Complete);
            let id = if protocol == "gre without key" { 0 } else { 4711 };
            prop_assert_eq!(key.get(field::TUN_ID), id);
            prop_assert_eq!(key.get(field::TP_DST), own.get(field::TP_DST));
            let (_, headers) = parse(packet, PortIndex::NONE, Decapsulate::No);
            prop_assert!(verify(packet, &headers) != ChecksumStatus::BadTransport);
        }
        let outside: Result<Vec<_>, _> = pass(&mut *there, &inside).into_iter().collect();
        prop_assert_eq!(outside.unwrap(), clear);
    }

    #[test]
    fn any_bytes_that_come_through_a_tunnel_are_survived(
        v6: bool, protocol in proptest::sample::select(&PROTOCOLS[..]),
        mut bytes in proptest::collection::vec(any::<u8>(), 0..120), plausible: bool,
    ) {
        let (a, b) = if v6 {
            ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap())
        } else {
            ([192, 0, 2, 1].into(), [192, 0, 2, 2].into())
        };
        if plausible && bytes.len() >= 8 {
            let fix: &[u8] = match protocol {
                "vxlan" => &[8, 0, 0, 0, 0, 0x12, 0x67, 0],
                "geneve" => &[bytes[0] & 3, 0, 0x65, 0x58, 0, 0x12, 0x67, 0],
                "gretap" => &[0x20, 0, 0x65, 0x58, 0, 0, 0x12, 0x67],
                _ => &[0, 0, 8, 0],
            };
            bytes[..fix.len()].copy_from_slice(fix);
        }
        let builder = PacketBuilder::new([2; 6], [4; 6]).ip(a, b);
        let packet = match protocol {
            "vxlan" => builder.udp(9, 4789).build(&bytes),
            "geneve" => builder.udp(9, 6081).build(&bytes),
            _ => builder.protocol(GRE).build(&bytes),
        };
        let _ = pass_one(&mut *end(protocol, v6, false), &packet);
        // Any packet can be encapsulated.
        let _ = pass_one(&mut *end(protocol, v6, true), &bytes[..bytes.len().max(1) - 1]);
    }
}

#[test]
fn other_packets_pass_and_wrong_ones_do_not() {
    let inside = pass_one(&mut *end("vxlan", false, true), &packet(false, false, 0, 40)).unwrap();
    let mut there = end("vxlan", false, false);
    // Another identifier, another port, another peer: none of our tunnels.
    for at in [14 + 20 + 8 + 6, 14 + 20 + 3] {
        let mut other = inside.clone();
        other[at] ^= 1;
        assert_eq!(pass_one(&mut *there, &other), Ok(other.clone()), "{at}");
    }
    assert_eq!(pass_one(&mut *end("gre", false, false), &inside), Ok(inside.clone()));
    // Without the flag of its identifier; an inner packet shorter than a frame; a fragment.
    let mut flagless = inside.clone();
    flagless[14 + 20 + 8] = 0;
    assert_eq!(pass_one(&mut *there, &flagless), Err(DropReason::Malformed));
    let short = PacketBuilder::new([2; 6], [4; 6])
        .ip([192, 0, 2, 1].into(), [192, 0, 2, 2].into())
        .udp(9, 4789)
        .build(&[8, 0, 0, 0, 0, 0x12, 0x67, 0, 1, 2, 3]);
    assert_eq!(pass_one(&mut *there, &short), Err(DropReason::BadInnerPacket));
    // Geneve with an option that must be understood, of another version, and a control packet.
    let geneve = pass_one(&mut *end("geneve", false, true), &packet(false, false, 0, 40)).unwrap();
    for (at, bit) in [(1, 0x40), (0, 0x40), (1, 0x80), (1, 0xc0)] {
        let mut wrong = geneve.clone();
        wrong[14 + 20 + 8 + at] |= bit;
        let fate = pass_one(&mut *end("geneve", false, false), &wrong);
        assert_eq!(fate, Err(DropReason::UnsupportedProtocol), "{at} {bit}");
    }
    // A tunnel that carries only IP cannot carry ARP.
    let arp = [&[0xff; 12][..], &[8, 6], &[0; 46]].concat();
    let fate = pass_one(&mut *end("gre", false, true), &arp);
    assert_eq!(fate, Err(DropReason::UnsupportedProtocol));
    assert_eq!(
        pass_one(&mut *end("gretap", false, true), &arp).map(|p| p.len()),
        Ok(60 + 14 + 20 + 8)
    );
}

#[test]
fn a_packet_whose_outer_header_is_damaged_is_not_opened() {
    for protocol in PROTOCOLS {
        let sent =
            pass_one(&mut *end(protocol, false, true), &packet(false, false, 0, 40)).unwrap();
        for at in [14 + 1, 14 + 8, 14 + 10, 14 + 11] {
            let mut damaged = sent.clone();
            damaged[at] ^= 4;
            let fate = pass_one(&mut *end(protocol, false, false), &damaged);
            assert_eq!(fate, Err(DropReason::BadChecksum), "{protocol} {at}");
        }
        assert!(pass_one(&mut *end(protocol, false, false), &sent).is_ok());
    }
}

#[test]
fn congestion_is_told_on_and_frames_without_ip_are_left_alone() {
    for protocol in PROTOCOLS {
        for (ect, expected) in [(2, Ok(3)), (0, Err(DropReason::BadInnerPacket))] {
            let mut inside =
                pass_one(&mut *end(protocol, true, true), &packet(false, false, ect, 9)).unwrap();
            inside[14 + 1] |= 3 << 4;
            let out = pass_one(&mut *end(protocol, true, false), &inside);
            let told = out.map(|packet| packet[15] & 3);
            // The UDP checksum does not cover this part of the outer header.
            assert_eq!(told, expected, "{protocol}");
        }
    }
    let arp = [&[0xff; 12][..], &[8, 6], &[0; 46]].concat();
    let mut inside = pass_one(&mut *end("vxlan", true, true), &arp).unwrap();
    inside[14 + 1] |= 3 << 4;
    assert_eq!(pass_one(&mut *end("vxlan", true, false), &inside), Ok(arp));
}

#[test]
fn the_first_tunnel_whose_pattern_matches_takes_a_packet() {
    let mut nf = instance(
        "[[tunnel]]\nname = 'a'\nprotocol = 'vxlan'\nid = 1\nlocal = '192.0.2.1'\n\
         remote = '192.0.2.2'\nmatch = 'udp,tp_dst=7'\nsource_mac = '02:00:00:00:00:0a'\n\
         [[tunnel]]\nname = 'b'\nprotocol = 'vxlan'\nid = 2\nport = 8472\nlocal = '192.0.2.1'\n\
         remote = '192.0.2.3'\nmatch = 'ip,nw_dst=10.2.0.0/16'\nttl = 9\ndf = false\n\
         destination_mac = '02:00:00:00:00:0b'\n",
    );
    let out = pass(&mut *nf, &[7, 8].map(|len| packet(false, false, 0, len)));
    let [a, b] = &out[..] else { panic!("{out:?}") };
    let (a, b) = (a.as_ref().unwrap(), b.as_ref().unwrap());
    assert_eq!((&a[..6], &a[6..12]), (&[4; 6][..], &[2, 0, 0, 0, 0, 10][..]));
    assert_eq!((&b[..6], &b[6..12]), (&[2, 0, 0, 0, 0, 11][..], &[2; 6][..]));
    assert_eq!((a[14 + 19], a[14 + 6], a[14 + 8]), (2, 0x40, 64));
    assert_eq!((b[14 + 19], b[14 + 6], b[14 + 8]), (3, 0, 9));
    assert_eq!((a[34 + 8 + 6], b[34 + 8 + 6]), (1, 2));
    assert_eq!(b[34 + 2..34 + 4], 8472u16.to_be_bytes());
    let other = packet(true, false, 0, 8);
    assert_eq!(pass_one(&mut *nf, &other), Ok(other.clone()));
}

#[test]
fn a_tunnel_that_an_earlier_one_leaves_nothing_is_a_mistake() {
    let tunnel = |id: u32, pattern: &str| {
        format!(
            "[[tunnel]]\nname = 'a'\nprotocol = 'vxlan'\nid = {id}\nlocal = '192.0.2.1'\n\
             remote = '192.0.2.2'\n{pattern}\n"
        )
    };
    let two = |first, second| built(&[tunnel(1, first), tunnel(2, second)].concat());
    let errors = two("match = 'ip'", "match = 'tcp,tp_dst=80'").err().unwrap().0;
    assert_eq!(errors.len(), 1);
    assert_eq!(
        errors[0].to_string(),
        "chain.toml:14:10: this rule can never match: 'ip' in line 7 covers it: 'tcp,tp_dst=80'; \
         expected the narrower rule first, and each rule once"
    );
    assert!(two("match = 'ip'", "match = 'ip'").is_err());
    assert!(two("match = 'tcp'", "match = 'ip'").is_ok() && two("match = 'ip'", "").is_ok());
}

#[test]
fn mistakes_are_named() {
    let good = "[[tunnel]]\nname = 'a'\nprotocol = 'vxlan'\nid = 1\nlocal = '192.0.2.1'\n\
                remote = '192.0.2.2'\nmatch = 'udp'\n";
    assert!(built(good).is_ok());
    let wrong = [
        (good.replace("id = 1\n", ""), "has no identifier"),
        (good.replace("id = 1", "id = 16777216"), "identifier out of range"),
        (good.replace("vxlan", "vxlam"), "unknown variant `vxlam`"),
        (good.replace("'192.0.2.2'", "'2001:db8::1'"), "differ in IP version"),
        (good.replace("match = 'udp'", "match = 'udpx'"), "unknown protocol 'udpx'"),
        (good.replace("'udp'", "'priority=32768,udp'"), "7:10: 'priority' is not supported here"),
        (good.replace("'udp'", "'in_port=0'"), "'in_port' is not supported here"),
        (good.replace("'vxlan'", "'gre'").replace("'udp'", "'arp'"), "carries only IP"),
        (good.replace("id = 1", "id = 1\nttl = 0"), "a TTL of 0"),
        (good.replace("id = 1", "id = 1\nport = 0"), "port 0"),
        (good.replace("'vxlan'", "'gre'\nport = 5"), "has no UDP port"),
        (good.replace("id = 1", "id = 1\nsource_mac = '2:0'"), "not a MAC address"),
        ([good, good].concat(), "duplicate tunnel: same endpoints"),
        (format!("{good}{}", good.replace("'vxlan'", "'geneve'\nport = 4789")), "two protocols"),
        ("tunnel = []".into(), "no tunnel is configured"),
    ];
    for (text, message) in wrong {
        let errors = built(&text).err().unwrap_or_else(|| panic!("{message}: accepted")).0;
        let all: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert!(all.iter().any(|e| e.contains(message)), "{message}: {all:?}");
    }
}

/// Dissects our packets, and generates its own, line by line.
const SCAPY: &str = r"
import sys
from scapy.all import Ether, IP, IPv6, UDP, Raw, GRE, load_contrib
from scapy.layers.vxlan import VXLAN
load_contrib('geneve')
from scapy.contrib.geneve import GENEVE
protocol, v6, key = sys.stdin.readline().split()
for line in sys.stdin:
    packet = Ether(bytes.fromhex(line.strip()))
    layer = {'vxlan': VXLAN, 'geneve': GENEVE}.get(protocol, GRE)
    header = packet[layer]
    if layer is not GRE:
        assert header.vni == 4711, header.vni
    elif key == 'true':
        assert header.key_present == 1 and header.key == 4711
    else:
        assert header.key_present == 0
    print('clear', bytes(header.payload).hex())
outer = IPv6(src='2001:db8::1', dst='2001:db8::2') if v6 == 'true' else IP(src='192.0.2.1', dst='192.0.2.2')
outer = Ether(src='02:00:00:00:00:01', dst='02:00:00:00:00:02') / outer
frame = Ether(src='02:00:00:00:00:03', dst='02:00:00:00:00:04')
for size in (0, 1, 100, 1300):
    ip = IP(src='10.1.0.1', dst='10.2.0.1') / UDP(sport=7, dport=9) / Raw(b'x' * size)
    gre = dict(key_present=1, key=4711, chksum_present=1, seqnum_present=1) if key == 'true' else dict(chksum_present=1)
    if protocol == 'vxlan':
        inside, packet = frame / ip, outer / UDP(sport=1, dport=4789) / VXLAN(vni=4711, flags='Instance') / frame / ip
    elif protocol == 'geneve':
        inside, packet = frame / ip, outer / UDP(sport=1, dport=6081) / GENEVE(vni=4711, proto=0x6558) / frame / ip
    elif protocol == 'gretap':
        inside, packet = frame / ip, outer / GRE(proto=0x6558, **gre) / frame / ip
    else:
        inside, packet = ip, outer / GRE(**gre) / ip
    print('inside', bytes(inside).hex(), bytes(packet).hex())
";

#[test]
fn scapy_takes_ours_apart_and_we_take_scapys() {
    let clear = [0, 1, 13, 1300].map(|len| packet(false, false, 0, len));
    let (mut runs, mut inputs) = (Vec::new(), Vec::new());
    for (protocol, v6) in PROTOCOLS.into_iter().flat_map(|p| [(p, false), (p, true)]) {
        let (mut here, there) = (end(protocol, v6, true), end(protocol, v6, false));
        let (name, key) = (protocol.split(' ').next().unwrap(), protocol != PROTOCOLS[4]);
        let mut input = format!("{name} {v6} {key}\n");
        for packet in pass(&mut *here, &clear) {
            input += &(hex::encode(packet.unwrap()) + "\n");
        }
        runs.push((protocol, if name == "gre" { 14 } else { 0 }, there));
        inputs.push(input);
    }
    let Some(outputs) = scapy_each(SCAPY, &inputs) else { return };
    for ((protocol, at, mut there), output) in runs.into_iter().zip(outputs) {
        let lines: Vec<Vec<&str>> = output.lines().map(|l| l.split(' ').collect()).collect();
        let (ours, theirs) = lines.split_at(clear.len());
        for (line, clear) in ours.iter().zip(&clear) {
            assert_eq!(line[1], hex::encode(&clear[at..]), "{protocol}");
        }
        assert_eq!(theirs.len(), 4);
        for line in theirs {
            let out = pass_one(&mut *there, &hex::decode(line[2]).unwrap()).unwrap();
            assert_eq!(hex::encode(&out[at..]), line[1], "{protocol}");
        }
    }
}
