//! Our protocol: the steps of syncers (`syncer.rs`) and work-groups (`work_group.rs`, `resident.cl`)
//! over a region (`region.rs`).
//!
//! A slot is two words here: the request, 0 for a dummy, and the result. Loads that change nothing are
//! no steps, so each step moves something forward, which [`State::progress`] measures and every step
//! is held to: no run goes on forever, and progress means that no run ends early.

use stateright::{Model, Property};

use super::memory::Pending;

/// What differs from the protocol, to see that the checker finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    None,
    /// `sealed` is stored without ordering the slots before it.
    SealIsRelaxed,
    /// `done` is stored without ordering the results before it.
    DoneIsRelaxed,
    /// The end is stored without ordering the seals before it.
    EndIsRelaxed,
    /// A work-item may load its slot before the work-group has loaded `sealed`.
    SlotBeforeSealed,
    /// The syncer may load a result before it has loaded `done`.
    ResultBeforeDone,
    /// Work-item 0 counts a row as done without waiting for the others.
    NoBarrier,
    /// A row that is not full waits for more packets, even when its work-group idles.
    NoSealOfIdle,
    /// The slots that are left in a row keep what they had.
    NoDummies,
    /// The queue takes a row more than it has.
    RowTooMany,
    /// The work-group looks for the end after it has looked for rows.
    SealedBeforeEnd,
    /// A packet takes the place of a dummy in the row that was sealed last.
    PacketForDummy,
}

/// What went wrong in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wrong {
    /// A packet is worked on that is not there, or was worked on before.
    Twice,
    /// A packet is back without having been worked on.
    Lost,
    /// A work-item works on a packet before one that came to it earlier.
    Order,
    /// A packet is back with a result that is not its own.
    Result,
    /// A work-group has ended with rows left, or counts rows that it was not given.
    Fault,
}

/// Syncers, work-groups and packets.
#[derive(Clone, Debug)]
pub struct Protocol {
    pub lanes: usize,
    pub rows: usize,
    /// By syncer, by partition: work-groups.
    pub syncers: Vec<Vec<Vec<usize>>>,
    /// The partitions that a packet may go through, one after the other; each packet takes any.
    pub routes: Vec<Vec<usize>>,
    pub packets: usize,
    /// Where indexes begin, so that they wrap in short runs as they do at 2^32 in long ones.
    pub first: u8,
    pub mutation: Mutation,
}

/// Where a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Packet {
    Ahead,
    /// Back from a partition, on the way to the next.
    Held {
        syncer: usize,
        route: usize,
        hop: usize,
    },
    Under {
        syncer: usize,
        route: usize,
        hop: usize,
        group: usize,
        row: u8,
        lane: usize,
        worked: bool,
    },
    Back,
}

/// A syncer's view of a work-group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Own {
    pub sealed: u8,
    pub collected: u8,
    /// `done` as loaded last.
    pub until: u8,
    pub filled: usize,
    /// Results of the next row that were loaded too early.
    pub early: Vec<Option<u8>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Syncer {
    /// By partition: the place among its work-groups of the one that gets the next packet.
    pub next: Vec<usize>,
    pub pending: Pending,
}

/// A work-group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Group {
    /// `sealed` as loaded last.
    pub until: u8,
    pub done: u8,
    /// By work-item: whether it has worked on its slot of row `done`.
    pub worked: Vec<bool>,
    /// Whether `done` was stored for that row.
    pub counted: bool,
    pub ends: bool,
    /// Whether it has loaded `sealed` after the end.
    pub has_looked: bool,
    pub has_ended: bool,
    /// By work-item: its request, loaded too early.
    pub early: Vec<Option<u8>>,
    pub pending: Pending,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub memory: Vec<u8>,
    pub packets: Vec<Packet>,
    /// By work-group.
    pub own: Vec<Own>,
    pub syncers: Vec<Syncer>,
    pub groups: Vec<Group>,
    /// Whether packets still ahead stay there: the input may end at any time.
    pub is_closed: bool,
    pub end_is_stored: bool,
    pub wrong: Option<Wrong>,
}

/// A step of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Submit { syncer: usize, packet: usize, route: usize },
    LoadDone { group: usize },
    LoadResult { group: usize, lane: usize },
    TakeRow { group: usize },
    SealIdle { group: usize },
    FindFault { group: usize },
    ReplaceDummy { syncer: usize, packet: usize, route: usize, group: usize },
    Close,
    End,
    ShowOfSyncer { syncer: usize, at: usize },
    LoadSealed { group: usize },
    LoadEnd { group: usize },
    LoadSlot { group: usize, lane: usize },
    Work { group: usize, lane: usize },
    Count { group: usize },
    Exit { group: usize },
    ShowOfGroup { group: usize, at: usize },
}

