//! Fragments from a stranger: as they come, and well formed ones of a few packets, in any order.

use std::sync::Arc;

use thalweg_nf::state::{StateReader, StateWriter};
use thalweg_nf::{Blueprint, Context, Emitted, NetworkFunction};
use thalweg_packet::{Batch, Decapsulate, Nanoseconds, Pool};

const OPTIONS: &str = "timeout_s = 5\nmemory_mib = 1\nmax_fragments = 20";

thread_local! {
    static DEFRAG: Box<dyn Blueprint> =
        thalweg_defrag::KIND.build_alone(OPTIONS).expect("the options are right");
    static POOL: Arc<Pool> = Arc::new(Pool::anonymous(4, 4096).expect("there is memory"));
}

/// A fragment: a byte of which packet and whether more come, its place in units of 8 bytes.
fn fragment(how: u8, place: u8, data: &[u8]) -> Vec<u8> {
    let (id, more) = (how >> 2 & 3, how >> 1 & 1);
    let mut packet = vec![2; 12];
    if how & 1 == 0 {
        let len = (20 + data.len() as u16).to_be_bytes();
        packet.extend([
            8,
            0,
            0x45,
            how >> 6,
            len[0],
            len[1],
            0,
            id,
            more << 5,
            place,
            64,
            17,
            0,
            0,
        ]);
        packet.extend([192, 0, 2, 1, 192, 0, 2, 2]);
    } else {
        let len = (16 + data.len() as u16).to_be_bytes();
        packet.extend([0x86, 0xdd, 0x60, how >> 6 << 4, 0, 0, len[0], len[1], 60, 64]);
        packet.extend([how & 0x10; 32]);
        packet.extend([44, 0, 1, 4, 0, 0, 0, 0]);
        packet.extend([17, 0, place >> 5, place << 3 | more, 0, 0, 0, id]);
    }
    packet.extend(data);
    packet
}

fn send(nf: &mut dyn NetworkFunction, packet: &[u8], seconds: u64) {
    let pool = POOL.with(Arc::clone);
    let (mut batch, mut emitted) = (Batch::new(pool.clone()), Emitted::new(pool));
    if batch.push_bytes(packet).is_none() {
        return;
    }
    let lanes = batch.lanes();
    batch.parse(lanes, Decapsulate::No);
    let mut context = Context::new(Nanoseconds::from_secs(seconds), &mut emitted, None);
    nf.process(&mut batch, lanes, &mut context);
    for lane in lanes {
        let passed = !context.dropped().contains(lane);
        assert!(!passed || !batch.headers(lane).fragment, "what passes is whole");
    }
    batch.release(lanes);
}

/// Sends fragments to a `defrag`, and moves what waits to another one.
pub fn fragments(data: &[u8]) {
    let mut nf = DEFRAG.with(|blueprint| blueprint.instance());
    let (mut rest, mut seconds) = (data, 0);
    while let [how, place, length, behind @ ..] = rest {
        let (data, behind) = behind.split_at(usize::from(*length).min(behind.len()));
        rest = behind;
        match how >> 4 & 3 {
            3 => send(&mut *nf, data, seconds),
            _ => send(&mut *nf, &fragment(*how, *place, data), seconds),
        }
        seconds += u64::from(how & 0x80 != 0 && place & 1 == 0);
    }
    // What waits can be taken over elsewhere.
    let mut stream = Vec::new();
    let mut writer = StateWriter::new(&mut stream, "defrag", 1).expect("memory takes it");
    nf.export_state(&mut writer).expect("memory takes it");
    writer.finish().expect("memory takes it");
    let mut input = &stream[..];
    let mut reader = StateReader::new(&mut input, "defrag", 1).expect("it is one");
    let mut other = DEFRAG.with(|blueprint| blueprint.instance());
    let waiting = nf.figures().iter().find(|(name, _)| *name == "waiting").map(|(_, n)| *n);
    assert_eq!(other.import_state(&mut reader).ok().map(|n| n as u64), waiting);
}
