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
        let mut left: ArrayVec<Arrival<'_>, BATCH> = ArrayVec::new();
        let (mut whole, mut authentic) = (Lanes::NONE, Lanes::NONE);
        for &(lane, result) in results {
            let Some([result, high]) = result else {
                context.drop(lane, DropReason::DeviceFailed);
                continue;
            };
            // The packet is not parsed anew yet: its headers are those that the first half saw.
            if !matches!(kind(&databases, batch, lane), PacketKind::Tunnel) {
                match result {
                    DONE => self.figures.protected += 1,
                    _ => context.drop(lane, DropReason::DeviceFailed),
                }
                continue;
            }
            let arrival = match arrival(&databases, batch, lane) {
                Ok(arrival) => arrival,
                Err((reason, why)) => {
                    context.explain(lane, || why.into());
                    context.drop(lane, reason);
                    continue;
                }
            };
            // Earlier packets may have moved the window since, and with it the number of this one.
            let is_of_number = arrival.high().unwrap_or(0) == high;
            match result {
                DONE | REFUSED if is_of_number => whole.insert(lane),
                // It is authentic under another number.
                DONE => whole.insert(lane),
                _ => left.push(arrival),
            }
            if result == DONE && is_of_number {
                authentic.insert(lane);
            }
            arrivals.push(arrival);
        }
        let (more_whole, more_authentic) = self.open(batch, &left);
        let opened = (whole.or(more_whole), authentic.or(more_authentic));
        self.unwrap(batch, &arrivals, opened, context);
    }
}
