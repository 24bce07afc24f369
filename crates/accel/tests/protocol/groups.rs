//! The steps of work-groups: `work_group.rs`, `resident.cl`.

use super::ours::{END, Group, Mutation, Packet, Protocol, State, Step, Wrong, answer, requested};

impl Protocol {
    pub(super) fn work(&self, state: &mut State, group: usize, lane: usize) {
        let row = state.groups[group].done;
        let early = state.groups[group].early[lane].take();
        let request = early.unwrap_or(state.memory[self.request_at(group, row, lane)]);
        state.groups[group].worked[lane] = true;
        if request != 0 {
            let (number, hop) = requested(request);
            let before = |packet: &Packet, than: u8| match *packet {
                Packet::Under { group: g, row, lane: l, worked, .. } => {
                    (g, l) == (group, lane)
                        && self.rows_from_first(row) < self.rows_from_first(than)
                        && !worked
                }
                _ => false,
            };
            let packets = &mut state.packets;
            match packets[number] {
                Packet::Under { group: g, row, lane: l, worked: false, hop: h, .. }
                    if (g, l, h) == (group, lane, hop) =>
                {
                    if packets.iter().any(|packet| before(packet, row)) {
                        state.wrong = Some(Wrong::Order);
                    }
                    if let Packet::Under { worked, .. } = &mut packets[number] {
                        *worked = true;
                    }
                }
                _ => state.wrong = Some(Wrong::Twice),
            }
            let at = self.result_at(group, row, lane);
            state.groups[group].pending.store(at, answer(request));
        }
        Self::finish_row(&mut state.groups[group]);
    }

    pub(super) fn count(&self, state: &mut State, group: usize) {
        let own = &mut state.groups[group];
        own.counted = true;
        let releases = !self.is(Mutation::DoneIsRelaxed);
        own.pending.release(self.done(group), own.done.wrapping_add(1), releases);
        Self::finish_row(own);
    }

    /// Goes on to the next row when all is done for this one.
    fn finish_row(group: &mut Group) {
        if group.counted && group.worked.iter().all(|worked| *worked) {
            group.done = group.done.wrapping_add(1);
            group.counted = false;
            group.worked.fill(false);
        }
    }

    pub(super) fn steps_of_groups(&self, state: &State, steps: &mut Vec<Step>) {
        for (group, own) in state.groups.iter().enumerate() {
            steps.extend(own.pending.next().map(|at| Step::ShowOfGroup { group, at }));
            if own.has_ended {
                continue;
            }
            if self.is(Mutation::SlotBeforeSealed) {
                let missing =
                    (0..self.lanes).filter(|lane| !own.worked[*lane] && own.early[*lane].is_none());
                steps.extend(missing.map(|lane| Step::LoadSlot { group, lane }));
            }
            if own.done != own.until {
                let left = (0..self.lanes).filter(|lane| !own.worked[*lane]);
                steps.extend(left.map(|lane| Step::Work { group, lane }));
                let all = own.worked.iter().all(|worked| *worked);
                let counts = all || self.is(Mutation::NoBarrier) && own.worked[0];
                if counts && !own.counted {
                    steps.push(Step::Count { group });
                }
                continue;
            }
            let is_new = state.memory[self.sealed(group)] != own.until;
            if is_new && !own.has_looked {
                steps.push(Step::LoadSealed { group });
            }
            if !own.ends && state.memory[END] != 0 {
                steps.push(Step::LoadEnd { group });
            }
            if own.ends && (own.has_looked || !is_new) {
                steps.push(Step::Exit { group });
            }
        }
    }
}
