//! The router in two halves, around what a device does.
//!
//! The first half changes no state, and all packets have a job, even those without a destination: so
//! they are forwarded in their order, however many batches are with the device.

use thalweg_nf::Context;
use thalweg_nf::device::{DeviceJob, DeviceResult, OnDevice};
use thalweg_nf::toolkit::outer::see_outermost;
use thalweg_packet::{BATCH, Batch, DropReason, Lanes, Layer};

use super::trie;
use crate::forward::Router;

impl OnDevice for Router {
    fn begin(
        &mut self,
        batch: &mut Batch,
        lanes: Lanes,
        _: &mut Context<'_>,
        jobs: &mut Vec<DeviceJob>,
    ) {
        see_outermost(batch, lanes);
        for lane in lanes {
            let (start, len) = destination(batch, lane);
            let is_whole = batch.bytes(lane).len() >= start + len;
            let len = if is_whole { len } else { 0 };
            jobs.push(DeviceJob { lane, start, len, argument: [0; 2] });
        }
    }

    fn finish(&mut self, batch: &mut Batch, results: &[DeviceResult], context: &mut Context<'_>) {
        self.take_up_view();
        let (mut hops, mut lanes) = ([None; BATCH], Lanes::NONE);
        for (lane, result) in results {
            let Some(result) = result else {
                context.drop(*lane, DropReason::DeviceFailed);
                continue;
            };
            hops[*lane] = self.shared.mark.get().and_then(|mark| trie::hop(*result, *mark));
            lanes.insert(*lane);
        }
        self.route(batch, lanes, Some(&hops), context);
    }
}

/// Where the destination address of a packet begins, and its length: 0 if it has none.
fn destination(batch: &Batch, lane: usize) -> (usize, usize) {
    let headers = batch.headers(lane);
    let l3 = usize::from(headers.l3);
    match headers.layer >= Layer::Network {
        true if headers.is_ipv4() => (l3 + 16, 4),
        true if headers.is_ipv6() => (l3 + 24, 16),
        _ => (0, 0),
    }
}
