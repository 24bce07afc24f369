use thalweg_nf::Verdict::{self, Drop, Forward};
use thalweg_nf::state::{StateReader, StateWriter};
use thalweg_packet::DropReason::FilterDrop;
use thalweg_packet::write::PacketBuilder;
use thalweg_testkit::Drive;

use super::*;

fn quota(options: &str) -> Drive {
    Drive::new(KIND.build_alone(options).expect("the options are right").instance())
}

/// A packet of 142 bytes.
fn packet(from: &str, to: &str) -> Vec<u8> {
    let builder = PacketBuilder::new([2; 6], [4; 6]);
    builder.ip(from.parse().unwrap(), to.parse().unwrap()).udp(1000, 2000).build(&[0; 100])
}

#[test]
fn each_source_sends_its_quota() {
    let mut nf = quota("bytes = 150");
    let one = packet("10.0.0.1", "192.0.2.1");
    let other = packet("10.0.0.2", "192.0.2.1");
    let verdicts = nf.send(&[one.clone(), one.clone(), one.clone(), other.clone()]);
    assert_eq!(verdicts, [Forward, Forward, Drop(FilterDrop), Forward]);
    assert_eq!(nf.send(&[other, one]), [Forward, Drop(FilterDrop)]);
    assert_eq!((nf.figure("sources"), nf.figure("exhausted")), (2, 2));
}

#[test]
fn the_destination_does_not_matter_and_the_ip_version_does() {
    let mut nf = quota("bytes = 1");
    let packets = [
        packet("10.0.0.1", "192.0.2.1"),
        packet("10.0.0.1", "192.0.2.2"),
        packet("::a00:1", "2001:db8::1"),
        // Neither IPv4 nor IPv6.
        [2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4, 0x88, 0xb5].into_iter().chain([0; 50]).collect(),
    ];
    assert_eq!(nf.send(&packets), [Forward, Drop(FilterDrop), Forward, Forward]);
    assert_eq!(nf.figure("sources"), 2);
}

#[test]
fn another_instance_continues_the_counts() {
    let mut first = quota("bytes = 1");
    let sent = [packet("10.0.0.1", "192.0.2.1"), packet("2001:db8::2", "2001:db8::1")];
    first.send(&sent);
    let mut stream = Vec::new();
    let mut writer = StateWriter::new(&mut stream, KIND.name, 1).unwrap();
    first.nf.export_state(&mut writer).unwrap();
    assert_eq!(writer.finish().unwrap(), 2);

    let mut second = quota("bytes = 1");
    let mut import = |stream: &[u8]| {
        let mut stream = stream;
        second.nf.import_state(&mut StateReader::new(&mut stream, KIND.name, 1).unwrap())
    };
    assert!(import(&stream[..stream.len() - 1]).is_err());
    assert_eq!(import(&stream).unwrap(), 2);
    assert_eq!(import(&stream).unwrap(), 0, "it has these sources already");
    let dropped: [Verdict; 2] = [Drop(FilterDrop); 2];
    assert_eq!(second.send(&sent), dropped);
}

#[test]
fn wrong_options_are_refused_at_their_place() {
    let refused = |options: &str| KIND.build_alone(options).err().unwrap().to_string();
    assert!(refused("").contains("missing field `bytes`"), "{}", refused(""));
    assert!(refused("bytes = 0").contains("chain.toml:1:9"), "{}", refused("bytes = 0"));
    assert!(refused("bytes = 1\nbits = 8").contains("expected `bytes`"), "{}", refused("bits = 8"));
}
