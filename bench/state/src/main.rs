//! How long the state of an NF takes to move: `FLOWS KIND...` prints a line of JSON for each kind.
//!
//! An instance receives a packet of each of FLOWS flows; its state is exported to memory and
//! imported into another instance, whole and in 256 pieces by bucket. Milliseconds, the least and the
//! median of several rounds, and bytes. State of a kind whose grain is units then moves in 256 and in
//! 4096 units: the longest step of the index by unit, and the longest time that one unit waits.

use std::error::Error;
use std::fs;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use thalweg_nf::state::{StateReader, StateWriter};
use thalweg_nf::{
    Blueprint, Buckets, Context, Emitted, Grain, Kind, Kinds, NetworkFunction, Steering, Units,
};
use thalweg_packet::write::{PacketBuilder, TcpSegment};
use thalweg_packet::{BATCH, Batch, Decapsulate, Nanoseconds, Pool};

type Outcome<T> = Result<T, Box<dyn Error>>;

const ROUNDS: usize = 15;
/// The pieces of the state that is imported piece by piece.
const PIECES: usize = 256;

/// The options of a kind, with room for a million flows.
fn options(kind: &str, rules: &str) -> Outcome<String> {
    Ok(match kind {
        "nat" => "inside = ['10.0.0.0/8']\nexternal = ['192.0.2.0-192.0.2.63']".into(),
        "monitor" => "max_flows = 1048576".into(),
        "nids" => format!("rules = ['{rules}']\nmax_flows = 1048576"),
        "assets" => "max_hosts = 1048576\nmemory_mib = 1024\nmax_conversations = 1048576".into(),
        _ => return Err(format!("{kind}: nat, assets, monitor or nids").into()),
    })
}

fn blueprint(kind: &str) -> Outcome<(Kind, Box<dyn Blueprint>)> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("t.rules");
    fs::write(&path, "alert tcp any any -> any any (msg:\"m\"; content:\"needle\"; sid:1;)\n")?;
    let text = options(kind, &path.display().to_string())?;
    let kinds = Kinds::new([
        thalweg_assets::KIND,
        thalweg_monitor::KIND,
        thalweg_nat::KIND,
        thalweg_nids::KIND,
    ]);
    let kind = kinds.find(kind).ok_or("a kind that options() does not know")?;
    Ok((*kind, kind.build_alone(&text).map_err(|e| e.to_string())?))
}

/// The first packet of a connection.
fn packet(n: u32) -> Vec<u8> {
    let source = [10, (n >> 16) as u8, (n >> 8) as u8, n as u8];
    let segment = TcpSegment {
        src_port: 1024 + (n % 60_000) as u16,
        dst_port: 80,
        seq: n,
        ack: 0,
        flags: 2,
        window: 99,
    };
    let builder = PacketBuilder::new([2; 6], [4; 6]).ip(source.into(), [198, 51, 100, 1].into());
    builder.tcp(segment).build(&[])
}

/// The state in pieces, each a stream of its own. The first announces how many records come.
fn pieces(kind: &str, nf: &dyn NetworkFunction, records: usize) -> Outcome<Vec<Vec<u8>>> {
    let units = Units::new(PIECES, Steering::default()).ok_or("no power of two")?;
    let piece = |unit| {
        let mut stream = Vec::new();
        let buckets = Buckets::new(units.steering(), units.buckets_of(unit));
        let writer = StateWriter::new(&mut stream, kind, nf.state_version())?;
        let mut writer = writer.within(buckets);
        writer.expect(if unit == 0 { records } else { 1 });
        nf.export_state(&mut writer)?;
        writer.finish()?;
        Ok(stream)
    };
    (0..PIECES as u16).map(piece).collect()
}

/// Imports streams one after the other; returns how many records they held, and the milliseconds.
fn import(kind: &str, nf: &mut dyn NetworkFunction, streams: &[Vec<u8>]) -> Outcome<(usize, f64)> {
    let (begun, mut records) = (Instant::now(), 0);
    for stream in streams {
        let mut input = &stream[..];
        let mut reader = StateReader::new(&mut input, kind, nf.state_version())?;
        records += nf.import_state(&mut reader)?;
    }
    Ok((records, begun.elapsed().as_secs_f64() * 1e3))
}

