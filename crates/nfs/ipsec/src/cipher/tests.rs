//! Every implementation returns what the portable code returns.

use proptest::prelude::*;
use thalweg_cpu::Isa;
use thalweg_testkit::cases;

use super::*;
use crate::suite::{Aes, HEADER, Hash};

/// A packet: which suite, which of its keys, blocks of body, upper half of the number, a byte
/// that fills it.
type Packet = (usize, u8, usize, Option<u32>, u8);

/// Keys of each suite.
const KEYS: u8 = 3;

fn cipher(suite: Suite, n: u8) -> Cipher {
    let bytes = |start: u8, len: usize| (0..len).map(|i| start + n + i as u8).collect::<Vec<u8>>();
    Cipher::new(suite, &bytes(7, suite.key_len()), &bytes(100, suite.auth_key_len())).unwrap()
}

fn ciphers() -> Vec<Cipher> {
    Suite::ALL.into_iter().flat_map(|suite| (0..KEYS).map(move |n| cipher(suite, n))).collect()
}

fn packets() -> impl Strategy<Value = Vec<Packet>> {
    let blocks = prop_oneof![4 => 1usize..12, 1 => 1usize..100, 1 => Just(640)];
    let packet =
        (0..Suite::ALL.len(), 0..KEYS, blocks, proptest::option::of(any::<u32>()), any::<u8>());
    proptest::collection::vec(packet, 1..=BATCH)
}

/// All engines that work on this machine: the chosen one, and each implementation alone.
fn engines() -> Vec<Engine> {
    let chosen = Isa::available().map(Engine::new);
    #[cfg(feature = "ipsec-mb")]
    let chosen = chosen.chain([Engine { lanes: None, ..Engine::new(Isa::active()) }]);
    chosen.collect()
}

impl Engine {
    fn name(&self) -> String {
        let mut name = String::from("portable");
        #[cfg(target_arch = "x86_64")]
        name.push_str(if self.lanes.is_some() { ", lanes" } else { "" });
        #[cfg(feature = "ipsec-mb")]
        name.push_str(if self.intel.is_some() { ", libipsec-mb" } else { "" });
        name
    }
}

/// The packets in their buffers, not sealed.
fn clear(packets: &[Packet]) -> Vec<Vec<u8>> {
    let buffer = |(suite, _, blocks, _, fill): &Packet| {
        let suite = Suite::ALL[*suite];
        let len = HEADER + suite.iv_len() + blocks * suite.alignment() + suite.icv_len();
        (0..len).map(|i| fill.wrapping_add((i * i) as u8)).collect()
    };
    packets.iter().map(buffer).collect()
}

/// Seals or opens all buffers; returns which succeeded.
fn run(
    with: impl FnOnce(&mut [Job<'_>]),
    ciphers: &[Cipher],
    packets: &[Packet],
    buffers: &mut [Vec<u8>],
) -> Vec<bool> {
    let mut jobs: Vec<Job<'_>> = packets
        .iter()
        .zip(buffers)
        .enumerate()
        .map(|(lane, ((suite, key, _, high, _), buffer))| {
            let cipher = &ciphers[suite * usize::from(KEYS) + usize::from(*key)];
            Job::new(lane, cipher, buffer, *high).unwrap()
        })
        .collect();
    with(&mut jobs);
    let mut done = vec![false; packets.len()];
    jobs.iter().for_each(|job| done[job.lane] = job.is_done());
    done
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(200)))]
    #[test]
    fn all_engines_seal_and_open_alike(
        packets in packets(), forged in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(),
    ) {
        let ciphers = ciphers();
        let mut reference = clear(&packets);
        let portable = |jobs: &mut [Job<'_>]| jobs.iter_mut().for_each(portable::seal);
        prop_assert!(run(portable, &ciphers, &packets, &mut reference).iter().all(|done| *done));
        for mut engine in engines() {
            let isa = engine.name();
            let mut sealed = clear(&packets);
            let done = run(|jobs| engine.seal(jobs), &ciphers, &packets, &mut sealed);
            prop_assert!(done.iter().all(|done| *done));
            prop_assert!(sealed == reference, "{isa}");

            // One bit of one packet is wrong, be it of the header, the body or the ICV.
            let forged = forged.index(packets.len());
            let bit = at.index(sealed[forged].len() * 8);
            sealed[forged][bit / 8] ^= 1 << (bit % 8);
            let done = run(|jobs| engine.open(jobs), &ciphers, &packets, &mut sealed);
            let good: Vec<bool> = (0..packets.len()).map(|lane| lane != forged).collect();
            prop_assert_eq!(done, good, "{}", isa);
            for (lane, opened) in sealed.iter().enumerate().filter(|(lane, _)| *lane != forged) {
                let end = opened.len() - Suite::ALL[packets[lane].0].icv_len();
                prop_assert!(opened[..end] == clear(&packets)[lane][..end], "{isa}: {lane}");
            }
        }
    }
}

