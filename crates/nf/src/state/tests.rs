//! State is read as it was written, or refused.

use proptest::prelude::*;
use thalweg_packet::{FiveTuple, Nanoseconds};

use super::header::Header;
use super::*;
use crate::{Buckets, Steering};

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
    let header = 4 + 2 + 1 + 3 + 2 + 12 + 8 + 8 + 4;
    let name = 2 * 5 + 3;
    let record = 4 + (4 + name + 5) + 4;
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
    // Each has the whole stream several times, and there are 4000 places to break off.
    #![proptest_config(ProptestConfig::with_cases(100))]
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

/// A stream of format 2 as the version before this one wrote it: flows 1 and 2 of `stream`.
const FORMAT_2: &[u8] = b"THWS\x02\0\x03nat\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\
    \x05\0\0\0\x01\x03one\xa0.\xdal\
    \x05\0\0\0\x02\x03two\xe7X\xdc@\
    \xff\xff\xff\xff\x02\0\0\0\0\0\0\0+\x12\xdc\xcd";

#[test]
fn the_format_before_is_read_and_its_records_name_no_flow() {
    assert_eq!(read_all(FORMAT_2).unwrap(), [(1, "one".into()), (2, "two".into())]);
    let open = || StateReader::new(Box::leak(Box::new(FORMAT_2)), "nat", 3).unwrap();
    assert_eq!((open().clock(), open().expected()), (None, 0));
    let filter = FlowFilter::parse("udp").unwrap();
    assert!(matches!(open().only(filter), Err(StateError::Nameless)));
    assert!(matches!(open().within(Buckets::new(STEERING, [])), Err(StateError::Nameless)));
    // A receiver hands it on as it came, and no piece of another format joins it.
    let mut receiver = StateReceiver::new("nat", 3).unwrap();
    assert!(receiver.receive(&mut &FORMAT_2[..40]).is_err());
    let mut rest = Vec::new();
    hosts(&mut rest, receiver.mark(), None).unwrap_err();
    let error = receiver.receive(&mut &rest[..]).unwrap_err();
    assert!(matches!(error, StateError::Format { found: 3 }), "{error}");
    let mut receiver = StateReceiver::new("nat", 3).unwrap();
    receiver.receive(&mut &FORMAT_2[..]).unwrap();
    assert_eq!(receiver.deliver(read_records).unwrap().len(), 2);
    for (found, name) in [(1, "1"), (4, "4")] {
        let mut other = FORMAT_2.to_vec();
        other[4] = found;
        let error = read_all(&other).unwrap_err().to_string();
        let expected = format!("state stream has format {name}; this program reads formats 2 to 3");
        assert_eq!(error, expected);
    }
}

const STEERING: Steering = Steering::with_seed(5);

#[test]
fn a_stream_has_the_time_the_expectation_and_the_flows_of_its_nf() {
    let mut bytes = Vec::new();
    let mut writer = StateWriter::new(&mut bytes, "nat", 3).unwrap().at(Nanoseconds(77));
    writer.expect(9);
    writer.expect(10);
    writer.record([flow(1), flow(2)], &1u8).unwrap();
    writer.record([], &2u8).unwrap();
    writer.finish().unwrap();
    // A stream that was received in pieces is the same.
    let mut receiver = StateReceiver::new("nat", 3).unwrap();
    assert!(receiver.receive(&mut &bytes[..bytes.len() - 20]).is_err());
    let mut rest = Vec::new();
    let mut writer = StateWriter::resume(&mut rest, "nat", 3, receiver.mark()).unwrap();
    writer.record([flow(1), flow(2)], &1u8).unwrap();
    writer.record([], &2u8).unwrap();
    writer.finish().unwrap();
    receiver.receive(&mut &rest[..]).unwrap();
    receiver
        .deliver(|reader| {
            assert_eq!((reader.clock(), reader.expected()), (Some(Nanoseconds(77)), 9));
            assert_eq!(reader.record::<u8>()?, Some(1));
            assert_eq!(reader.flows()?, [flow(1), flow(2)]);
            assert_eq!(reader.record::<u8>()?, Some(2));
            assert_eq!(reader.flows()?, []);
            assert_eq!(reader.record::<u8>()?, None);
            Ok(())
        })
        .unwrap();
}

proptest! {
    #[test]
    fn owners_of_buckets_share_a_stream(
        flows in proptest::collection::vec(proptest::option::of(any::<(u8, bool)>()), 0..100),
        owners in 1usize..5,
    ) {
        let name = |(n, v6): (u8, bool)| FiveTuple {
            src: if v6 { [0xfd00, 0, 0, 0, 0, 0, 0, n.into()].into() } else { [10, 0, 0, n].into() },
            ..flow(9)
        };
        let write = |buckets: Option<Buckets>| {
            let mut bytes = Vec::new();
            let mut writer = StateWriter::new(&mut bytes, "nat", 3).unwrap();
            if let Some(buckets) = buckets {
                writer = writer.within(buckets);
            }
            for (n, flow) in (0u32..).zip(&flows) {
                writer.record(flow.map(name), &(n, String::new())).unwrap();
            }
            writer.finish().unwrap();
            bytes
        };
        let all = write(None);
        let mut shared = Vec::new();
        for owner in 0..owners {
            let own = (0..4096).filter(|bucket| usize::from(*bucket) * owners / 4096 == owner);
            let own = Buckets::new(STEERING, own);
            // Whether the writer or the reader selects.
            let written = read_all(&write(Some(own.clone()))).unwrap();
            let mut input = &all[..];
            let mut reader = StateReader::new(&mut input, "nat", 3).unwrap().within(own).unwrap();
            prop_assert_eq!(&read_records(&mut reader).unwrap(), &written);
            shared.extend(written);
        }
        shared.sort();
        prop_assert_eq!(shared, read_all(&all).unwrap());
    }

    #[test]
    fn names_of_a_stranger_are_survived(body in proptest::collection::vec(any::<u8>(), 0..40)) {
        let mut bytes = Vec::new();
        Header::new(Mark::default()).write(&mut bytes, "nat", 3).unwrap();
        bytes.extend((body.len() as u32).to_le_bytes());
        bytes.extend(&body);
        bytes.extend(crc32fast::hash(&body).to_le_bytes());
        let mut input = &bytes[..];
        let mut reader = StateReader::new(&mut input, "nat", 3).unwrap();
        let record = reader.record::<u8>();
        let flows = reader.flows().map(<[_]>::len);
        if let Some((names, rest)) = names::split(&body) {
            prop_assert_eq!(record.is_ok(), !rest.is_empty());
            prop_assert!(flows.is_err() || flows.unwrap() * 13 <= names.len());
        } else {
            prop_assert!(record.is_err());
        }
    }
}

#[test]
fn a_reader_selects_flows_of_a_pattern() {
    let bytes = stream();
    let filter = FlowFilter::parse("udp,nw_dst=10.0.0.2").unwrap();
    let mut input = &bytes[..];
    let mut reader = StateReader::new(&mut input, "nat", 3).unwrap().only(filter).unwrap();
    assert_eq!(read_records(&mut reader).unwrap(), [(2, "two".into())]);
    assert!(reader.finish().is_ok());
}
