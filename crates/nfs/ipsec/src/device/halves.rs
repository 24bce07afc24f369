//! The NF in two halves, around what a device does.

use arrayvec::ArrayVec;
use thalweg_nf::device::{DeviceJob, DeviceResult, OnDevice};
use thalweg_nf::{Context, NetworkFunction};
use thalweg_packet::{BATCH, Batch, DropReason, Lanes};

use super::{DONE, REFUSED};
use crate::Ipsec;
use crate::inbound::Arrival;
use crate::packets::{PacketKind, arrival, kind};

impl OnDevice for Ipsec {
    fn begin(
        &mut self,
        batch: &mut Batch,
        lanes: Lanes,
        context: &mut Context<'_>,
        jobs: &mut Vec<DeviceJob>,
    ) {
        self.jobs = Some(std::mem::take(jobs));
        self.process(batch, lanes, context);
        *jobs = self.jobs.take().unwrap_or_default();
    }

    fn finish(&mut self, batch: &mut Batch, results: &[DeviceResult], context: &mut Context<'_>) {
        let databases = self.databases.clone();
        let mut arrivals: ArrayVec<Arrival<'_>, BATCH> = ArrayVec::new();
        let (mut whole, mut authentic) = (Lanes::NONE, Lanes::NONE);
        for &(lane, result) in results {
            let result = result.map(|[result, _]| result);
            // The packet is not parsed anew yet: its headers are those that the first half saw.
            if !matches!(kind(&databases, batch, lane), PacketKind::Tunnel) {
                if result != Some(DONE) {
                    self.figures.protected -= 1;
                    context.drop(lane, DropReason::DeviceFailed);
                }
                continue;
            }
            if result.is_none() {
                context.drop(lane, DropReason::DeviceFailed);
                continue;
            }
            match arrival(&databases, batch, lane) {
                Ok(arrival) => arrivals.push(arrival),
                Err((reason, why)) => {
                    context.explain(lane, || why.into());
                    context.drop(lane, reason);
                }
            }
            if result == Some(DONE) {
                authentic.insert(lane);
            }
            if matches!(result, Some(DONE | REFUSED)) {
                whole.insert(lane);
            }
        }
        self.unwrap(batch, &arrivals, (whole, authentic), context);
    }
}
