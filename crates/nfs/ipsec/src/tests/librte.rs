//! ESP against DPDK's librte_ipsec: all suites, extended sequence numbers, UDP, replay, forgery.

use std::path::{Path, PathBuf};
use std::process::Command;

use thalweg_testkit::peer;

use super::*;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peers/librte_ipsec.c");

/// The peer, built into `folder`; `None` if there is no DPDK to build it with.
fn peer(folder: &Path) -> Option<PathBuf> {
    let flags = Command::new("pkg-config").args(["--cflags", "--libs", "libdpdk"]).output();
    let Some(flags) = flags.ok().filter(|flags| flags.status.success()) else {
        peer::missing("libdpdk-dev");
        return None;
    };
    let program = folder.join("peer");
    let flags = String::from_utf8(flags.stdout).unwrap();
    let mut build = Command::new("cc");
    build.args(["-O1", "-march=native", "-DALLOW_EXPERIMENTAL_API", SOURCE, "-o"]).arg(&program);
    let output = build.args(flags.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

/// How many packets of an association the peer gets: seven to open and five to seal.
const ANSWERS: usize = 12;

/// A security association, as far as it does not depend on the peer's answers.
struct Association {
    told: String,
    clear: [Vec<u8>; 5],
    /// What precedes the IP header.
    link: Vec<u8>,
    back: Box<dyn NetworkFunction>,
}

impl Association {
    /// An association, and the peer's part of it.
    fn begin(suite: Suite, esn: bool, v6: bool, nat: bool) -> (Self, String) {
        let told = format!("{} {esn} {v6} {nat}", suite.name());
        let end = |outbound| {
            let udp = if nat { "udp_ports = [4500, 4500]\nesn =" } else { "esn =" };
            instance(&options(suite, esn, v6, outbound).replace("esn =", udp))
        };
        let (mut out, back) = (end(true), end(false));
        let clear = [0, 1, 13, 100, 1300].map(|len| packet(false, len, 0));
        let sealed: Vec<Vec<u8>> =
            clear.iter().map(|packet| pass(&mut *out, packet).unwrap()).collect();
        // Out of order, twice, and with a wrong bit in the ICV.
        let mut forged = pass(&mut *out, &clear[2]).unwrap();
        *forged.last_mut().unwrap() ^= 1;
        let order = [4, 0, 1, 3, 2, 0].map(|n| &sealed[n]);
        let opened = order.into_iter().chain([&forged]).map(|esp| format!("open {}", hex(esp)));
        let lines = [told.clone()].into_iter().chain(opened);
        let lines = lines.chain(clear.iter().map(|packet| format!("seal {}", hex(packet))));
        let lines = lines.map(|line| line + "\n").collect::<String>() + "\n";
        (Self { told, clear, link: sealed[0][..18].to_vec(), back }, lines)
    }

    /// Holds the peer's answers against what is clear, and opens what it sealed.
    fn check(mut self, answers: &[&str]) {
        let told = self.told;
        let mut expected: Vec<String> =
            [4, 0, 1, 3, 2].map(|n| format!("clear {}", hex(&self.clear[n]))).into();
        expected.extend(["refused".to_owned(), "refused".to_owned()]);
        assert_eq!(answers[..7], expected, "{told}");
        let theirs = |answer: &&str| {
            let ip = hex::decode(answer.strip_prefix("sealed ").unwrap()).unwrap();
            [&self.link[..], &ip].concat()
        };
        let theirs: Vec<Vec<u8>> = answers[7..].iter().map(theirs).collect();
        let mut back = |packet: &[u8]| pass(&mut *self.back, packet);
        for n in [4, 0, 1, 3, 2] {
            let mut forged = theirs[n].clone();
            *forged.last_mut().unwrap() ^= 1;
            assert_eq!(back(&forged), Err(DropReason::AuthenticationFailed), "{told}");
            assert_eq!(back(&theirs[n]).as_ref(), Ok(&self.clear[n]), "{told}");
            assert_eq!(back(&theirs[n]), Err(DropReason::Replayed), "{told}");
        }
    }
}

/// A packet from its IP header on.
fn hex(packet: &[u8]) -> String {
    hex::encode(&packet[18..])
}

#[test]
fn librte_ipsec_opens_ours_and_we_open_its() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = peer(folder.path()) else { return };
    let ways =
        [(false, false, false), (true, true, false), (true, false, true), (false, false, true)];
    let all = Suite::ALL.into_iter().flat_map(|suite| ways.map(|way| (suite, way)));
    // All in one process: DPDK takes longer to start than for an association.
    let (associations, input): (Vec<_>, String) =
        all.map(|(suite, (esn, v6, nat))| Association::begin(suite, esn, v6, nat)).unzip();
    let output = peer::output(&mut Command::new(program), &input);
    let answers: Vec<&str> = output.lines().collect();
    assert_eq!(answers.len(), ANSWERS * associations.len());
    let answers = answers.chunks(ANSWERS);
    associations.into_iter().zip(answers).for_each(|(one, answers)| one.check(answers));
}
