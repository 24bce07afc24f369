//! ESP against the RFCs' vectors, against itself, against forgeries, and against
//! scapy and librte_ipsec.

mod config;
mod librte;
mod overlap;
mod path;
mod policies;
mod state;

use proptest::prelude::*;
use thalweg_packet::checksum::ChecksumStatus;
use thalweg_packet::wire::ip_proto::ESP;
use thalweg_packet::write::PacketBuilder;
use thalweg_packet::{FiveTuple, Nanoseconds, Pool, PortIndex, field};

use super::suite::{Aes, Hash, Suite};
use super::*;
use thalweg_nf::Emitted;
use thalweg_nf::Verdict;
use thalweg_testkit::pass_one;
use thalweg_testkit::peer::scapy_each;

const CBC: Suite = Suite::Cbc(Aes::Bits128, Hash::Sha1);
const GCM: Suite = Suite::Gcm(Aes::Bits128);

/// Keys 0, 1, 2, ..., the salt aabbccdd, and the authentication key 32, 33, 34, ...
fn keys(suite: Suite) -> String {
    let bytes =
        |from: usize, len: usize| (from..from + len).map(|byte| byte as u8).collect::<Vec<_>>();
    match (suite.key_len(), suite.auth_key_len()) {
        (len, 0) => format!("encryption_key = '{}aabbccdd'", hex::encode(bytes(0, len - 4))),
        (len, auth) => {
            let (key, auth) = (hex::encode(bytes(0, len)), hex::encode(bytes(32, auth)));
            format!("encryption_key = '{key}'\nauthentication_key = '{auth}'")
        }
    }
}

/// The configuration of one end of a tunnel.
fn options(suite: Suite, esn: bool, v6_tunnel: bool, outbound: bool) -> String {
    let keys = keys(suite);
    let (a, b) =
        if v6_tunnel { ("2001:db8::1", "2001:db8::2") } else { ("192.0.2.1", "192.0.2.2") };
    let direction = if outbound { "out" } else { "in" };
    let policy = if outbound {
        "[[policy]]\nmatch = 'ip'\naction = 'protect'\nsa = 'x'\n\
         [[policy]]\nmatch = 'ipv6'\naction = 'protect'\nsa = 'x'\n"
    } else {
        ""
    };
    format!(
        "[[sa]]\nname = 'x'\ndirection = '{direction}'\nspi = 4660\nsuite = '{}'\n{keys}\n\
         source = '{a}'\ndestination = '{b}'\nesn = {esn}\n{policy}",
        suite.name()
    )
}

fn built(text: &str) -> Result<Box<dyn Blueprint>, BuildError> {
    KIND.build_alone(text)
}

fn instance(text: &str) -> Box<dyn NetworkFunction> {
    built(text).unwrap().instance()
}

/// Sends one packet through; returns the packet that leaves, or why it was dropped.
fn pass(nf: &mut dyn NetworkFunction, packet: &[u8]) -> Result<Vec<u8>, DropReason> {
    pass_all(nf, packet).0
}

/// The same, and what was emitted.
fn pass_all(
    nf: &mut dyn NetworkFunction,
    packet: &[u8],
) -> (Result<Vec<u8>, DropReason>, Vec<Vec<u8>>) {
    pass_traced(nf, packet, None)
}

/// The same, and why, by lane.
fn pass_traced(
    nf: &mut dyn NetworkFunction,
    packet: &[u8],
    trace: Option<&mut Vec<(usize, String)>>,
) -> (Result<Vec<u8>, DropReason>, Vec<Vec<u8>>) {
    pass_one(nf, (16, 4096), packet, Nanoseconds(0), trace)
}

fn packet(v6: bool, len: usize, tos: u8) -> Vec<u8> {
    let (src, dst) = if v6 {
        ("2001:db8:1::1".parse().unwrap(), "2001:db8:2::1".parse().unwrap())
    } else {
        ([10, 1, 0, 1].into(), [10, 2, 0, 1].into())
    };
    PacketBuilder::new([2; 6], [4; 6]).vlan(7).ip(src, dst).tos(tos).udp(1, 2).build(&vec![9; len])
}

