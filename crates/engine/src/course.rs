//! The course of a chain: its classification and its stations, in the order in which packets pass
//! them.

use std::sync::Arc;

use thalweg_chain::{Next, NfIndex, NfPlan, Plan, Routing, Stage};
use thalweg_classify::Classifier;
use thalweg_nf::{Division, Emitted};
use thalweg_packet::{DropCounts, Lanes, PacketType};

use crate::burst::{Burst, Round};
use crate::classification::Classification;
use crate::counters::{Counters, Former};
use crate::device::{self, Device};
use crate::parts::{self, Parts};
use crate::station::{Member, Station};
use crate::watch::Watch;

/// All stages between the inputs and the outputs.
pub(crate) struct Course {
    pub(crate) routing: Arc<Routing>,
    pub(crate) classification: Classification,
    pub(crate) stations: Vec<Station>,
    /// By station: the parts of its NF, if that is divided.
    pub(crate) parts: Vec<Option<Parts>>,
}

/// An NF in its place: its instance, and its parts if it is divided.
pub(crate) struct Seat {
    pub(crate) member: Member,
    pub(crate) parts: Option<Parts>,
}

impl Seat {
    /// A new instance of an NF for a run with `workers` workers; divided if it `may_divide` and is
    /// worth it.
    pub(crate) fn new(plan: &Plan, nf: NfIndex, workers: usize, may_divide: bool) -> Self {
        let blueprint = &plan.nfs[usize::from(nf.0)].blueprint;
        let number = (4 * workers).next_power_of_two().min(parts::MOST);
        match may_divide.then(|| blueprint.divide(number)).flatten() {
            Some(Division { parts, whole, bucket, takes_whole }) => Self {
                member: Member::new(nf, whole),
                parts: Some(Parts::new(nf, parts, bucket, takes_whole, &plan.pool)),
            },
            None => Self { member: Member::new(nf, blueprint.instance()), parts: None },
        }
    }

    /// Gives the NF another index.
    pub(crate) fn renumber(&mut self, nf: NfIndex) {
        self.member.nf = nf;
        self.parts.iter_mut().for_each(|parts| parts.nf = nf);
    }

    /// Adds the counts of the NF's parts and of its device to its own, when no more packets come to it.
    pub(crate) fn sum(mut self) -> Self {
        self.member.counters.add_device(self.member.device.as_ref());
        if let Some(parts) = &mut self.parts {
            parts.add_counters(&mut self.member.counters);
        }
        self
    }
}

/// For each NF, whether it may be divided in a run with `workers` workers: it is alone in its
/// station, has no thread of its own and no device, and needs no packets cut.
pub(crate) fn divisible(plan: &Plan, workers: usize) -> Vec<bool> {
    let mut divisible = vec![false; plan.nfs.len()];
    for nfs in stations(&plan.routing) {
        if let ([nf], true) = (&nfs[..], workers > 1) {
            let NfPlan { pinned, device, .. } = &plan.nfs[usize::from(nf.0)];
            let is_here = !pinned && device.is_none();
            divisible[usize::from(nf.0)] = is_here && takes_supers(plan, *nf);
        }
    }
    divisible
}

/// Whether an NF itself says which super-packets it processes.
fn takes_supers(plan: &Plan, nf: NfIndex) -> bool {
    plan.pool.large_frames() == 0 || plan.nfs[usize::from(nf.0)].kind.takes_supers
}

/// A classifier for the packets of a plan.
pub(crate) fn classification(plan: &Plan) -> Classification {
    let classifier = Classifier::new(plan.rules.clone(), plan.classifier);
    Classification::new(classifier, plan.routing.types)
}

impl Course {
    /// The course of a plan, with a new instance of each NF, for a run with `workers` workers.
    pub(crate) fn new(plan: &Plan, workers: usize) -> Self {
        let seat = |(nf, may_divide)| Seat::new(plan, NfIndex(nf as u16), workers, may_divide);
        let seats = divisible(plan, workers).into_iter().enumerate().map(seat).collect();
        Self::of(plan, classification(plan), seats)
    }

    /// Starts what devices do for the NFs.
    ///
    /// # Errors
    /// In words: which NF, and why.
    pub(crate) fn start_devices(&mut self, plan: &Plan, workers: usize) -> Result<(), String> {
        let mut devices = device::start(plan, workers)?;
        for member in self.members_mut() {
            member.device = devices[usize::from(member.nf.0)].take();
        }
        Ok(())
    }

