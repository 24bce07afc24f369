//! Several capture files that are read as one.

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use thalweg_io::{
    CaptureFiles, CaptureInput, CaptureOutput, Input, IoError, MemoryInput, Output, Selection,
};
use thalweg_packet::{BATCH, Batch, DropCounts, Lanes, Nanoseconds, Pool};

use common::Seen;

const FORMATS: [&str; 4] = ["pcap", "pcapng", "pcap.gz", "pcapng.gz"];

fn packet(time: u64) -> Seen {
    let bytes = [&time.to_be_bytes()[..], &[7; 30][..time as usize % 30]].concat();
    Seen { wire_len: bytes.len() as u32, bytes, timestamp: Nanoseconds(1_000_000_000_000 + time) }
}

fn write(path: &Path, times: &[u64]) {
    let mut output = CaptureOutput::create(path).unwrap();
    for packet in times.iter().map(|time| packet(*time)) {
        output.write(&packet.bytes, packet.wire_len, packet.timestamp).unwrap();
    }
    output.flush().unwrap();
}

/// Writes a file for each list of times, of alternating formats; returns their paths.
fn written(folder: &Path, files: &[Vec<u64>]) -> Vec<PathBuf> {
    let path = |n: usize| folder.join(format!("{n}.{}", FORMATS[n % 4]));
    files.iter().enumerate().for_each(|(n, times)| write(&path(n), times));
    (0..files.len()).map(path).collect()
}

/// Receives everything, `most` packets at a time; `observe` is called after each call.
fn drain(
    input: &mut dyn Input,
    most: usize,
    mut observe: impl FnMut(&dyn Input),
) -> (Vec<Seen>, Vec<IoError>) {
    let mut batch = Batch::new(Arc::new(Pool::anonymous(64, 2048).unwrap()));
    let (mut packets, mut errors, mut drops) = (Vec::new(), Vec::new(), DropCounts::default());
    loop {
        let received = input.receive(&mut batch, most, &mut drops);
        observe(input);
        packets.extend(batch.lanes().into_iter().map(|lane| Seen {
            bytes: batch.bytes(lane).to_vec(),
            wire_len: batch.meta.wire_len[lane],
            timestamp: batch.meta.timestamp[lane],
        }));
        batch.release(Lanes::ALL);
        match received {
            Ok(received) if received.ended => return (packets, errors),
            Ok(_) => {}
            Err(error) => errors.push(error),
        }
    }
}

/// The files, of which none may be refused.
fn several(paths: Vec<PathBuf>) -> CaptureFiles {
    let (files, errors) = CaptureFiles::several(paths);
    assert!(errors.is_empty(), "{errors:?}");
    files
}

