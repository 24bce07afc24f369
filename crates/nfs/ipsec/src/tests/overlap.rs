//! The halves of the NF around a device: it may begin with later batches before it is done with earlier
//! ones.

use std::collections::VecDeque;
use std::sync::Arc;

use thalweg_nf::Verdicts;
use thalweg_nf::device::DeviceResult;

use super::*;

/// What became of the packets of a batch.
type Fates = Vec<Result<Vec<u8>, DropReason>>;

/// A batch between the halves.
struct Begun {
    batch: Batch,
    emitted: Emitted,
    verdicts: Verdicts,
    jobs: Vec<DeviceJob>,
}

fn batch(pool: &Arc<Pool>, packets: &[Vec<u8>]) -> Batch {
    let mut batch = Batch::new(pool.clone());
    for packet in packets {
        batch.push_bytes(packet).unwrap();
    }
    batch.parse(batch.lanes(), Decapsulate::No);
    batch
}

fn fates(batch: &Batch, verdicts: &Verdicts) -> Fates {
    let fate = |lane| match verdicts.of(lane) {
        Verdict::Drop(reason) => Err(reason),
        _ => Ok(batch.bytes(lane).to_vec()),
    };
    batch.lanes().into_iter().map(fate).collect()
}

/// Sends batches through on the processor.
fn alone(nf: &mut dyn NetworkFunction, pool: &Arc<Pool>, batches: &[&[Vec<u8>]]) -> Vec<Fates> {
    let one = |packets: &&[Vec<u8>]| {
        let (mut batch, mut emitted) = (batch(pool, packets), Emitted::new(pool.clone()));
        let mut context = Context::new(Nanoseconds(0), &mut emitted, None);
        let lanes = batch.lanes();
        nf.process(&mut batch, lanes, &mut context);
        fates(&batch, &context.into_verdicts())
    };
    batches.iter().map(one).collect()
}

/// The same with a device, which has up to `ahead` batches more than the one that is finished.
fn around(
    nf: &mut dyn NetworkFunction,
    table: &[u8],
    pool: &Arc<Pool>,
    batches: &[&[Vec<u8>]],
    ahead: usize,
) -> Vec<Fates> {
    let (mut begun, mut done): (VecDeque<Begun>, _) = (VecDeque::new(), Vec::new());
    let mut finish = |nf: &mut dyn NetworkFunction, begun: Begun| {
        let Begun { mut batch, mut emitted, verdicts, jobs } = begun;
        let work = |job: &DeviceJob| -> DeviceResult {
            let bytes = &mut batch.bytes_mut(job.lane)[job.start..][..job.len];
            (job.lane, Some((device::ESP.scalar)(bytes, job.argument, table)))
        };
        let mut results: Vec<_> = jobs.iter().map(work).collect();
        results.sort_by_key(|(lane, _)| *lane);
        let mut context = Context::resume(Nanoseconds(0), verdicts, &mut emitted, None);
        nf.on_device().unwrap().finish(&mut batch, &results, &mut context);
        done.push(fates(&batch, &context.into_verdicts()));
    };
    for packets in batches {
        let (mut batch, mut emitted) = (batch(pool, packets), Emitted::new(pool.clone()));
        let mut context = Context::new(Nanoseconds(0), &mut emitted, None);
        let (lanes, mut jobs) = (batch.lanes(), Vec::new());
        nf.on_device().unwrap().begin(&mut batch, lanes, &mut context, &mut jobs);
        let verdicts = context.into_verdicts();
        begun.push_back(Begun { batch, emitted, verdicts, jobs });
        if begun.len() > ahead {
            finish(nf, begun.pop_front().unwrap());
        }
    }
    begun.into_iter().for_each(|begun| finish(nf, begun));
    done
}