    /// By station: the device that has packets of its NF while others come.
    pub(crate) fn overlapping_devices(&self, plan: &Plan) -> Vec<Option<Arc<Device>>> {
        let overlapping = device::overlapping(plan);
        let device = |station: &Station| {
            let [Member { nf, device, .. }] = station.members() else { return None };
            device.clone().filter(|_| overlapping[usize::from(nf.0)])
        };
        self.stations.iter().map(device).collect()
    }

    /// The course of these NFs, by index.
    fn of(plan: &Plan, classification: Classification, seats: Vec<Seat>) -> Self {
        let (routing, stations, parts) = (plan.routing.clone(), Vec::new(), Vec::new());
        let mut course = Self { routing, classification, stations, parts };
        course.place(plan, seats);
        course
    }

    /// Places these NFs, by index, in stations. There are none before.
    pub(crate) fn place(&mut self, plan: &Plan, seats: Vec<Seat>) {
        let mut seats: Vec<_> = seats.into_iter().map(Some).collect();
        self.routing = plan.routing.clone();
        for nfs in stations(&plan.routing) {
            let take = |nf: NfIndex| {
                let mut seat = seats[usize::from(nf.0)].take().expect("each NF has a seat");
                let overload = plan.nfs[usize::from(nf.0)].overload;
                seat.member.overload = overload;
                seat.member.takes_supers = takes_supers(plan, nf);
                seat.parts.iter_mut().for_each(|parts| parts.overload = overload);
                seat
            };
            let (members, mut of_members): (Vec<_>, Vec<_>) =
                nfs.into_iter().map(take).map(|seat| (seat.member, seat.parts)).unzip();
            self.parts.push(of_members.pop().flatten());
            self.stations.push(Station::new(members, Emitted::new(plan.pool.clone())));
        }
    }

    /// Takes all NFs, by index, and the counts of packets dropped behind them.
    pub(crate) fn take_seats(&mut self) -> (Vec<Seat>, DropCounts) {
        let (mut seats, mut lost) = (Vec::new(), DropCounts::default());
        for (station, mut parts) in self.stations.drain(..).zip(self.parts.drain(..)) {
            lost.merge(&station.lost);
            let seat = |member| Seat { member, parts: parts.take() };
            seats.extend(station.into_members().map(seat));
        }
        seats.sort_by_key(|seat: &Seat| seat.member.nf);
        (seats, lost)
    }

    /// The NF with this index, and whether it is divided.
    pub(crate) fn member(&self, nf: NfIndex) -> Option<(&Member, bool)> {
        let mut stations = self.stations.iter().zip(&self.parts);
        stations.find_map(|(station, parts)| {
            let member = station.members().iter().find(|member| member.nf == nf)?;
            Some((member, parts.is_some()))
        })
    }

    /// All NFs.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Member> {
        self.stations.iter().flat_map(Station::members)
    }

    /// The same, mutable.
    pub(crate) fn members_mut(&mut self) -> impl Iterator<Item = &mut Member> {
        self.stations.iter_mut().flat_map(Station::members_mut)
    }

    /// Takes a received burst through all stages, to the queues of the outputs.
    pub(crate) fn serve(&mut self, burst: &mut Burst, watch: &mut Watch) {
        parse(&self.routing, burst, watch);
        self.classification.serve(&self.routing, burst);
        for station in &mut self.stations {
            station.serve(&self.routing, burst, watch);
        }
    }

    /// Ends the NFs, which write what they hold for the last time, and returns all counts, with those
    /// of `former` ones; `is_left` if the state of the NFs was exported for another run.
    pub(crate) fn end(
        mut self,
        is_left: bool,
        former: Former,
        watch: &Watch,
        failures: &mut Vec<String>,
    ) -> Counters {
        self.stations.iter_mut().for_each(|station| station.end(is_left, failures));
        Counters::of(self, former, watch)
    }
}

/// Parses the received packets of a burst.
pub(crate) fn parse(routing: &Routing, burst: &mut Burst, watch: &mut Watch) {
    watch.parse(|| {
        for round in &mut burst.rounds {
            round.batch.parse(round.batch.lanes(), routing.decapsulate);
        }
    });
}

