//! State is read as it was written, or refused.

use proptest::prelude::*;
use thalweg_packet::FiveTuple;

use super::*;

/// A flow of host `n`.
fn flow(n: u8) -> FiveTuple {
    let (src, dst) = ([10, 0, 0, n].into(), [192, 0, 2, 1].into());
    FiveTuple { src, dst, protocol: 17, src_port: 9, dst_port: 53 }
}

fn stream() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = StateWriter::new(&mut bytes, "nat", 3).unwrap();
    writer.record([flow(1)], &(1u32, "one".to_owned())).unwrap();
    writer.record([flow(2)], &(2u32, "two".to_owned())).unwrap();
    assert_eq!(writer.finish().unwrap(), 2);
    bytes
}

fn read_all(mut bytes: &[u8]) -> Result<Vec<(u32, String)>, StateError> {
    read_records(&mut StateReader::new(&mut bytes, "nat", 3)?)
}

#[test]
fn records_come_back_as_written() {
    assert_eq!(read_all(&stream()).unwrap(), [(1, "one".into()), (2, "two".into())]);
}

#[test]
fn every_cut_and_every_flipped_bit_is_refused() {
    let good = stream();
    for cut in 0..good.len() {
        assert!(read_all(&good[..cut]).is_err(), "cut at {cut}");
    }
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(read_all(&bad).is_err(), "bit {bit}");
    }
}

#[test]
fn a_cut_is_named_with_its_place() {
    let good = stream();
    let header = 4 + 2 + 1 + 3 + 2 + 12;
    let record = 4 + 5 + 4;
    let place = |cut: usize| match read_all(&good[..cut]) {
        Err(StateError::Cut(place)) => place,
        other => panic!("cut at {cut}: {other:?}"),
    };
    assert!((0..header).all(|cut| place(cut) == Place::Header));
    for n in 0..2 {
        let start = header + record * n;
        assert!((start..start + 4).all(|cut| place(cut) == Place::Behind(n as u64)));
        assert!((start + 4..start + record).all(|cut| place(cut) == Place::Within(n as u64)));
    }
    assert!((header + 2 * record..good.len()).all(|cut| place(cut) == Place::Behind(2)));
    let error = read_all(&good[..header + record + 6]).unwrap_err().to_string();
    assert_eq!(error, "state stream ends within record 1");
}

#[test]
fn a_file_holds_one_stream() {
    let finish = |mut bytes: &[u8]| {
        let mut reader = StateReader::new(&mut bytes, "nat", 3)?;
        read_records(&mut reader)?;
        reader.finish()
    };
    let good = stream();
    assert!(finish(&good).is_ok());
    for behind in [&[0][..], &good] {
        let error = finish(&[&good, behind].concat());
        assert!(matches!(error, Err(StateError::Trailing)), "{error:?}");
    }
}

#[test]
fn another_kind_or_version_is_named() {
    let bytes = stream();
    let error = StateReader::new(&mut &bytes[..], "nat", 4).err().unwrap().to_string();
    assert_eq!(error, "state of 'nat' version 3, expected 'nat' version 4");
}

fn read_records(reader: &mut StateReader<'_>) -> Result<Vec<(u32, String)>, StateError> {
    reader.records()
}

/// Writes a stream of flows 0 to 255 with their numbers, from `mark` on.
fn hosts(bytes: &mut Vec<u8>, mark: Mark, changed: Option<u8>) -> Result<u64, StateError> {
    let mut writer = StateWriter::resume(bytes, "nat", 3, mark)?;
    for n in 0..=255u8 {
        let value = if changed == Some(n) { 1000 } else { u32::from(n) };
        writer.record([flow(n)], &(value, n.to_string()))?;
    }
    writer.finish()
}

proptest! {
    #[test]
    fn a_stream_that_breaks_off_goes_on(cuts in proptest::collection::vec(0usize..4000, 0..6)) {
        let mut receiver = StateReceiver::new("nat", 3).unwrap();
        for cut in cuts {
            let mut bytes = Vec::new();
            hosts(&mut bytes, receiver.mark(), None).unwrap();
            let cut = cut.min(bytes.len() - 1);
            prop_assert!(receiver.receive(&mut &bytes[..cut]).is_err());
            prop_assert!(receiver.deliver(read_records).is_err());
        }
        let before = receiver.mark();
        let mut bytes = Vec::new();
        prop_assert_eq!(hosts(&mut bytes, before, None).unwrap(), 256);
        receiver.receive(&mut &bytes[..]).unwrap();
        let all = receiver.deliver(read_records).unwrap();
        prop_assert!(all.into_iter().eq((0..256).map(|n| (n, n.to_string()))));
    }
}

#[test]
fn a_stream_does_not_go_on_behind_others() {
    let mut bytes = Vec::new();
    hosts(&mut bytes, Mark::default(), None).unwrap();
    let mut receiver = StateReceiver::new("nat", 3).unwrap();
    assert!(receiver.receive(&mut &bytes[..1000]).is_err());
    let mark = receiver.mark();
    assert!((20..200).contains(&mark.records), "{mark:?}");
    // One of the records before the mark has changed, or one after it.
    let error = hosts(&mut Vec::new(), mark, Some(7)).unwrap_err().to_string();
    let n = mark.records;
    assert_eq!(
        error,
        format!(
            "state stream resumes at record {n}, but the records before it do not match those \
             present here ({n})"
        )
    );
    assert!(hosts(&mut Vec::new(), mark, Some(201)).is_ok());
    // There are fewer records than before the mark.
    let writer = StateWriter::resume(&mut bytes, "nat", 3, mark).unwrap();
    assert!(matches!(writer.finish(), Err(StateError::Mark { found: 0, .. })));
    // The receiver is at another mark.
    let mut later = Vec::new();
    hosts(&mut later, Mark { records: 0, digest: 1 }, None).unwrap_err();
    assert!(matches!(receiver.receive(&mut &later[..]), Err(StateError::Mark { .. })));
    assert!(StateReader::new(&mut &later[..], "nat", 3).is_err());
}

#[test]
fn only_flows_of_the_filter_are_written() {
    let mut bytes = Vec::new();
    let filter = FlowFilter::parse("udp,nw_src=10.0.0.128/25").unwrap();
    let mut writer = StateWriter::new(&mut bytes, "nat", 3).unwrap().only(filter);
    for n in 0..=255u8 {
        // Each record is shared by two flows; no filter matches those of none.
        writer.record([flow(n & !1), flow(n | 1)], &(u32::from(n), String::new())).unwrap();
        writer.record([], &(999u32, String::new())).unwrap();
    }
    assert_eq!(writer.finish().unwrap(), 128);
    let all = read_all(&bytes).unwrap();
    assert!(all.iter().map(|(n, _)| *n).eq(128..256));
}