/// A device that fails keeps the frames of its packets, and there may be no others for them.
#[test]
fn packets_without_frames_are_dropped_unread_when_a_device_has_failed() {
    for is_in_udp in [false, true] {
        let more = if is_in_udp { "esn = false\nudp_ports = [4500, 4500]" } else { "esn = false" };
        let text = |outbound| options(CBC, false, false, outbound).replacen("esn = false", more, 1);
        let mut out = instance(&text(true));
        let sealed: Vec<_> =
            (0..8).map(|_| pass(&mut *out, &packet(false, 40, 0)).unwrap()).collect();
        let pool = Arc::new(Pool::anonymous(64, 2048).unwrap());
        let mut nf = instance(&text(false));
        let (mut batch, mut emitted) = (batch(&pool, &sealed), Emitted::new(pool.clone()));
        let (lanes, mut jobs) = (batch.lanes(), Vec::new());
        let mut context = Context::new(Nanoseconds(0), &mut emitted, None);
        nf.on_device().unwrap().begin(&mut batch, lanes, &mut context, &mut jobs);
        assert_eq!(jobs.len(), 8, "in UDP: {is_in_udp}");
        let verdicts = context.into_verdicts();
        let results: Vec<DeviceResult> = jobs.iter().map(|job| (job.lane, None)).collect();
        // The device has every second one for good.
        let kept: Vec<_> = (0..8).step_by(2).map(|lane| batch.lend(lane).unwrap()).collect();
        let mut context = Context::resume(Nanoseconds(0), verdicts, &mut emitted, None);
        nf.on_device().unwrap().finish(&mut batch, &results, &mut context);
        let verdicts = context.into_verdicts();
        for lane in 0..8 {
            let verdict = verdicts.of(lane);
            assert_eq!(verdict, Verdict::Drop(DropReason::DeviceFailed), "in UDP: {is_in_udp}");
        }
        batch.release(lanes);
        assert_eq!(pool.in_use(), 4);
        pool.give_back(kept.into_iter().map(|(frame, _)| frame));
    }
}

/// Positions that go forth and back by up to two windows, with repetitions.
fn walks() -> impl Strategy<Value = Vec<(usize, bool)>> {
    let step = (-130i32..140, prop::bool::weighted(0.1));
    prop::collection::vec(prop_oneof![3 => (1..3i32, Just(false)), 1 => step], 1..300).prop_map(
        |steps| {
            let mut at = 0i32;
            let step = |(step, is_forged): (i32, bool)| {
                at = (at + step).clamp(0, 399);
                (at as usize, is_forged)
            };
            steps.into_iter().map(step).collect()
        },
    )
}

/// Packets of an association, in their order.
fn sealed(esn: bool) -> Vec<Vec<u8>> {
    let mut out = instance(&options(CBC, esn, false, true));
    (0..400).map(|_| pass(&mut *out, &packet(false, 40, 0)).unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(thalweg_testkit::cases(150)))]

    #[test]
    fn what_a_device_has_meanwhile_changes_no_packet_and_no_reason(
        esn: bool, walk in walks(), size in 1..=BATCH, ahead in 0..12usize, cut in 0..300usize,
    ) {
        let sealed = sealed(esn);
        let packet = |(number, (at, is_forged)): (usize, &(usize, bool))| {
            let mut packet = sealed[*at].clone();
            if *is_forged {
                packet[60] ^= 1;
            }
            if number == cut {
                // No whole number of blocks.
                packet.truncate(packet.len() - 3);
                let len = packet.len() as u16 - 18;
                packet[20..22].copy_from_slice(&len.to_be_bytes());
                packet[28..30].fill(0);
                let sum = thalweg_packet::checksum::checksum(&packet[18..38]);
                packet[28..30].copy_from_slice(&sum.to_be_bytes());
            }
            packet
        };
        let packets: Vec<_> = walk.iter().enumerate().map(packet).collect();
        let batches: Vec<_> = packets.chunks(size).collect();
        let pool = Arc::new(Pool::anonymous(2048, 2048).unwrap());
        let blueprint = built(&options(CBC, esn, false, false)).unwrap();
        let table = blueprint.device_work().unwrap().table;
        let expected = alone(&mut *blueprint.instance(), &pool, &batches);
        // Associations are the blueprint's: each instance has its own only with a blueprint of its own.
        let other = built(&options(CBC, esn, false, false)).unwrap();
        let found = around(&mut *other.instance(), &table, &pool, &batches, ahead);
        prop_assert_eq!(found, expected);
    }
}