/// Where the end is.
pub const END: usize = 0;
/// What a function returns for a request.
pub fn answer(request: u8) -> u8 {
    request + 100
}

/// The request for a packet's hop, and back.
pub fn request(packet: usize, hop: usize) -> u8 {
    (1 + 4 * packet + hop) as u8
}
pub fn requested(request: u8) -> (usize, usize) {
    let number = usize::from(request) - 1;
    (number / 4, number % 4)
}

impl Protocol {
    pub(super) fn number_of_groups(&self) -> usize {
        self.syncers.iter().flatten().map(Vec::len).sum()
    }

    pub(super) fn words_of_group(&self) -> usize {
        3 + 2 * self.rows * self.lanes
    }

    pub(super) fn sealed(&self, group: usize) -> usize {
        1 + group * self.words_of_group()
    }
    pub(super) fn done(&self, group: usize) -> usize {
        self.sealed(group) + 1
    }
    pub(super) fn ended(&self, group: usize) -> usize {
        self.sealed(group) + 2
    }
    pub(super) fn request_at(&self, group: usize, row: u8, lane: usize) -> usize {
        self.sealed(group) + 3 + 2 * ((usize::from(row) & (self.rows - 1)) * self.lanes + lane)
    }
    pub(super) fn result_at(&self, group: usize, row: u8, lane: usize) -> usize {
        self.request_at(group, row, lane) + 1
    }

    /// How many rows come before this one.
    pub(super) fn rows_from_first(&self, row: u8) -> usize {
        usize::from(row.wrapping_sub(self.first))
    }

    pub(super) fn is(&self, mutation: Mutation) -> bool {
        self.mutation == mutation
    }

    /// The syncer that has a work-group.
    pub(super) fn syncer_of(&self, group: usize) -> usize {
        let has = |own: &Vec<Vec<usize>>| own.iter().flatten().any(|other| *other == group);
        self.syncers.iter().position(has).expect("a work-group has a syncer")
    }

    pub(super) fn has_room(&self, own: &Own) -> bool {
        let rows = self.rows + usize::from(self.is(Mutation::RowTooMany));
        usize::from(own.sealed.wrapping_sub(own.collected)) < rows
    }
}

impl State {
    /// How far everything is: each step raises it.
    fn progress(&self, model: &Protocol) -> usize {
        let (lanes, rows) = (model.lanes, |row| model.rows_from_first(row));
        let packet = |packet: &Packet| match *packet {
            Packet::Ahead => 0,
            Packet::Held { hop, .. } => 3 * hop,
            Packet::Under { hop, worked, .. } => 3 * hop + 1 + usize::from(worked),
            Packet::Back => 20,
        };
        let early = |early: &[Option<u8>]| early.iter().flatten().count();
        let own = |own: &Own| {
            rows(own.collected) + rows(own.until) + rows(own.sealed) * (lanes + 1) + own.filled
        };
        let group = |group: &Group| {
            let of_row = group.worked.iter().filter(|worked| **worked).count();
            let of_row = of_row + usize::from(group.counted);
            let looks = [group.ends, group.has_looked, group.has_ended].map(usize::from);
            rows(group.done) * (lanes + 2)
                + of_row
                + rows(group.until)
                + looks.iter().sum::<usize>()
        };
        let pending = self.syncers.iter().map(|syncer| syncer.pending.len()).sum::<usize>()
            + self.groups.iter().map(|group| group.pending.len()).sum::<usize>();
        let loaded = self.own.iter().map(|own| early(&own.early)).sum::<usize>()
            + self.groups.iter().map(|group| early(&group.early)).sum::<usize>();
        let moved = self.packets.iter().map(packet).sum::<usize>()
            + self.own.iter().map(own).sum::<usize>()
            + self.groups.iter().map(group).sum::<usize>()
            + usize::from(self.is_closed)
            + usize::from(self.end_is_stored);
        // A step makes fewer stores than this, and one that shows a store makes none.
        64 * moved + 2 * loaded + 1000 - pending
    }