fn suites() -> impl Strategy<Value = Suite> {
    (0..Suite::ALL.len()).prop_map(|n| Suite::ALL[n])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn what_is_protected_comes_back_as_it_was(
        suite in suites(), esn: bool, v6_tunnel: bool, v6: bool, lens in proptest::collection::vec(0usize..1500, 1..5),
    ) {
        let mut out = instance(&options(suite, esn, v6_tunnel, true));
        let mut back = instance(&options(suite, esn, v6_tunnel, false));
        for len in lens {
            let clear = packet(v6, len, 0xb8);
            let esp = pass(&mut *out, &clear).unwrap();
            prop_assert!(esp.len() > clear.len());
            prop_assert_eq!(pass(&mut *back, &esp), Ok(clear));
            prop_assert_eq!(pass(&mut *back, &esp), Err(DropReason::Replayed));
        }
    }

    #[test]
    fn a_forged_packet_is_never_opened(
        suite in suites(), esn: bool, len in 0usize..200, bit in any::<prop::sample::Index>(), cut in any::<prop::sample::Index>(),
    ) {
        let mut out = instance(&options(suite, esn, false, true));
        let mut back = instance(&options(suite, esn, false, false));
        let esp = pass(&mut *out, &packet(false, len, 0)).unwrap();
        let start = 18 + 20; // after the outer IP header
        let bit = bit.index((esp.len() - start) * 8);
        let mut forged = esp.clone();
        forged[start + bit / 8] ^= 1 << (bit % 8);
        let reason = pass(&mut *back, &forged).unwrap_err();
        let refused = [DropReason::NoSa, DropReason::Replayed, DropReason::AuthenticationFailed];
        prop_assert!(refused.contains(&reason), "{reason}");
        // After the VLAN tag, so that the packet is known to be IP.
        let cut = cut.index(esp.len() - 18) + 18;
        prop_assert!(pass(&mut *back, &esp[..cut]).is_err());
        // The genuine packet is still accepted.
        prop_assert!(pass(&mut *back, &esp).is_ok());
    }

    #[test]
    fn any_bytes_in_an_esp_packet_are_survived(body in proptest::collection::vec(any::<u8>(), 0..120)) {
        let mut back = instance(&options(GCM, true, false, false));
        let (src, dst) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let mut esp = PacketBuilder::new([2; 6], [4; 6]).ip(src, dst).protocol(ESP).build(&body);
        prop_assert!(pass(&mut *back, &esp).is_err());
        if body.len() >= 4 {
            esp[34..38].copy_from_slice(&4660u32.to_be_bytes());
            prop_assert!(pass(&mut *back, &esp).is_err());
        }
    }
}

#[test]
fn an_association_ends_when_it_has_carried_what_it_may() {
    let limited = |limit: &str, out| {
        let esn = format!("esn = false\n{limit}");
        instance(&options(GCM, false, false, out).replace("esn = false", &esn))
    };
    // The packet has 20 + 8 + 72 bytes of IP.
    let clear = packet(false, 72, 0);
    for limit in ["lifetime_packets = 2", "lifetime_bytes = 299"] {
        let (mut out, mut back) = (limited(limit, true), limited(limit, false));
        let mut unlimited = instance(&options(GCM, false, false, true));
        for _ in 0..2 {
            let esp = pass(&mut *out, &clear).unwrap();
            assert!(pass(&mut *back, &esp).is_ok());
            pass(&mut *unlimited, &clear).unwrap();
        }
        assert_eq!(pass(&mut *out, &clear), Err(DropReason::LifetimeOver), "{limit}");
        let third = pass(&mut *unlimited, &clear).unwrap();
        assert_eq!(pass(&mut *back, &third), Err(DropReason::LifetimeOver), "{limit}");
    }
    let none = options(GCM, false, false, true).replace("esn =", "lifetime_packets = 0\nesn =");
    assert!(built(&none).err().unwrap().to_string().contains("may carry nothing"));
}

