//! ESP against the RFCs' vectors, against itself, against forgers, and against
//! scapy.

use std::io::Write;
use std::process::{Command, Stdio};

use proptest::prelude::*;
use thalweg_packet::write::PacketBuilder;
use thalweg_packet::{Nanoseconds, Pool};

use super::suite::{Cipher, Suite};
use super::*;
use crate::Verdict;

const CBC_KEYS: &str = "encryption_key = '000102030405060708090a0b0c0d0e0f'\n\
    authentication_key = '101112131415161718191a1b1c1d1e1f20212223'";
const GCM_KEYS: &str = "encryption_key = '000102030405060708090a0b0c0d0e0faabbccdd'";

/// The configuration of one end of a tunnel.
fn options(suite: Suite, esn: bool, v6_tunnel: bool, outbound: bool) -> String {
    let keys = if suite == Suite::Gcm { GCM_KEYS } else { CBC_KEYS };
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
    let environment = Environment { inputs: &[], outputs: &[], dry_run: true };
    Section::parse_text(text, |section| build(section, &environment))
}

fn instance(text: &str) -> Box<dyn NetworkFunction> {
    built(text).unwrap().instance(0)
}

/// Sends one packet through; the packet after, or why it was dropped.
fn pass(nf: &mut dyn NetworkFunction, packet: &[u8]) -> Result<Vec<u8>, DropReason> {
    let pool = Arc::new(Pool::anonymous(4, 4096).unwrap());
    let (mut batch, mut emitted) = (Batch::new(pool.clone()), Batch::new(pool));
    let lane = batch.push_bytes(packet).unwrap();
    batch.parse(Lanes::ALL, Decapsulate::No);
    let mut context = Context::new(Nanoseconds(0), &mut emitted, None);
    nf.process(&mut batch, Lanes::one(lane), &mut context);
    match context.verdict(lane) {
        Verdict::Forward => Ok(batch.bytes(lane).to_vec()),
        Verdict::Drop(reason) => Err(reason),
        Verdict::Punt => unreachable!(),
    }
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
    prop_oneof![Just(Suite::CbcSha1), Just(Suite::Gcm)]
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
        let start = 18 + 20; // behind the outer IP header
        let bit = bit.index((esp.len() - start) * 8);
        let mut forged = esp.clone();
        forged[start + bit / 8] ^= 1 << (bit % 8);
        let reason = pass(&mut *back, &forged).unwrap_err();
        let refused = [DropReason::NoSa, DropReason::Replayed, DropReason::AuthenticationFailed];
        prop_assert!(refused.contains(&reason), "{reason}");
        // Behind the VLAN tag, where it is known to be IP.
        let cut = cut.index(esp.len() - 18) + 18;
        prop_assert!(pass(&mut *back, &esp[..cut]).is_err());
        // The true packet is still welcome.
        prop_assert!(pass(&mut *back, &esp).is_ok());
    }

    #[test]
    fn any_bytes_in_an_esp_packet_are_survived(body in proptest::collection::vec(any::<u8>(), 0..120)) {
        let mut back = instance(&options(Suite::Gcm, true, false, false));
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
fn state_taken_over_repeats_no_number_and_admits_no_replay() {
    let (out_text, in_text) =
        (options(Suite::Gcm, true, false, true), options(Suite::Gcm, true, false, false));
    let (mut out, mut back) = (instance(&out_text), instance(&in_text));
    let first = pass(&mut *out, &packet(false, 10, 0)).unwrap();
    pass(&mut *back, &first).unwrap();
    let moved = |from: &dyn NetworkFunction, text: &str| {
        let mut stream = Vec::new();
        let mut writer = StateWriter::new(&mut stream, "ipsec", 1).unwrap();
        from.export_state(&mut writer).unwrap();
        writer.finish().unwrap();
        let mut to = instance(text);
        let mut input = &stream[..];
        to.import_state(&mut StateReader::new(&mut input, "ipsec", 1).unwrap()).unwrap();
        to
    };
    let (mut out, mut back) = (moved(&*out, &out_text), moved(&*back, &in_text));
    assert_eq!(pass(&mut *back, &first), Err(DropReason::Replayed));
    let second = pass(&mut *out, &packet(false, 10, 0)).unwrap();
    assert_eq!(second[42..46], 2u32.to_be_bytes());
    assert!(pass(&mut *back, &second).is_ok());
}

#[test]
fn numbers_end_where_they_must() {
    let blueprint = built(&options(Suite::CbcSha1, false, false, true)).unwrap();
    let mut nf = blueprint.instance(0);
    let mut stream = Vec::new();
    let mut writer = StateWriter::new(&mut stream, "ipsec", 1).unwrap();
    writer.record(&SaRecord::Outbound { spi: 4660, last_sent: u64::from(u32::MAX) - 1 }).unwrap();
    writer.finish().unwrap();
    nf.import_state(&mut StateReader::new(&mut &stream[..], "ipsec", 1).unwrap()).unwrap();
    assert!(pass(&mut *nf, &packet(false, 0, 0)).is_ok());
    assert_eq!(pass(&mut *nf, &packet(false, 0, 0)), Err(DropReason::SequenceExhausted));
}

#[test]
fn the_policy_decides_what_goes_in_the_clear() {
    let text = options(Suite::Gcm, false, false, false)
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
    // Comes from where the inbound SA's packets come from.
    let spoofed = PacketBuilder::new([2; 6], [4; 6])
        .ip([10, 2, 0, 1].into(), [10, 1, 0, 1].into())
        .udp(1, 2)
        .build(b"");
    assert_eq!(pass(&mut *nf, &spoofed), Err(DropReason::NoPolicy));
    // ARP is no matter of IPsec.
    let arp = [&[0xff; 12][..], &[8, 6], &[0; 46]].concat();
    assert!(pass(&mut *nf, &arp).is_ok());
}

#[test]
fn inner_packets_outside_the_selector_are_dropped() {
    let text = options(Suite::Gcm, false, false, false)
        .replace("esn = false", "esn = false\nselector = 'ip,nw_src=10.9.0.0/16'");
    let mut out = instance(&options(Suite::Gcm, false, false, true));
    let esp = pass(&mut *out, &packet(false, 4, 0)).unwrap();
    assert_eq!(pass(&mut *instance(&text), &esp), Err(DropReason::BadInnerPacket));
}

#[test]
fn congestion_in_the_tunnel_is_told_on() {
    let mut out = instance(&options(Suite::Gcm, false, false, true));
    let mut back = instance(&options(Suite::Gcm, false, false, false));
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

#[test]
fn the_packet_of_draft_mcgrew_opens() {
    let key = hex::decode("feffe9928665731c6d6a8f9467308308cafebabe").unwrap();
    let mut esp = hex::decode(
        "0000a5f80000000afacedbaddecaf888deb22cd9b07c72c16e3a65beeb8df304a5a5897d33ae530f1ba76d5d\
         114d2a5c3de81827c10e9a4f51330d0eec416642cfbb85a5b47e48a4ec3b9ba95d918bd183b70d3aa8bc6ee4\
         c309e9d85a41ad4a",
    )
    .unwrap();
    let clear = "4500003e698f000080114dccc0a80102c0a801010a980035002a2343b2d0010000010000000000000373\
                 69700963796265726369747902646b00000100010001";
    let cipher = Cipher::new(Suite::Gcm, &key, &[]).unwrap();
    let sealed = esp.clone();
    assert!(cipher.open(&mut esp, None));
    assert_eq!(hex::encode(&esp[16..esp.len() - 16]), clear);
    assert!(cipher.seal(&mut esp, None));
    assert_eq!(esp, sealed);
}

#[test]
fn the_tunnel_packet_of_rfc_3602_decrypts() {
    // Case 7. There is no authentication in it, so that only the body is tried.
    let key = hex::decode("0123456789abcdef0123456789abcdef").unwrap();
    let body = "773b5241a4c449225e4f3ce5ed611b0c237ca96cf74a93013c1b0ea1a0cf70f8e4ecaec78ac53aad7a0f022b85\
                9243c647752e94a859352b8a4d4d2decd136e5c177f132ad3fbfb2201ac9904c74ee0a109e0ca1e4dfe9d5a100\
                b842f1c22f0d";
    let clear = "45000054090400004001f988c0a87b03c0a87bc808009f76a90a0100b49c083d02a2040008090a0b0c0d0e0f10\
                 1112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f3031323334353637";
    let iv = "f4e765244f6407adf13dc1380f673f37";
    let cipher = Cipher::new(Suite::CbcSha1, &key, &[0; 20]).unwrap();
    let padded = format!("{clear}0102030405060708090a0a04");
    let mut esp = hex::decode(format!("0000876500000002{iv}{padded}{}", "00".repeat(12))).unwrap();
    assert!(cipher.seal(&mut esp, None));
    assert_eq!(hex::encode(&esp[24..esp.len() - 12]), body);
    assert!(cipher.open(&mut esp, None));
    assert_eq!(hex::encode(&esp[24..esp.len() - 12]), padded);
}

#[test]
fn mistakes_are_named_and_keys_are_not() {
    let good = options(Suite::CbcSha1, false, false, true);
    let wrong = [
        (
            good.replace("101112131415161718191a1b1c1d1e1f20212223", "1011"),
            "authentication_key has 2 bytes",
        ),
        (
            good.replace("000102030405060708090a0b0c0d0e0f", "zz"),
            "encryption_key is not hexadecimal",
        ),
        (good.replace("aes128-cbc", "aes999-cbc"), "unknown suite"),
        (good.replace("spi = 4660", "spi = 5"), "SPIs below 256 are reserved"),
        (good.replace("sa = 'x'", "sa = 'y'"), "there is no such outbound SA"),
        (good.replace("'192.0.2.2'", "'2001:db8::2'"), "the end points differ in IP version"),
        (good.replace("match = 'ip'\n", "match = 'ipx'\n"), "unknown protocol 'ipx'"),
        (good.clone() + "[[sa]]\n", "missing field"),
    ];
    for (text, message) in wrong {
        let errors = built(&text).err().unwrap_or_else(|| panic!("{message}: accepted")).0;
        let all: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert!(all.iter().any(|e| e.contains(message)), "{message}: {all:?}");
        assert!(
            !all.iter().any(|e| e.contains("0405060708") || e.contains("1415161718")),
            "{all:?}"
        );
    }
}

/// Runs a Python script that has scapy; `None` when there is none.
fn scapy(script: &str, input: &str) -> Option<String> {
    let python = ["/usr/bin/python3", "python3"].into_iter().find(|p| {
        let test = Command::new(p).args(["-c", "import scapy.all, cryptography"]).output();
        test.is_ok_and(|o| o.status.success())
    });
    let Some(python) = python else {
        assert!(std::env::var_os("REQUIRE_PEERS").is_none(), "scapy is required and missing");
        println!("SKIPPED: no scapy");
        return None;
    };
    let mut child = Command::new(python)
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

/// Scapy 2.5 leaves the upper half of extended sequence numbers out of the HMAC,
/// so that ICV is checked by hand there, and only ours are opened.
/// Line by line: decrypts ours, encrypts a packet of its own.
const SCAPY: &str = r"
import hmac, sys
from scapy.all import Ether, IP, IPv6, UDP, Raw, ESP
from scapy.layers.ipsec import SecurityAssociation
suite, esn, v6 = sys.stdin.readline().split()
key = bytes(range(16))
extra = dict(esn_en=True, esn=0) if esn == 'true' else {}
outer = IPv6(src='2001:db8::1', dst='2001:db8::2') if v6 == 'true' else IP(src='192.0.2.1', dst='192.0.2.2')
if suite == 'aes128-gcm16':
    make = lambda: SecurityAssociation(ESP, spi=4660, crypt_algo='AES-GCM', crypt_key=key + bytes.fromhex('aabbccdd'), tunnel_header=outer, **extra)
else:
    make = lambda: SecurityAssociation(ESP, spi=4660, crypt_algo='AES-CBC', crypt_key=key, auth_algo='HMAC-SHA1-96', auth_key=bytes(range(16, 36)), tunnel_header=outer, **extra)
theirs = make()
for line in sys.stdin:
    ip = Ether(bytes.fromhex(line.strip())).payload.payload
    by_hand = suite != 'aes128-gcm16' and esn == 'true'
    if by_hand:
        esp = bytes(ip.payload)
        assert hmac.new(bytes(range(16, 36)), esp[:-12] + bytes(4), 'sha1').digest()[:12] == esp[-12:]
    print('clear', bytes(theirs.decrypt(ip, verify=not by_hand)).hex())
if by_hand:
    sys.exit()
mine = make()
for size in (0, 1, 13, 100, 1300):
    packet = IP(src='10.1.0.1', dst='10.2.0.1') / UDP(sport=7, dport=9) / Raw(b'x' * size)
    packet = IP(bytes(packet))
    sealed = mine.encrypt(packet)
    print('sealed', bytes(packet).hex(), bytes(Ether(dst='02:00:00:00:00:01', src='02:00:00:00:00:02') / sealed).hex())
";

#[test]
fn scapy_opens_ours_and_we_open_scapys() {
    for suite in Suite::ALL {
        for (esn, v6) in [(false, false), (true, false), (false, true)] {
            let mut out = instance(&options(suite, esn, v6, true));
            let mut back = instance(&options(suite, esn, v6, false));
            let clear: Vec<_> = [0, 1, 13, 100, 1300].map(|len| packet(false, len, 0)).into();
            let mut input = format!("{} {esn} {v6}\n", suite.name());
            for packet in &clear {
                input += &(hex::encode(pass(&mut *out, packet).unwrap()) + "\n");
            }
            let Some(output) = scapy(SCAPY, &input) else { return };
            let lines: Vec<Vec<&str>> = output.lines().map(|l| l.split(' ').collect()).collect();
            let opened: Vec<_> = lines.iter().filter(|l| l[0] == "clear").map(|l| l[1]).collect();
            let expected: Vec<_> = clear.iter().map(|p| hex::encode(&p[18..])).collect();
            assert_eq!(opened, expected, "{suite:?} esn {esn}");
            let sealed: Vec<_> = lines.iter().filter(|l| l[0] == "sealed").collect();
            let by_hand = suite == Suite::CbcSha1 && esn;
            assert_eq!(sealed.len(), if by_hand { 0 } else { 5 });
            for line in sealed {
                let ours = pass(&mut *back, &hex::decode(line[2]).unwrap());
                assert_eq!(
                    ours.map(|p| hex::encode(&p[14..])),
                    Ok(line[1].to_owned()),
                    "{suite:?}"
                );
            }
        }
    }
}
