//! The work for datagrams that are chosen to be dear, which the fuzz target `dear` found or started from.

use super::*;
use crate::work;

const RULES: &str = include_str!("../../tests/dear.rules");

#[test]
fn no_datagram_takes_more_work_than_its_length_allows() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/seeds/dear");
    let mut bench = Bench::new(RULES, "unsupported = 'refuse'");
    let mut dearest = (0.0, String::new());
    for seed in std::fs::read_dir(seeds).unwrap() {
        let seed = seed.unwrap();
        let bytes = std::fs::read(seed.path()).unwrap();
        let (port, payload) = bytes.split_first_chunk().unwrap();
        let builder = PacketBuilder::new([2; 6], [4; 6]);
        let builder = builder.ip([10, 0, 0, 1].into(), [192, 0, 2, 1].into());
        let packet = builder.udp(40_000, u16::from_be_bytes(*port)).build(payload);
        work::take();
        bench.send(&[packet]);
        let (steps, most) = (work::take(), work::most(payload.len()));
        let name = seed.file_name().to_string_lossy().into_owned();
        println!("{name}: {steps} steps of {most}");
        assert!(steps <= most, "{name}: {steps} steps, {most} at most");
        let share = steps as f64 / most as f64;
        if share > dearest.0 {
            dearest = (share, name);
        }
    }
    // The bound is not far from what was found.
    assert!(dearest.0 > 0.25, "{dearest:?}");
}
