//! State streams from a stranger: as they come, with records that are well framed, and in a folder.

use std::sync::Arc;

use serde::ser::{Serialize, SerializeTuple, Serializer};
use thalweg_nf::state::{StateError, StateReceiver, StateWriter};
use thalweg_nf::{Blueprint, Context, Emitted, Kind, NetworkFunction, Steering, Units};
use thalweg_packet::write::{PacketBuilder, TcpSegment};
use thalweg_packet::{Batch, Decapsulate, FiveTuple, Nanoseconds, Pool};

use crate::folders::folders;

const RULES: &str = "alert http any any -> any any (msg:\"u\"; http.uri; content:\"/a\"; sid:1;)\n";

/// Kinds with their options.
const KINDS: [(Kind, &str); 5] = [
    (thalweg_nat::KIND, "inside = ['10.0.0.0/8']\nexternal = ['192.0.2.1']\nmax_mappings = 64"),
    (thalweg_monitor::KIND, "max_flows = 64"),
    (thalweg_assets::KIND, "max_hosts = 64\nmax_conversations = 64\nmemory_mib = 1"),
    (thalweg_nids::KIND, "rules = ['@RULES@']\nmax_flows = 64\nstream_memory_mib = 1"),
    (thalweg_defrag::KIND, "memory_mib = 1"),
];

fn build() -> [Box<dyn Blueprint>; 5] {
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    let path = folder.path().join("t.rules");
    std::fs::write(&path, RULES).expect("the file can be written");
    KINDS.map(|(kind, options)| {
        let options = options.replace("@RULES@", &path.display().to_string());
        kind.build_alone(&options).expect("the options are right")
    })
}

thread_local! {
    static NFS: [Box<dyn Blueprint>; 5] = build();
    static POOL: Arc<Pool> = Arc::new(Pool::anonymous(64, 4096).expect("there is memory"));
}

/// Bytes that are a record as they are.
struct Raw<'a>(&'a [u8]);

impl Serialize for Raw<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut tuple = serializer.serialize_tuple(self.0.len())?;
        self.0.iter().try_for_each(|byte| tuple.serialize_element(byte))?;
        tuple.end()
    }
}

/// A stream of records, each of which is a byte of its length and its bytes.
fn framed(kind: &str, version: u16, mut data: &[u8]) -> Result<Vec<u8>, StateError> {
    let mut stream = Vec::new();
    let mut writer = StateWriter::new(&mut stream, kind, version)?;
    while let [length, rest @ ..] = data {
        let (record, behind) = rest.split_at(usize::from(*length).min(rest.len()));
        writer.record(name_of(record), &Raw(record))?;
        data = behind;
    }
    writer.finish()?;
    Ok(stream)
}

/// The flow that a record names: any, or none.
fn name_of(record: &[u8]) -> Option<FiveTuple> {
    let [a, b, protocol, port, ..] = *record else { return None };
    let (src, dst) = ([10, 0, 0, a].into(), [192, 0, 2, b].into());
    Some(FiveTuple { src, dst, protocol, src_port: port.into(), dst_port: 80 })
}

/// Sends a few packets through, so that what was taken over is used.
fn use_it(nf: &mut dyn NetworkFunction) {
    let pool = POOL.with(Arc::clone);
    let (mut batch, mut emitted) = (Batch::new(pool.clone()), Emitted::new(pool));
    for n in 0..4u8 {
        let (inside, outside) = ([10, 0, 0, n & 1], [192, 0, 2, 1]);
        let (from, to) = if n < 2 { (inside, outside) } else { (outside, inside) };
        let segment = TcpSegment { src_port: 80, dst_port: 80, flags: 24, ..TcpSegment::default() };
        let builder = PacketBuilder::new([2; 6], [4; 6]).ip(from.into(), to.into());
        batch.push_bytes(&builder.tcp(segment).build(b"GET /a HTTP/1.1\r\n\r\n"));
    }
    let lanes = batch.lanes();
    batch.parse(lanes, Decapsulate::No);
    let mut context = Context::new(Nanoseconds(1 << 40), &mut emitted, None);
    nf.process(&mut batch, lanes, &mut context);
    batch.release(lanes);
}

/// Imports a state stream, uses it and exports it; the first byte chooses the NF and the framing.
pub fn states(data: &[u8]) {
    let [which, rest @ ..] = data else { return };
    // The number past the kinds is that of a whole folder.
    let at = usize::from(which >> 1) % (KINDS.len() + 1);
    if at == KINDS.len() {
        return folders(rest);
    }
    let kind = KINDS[at].0.name;
    let mut nf = NFS.with(|nfs| nfs[at].instance());
    let version = nf.state_version();
    let stream = if which & 1 == 0 { Ok(rest.to_vec()) } else { framed(kind, version, rest) };
    let Ok(stream) = stream else { return };
    let mut receiver = StateReceiver::new(kind, version).expect("the kind has a name");
    if receiver.receive(&mut &stream[..]).is_err() {
        return;
    }
    let taken = receiver.deliver(|reader| nf.import_state(reader));
    use_it(&mut *nf);
    // What was taken over can be handed on.
    let mut out = Vec::new();
    let mut writer = StateWriter::new(&mut out, kind, version).expect("memory takes it");
    nf.export_state(&mut writer).expect("memory takes it");
    let written = writer.finish().expect("memory takes it");
    assert!(taken.is_ok() || written < 16, "a stream that is refused leaves nothing");
    move_units(&KINDS[at].0, &mut *nf, written);
}

/// Exports and forgets all units of an NF, which has `records` of state: together they are all of it.
fn move_units(kind: &Kind, nf: &mut dyn NetworkFunction, records: u64) {
    let wanted = Units::new(16, Steering::default()).expect("a power of two");
    let Some(units) = kind.grain.units(wanted) else { return };
    let export = |nf: &dyn NetworkFunction, unit: Option<u16>| {
        let mut out = Vec::new();
        let mut writer =
            StateWriter::new(&mut out, kind.name, nf.state_version()).expect("memory takes it");
        let done = match unit {
            Some(unit) => nf.export_unit(unit, &mut writer),
            None => nf.export_state(&mut writer),
        };
        done.and_then(|()| writer.finish()).expect("memory takes it")
    };
    while !nf.begin_move(units) {}
    let mut moved = 0;
    for unit in 0..units.count() as u16 {
        moved += export(nf, Some(unit));
        nf.forget_unit(unit);
        assert_eq!(export(nf, Some(unit)), 0, "a unit that is forgotten is empty");
    }
    assert_eq!((moved, export(nf, None)), (records, 0), "all records moved");
    // What begins meanwhile is of a unit, too.
    use_it(nf);
    let begun = export(nf, None);
    let of_units = (0..units.count() as u16).map(|unit| export(nf, Some(unit))).sum::<u64>();
    assert_eq!(of_units, begun);
    nf.end_move();
}