/// Moves all units of an instance to another, one after the other: the times of it in microseconds,
/// and in milliseconds for all.
fn unit_by_unit(
    kind: &str,
    blueprint: &dyn Blueprint,
    state: &[u8],
    count: usize,
) -> Outcome<Value> {
    let (mut old, mut new) = (blueprint.instance(), blueprint.instance());
    let (records, _) = import(kind, &mut *old, &[state.to_vec()])?;
    let units = Units::new(count, Steering::default()).ok_or("no power of two")?;
    let micros = |begun: Instant| begun.elapsed().as_secs_f64() * 1e6;
    let (mut steps, mut longest_step) = (1, 0f64);
    // For the first unit, the importing instance makes room for all.
    let (mut first_unit, mut longest_unit) = (0f64, 0f64);
    let all = Instant::now();
    loop {
        let begun = Instant::now();
        let is_complete = old.begin_move(units);
        longest_step = longest_step.max(micros(begun));
        if is_complete {
            break;
        }
        steps += 1;
    }
    for unit in 0..count as u16 {
        let begun = Instant::now();
        let mut stream = Vec::new();
        let mut writer = StateWriter::new(&mut stream, kind, old.state_version())?;
        writer.expect(if unit == 0 { records } else { 1 });
        old.export_unit(unit, &mut writer)?;
        writer.finish()?;
        import(kind, &mut *new, std::slice::from_ref(&stream))?;
        old.forget_unit(unit);
        if unit == 0 {
            first_unit = micros(begun);
        } else {
            longest_unit = longest_unit.max(micros(begun));
        }
    }
    old.end_move();
    Ok(json!({
        "units": count, "steps": steps, "longest_step_us": longest_step,
        "first_unit_us": first_unit, "longest_unit_us": longest_unit,
        "all_ms": micros(all) / 1e3,
    }))
}

fn measure(kind: &str, flows: u32) -> Outcome<Value> {
    let (known, blueprint) = blueprint(kind)?;
    let mut nf = blueprint.instance();
    let pool = Arc::new(Pool::anonymous(2 * BATCH, 2048)?);
    let (mut batch, mut emitted) = (Batch::new(pool.clone()), Emitted::new(pool));
    for first in (0..flows).step_by(BATCH) {
        for n in first..flows.min(first + BATCH as u32) {
            batch.push_bytes(&packet(n)).ok_or("no frame")?;
        }
        let lanes = batch.lanes();
        batch.parse(lanes, Decapsulate::No);
        let mut context = Context::new(Nanoseconds(1), &mut emitted, None);
        nf.process(&mut batch, lanes, &mut context);
        batch.release(lanes);
    }
    let version = nf.state_version();
    let (mut exports, mut imports, mut piecemeal) = (Vec::new(), Vec::new(), Vec::new());
    let (mut stream, mut moved) = (Vec::new(), 0);
    for _ in 0..ROUNDS {
        stream.clear();
        let begun = Instant::now();
        let mut writer = StateWriter::new(&mut stream, kind, version)?;
        nf.export_state(&mut writer)?;
        writer.finish()?;
        exports.push(begun.elapsed().as_secs_f64() * 1e3);
        let (records, time) =
            import(kind, &mut *blueprint.instance(), std::slice::from_ref(&stream))?;
        imports.push(time);
        moved = records;
    }
    let pieces = pieces(kind, &*nf, moved)?;
    for _ in 0..ROUNDS {
        let (records, time) = import(kind, &mut *blueprint.instance(), &pieces)?;
        if records != moved {
            return Err(format!("{kind}: {records} of {moved} records in pieces").into());
        }
        piecemeal.push(time);
    }
    let mut moves = Vec::new();
    if known.grain == Grain::Units {
        for count in [256, 4096] {
            moves.push(unit_by_unit(kind, &*blueprint, &stream, count)?);
        }
    }
    let spread = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        json!({"least": times[0], "median": times[ROUNDS / 2]})
    };
    Ok(json!({
        "kind": kind, "records": moved, "bytes": stream.len(),
        "export_ms": spread(exports), "import_ms": spread(imports),
        "import_in_256_ms": spread(piecemeal), "moves": moves,
    }))
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [flows, kinds @ ..] = &arguments[..] else { return Err("FLOWS KIND...".into()) };
    for kind in kinds {
        println!("{}", measure(kind, flows.parse()?)?);
    }
    Ok(())
}