#[test]
fn tunnels_through_nat_have_udp_around_them() {
    for v6 in [false, true] {
        let with = |out, ports: &str| {
            let udp = format!("udp_ports = {ports}\nesn =");
            options(CBC, false, v6, out).replace("esn =", &udp)
        };
        let mut out = instance(&with(true, "[4500, 4500]"));
        let back =
            |ports| instance(&("default_policy = 'bypass'\n".to_owned() + &with(false, ports)));
        let esp = pass(&mut *out, &packet(false, 100, 0)).unwrap();
        let (key, headers) = thalweg_packet::parse(&esp, PortIndex::default(), Decapsulate::No);
        assert_eq!((key.get(field::TP_SRC), key.get(field::TP_DST)), (4500, 4500));
        let sum = thalweg_packet::checksum::verify(&esp, &headers);
        assert_eq!(sum, if v6 { ChecksumStatus::Good } else { ChecksumStatus::Unchecked });
        // A NAT changes the source port.
        let mut translated = esp.clone();
        translated[usize::from(headers.l4)..][..2].copy_from_slice(&1024u16.to_be_bytes());
        assert_eq!(pass(&mut *back("[4500, 4500]"), &translated), Ok(packet(false, 100, 0)));
        // Another port does not belong to one of our tunnels.
        assert_eq!(pass(&mut *back("[4500, 4501]"), &esp), Ok(esp.clone()));
        // A tunnel without UDP does not accept it, nor one with UDP a packet without.
        let bare = pass(&mut *instance(&options(CBC, false, v6, true)), &packet(false, 9, 0));
        assert_eq!(pass(&mut *back("[4500, 4500]"), &bare.unwrap()), Err(DropReason::NoSa));
        let at = |payload: &[u8]| {
            let (a, b) = if v6 {
                ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap())
            } else {
                ([192, 0, 2, 1].into(), [192, 0, 2, 2].into())
            };
            PacketBuilder::new([2; 6], [4; 6]).ip(a, b).udp(9, 4500).build(payload)
        };
        let mut nf = back("[4500, 4500]");
        assert_eq!(pass(&mut *nf, &at(&[0xff])), Err(DropReason::NatKeepalive));
        let ike = at(&[0, 0, 0, 0, 1, 2, 3, 4]);
        assert_eq!(pass(&mut *nf, &ike), Ok(ike.clone()));
        assert_eq!(pass(&mut *nf, &at(&[1, 2])), Err(DropReason::Malformed));
    }
}

#[test]
fn each_of_many_associations_takes_its_own_packets() {
    const MANY: u32 = 5000;
    let end = |outbound: bool| {
        let mut text = String::from("default_policy = 'discard'\n");
        for n in 0..MANY {
            let suite = Suite::ALL[n as usize % Suite::ALL.len()];
            let sa = options(suite, false, false, outbound);
            let sa = sa.split("[[policy]]").next().unwrap();
            text += &sa.replace("4660", &(4660 + n).to_string()).replace("'x'", &format!("'x{n}'"));
        }
        if outbound {
            for n in 0..MANY {
                let net = format!("10.{}.{}.0/24", n >> 8, n & 255);
                text += "[[policy]]\naction = 'protect'\n";
                text +=
                    &["match = 'ip,nw_dst=", &net, "'\nsa = 'x", &n.to_string(), "'\n"].concat();
            }
        }
        instance(&text)
    };
    let (mut out, mut back) = (end(true), end(false));
    let pool = Arc::new(Pool::anonymous(64, 2048).unwrap());
    let (mut batch, mut emitted) = (Batch::new(pool.clone()), Emitted::new(pool));
    for first in (0..MANY).step_by(977) {
        let clear: Vec<Vec<u8>> = (0..BATCH as u32)
            .map(|n| {
                let n = (first + n * 31) % MANY;
                let to = [10, (n >> 8) as u8, n as u8, 1];
                let builder =
                    PacketBuilder::new([2; 6], [4; 6]).ip([10, 1, 0, 1].into(), to.into());
                builder.udp(1, 2).build(&vec![n as u8; n as usize % 900])
            })
            .collect();
        batch.push_copies(clear.iter().map(|p| (&p[..], p.len() as u32, Nanoseconds(0))));
        batch.parse(Lanes::ALL, Decapsulate::No);
        for nf in [&mut out, &mut back] {
            let mut context = Context::new(Nanoseconds(0), &mut emitted, None);
            nf.process(&mut batch, Lanes::ALL, &mut context);
            assert_eq!(context.dropped(), Lanes::NONE);
            batch.parse_changed();
        }
        for (lane, clear) in clear.iter().enumerate() {
            assert_eq!(batch.bytes(lane), clear, "{lane}");
        }
        batch.release(Lanes::ALL);
    }
}