/// Calls `send` with the number of each output and the packets of `burst` that wait for it; then all
/// packets are at their ends.
pub(crate) fn transmit(
    burst: &mut Burst,
    watch: &mut Watch,
    mut send: impl FnMut(usize, &mut Round, Lanes),
) {
    watch.transmit(|| {
        for round in &mut burst.rounds {
            while let Some((output, lanes)) = round.queues.pop_output() {
                send(output, round, lanes);
            }
            if let Some(observed) = round.observed.take() {
                observed.end();
            }
        }
    });
}

/// The NFs of each station, in an order in which no packet goes back. NFs that packets of different
/// types pass in different orders share a station.
pub(crate) fn stations(routing: &Routing) -> Vec<Vec<NfIndex>> {
    let behind = Reach::new(routing);
    let mut stations: Vec<Vec<NfIndex>> = Vec::new();
    for nf in &routing.order {
        let together =
            |of: &&mut Vec<NfIndex>| behind.holds(of[0], *nf) && behind.holds(*nf, of[0]);
        match stations.iter_mut().find(together) {
            Some(station) => station.push(*nf),
            None => stations.push(vec![*nf]),
        }
    }
    // To each station lead all NFs that lead to one before it, and those of that one.
    let before = |station: &Vec<NfIndex>| {
        let others = routing.order.iter().filter(|nf| !station.contains(*nf));
        others.filter(|nf| behind.holds(**nf, station[0])).count()
    };
    stations.sort_by_key(before);
    stations
}

/// For each two NFs whether packets of some types can pass the second after the first.
struct Reach {
    nfs: usize,
    pairs: Vec<bool>,
}

impl Reach {
    fn new(routing: &Routing) -> Self {
        let nfs = routing.nfs;
        let mut reach = Self { nfs, pairs: vec![false; nfs * nfs] };
        for from in 0..nfs {
            for packet_type in 0..routing.types {
                let stage = Stage::Behind(NfIndex(from as u16));
                let next = routing.routes.next(PacketType(packet_type as u16), stage);
                if let Next::Nf(to) = next {
                    reach.pairs[from * nfs + usize::from(to.0)] = true;
                }
            }
        }
        // Warshall's algorithm (Journal of the ACM, 1962).
        for through in 0..nfs {
            for from in 0..nfs {
                if reach.pairs[from * nfs + through] {
                    for to in 0..nfs {
                        reach.pairs[from * nfs + to] |= reach.pairs[through * nfs + to];
                    }
                }
            }
        }
        reach
    }

    fn holds(&self, from: NfIndex, to: NfIndex) -> bool {
        self.pairs[usize::from(from.0) * self.nfs + usize::from(to.0)]
    }
}

#[cfg(test)]
mod tests {
    use thalweg_chain::RouteDecider;
    use thalweg_packet::Decapsulate;

    use super::*;

    /// The stations of a chain whose types pass NFs in these orders.
    fn grouped(nfs: usize, order: &[u16], ways: &[&[u16]]) -> Vec<Vec<u16>> {
        let mut routes = RouteDecider::new(1, nfs, ways.len());
        for (number, way) in ways.iter().enumerate() {
            for pair in way.windows(2) {
                let stage = Stage::Behind(NfIndex(pair[0]));
                routes.set(PacketType(number as u16), stage, Next::Nf(NfIndex(pair[1])));
            }
        }
        let order = order.iter().map(|nf| NfIndex(*nf)).collect();
        let decapsulate = Decapsulate::No;
        let routing = Routing { routes, order, nfs, outputs: 1, types: ways.len(), decapsulate };
        let of = |station: Vec<NfIndex>| station.into_iter().map(|nf| nf.0).collect();
        stations(&routing).into_iter().map(of).collect()
    }

    #[test]
    fn each_nf_has_a_station_behind_those_that_lead_to_it() {
        assert_eq!(grouped(3, &[2, 0, 1], &[&[2, 0, 1], &[2, 1]]), [[2], [0], [1]]);
        assert_eq!(grouped(2, &[1, 0], &[&[0], &[1]]), [[1], [0]]);
    }

    #[test]
    fn nfs_that_are_passed_in_both_orders_share_a_station() {
        let both = grouped(4, &[0, 1, 2, 3], &[&[0, 1, 2, 3], &[0, 2, 1, 3]]);
        assert_eq!(both, [vec![0], vec![1, 2], vec![3]]);
        // The order of the file puts the last NF of the second way first.
        let late = grouped(4, &[3, 0, 1, 2], &[&[0, 1, 2], &[2, 1, 3]]);
        assert_eq!(late, [vec![0], vec![1, 2], vec![3]]);
    }
}
