//! The algorithm of Hummingbird (section IV-C), as we read it.
//!
//! A queue is a ring of rows that begins with dummies in all slots. GPUSyncer works on row `gpu` and
//! counts it; CPUSyncer takes the packets out of row `cpu`, leaves dummies there, and counts it; a
//! forwarder writes packets over dummies of rows that the GPU has not counted. All memory is
//! sequentially consistent here: what goes wrong is not a matter of its order.

use stateright::{Model, Property};

/// What one side waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// As printed: each side waits until the other's index is past its own, and both begin at 0.
    AsPrinted,
    /// The GPU may go ahead of the processor by all rows of the ring.
    Repaired,
}

/// A queue of one work-group.
#[derive(Clone, Debug)]
pub struct Paper {
    pub start: Start,
    pub lanes: usize,
    pub rows: usize,
    pub packets: usize,
    /// Rows after which the model ends, as dummies go around without end.
    pub most_rows: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Slot {
    Dummy,
    Packet { is_done: bool },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    cpu: usize,
    gpu: usize,
    /// By row and work-item.
    slots: Vec<Slot>,
    /// By work-item: whether it has looked at its slot of row `gpu`.
    looked: Vec<bool>,
    /// Packets that the forwarder still has.
    left: usize,
    /// The slot that the forwarder has found to be a dummy, and its row is not counted.
    chosen: Option<usize>,
    done: usize,
    lost: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The forwarder finds a dummy.
    Choose(usize),
    /// The forwarder writes its packet.
    Write,
    /// A work-item looks at its slot, and works on the packet in it.
    Work(usize),
    /// GPUSyncer counts a row.
    CountOfGpu,
    /// CPUSyncer takes a row, and counts it.
    Take,
}

impl Paper {
    fn gpu_may_work(&self, state: &State) -> bool {
        match self.start {
            Start::AsPrinted => state.cpu > state.gpu,
            Start::Repaired => state.gpu < state.cpu + self.rows,
        }
    }

    fn slot(&self, row: usize, lane: usize) -> usize {
        row % self.rows * self.lanes + lane
    }
}

impl Model for Paper {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            cpu: 0,
            gpu: 0,
            slots: vec![Slot::Dummy; self.rows * self.lanes],
            looked: vec![false; self.lanes],
            left: self.packets,
            chosen: None,
            done: 0,
            lost: 0,
        }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if state.chosen.is_some() {
            steps.push(Step::Write);
        } else if state.left > 0 {
            let ahead = state.gpu..state.cpu + self.rows;
            let slots = ahead.flat_map(|row| (0..self.lanes).map(move |lane| (row, lane)));
            let slots = slots.map(|(row, lane)| self.slot(row, lane));
            let dummies = slots.filter(|slot| state.slots[*slot] == Slot::Dummy);
            steps.extend(dummies.map(Step::Choose));
        }
        if self.gpu_may_work(state) {
            let left = (0..self.lanes).filter(|lane| !state.looked[*lane]);
            steps.extend(left.map(Step::Work));
            if state.looked.iter().all(|looked| *looked) {
                steps.push(Step::CountOfGpu);
            }
        }
        if state.gpu > state.cpu {
            steps.push(Step::Take);
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        match step {
            Step::Choose(slot) => state.chosen = Some(slot),
            Step::Write => {
                let slot = state.chosen.take()?;
                state.slots[slot] = Slot::Packet { is_done: false };
                state.left -= 1;
            }
            Step::Work(lane) => {
                if let Slot::Packet { is_done } = &mut state.slots[self.slot(last.gpu, lane)] {
                    *is_done = true;
                }
                state.looked[lane] = true;
            }
            Step::CountOfGpu => {
                state.gpu += 1;
                state.looked.fill(false);
            }
            Step::Take => {
                for lane in 0..self.lanes {
                    let slot = &mut state.slots[self.slot(last.cpu, lane)];
                    match std::mem::replace(slot, Slot::Dummy) {
                        Slot::Dummy => {}
                        Slot::Packet { is_done: true } => state.done += 1,
                        Slot::Packet { is_done: false } => state.lost += 1,
                    }
                }
                state.cpu += 1;
            }
        }
        Some(state)
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.gpu <= self.most_rows
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("a side can move", |model: &Self, state: &State| {
                let mut steps = Vec::new();
                model.actions(state, &mut steps);
                !steps.is_empty()
            }),
            Property::always("no packet passes without being worked on", |_, state: &State| {
                state.lost == 0
            }),
            Property::sometimes("all packets are worked on", |model: &Self, state: &State| {
                state.done == model.packets
            }),
        ]
    }
}
