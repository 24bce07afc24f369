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

/// The peer's answers to the lines of `input`.
fn answers(program: &Path, input: &str) -> Vec<String> {
    peer::output(&mut Command::new(program), input).lines().map(str::to_owned).collect()
}

fn held_against(program: &Path, suite: Suite, esn: bool, v6: bool, nat: bool) {
    let told = format!("{} {esn} {v6} {nat}", suite.name());
    let end = |outbound| {
        let udp = if nat { "udp_ports = [4500, 4500]\nesn =" } else { "esn =" };
        instance(&options(suite, esn, v6, outbound).replace("esn =", udp))
    };
    let (mut out, mut back) = (end(true), end(false));
    let clear = [0, 1, 13, 100, 1300].map(|len| packet(false, len, 0));
    let hex = |packet: &[u8]| hex::encode(&packet[18..]);
    let sealed: Vec<Vec<u8>> =
        clear.iter().map(|packet| pass(&mut *out, packet).unwrap()).collect();
    // Out of order, twice, and with a wrong bit in the ICV.
    let mut forged = pass(&mut *out, &clear[2]).unwrap();
    *forged.last_mut().unwrap() ^= 1;
    let order = [4, 0, 1, 3, 2, 0].map(|n| &sealed[n]);
    let opened = order.into_iter().chain([&forged]).map(|esp| format!("open {}", hex(esp)));
    let lines = [told.clone()].into_iter().chain(opened);
    let lines = lines.chain(clear.iter().map(|packet| format!("seal {}", hex(packet))));
    let answers = answers(program, &lines.chain([String::new()]).collect::<Vec<_>>().join("\n"));
    let mut expected: Vec<String> =
        [4, 0, 1, 3, 2].map(|n| format!("clear {}", hex(&clear[n]))).into();
    expected.extend(["refused".to_owned(), "refused".to_owned()]);
    assert_eq!(answers[..7], expected, "{told}");
    assert_eq!(answers.len(), 12, "{told}");
    let link = &sealed[0][..18];
    let theirs = |answer: &str| {
        let ip = hex::decode(answer.strip_prefix("sealed ").unwrap()).unwrap();
        [link, &ip].concat()
    };
    let theirs: Vec<Vec<u8>> = answers[7..].iter().map(|answer| theirs(answer)).collect();
    for n in [4, 0, 1, 3, 2] {
        let mut forged = theirs[n].clone();
        *forged.last_mut().unwrap() ^= 1;
        assert_eq!(pass(&mut *back, &forged), Err(DropReason::AuthenticationFailed), "{told}");
        assert_eq!(pass(&mut *back, &theirs[n]).as_ref(), Ok(&clear[n]), "{told}");
        assert_eq!(pass(&mut *back, &theirs[n]), Err(DropReason::Replayed), "{told}");
    }
}

#[test]
fn librte_ipsec_opens_ours_and_we_open_its() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = peer(folder.path()) else { return };
    for suite in Suite::ALL {
        for (esn, v6, nat) in
            [(false, false, false), (true, true, false), (true, false, true), (false, false, true)]
        {
            held_against(&program, suite, esn, v6, nat);
        }
    }
}