/// The inputs that read `files`.
fn inputs(files: &CaptureFiles, loops: u64) -> [Box<dyn Input>; 2] {
    [
        Box::new(CaptureInput::open_files(files, Selection::default(), loops).unwrap()),
        Box::new(MemoryInput::load_files(files, Selection::default(), loops).unwrap()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]
    #[test]
    fn packets_are_read_in_order_however_they_are_spread_over_files(
        steps in prop::collection::vec(prop_oneof![1..100u64, Just(5_000_000_000)], 0..300),
        places in prop::collection::vec(0..50usize, 300),
        width in 1..6usize,
        most in 1..=BATCH,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let times: Vec<u64> = steps.iter().scan(0, |time, step| { *time += step; Some(*time) }).collect();
        // As a rotated capture, and some packets in other files.
        let mut files = vec![Vec::new(); 60];
        for (n, time) in times.iter().enumerate() {
            let place = if places[n] < width { places[n] } else { 59 - n / 5 % 60 };
            files[place].push(*time);
        }
        let files = several(written(folder.path(), &files));
        let expected: Vec<Seen> = times.iter().map(|time| packet(*time)).collect();
        for mut input in inputs(&files, 1) {
            let (packets, errors) = drain(&mut *input, most, |_| {});
            prop_assert!(errors.is_empty(), "{:?}", errors);
            prop_assert_eq!(&packets, &expected);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn changed_bytes_end_the_files_that_they_are_in(
        files in prop::collection::vec(prop::collection::vec(0..500u64, 1..20), 1..5),
        changes in prop::collection::vec(any::<(prop::sample::Index, prop::sample::Index, u8)>(), 0..20),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let paths = written(folder.path(), &files);
        for (file, at, value) in changes {
            let path = file.get(&paths);
            let mut bytes = std::fs::read(path).unwrap();
            let at = at.index(bytes.len());
            bytes[at] = value;
            std::fs::write(path, bytes).unwrap();
        }
        let (files, _) = CaptureFiles::several(paths);
        let [streamed, loaded] = inputs(&files, 1).map(|mut input| drain(&mut *input, 7, |_| {}));
        prop_assert_eq!(streamed.0, loaded.0);
        let texts = |errors: &[IoError]| errors.iter().map(ToString::to_string).collect::<Vec<_>>();
        prop_assert_eq!(texts(&streamed.1), texts(&loaded.1));
        prop_assert!(streamed.1.len() <= files.paths().len(), "{:?}", streamed.1);
    }
}

#[test]
fn packets_of_one_time_keep_the_order_of_their_files() {
    let folder = tempfile::tempdir().unwrap();
    // By their first packets: 2, 0, 1; of 0 and 1, the first named.
    let paths = written(folder.path(), &[vec![5, 5, 9], vec![5, 9], vec![1, 5]]);
    let files = several(paths.clone());
    let order: Vec<_> = files.paths().collect();
    assert_eq!(order, [&paths[2], &paths[0], &paths[1]]);
    for mut input in inputs(&files, 1) {
        let (packets, _) = drain(&mut *input, BATCH, |_| {});
        let expected = [1, 5, 5, 5, 5, 9, 9].map(packet);
        assert_eq!(packets, expected);
    }
}

/// How many files of `folder` this process has open.
fn open_files(folder: &Path) -> usize {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let targets = descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    targets.filter(|target| target.starts_with(folder)).count()
}

#[test]
fn few_files_are_open_however_many_overlap() {
    let folder = tempfile::tempdir().unwrap();
    let overlapping: Vec<Vec<u64>> =
        (0..300).map(|n| (0..9).map(|k| n + 300 * k).collect()).collect();
    let rotated: Vec<Vec<u64>> = (0..300).map(|n| (0..9).map(|k| 9 * n + k).collect()).collect();
    for (times, most_open) in [(overlapping, 33), (rotated, 2)] {
        let files = several(written(folder.path(), &times));
        let mut input = CaptureInput::open_files(&files, Selection::default(), 1).unwrap();
        let (mut most, mut share) = (0, 0.0);
        let (packets, errors) = drain(&mut input, BATCH, |input| {
            most = most.max(open_files(folder.path()));
            let now = input.share().unwrap();
            assert!((share..=1.0).contains(&now), "{share} then {now}");
            share = now;
        });
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!(packets, (0..2700).map(packet).collect::<Vec<_>>());
        assert!((1..=most_open).contains(&most), "{most} files were open");
        assert!(share >= 1.0, "{share}");
    }
}

#[test]
fn a_damaged_file_is_named_and_the_others_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let times = [vec![1, 4, 7], vec![2, 5, 8], vec![3, 6, 9], vec![10], vec![11]];
    let paths = written(folder.path(), &times);
    let files = several(paths.clone());
    let whole = std::fs::read(&paths[1]).unwrap();
    std::fs::write(&paths[1], &whole[..whole.len() - 2]).unwrap();
    std::fs::remove_file(&paths[3]).unwrap();
    // However often they are to be replayed.
    for mut input in inputs(&files, 3) {
        let (packets, errors) = drain(&mut *input, BATCH, |_| {});
        assert_eq!(packets, [1, 2, 3, 4, 5, 6, 7, 9, 11].map(packet));
        let named: Vec<_> = errors.iter().map(|error| error.path().unwrap()).collect();
        assert_eq!(named, [&paths[1], &paths[3]]);
        assert!(matches!(errors[0], IoError::Damaged { .. }), "{errors:?}");
        assert!(matches!(errors[1], IoError::File { .. }), "{errors:?}");
    }
}

#[test]
fn another_file_that_takes_the_name_of_one_under_way_is_not_read_on() {
    let folder = tempfile::tempdir().unwrap();
    // So long that a file is read several times.
    let times: Vec<Vec<u64>> = (0..60).map(|n| (0..2000).map(|k| n + 60 * k).collect()).collect();
    let paths = written(folder.path(), &times);
    let files = several(paths.clone());
    let replaced = paths[48].clone();
    let mut input = CaptureInput::open_files(&files, Selection::default(), 1).unwrap();
    let mut calls = 0;
    let (packets, errors) = drain(&mut input, BATCH, |_| {
        calls += 1;
        if calls == 100 {
            let other = folder.path().join("other");
            std::fs::copy(&replaced, &other).unwrap();
            std::fs::rename(&other, &replaced).unwrap();
        }
    });
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0].path(), Some(&*replaced));
    assert!(errors[0].to_string().ends_with("another file has taken its name"), "{}", errors[0]);
    let others =
        packets.iter().filter(|packet| packet.timestamp.0 % 60 != (1_000_000_000_000 + 48) % 60);
    assert_eq!(others.count(), 59 * 2000);
}

#[test]
fn files_without_packets_are_fine_and_others_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let paths = written(folder.path(), &[vec![], vec![2], vec![1]]);
    let [empty, text, missing] = ["empty", "text", "missing"].map(|name| folder.path().join(name));
    std::fs::write(&empty, "").unwrap();
    std::fs::write(&text, "no capture").unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&paths[2], &link).unwrap();
    let all = [&paths[..], &[empty, text, missing, folder.path().to_owned(), link]].concat();
    let (files, errors) = CaptureFiles::several(all.clone());
    let named: Vec<_> = errors.iter().map(|error| error.path().unwrap()).collect();
    assert_eq!(named, [&all[3], &all[4], &all[5], &all[6]]);
    assert!(
        matches!(errors[0], IoError::Format { .. }) && matches!(errors[1], IoError::Format { .. })
    );
    assert!(matches!(errors[2], IoError::File { .. }) && matches!(errors[3], IoError::File { .. }));
    for mut input in inputs(&files, 1) {
        assert_eq!(drain(&mut *input, BATCH, |_| {}).0, [1, 2].map(packet));
    }
    let (none, errors) = CaptureFiles::several(Vec::new());
    assert!(errors.is_empty());
    for mut input in inputs(&none, 0) {
        assert_eq!(drain(&mut *input, BATCH, |_| {}).0, []);
    }
}

#[test]
fn a_replay_repeats_all_files() {
    let folder = tempfile::tempdir().unwrap();
    let files = several(written(folder.path(), &[vec![10, 30], vec![20], vec![40]]));
    for mut input in inputs(&files, 3) {
        let (packets, _) = drain(&mut *input, BATCH, |_| {});
        let times: Vec<_> = packets.iter().map(|p| p.timestamp.0 - 1_000_000_000_000).collect();
        assert_eq!(times, [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120]);
    }
}