/// Twice in one batch: the window cannot know the first when the second is checked.
#[test]
fn a_packet_that_is_in_a_batch_twice_is_opened_once() {
    let esp =
        pass(&mut *instance(&options(CBC, true, false, true)), &packet(false, 60, 0)).unwrap();
    let mut back = instance(&options(CBC, true, false, false));
    let pool = Arc::new(Pool::anonymous(64, 2048).unwrap());
    let (mut batch, mut emitted) = (Batch::new(pool.clone()), Emitted::new(pool));
    for _ in 0..3 {
        batch.push_bytes(&esp).unwrap();
    }
    batch.parse(Lanes::ALL, Decapsulate::No);
    let mut context = Context::new(Nanoseconds(0), &mut emitted, None);
    back.process(&mut batch, Lanes::first(3), &mut context);
    assert_eq!(context.verdict(0), Verdict::Forward);
    for lane in [1, 2] {
        assert_eq!(context.verdict(lane), Verdict::Drop(DropReason::Replayed));
    }
}

#[test]
fn the_policy_decides_what_goes_in_the_clear() {
    let text = options(GCM, false, false, false)
        .replace("esn = false", "esn = false\nselector = 'ip,nw_src=10.2.0.0/16'")
        + "[[policy]]\nmatch = 'udp,tp_dst=2'\naction = 'bypass'\n";
    let mut nf = instance(&text);
    let clear = packet(false, 4, 0);
    assert_eq!(pass(&mut *nf, &clear), Ok(clear.clone()));
    // Discarded by default.
    let other = PacketBuilder::new([2; 6], [4; 6])
        .ip([10, 1, 0, 1].into(), [10, 2, 0, 1].into())
        .udp(1, 3)
        .build(b"");
    assert_eq!(pass(&mut *nf, &other), Err(DropReason::NoPolicy));
    // Its source is one that the selector of the inbound SA covers.
    let spoofed = PacketBuilder::new([2; 6], [4; 6])
        .ip([10, 2, 0, 1].into(), [10, 1, 0, 1].into())
        .udp(1, 2)
        .build(b"");
    assert_eq!(pass(&mut *nf, &spoofed), Err(DropReason::NoPolicy));
    // ARP bypasses IPsec.
    let arp = [&[0xff; 12][..], &[8, 6], &[0; 46]].concat();
    assert!(pass(&mut *nf, &arp).is_ok());
}

#[test]
fn inner_packets_outside_the_selector_are_dropped() {
    let text = options(GCM, false, false, false)
        .replace("esn = false", "esn = false\nselector = 'ip,nw_src=10.9.0.0/16'");
    let mut out = instance(&options(GCM, false, false, true));
    let esp = pass(&mut *out, &packet(false, 4, 0)).unwrap();
    assert_eq!(pass(&mut *instance(&text), &esp), Err(DropReason::BadInnerPacket));
}

#[test]
fn congestion_in_the_tunnel_is_told_on() {
    let mut out = instance(&options(GCM, false, false, true));
    let mut back = instance(&options(GCM, false, false, false));
    for (ect, expected) in [(2, Ok(3)), (0, Err(DropReason::BadInnerPacket))] {
        let mut esp = pass(&mut *out, &packet(false, 4, ect)).unwrap();
        esp[19] |= 3; // congestion experienced, on the way
        let (_, headers) =
            thalweg_packet::parse(&esp, thalweg_packet::PortIndex::NONE, Decapsulate::No);
        thalweg_packet::checksum::fill_ipv4(&mut esp, &headers);
        let got = pass(&mut *back, &esp).map(|clear| {
            let (_, headers) =
                thalweg_packet::parse(&clear, thalweg_packet::PortIndex::NONE, Decapsulate::No);
            assert_eq!(
                thalweg_packet::checksum::verify(&clear, &headers),
                thalweg_packet::checksum::ChecksumStatus::Good
            );
            clear[19]
        });
        assert_eq!(got, expected);
    }
}

/// Scapy 2.5 leaves the upper half of extended sequence numbers out of the HMAC,
/// so the script checks the ICV by hand there and only opens ours.
/// Line by line: decrypts ours, encrypts a packet of its own.
const SCAPY: &str = r"
import hmac, sys
from scapy.all import Ether, IP, IPv6, UDP, Raw, ESP
from scapy.layers.ipsec import SecurityAssociation
suite, esn, v6, nat = sys.stdin.readline().split()
extra = dict(esn_en=True, esn=0) if esn == 'true' else {}
outer = IPv6(src='2001:db8::1', dst='2001:db8::2') if v6 == 'true' else IP(src='192.0.2.1', dst='192.0.2.2')
key = bytes(range(16 if suite.startswith('aes128') else 32))
auth_key = bytes(range(32, 64 if 'sha256' in suite else 52))
if 'cbc' in suite:
    auth = 'SHA2-256-128' if 'sha256' in suite else 'HMAC-SHA1-96'
    algorithms = dict(crypt_algo='AES-CBC', crypt_key=key, auth_algo=auth, auth_key=auth_key)