/// Packets of one suite and of few lengths, which the lanes process in step.
fn alike() -> impl Strategy<Value = Vec<Packet>> {
    let lengths = proptest::collection::vec(1usize..120, 1..=3);
    (0..Suite::ALL.len(), 1..=KEYS, lengths).prop_flat_map(|(suite, keys, lengths)| {
        let packet = (0..keys, proptest::sample::select(lengths), any::<u8>());
        let packet = packet.prop_map(move |(key, blocks, fill)| (suite, key, blocks, None, fill));
        proptest::collection::vec(packet, 1..=BATCH)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(200)))]
    #[test]
    fn all_engines_seal_alike_what_is_in_step(packets in alike()) {
        let ciphers = ciphers();
        let mut reference = clear(&packets);
        let portable = |jobs: &mut [Job<'_>]| jobs.iter_mut().for_each(portable::seal);
        run(portable, &ciphers, &packets, &mut reference);
        for mut engine in engines() {
            let mut sealed = clear(&packets);
            run(|jobs| engine.seal(jobs), &ciphers, &packets, &mut sealed);
            prop_assert!(sealed == reference, "{}", engine.name());
        }
    }
}

/// Consecutive lengths, among them those at which the number of padding blocks changes.
#[test]
fn every_length_is_sealed_alike() {
    let ciphers = ciphers();
    for suite in 0..Suite::ALL.len() {
        for first in (1..200).step_by(8) {
            let packets: Vec<Packet> =
                (0..32).map(|n| (suite, n as u8 % KEYS, first + n / 4, None, n as u8)).collect();
            let (mut reference, mut sealed) = (clear(&packets), clear(&packets));
            let portable = |jobs: &mut [Job<'_>]| jobs.iter_mut().for_each(portable::seal);
            run(portable, &ciphers, &packets, &mut reference);
            let mut engine = Engine::new(Isa::detect());
            run(|jobs| engine.seal(jobs), &ciphers, &packets, &mut sealed);
            assert!(sealed == reference, "{:?} from {first}", Suite::ALL[suite]);
        }
    }
}

#[test]
fn what_does_not_align_is_no_job() {
    let cbc = cipher(Suite::ALL[0], 0);
    for len in [0, 8, 24, 36, 37, 51, 53] {
        assert!(Job::new(0, &cbc, &mut vec![0; len], None).is_none(), "{len}");
    }
    assert!(Job::new(0, &cbc, &mut [0; 52], None).is_some());
}

/// CI sets `REQUIRE_ISA`: then the lanes must be used with vectors, and only then.
#[test]
fn the_lanes_work_where_they_can() {
    if let Ok(required) = std::env::var("REQUIRE_ISA") {
        #[cfg(target_arch = "x86_64")]
        assert_eq!(Engine::new(Isa::active()).lanes.is_some(), required != "scalar");
        #[cfg(feature = "ipsec-mb")]
        assert_eq!(Engine::new(Isa::active()).intel.is_some(), required != "scalar");
    }
}

/// Opens `sealed` with each engine, and seals it again; returns the content.
fn opened(cipher: &Cipher, sealed: &str) -> String {
    let mut inside = String::new();
    for mut engine in engines() {
        let (isa, mut esp) = (engine.name(), hex::decode(sealed).unwrap());
        let mut open = [Job::new(0, cipher, &mut esp, None).unwrap()];
        engine.open(&mut open);
        assert!(open[0].is_done(), "{isa}");
        let suite = cipher.suite();
        inside = hex::encode(&esp[HEADER + suite.iv_len()..esp.len() - suite.icv_len()]);
        engine.seal(&mut [Job::new(0, cipher, &mut esp, None).unwrap()]);
        assert_eq!(hex::encode(&esp), sealed, "{isa}");
    }
    inside
}

#[test]
fn the_packet_of_rfc_7634_opens() {
    let key = "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3";
    let sealed = "0102030400000005101112131415161724039428b97f417e3c13753a4f05087b67c352e6a7fab1b982d466\
                  ef407ae5c614ee8099d52844eb61aa95dfab4c02f72aa71e7c4c4f64c9befe2facc638e8f3cbec163fac469b\
                  502773f6fb94e664da9165b82829f641e076aaa8266b7fb0f7b11b369907e1ad43";
    let clear = "45000054a6f200004001e778c6336405c000020508005b7a3a080000553bec100007362708090a0b0c0d0e0f\
                 101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363701020204";
    let key = hex::decode(key).unwrap();
    let cipher = Cipher::new(Suite::ChaCha20Poly1305, &key, &[]).unwrap();
    assert_eq!(opened(&cipher, sealed), clear);
}

#[test]
fn the_packet_of_draft_mcgrew_opens() {
    let key = hex::decode("feffe9928665731c6d6a8f9467308308cafebabe").unwrap();
    let sealed = "0000a5f80000000afacedbaddecaf888deb22cd9b07c72c16e3a65beeb8df304a5a5897d33ae530f1ba76d\
                  5d114d2a5c3de81827c10e9a4f51330d0eec416642cfbb85a5b47e48a4ec3b9ba95d918bd183b70d3aa8bc6e\
                  e4c309e9d85a41ad4a";
    let clear = "4500003e698f000080114dccc0a80102c0a801010a980035002a2343b2d0010000010000000000000373697009\
                 63796265726369747902646b00000100010001";
    let cipher = Cipher::new(Suite::Gcm(Aes::Bits128), &key, &[]).unwrap();
    assert_eq!(opened(&cipher, sealed), clear);
}

#[test]
fn the_tunnel_packet_of_rfc_3602_decrypts() {
    // Case 7. It has no authentication, so only the body is compared.
    let key = hex::decode("0123456789abcdef0123456789abcdef").unwrap();
    let body = "773b5241a4c449225e4f3ce5ed611b0c237ca96cf74a93013c1b0ea1a0cf70f8e4ecaec78ac53aad7a0f022b85\
                9243c647752e94a859352b8a4d4d2decd136e5c177f132ad3fbfb2201ac9904c74ee0a109e0ca1e4dfe9d5a100\
                b842f1c22f0d";
    let clear = "45000054090400004001f988c0a87b03c0a87bc808009f76a90a0100b49c083d02a2040008090a0b0c0d0e0f10\
                 1112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f3031323334353637";
    let iv = "f4e765244f6407adf13dc1380f673f37";
    let padded = format!("{clear}0102030405060708090a0a04");
    let cipher = Cipher::new(Suite::Cbc(Aes::Bits128, Hash::Sha1), &key, &[0; 20]).unwrap();
    let mut esp = hex::decode(format!("0000876500000002{iv}{padded}{}", "00".repeat(12))).unwrap();
    Engine::new(Isa::Scalar).seal(&mut [Job::new(0, &cipher, &mut esp, None).unwrap()]);
    assert_eq!(hex::encode(&esp[24..esp.len() - 12]), body);
    assert_eq!(opened(&cipher, &hex::encode(&esp)), padded);
}
