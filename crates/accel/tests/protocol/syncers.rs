//! The steps of syncers: `syncer.rs`.

use super::ours::{Mutation, Packet, Protocol, State, Step, Wrong, answer, request};

/// The hop that a packet takes next.
fn hop_of(packet: Packet) -> usize {
    match packet {
        Packet::Held { hop, .. } => hop,
        _ => 0,
    }
}

impl Protocol {
    /// The place of the work-group for a packet of this partition, if one has room.
    pub(super) fn group_for(
        &self,
        state: &State,
        syncer: usize,
        partition: usize,
    ) -> Option<usize> {
        let groups = &self.syncers[syncer][partition];
        let next = state.syncers[syncer].next[partition];
        let mut turns = (0..groups.len()).map(|turn| (next + turn) % groups.len());
        turns.find(|at| self.has_room(&state.own[groups[*at]]))
    }

    /// Calls `each` with what can be submitted: the syncer, the packet, its route and the hop.
    pub(super) fn submissions(
        &self,
        state: &State,
        each: &mut impl FnMut(usize, usize, usize, usize),
    ) {
        let first = state.packets.iter().position(|packet| *packet == Packet::Ahead);
        if let (Some(packet), false) = (first, state.is_closed) {
            for syncer in 0..self.syncers.len() {
                (0..self.routes.len()).for_each(|route| each(syncer, packet, route, 0));
            }
        }
        for (packet, place) in state.packets.iter().enumerate() {
            if let Packet::Held { syncer, route, hop } = *place {
                each(syncer, packet, route, hop);
            }
        }
    }

    /// Writes a packet into a slot.
    pub(super) fn put(
        &self,
        state: &mut State,
        (syncer, packet, route): (usize, usize, usize),
        at: (usize, u8, usize),
    ) {
        let hop = hop_of(state.packets[packet]);
        let (group, row, lane) = at;
        let pending = &mut state.syncers[syncer].pending;
        pending.store(self.request_at(group, row, lane), request(packet, hop));
        pending.store(self.result_at(group, row, lane), 0);
        state.packets[packet] =
            Packet::Under { syncer, route, hop, group, row, lane, worked: false };
    }

    pub(super) fn submit(&self, state: &mut State, syncer: usize, packet: usize, route: usize) {
        let hop = hop_of(state.packets[packet]);
        let partition = self.routes[route][hop];
        let at = self.group_for(state, syncer, partition).expect("a work-group has room");
        let groups = &self.syncers[syncer][partition];
        let group = groups[at];
        let (row, lane) = (state.own[group].sealed, state.own[group].filled);
        self.put(state, (syncer, packet, route), (group, row, lane));
        state.own[group].filled += 1;
        let is_full = state.own[group].filled == self.lanes;
        if is_full {
            self.seal(state, group);
        }
        state.syncers[syncer].next[partition] = (at + usize::from(is_full)) % groups.len();
    }

    pub(super) fn seal(&self, state: &mut State, group: usize) {
        let own = &mut state.own[group];
        let pending = &mut state.syncers[self.syncer_of(group)].pending;
        if !self.is(Mutation::NoDummies) {
            for lane in own.filled..self.lanes {
                pending.store(self.request_at(group, own.sealed, lane), 0);
            }
        }
        own.filled = 0;
        own.sealed = own.sealed.wrapping_add(1);
        pending.release(self.sealed(group), own.sealed, !self.is(Mutation::SealIsRelaxed));
    }

    pub(super) fn load_done(&self, state: &mut State, group: usize) {
        let done = state.memory[self.done(group)];
        let own = &mut state.own[group];
        own.until = done;
        if done.wrapping_sub(own.collected) > own.sealed.wrapping_sub(own.collected) {
            state.wrong = Some(Wrong::Fault);
        }
    }

    pub(super) fn take_row(&self, state: &mut State, group: usize) {
        let row = state.own[group].collected;
        for packet in 0..self.packets {
            let Packet::Under { syncer, route, hop, group: of, row: in_row, lane, worked } =
                state.packets[packet]
            else {
                continue;
            };
            if (of, in_row) != (group, row) {
                continue;
            }
            let early = state.own[group].early[lane].take();
            let result = early.unwrap_or(state.memory[self.result_at(group, row, lane)]);
            if !worked {
                state.wrong = Some(Wrong::Lost);
            } else if result != answer(request(packet, hop)) {
                state.wrong = Some(Wrong::Result);
            }
            let is_last = hop + 1 == self.routes[route].len();
            let held = Packet::Held { syncer, route, hop: hop + 1 };
            state.packets[packet] = if is_last { Packet::Back } else { held };
        }
        state.own[group].early.fill(None);
        state.own[group].collected = row.wrapping_add(1);
    }

    pub(super) fn steps_of_syncers(&self, state: &State, steps: &mut Vec<Step>) {
        self.submissions(state, &mut |syncer, packet, route, hop| {
            let partition = self.routes[route][hop];
            if self.group_for(state, syncer, partition).is_some() {
                steps.push(Step::Submit { syncer, packet, route });
            }
            if self.is(Mutation::PacketForDummy) {
                for &group in &self.syncers[syncer][partition] {
                    if self.dummy(state, group).is_some() {
                        steps.push(Step::ReplaceDummy { syncer, packet, route, group });
                    }
                }
            }
        });
        for (group, own) in state.own.iter().enumerate() {
            if state.memory[self.done(group)] != own.until {
                steps.push(Step::LoadDone { group });
            }
            if own.collected != own.until {
                steps.push(Step::TakeRow { group });
            }
            let idles = own.filled > 0 && own.collected == own.sealed;
            if idles && !self.is(Mutation::NoSealOfIdle) {
                steps.push(Step::SealIdle { group });
            }
            let has_ended = state.memory[self.ended(group)] != 0;
            let stands = own.collected != own.sealed;
            if has_ended && stands && state.memory[self.done(group)] == own.collected {
                steps.push(Step::FindFault { group });
            }
            if self.is(Mutation::ResultBeforeDone) && own.collected != own.sealed {
                let missing = (0..self.lanes).filter(|lane| own.early[*lane].is_none());
                steps.extend(missing.map(|lane| Step::LoadResult { group, lane }));
            }
        }
        for (syncer, own) in state.syncers.iter().enumerate() {
            steps.extend(own.pending.next().map(|at| Step::ShowOfSyncer { syncer, at }));
        }
    }

    /// The first dummy of the row that was sealed last, if the row is not back.
    pub(super) fn dummy(&self, state: &State, group: usize) -> Option<usize> {
        let own = &state.own[group];
        let row = (own.sealed != own.collected).then(|| own.sealed.wrapping_sub(1))?;
        let place = |packet: &Packet| match *packet {
            Packet::Under { group, row, lane, .. } => Some((group, row, lane)),
            _ => None,
        };
        let is_free =
            |lane: &usize| state.packets.iter().all(|p| place(p) != Some((group, row, *lane)));
        (0..self.lanes).find(is_free)
    }

    /// Whether all packets are submitted for the last time, and sealed.
    pub(super) fn may_end(&self, state: &State) -> bool {
        let is_last = |packet: &Packet| match *packet {
            Packet::Ahead => state.is_closed,
            Packet::Held { .. } => false,
            Packet::Under { route, hop, .. } => hop + 1 == self.routes[route].len(),
            Packet::Back => true,
        };
        // Other syncers' threads have ended by then, so that all sees their stores.
        let others = state.syncers[1..].iter().all(|other| other.pending.is_empty());
        others && state.packets.iter().all(is_last) && state.own.iter().all(|own| own.filled == 0)
    }
}