else:
    algo = 'AES-GCM' if 'gcm' in suite else 'CHACHA20-POLY1305'
    algorithms = dict(crypt_algo=algo, crypt_key=key + bytes.fromhex('aabbccdd'))
if nat == 'true':
    extra['nat_t_header'] = UDP(sport=4500, dport=4500)
make = lambda: SecurityAssociation(ESP, spi=4660, tunnel_header=outer, **algorithms, **extra)
theirs = make()
for line in sys.stdin:
    ip = Ether(bytes.fromhex(line.strip())).payload.payload
    by_hand = 'cbc' in suite and esn == 'true'
    if by_hand:
        esp, name, n = bytes(ip.payload), *(('sha256', 16) if 'sha256' in suite else ('sha1', 12))
        assert hmac.new(auth_key, esp[:-n] + bytes(4), name).digest()[:n] == esp[-n:]
    print('clear', bytes(theirs.decrypt(ip, verify=not by_hand)).hex())
if by_hand:
    sys.exit()
mine = make()
for size in (0, 1, 13, 100, 1300):
    packet = IP(src='10.1.0.1', dst='10.2.0.1') / UDP(sport=7, dport=9) / Raw(b'x' * size)
    packet = IP(bytes(packet))
    sealed = mine.encrypt(packet)
    if nat == 'true':
        # Scapy 2.5 writes the length of the UDP header alone.
        sealed = bytearray(bytes(sealed))
        sealed[24:26] = (len(sealed) - 20).to_bytes(2, 'big')
        sealed = IP(bytes(sealed))
    print('sealed', bytes(packet).hex(), bytes(Ether(dst='02:00:00:00:00:01', src='02:00:00:00:00:02') / sealed).hex())
";

#[test]
fn scapy_opens_ours_and_we_open_scapys() {
    const WAYS: [(bool, bool, bool); 4] =
        [(false, false, false), (true, false, false), (false, true, false), (false, false, true)];
    let clear: Vec<_> = [0, 1, 13, 100, 1300].map(|len| packet(false, len, 0)).into();
    let (mut runs, mut inputs) = (Vec::new(), Vec::new());
    for suite in Suite::ALL {
        for (esn, v6, nat) in WAYS {
            let end = |outbound| {
                let text = options(suite, esn, v6, outbound);
                let udp = if nat { "udp_ports = [4500, 4500]\nesn =" } else { "esn =" };
                instance(&text.replace("esn =", udp))
            };
            let (mut out, back) = (end(true), end(false));
            let mut input = format!("{} {esn} {v6} {nat}\n", suite.name());
            for packet in &clear {
                input += &(hex::encode(pass(&mut *out, packet).unwrap()) + "\n");
            }
            runs.push((suite, esn, back));
            inputs.push(input);
        }
    }
    let Some(outputs) = scapy_each(SCAPY, &inputs) else { return };
    for ((suite, esn, mut back), output) in runs.into_iter().zip(outputs) {
        let lines: Vec<Vec<&str>> = output.lines().map(|l| l.split(' ').collect()).collect();
        let opened: Vec<_> = lines.iter().filter(|l| l[0] == "clear").map(|l| l[1]).collect();
        let expected: Vec<_> = clear.iter().map(|p| hex::encode(&p[18..])).collect();
        assert_eq!(opened, expected, "{suite:?} esn {esn}");
        let sealed: Vec<_> = lines.iter().filter(|l| l[0] == "sealed").collect();
        let by_hand = matches!(suite, Suite::Cbc(..)) && esn;
        assert_eq!(sealed.len(), if by_hand { 0 } else { 5 });
        for line in sealed {
            let ours = pass(&mut *back, &hex::decode(line[2]).unwrap());
            assert_eq!(ours.map(|p| hex::encode(&p[14..])), Ok(line[1].to_owned()), "{suite:?}");
        }
    }
}
