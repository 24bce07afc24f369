//! Sequence numbers and windows that are taken over.

use super::*;

#[test]
fn state_taken_over_repeats_no_number_and_admits_no_replay() {
    let (out_text, in_text) = (options(GCM, true, false, true), options(GCM, true, false, false));
    let (mut out, mut back) = (instance(&out_text), instance(&in_text));
    let first = pass(&mut *out, &packet(false, 10, 0)).unwrap();
    pass(&mut *back, &first).unwrap();
    let moved = |from: &dyn NetworkFunction, text: &str| {
        let mut stream = Vec::new();
        let mut writer = StateWriter::new(&mut stream, "ipsec", STATE_VERSION).unwrap();
        from.export_state(&mut writer).unwrap();
        writer.finish().unwrap();
        let mut to = instance(text);
        let mut input = &stream[..];
        to.import_state(&mut StateReader::new(&mut input, "ipsec", STATE_VERSION).unwrap())
            .unwrap();
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
    let blueprint = built(&options(CBC, false, false, true)).unwrap();
    let mut nf = blueprint.instance(0);
    let mut stream = Vec::new();
    let mut writer = StateWriter::new(&mut stream, "ipsec", STATE_VERSION).unwrap();
    writer
        .record([], &SaRecord::Outbound { spi: 4660, last_sent: u64::from(u32::MAX) - 1, bytes: 0 })
        .unwrap();
    writer.finish().unwrap();
    nf.import_state(&mut StateReader::new(&mut &stream[..], "ipsec", STATE_VERSION).unwrap())
        .unwrap();
    assert!(pass(&mut *nf, &packet(false, 0, 0)).is_ok());
    assert_eq!(pass(&mut *nf, &packet(false, 0, 0)), Err(DropReason::SequenceExhausted));
}
