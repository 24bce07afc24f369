//! The NF in two halves, around what a device does.
//!
//! The first half changes no state, and all packets have a job, even those without a payload: so they
//! are inspected in their order, however many batches are with the device.

use thalweg_nf::Context;
use thalweg_nf::device::{DeviceJob, DeviceResult, OnDevice};
use thalweg_packet::{BATCH, Batch, DropReason, Lanes};

use crate::Nids;
use crate::heads::Kind;

impl OnDevice for Nids {
    fn begin(
        &mut self,
        batch: &mut Batch,
        lanes: Lanes,
        _: &mut Context<'_>,
        jobs: &mut Vec<DeviceJob>,
    ) {
        for lane in lanes {
            let headers = batch.headers(lane);
            let (start, end) = (usize::from(headers.payload), usize::from(headers.end));
            let has_payload = batch.bytes(lane).get(start..end).is_some();
            let (start, len) = if has_payload { (start, end - start) } else { (0, 0) };
            let argument = [Kind::of(batch, lane) as u32, 0];
            jobs.push(DeviceJob { lane, start, len, argument });
        }
    }

    fn finish(&mut self, batch: &mut Batch, results: &[DeviceResult], context: &mut Context<'_>) {
        let (mut of_lanes, mut lanes) = ([[0; 2]; BATCH], Lanes::NONE);
        for (lane, result) in results {
            match result {
                Some(result) => {
                    of_lanes[*lane] = *result;
                    lanes.insert(*lane);
                }
                None => context.drop(*lane, DropReason::DeviceFailed),
            }
        }
        self.inspect(batch, lanes, Some(of_lanes), context);
    }
}
