//! A station whose NF leaves its packets to a device, and begins with further ones meanwhile.

use std::sync::Arc;

use super::stages::Stages;
use crate::burst::Burst;
use crate::device::Device;
use crate::turn::Turns;
use crate::watch::Watch;

/// What such a station has in addition. Bursts are there in two halves, between which the device has
/// their packets: the first halves come in the order of the bursts, and so do the second ones. So the NF
/// sees in each half what it would see if it waited, whatever the number of workers.
pub(super) struct AtDevice {
    device: Arc<Device>,
    /// The turns of the first halves; those of the second ones are the station's.
    begins: Turns,
}

impl AtDevice {
    /// How many packets of a worker keep the device busy.
    pub(super) fn capacity(&self) -> usize {
        self.device.capacity()
    }

    /// For bursts of this many lines.
    pub(super) fn new(device: Arc<Device>, lines: usize) -> Self {
        Self { device, begins: Turns::new(lines) }
    }
}

/// How far a burst got at a device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Way {
    /// Whether it got any further.
    pub(super) moved: bool,
    /// Whether it waits for its turn.
    pub(super) waits: bool,
    /// Whether it has left the station.
    pub(super) is_through: bool,
}

impl Stages<'_> {
    /// Takes packets back from the devices for a worker, or `for_all`; returns whether any came.
    pub(super) fn poll_devices(&self, worker: usize, for_all: bool) -> bool {
        let mut some = false;
        for at in self.devices.iter().flatten() {
            some |= at.device.poll(worker, for_all);
        }
        some
    }

    /// Takes a burst as far as it gets in a station with a device.
    pub(super) fn visit_device(
        &self,
        station: usize,
        at: &AtDevice,
        burst: &mut Burst,
        worker: usize,
        watch: &mut Watch,
    ) -> Way {
        let mut way = Way::default();
        let is_alone = burst.is_alone();
        if burst.at_device.is_none() {
            if !at.begins.is_of(burst.line, burst.number) {
                return Way { waits: true, ..way };
            }
            if !at.device.has_room(worker) {
                return way;
            }
            let Some(mut turn) = self.stations[station].between() else { return way };
            turn.begin(&self.routing, burst, &at.device, watch);
            drop(turn);
            if !is_alone {
                at.begins.pass(burst.line);
            }
            burst.at_device = Some(at.device.submit(worker, burst));
            way.moved = true;
        }
        let (stations, line) = (&self.stations[station], burst.at_device.unwrap_or(0));
        if stations.next(burst.line) != burst.number {
            return Way { waits: true, ..way };
        }
        if !at.device.collect(line, burst) {
            return way;
        }
        let Some(mut turn) = stations.try_enter(burst.line, burst.number) else { return way };
        turn.finish(&self.routing, burst);
        self.check_devices(&turn);
        self.flush(&mut turn, burst);
        drop(turn);
        if is_alone {
            at.begins.pass(burst.line);
        }
        burst.at_device = None;
        Way { moved: true, waits: false, is_through: true }
    }
}
