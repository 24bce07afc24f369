//! Every public capture is read until its end or its damage, with the same count
//! as Wireshark's `capinfos`.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use thalweg_io::{CaptureInput, IoError, MemoryInput};

use common::drain;
use thalweg_testkit::{captures, data_folder, peer};

/// Captures that `capinfos` counts at once.
const TOGETHER: usize = 32;

/// The number of packets that `capinfos` finds in each capture; `None` if it reports an error.
fn packets_by_capinfos(paths: &[PathBuf]) -> Vec<Option<usize>> {
    let output = Command::new("capinfos").args(["-M", "-c", "-r", "-T", "-m"]).args(paths).output();
    let output = output.expect("capinfos runs");
    if output.status.success() && output.stderr.is_empty() {
        let text = String::from_utf8(output.stdout).expect("capinfos writes text");
        let count = |line: &str| line.rsplit(',').next()?.trim_matches('"').parse().ok();
        let counts: Vec<_> = text.lines().map(count).collect();
        assert_eq!(counts.len(), paths.len(), "{text}");
        return counts;
    }
    // It does not say of which of several.
    match paths {
        [_] => vec![None],
        _ => paths.chunks(paths.len().div_ceil(2)).flat_map(packets_by_capinfos).collect(),
    }
}

fn capinfos_is_there() -> bool {
    peer::is_there("capinfos", &["--version"])
}

#[test]
fn every_public_capture_is_counted_as_capinfos_counts() {
    let Some(folder) = data_folder() else { return };
    if !capinfos_is_there() {
        return;
    }
    let captures = captures(&folder);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let share = captures.len().div_ceil(threads);
    let compared: usize = std::thread::scope(|scope| {
        let compare = |part: &[PathBuf]| {
            let expected = part.chunks(TOGETHER).flat_map(packets_by_capinfos);
            part.iter().zip(expected).filter(|(path, count)| agrees(path, *count)).count()
        };
        let parts: Vec<_> =
            captures.chunks(share).map(|part| scope.spawn(move || compare(part))).collect();
        parts.into_iter().map(|part| part.join().unwrap()).sum()
    });
    println!("{compared} of {} captures compared", captures.len());
    assert!(compared > 1000, "only {compared} captures compared");
}

/// Whether `capinfos` read the capture, and found `expected` packets; panics if our result differs.
fn agrees(path: &Path, expected: Option<usize>) -> bool {
    match (CaptureInput::open(path, 1), expected) {
        (Ok(mut input), Some(expected)) => {
            let ours = drain(&mut input);
            assert!(ours.error.is_none(), "{}: {}", path.display(), ours.error.unwrap());
            assert_eq!(ours.received, expected, "{}", path.display());
            true
        }
        (Err(error), Some(_)) => panic!("capinfos reads what we do not: {error}"),
        (Ok(mut input), None) => {
            let ours = drain(&mut input);
            println!("{}: capinfos refuses; ours: {:?}", path.display(), ours.error);
            false
        }
        (Err(error), None) => {
            println!("both refuse: {error}");
            false
        }
    }
}

#[test]
fn every_public_capture_reads_the_same_from_file_and_from_memory() {
    let Some(folder) = data_folder() else { return };
    let mut packets = 0;
    for path in captures(&folder) {
        match (CaptureInput::open(&path, 1), MemoryInput::load(&path, 1)) {
            (Ok(mut file), Ok(mut memory)) => {
                let (file, memory) = (drain(&mut file), drain(&mut memory));
                assert_eq!(file.packets, memory.packets, "{}", path.display());
                assert_eq!(file.drops, memory.drops, "{}", path.display());
                assert_eq!(file.bytes, memory.bytes, "{}", path.display());
                assert_eq!(file.error.is_some(), memory.error.is_some(), "{}", path.display());
                if let Some(error) = file.error {
                    assert!(matches!(error, IoError::Damaged { .. }), "{error}");
                }
                packets += file.received;
            }
            (Err(file), Err(memory)) => assert_eq!(file.to_string(), memory.to_string()),
            _ => panic!("{}: only one of file and memory opens it", path.display()),
        }
    }
    assert!(packets > 10_000, "only {packets} packets read");
}
