//! Sequence numbers and windows that are taken over.

use thalweg_testkit::moving::assert_reads_recorded;

use super::*;

fn exported(from: &dyn NetworkFunction) -> Vec<u8> {
    let mut stream = Vec::new();
    let mut writer = StateWriter::new(&mut stream, "ipsec", STATE_VERSION).unwrap();
    from.export_state(&mut writer).unwrap();
    writer.finish().unwrap();
    stream
}

fn import(to: &mut dyn NetworkFunction, mut stream: &[u8]) {
    let mut reader = StateReader::new(&mut stream, "ipsec", STATE_VERSION).unwrap();
    to.import_state(&mut reader).unwrap();
}

/// An NF that continues from the state of another.
fn moved(from: &dyn NetworkFunction, text: &str) -> Box<dyn NetworkFunction> {
    let mut to = instance(text);
    import(&mut *to, &exported(from));
    to
}

#[test]
fn state_taken_over_repeats_no_number_and_admits_no_replay() {
    let (out_text, in_text) = (options(GCM, true, false, true), options(GCM, true, false, false));
    let (mut out, mut back) = (instance(&out_text), instance(&in_text));
    let first = pass(&mut *out, &packet(false, 10, 0)).unwrap();
    pass(&mut *back, &first).unwrap();
    let (mut out, mut back) = (moved(&*out, &out_text), moved(&*back, &in_text));
    assert_eq!(pass(&mut *back, &first), Err(DropReason::Replayed));
    let second = pass(&mut *out, &packet(false, 10, 0)).unwrap();
    assert_eq!(second[42..46], 2u32.to_be_bytes());
    assert!(pass(&mut *back, &second).is_ok());
}

#[test]
fn numbers_end_where_they_must() {
    let blueprint = built(&options(CBC, false, false, true)).unwrap();
    let mut nf = blueprint.instance();
    let mut stream = Vec::new();
    let mut writer = StateWriter::new(&mut stream, "ipsec", STATE_VERSION).unwrap();
    let receiver = (4660, [192, 0, 2, 2].into(), None);
    let last_sent = u64::from(u32::MAX) - 1;
    writer.record([], &SaRecord::Outbound { receiver, last_sent, bytes: 0 }).unwrap();
    writer.finish().unwrap();
    import(&mut *nf, &stream);
    assert!(pass(&mut *nf, &packet(false, 0, 0)).is_ok());
    assert_eq!(pass(&mut *nf, &packet(false, 0, 0)), Err(DropReason::SequenceExhausted));
}

#[test]
fn associations_of_one_spi_go_on_each_by_itself() {
    let sa = options(GCM, false, false, true).split("[[policy]]").next().unwrap().to_owned();
    let sa = sa.replace("esn =", "lifetime_bytes = 250\nesn =");
    let text = sa.clone()
        + &sa.replace("'x'", "'y'").replace("192.0.2.2", "192.0.2.3")
        + "[[policy]]\nmatch = 'ip'\naction = 'protect'\nsa = 'x'\n\
           [[policy]]\nmatch = 'ipv6'\naction = 'protect'\nsa = 'y'\n";
    let mut out = instance(&text);
    // 128 bytes of IP.
    let to_x = packet(false, 100, 0);
    pass(&mut *out, &to_x).unwrap();
    let mut out = moved(&*out, &text);
    assert_eq!(pass(&mut *out, &to_x), Err(DropReason::LifetimeOver));
    let to_y = packet(true, 100, 0);
    let first = pass(&mut *out, &to_y).unwrap();
    assert_eq!(first[42..46], 1u32.to_be_bytes());
}

#[test]
fn an_older_state_opens_no_window_again() {
    let in_text = options(GCM, false, false, false).replace("esn =", "lifetime_packets = 4\nesn =");
    let (mut out, mut back) = (instance(&options(GCM, false, false, true)), instance(&in_text));
    let esp: Vec<_> = (0..5).map(|_| pass(&mut *out, &packet(false, 10, 0)).unwrap()).collect();
    pass(&mut *back, &esp[0]).unwrap();
    let older = exported(&*back);
    pass(&mut *back, &esp[2]).unwrap();
    import(&mut *back, &older);
    for seen in [0, 2] {
        assert_eq!(pass(&mut *back, &esp[seen]), Err(DropReason::Replayed), "{seen}");
    }
    // What another has received is merged.
    let mut other = moved(&*back, &in_text);
    pass(&mut *other, &esp[1]).unwrap();
    import(&mut *back, &exported(&*other));
    assert_eq!(pass(&mut *back, &esp[1]), Err(DropReason::Replayed));
    assert!(pass(&mut *back, &esp[3]).is_ok());
    // A lifetime does not restart either.
    import(&mut *back, &older);
    assert_eq!(pass(&mut *back, &esp[4]), Err(DropReason::LifetimeOver));
}

/// A recorded stream of the format before: the outbound SA of `options`, after thirteen packets.
const FORMAT_2: &[u8] = include_bytes!("format-2.state");

#[test]
fn the_format_before_is_read() {
    let mut out = instance(&options(GCM, true, false, true));
    assert_reads_recorded(&mut *out, "ipsec", FORMAT_2, 1);
    let next = pass(&mut *out, &packet(false, 10, 0)).unwrap();
    assert_eq!(next[42..46], 14u32.to_be_bytes());
}

/// A reload: associations that are the same continue their numbers and windows, others begin anew.
#[test]
fn a_renewed_instance_continues_the_associations_that_stay() {
    let text = options(GCM, true, false, true);
    let build = |text: &str| thalweg_testkit::build(&KIND, text, &Environment::default());
    let mut blueprint = build(&text).unwrap().0;
    let mut out = blueprint.instance();
    let number = |sent: &[u8]| u32::from_be_bytes(sent[42..46].try_into().unwrap());
    let send = |nf: &mut dyn NetworkFunction| number(&pass(nf, &packet(false, 10, 0)).unwrap());
    assert_eq!([send(&mut *out), send(&mut *out)], [1, 2]);
    let mut renew = |text: &str, nf: &mut dyn NetworkFunction| {
        let environment = Environment::default();
        thalweg_testkit::renew(&KIND, text, &environment, &mut blueprint, nf).unwrap();
    };
    let policy = "\n[[policy]]\nmatch = 'arp'\naction = 'bypass'\n";
    renew(&format!("{text}{policy}"), &mut *out);
    assert_eq!(send(&mut *out), 3);
    // The same SPI with another key is another association.
    let other = text.replacen("encryption_key = '00", "encryption_key = 'ff", 1);
    assert_ne!(other, text);
    renew(&other, &mut *out);
    assert_eq!(send(&mut *out), 1);
}