    fn is_complete(&self) -> bool {
        let is_out = |packet: &Packet| match packet {
            Packet::Ahead => self.is_closed,
            Packet::Back => true,
            _ => false,
        };
        self.packets.iter().all(is_out) && self.groups.iter().all(|group| group.has_ended)
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let groups = self.number_of_groups();
        let (sealed, collected, until, done) = (self.first, self.first, self.first, self.first);
        let early = vec![None; self.lanes];
        let own = Own { sealed, collected, until, early, ..Own::default() };
        let mut memory = vec![0; 1 + groups * self.words_of_group()];
        for group in 0..groups {
            memory[self.sealed(group)] = self.first;
            memory[self.done(group)] = self.first;
        }
        let group = Group {
            until,
            done,
            worked: vec![false; self.lanes],
            early: vec![None; self.lanes],
            ..Group::default()
        };
        let syncer = |own: &Vec<Vec<usize>>| Syncer {
            next: vec![0; own.len()],
            pending: Pending::default(),
        };
        vec![State {
            memory,
            packets: vec![Packet::Ahead; self.packets],
            own: vec![own; groups],
            syncers: self.syncers.iter().map(syncer).collect(),
            groups: vec![group; groups],
            is_closed: false,
            end_is_stored: false,
            wrong: None,
        }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if state.wrong.is_some() {
            return;
        }
        self.steps_of_syncers(state, steps);
        if !state.is_closed && state.packets.contains(&Packet::Ahead) {
            steps.push(Step::Close);
        }
        if !state.end_is_stored && self.may_end(state) {
            steps.push(Step::End);
        }
        self.steps_of_groups(state, steps);
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        match step {
            Step::Submit { syncer, packet, route } => {
                self.submit(&mut state, syncer, packet, route);
            }
            Step::LoadDone { group } => self.load_done(&mut state, group),
            Step::LoadResult { group, lane } => {
                let at = self.result_at(group, state.own[group].collected, lane);
                state.own[group].early[lane] = Some(state.memory[at]);
            }
            Step::TakeRow { group } => self.take_row(&mut state, group),
            Step::SealIdle { group } => self.seal(&mut state, group),
            Step::FindFault { .. } => state.wrong = Some(Wrong::Fault),
            Step::ReplaceDummy { syncer, packet, route, group } => {
                let lane = self.dummy(&state, group).expect("a dummy is there");
                let row = state.own[group].sealed.wrapping_sub(1);
                self.put(&mut state, (syncer, packet, route), (group, row, lane));
            }
            Step::Close => state.is_closed = true,
            Step::End => {
                state.end_is_stored = true;
                let releases = !self.is(Mutation::EndIsRelaxed);
                state.syncers[0].pending.release(END, 1, releases);
            }
            Step::ShowOfSyncer { syncer, at } => {
                state.syncers[syncer].pending.show(at, &mut state.memory);
            }
            Step::LoadSealed { group } => {
                state.groups[group].until = state.memory[self.sealed(group)];
                state.groups[group].has_looked = state.groups[group].ends;
            }
            Step::LoadEnd { group } => {
                state.groups[group].ends = true;
                state.groups[group].has_looked = self.is(Mutation::SealedBeforeEnd);
            }
            Step::LoadSlot { group, lane } => {
                let at = self.request_at(group, state.groups[group].done, lane);
                state.groups[group].early[lane] = Some(state.memory[at]);
            }
            Step::Work { group, lane } => self.work(&mut state, group, lane),
            Step::Count { group } => self.count(&mut state, group),
            Step::Exit { group } => {
                state.groups[group].has_ended = true;
                state.groups[group].pending.release(self.ended(group), 1, true);
            }
            Step::ShowOfGroup { group, at } => {
                state.groups[group].pending.show(at, &mut state.memory);
            }
        }
        if state.wrong.is_none() {
            let [before, after] = [last, &state].map(|state| state.progress(self));
            assert!(before < after, "{step:?} moves nothing forward");
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let stuck = |model: &Self, state: &State| {
            let mut steps = Vec::new();
            model.actions(state, &mut steps);
            !steps.is_empty() || state.wrong.is_some() || state.is_complete()
        };
        vec![
            Property::always("no packet is worked on twice", |_, s: &State| {
                s.wrong != Some(Wrong::Twice)
            }),
            Property::always("no packet is lost", |_, s: &State| s.wrong != Some(Wrong::Lost)),
            Property::always("order in a lane", |_, s: &State| s.wrong != Some(Wrong::Order)),
            Property::always("each result is its packet's", |_, s: &State| {
                s.wrong != Some(Wrong::Result)
            }),
            Property::always("no work-group ends early", |_, s: &State| {
                s.wrong != Some(Wrong::Fault)
            }),
            Property::always("every packet comes back, and all end", stuck),
            Property::sometimes("a row has dummies", |model: &Self, state: &State| {
                (0..state.own.len()).any(|group| model.dummy(state, group).is_some())
            }),
            Property::sometimes("a queue is full", |model: &Self, state: &State| {
                state.own.iter().any(|own| !model.has_room(own))
            }),
            Property::sometimes("a row is used again", |model: &Self, state: &State| {
                state.own.iter().any(|own| model.rows_from_first(own.sealed) > model.rows)
            }),
            Property::sometimes("packets are under way at the end", |_, state: &State| {
                let is_under =
                    |packet: &Packet| matches!(packet, Packet::Under { worked: false, .. });
                state.memory[END] != 0 && state.packets.iter().any(is_under)
            }),
            Property::sometimes("all packets are back", |_, state: &State| {
                state.packets.iter().all(|packet| *packet == Packet::Back) && state.is_complete()
            }),
        ]
    }
}
