//! DDR4 memory: banks with open rows, which share one data bus per channel.

use crate::calendar::{Calendar, Cycle};
use crate::config::DramConfig;

use super::cache::LineNumber;

/// Lines of an open row: 8 KB over the eight devices of a rank.
const ROW_LINES: u64 = 128;

#[derive(Clone, Copy, Debug, Default)]
struct Bank {
    row: Option<u64>,
    /// When the next command can be given.
    ready: Cycle,
    /// When the row may be closed.
    may_close: Cycle,
}

/// All channels.
#[derive(Clone, Debug)]
pub struct Dram {
    banks: Vec<Bank>,
    banks_a_channel: usize,
    bus: Vec<Calendar>,
    /// The last four activations of each channel.
    activations: Vec<[Cycle; 4]>,
    timing: Timing,
}

/// Times in core cycles.
#[derive(Clone, Copy, Debug)]
struct Timing {
    column: Cycle,
    column_to_column: Cycle,
    activate: Cycle,
    precharge: Cycle,
    row_active: Cycle,
    four_activations: Cycle,
    burst: Cycle,
    refresh_interval: Cycle,
    refresh: Cycle,
    controller: Cycle,
}

impl Dram {
    /// Memory for cores of `ghz` GHz.
    pub fn new(config: &DramConfig, ghz: f64) -> Self {
        // In whole core cycles, rounded up, as commands wait for the next clock.
        let cycles = |clocks: u64| (clocks as f64 * 1000.0 / config.mhz * ghz).ceil() as Cycle;
        let banks_a_channel = config.ranks * config.bank_groups * config.banks;
        Self {
            banks: vec![Bank::default(); config.channels * banks_a_channel],
            banks_a_channel,
            bus: vec![Calendar::new(1); config.channels],
            activations: vec![[0; 4]; config.channels],
            timing: Timing {
                column: cycles(config.t_cl),
                column_to_column: cycles(config.t_ccd_l),
                activate: cycles(config.t_rcd),
                precharge: cycles(config.t_rp),
                row_active: cycles(config.t_ras),
                four_activations: cycles(config.t_faw),
                burst: cycles(config.burst),
                refresh_interval: cycles(config.t_refi),
                refresh: cycles(config.t_rfc),
                controller: (config.controller_ns * ghz).round() as Cycle,
            },
        }
    }

    /// Reads or writes `line`; when its data is at the controller's end.
    pub fn access(&mut self, line: LineNumber, now: Cycle) -> Cycle {
        let t = self.timing;
        let (channel, bank, row) = self.place(line);
        let arrived = self.after_refresh(now + t.controller);
        let start = arrived.max(self.banks[bank].ready);
        // An open row is read at once, another is closed before.
        let activated = match self.banks[bank].row {
            Some(open) if open == row => None,
            Some(_) => {
                let closed = start.max(self.banks[bank].may_close) + t.precharge;
                Some(self.activate(channel, closed))
            }
            None => Some(self.activate(channel, start)),
        };
        let bank = &mut self.banks[bank];
        let command = activated.map_or(start, |at| at + t.activate);
        if let Some(at) = activated {
            bank.may_close = at + t.row_active;
        }
        bank.row = Some(row);
        let data = self.bus[channel].reserve_run(command + t.column, t.burst);
        bank.ready = data - t.column + t.column_to_column;
        data + t.burst
    }

    /// The first activation that four in a window allow.
    fn activate(&mut self, channel: usize, earliest: Cycle) -> Cycle {
        let last = &mut self.activations[channel];
        let oldest = last.iter_mut().min_by_key(|at| **at);
        let Some(oldest) = oldest else { return earliest };
        let at = if *oldest == 0 {
            earliest
        } else {
            earliest.max(*oldest + self.timing.four_activations)
        };
        *oldest = at;
        at
    }

    /// Nothing happens while memory is refreshed.
    fn after_refresh(&self, now: Cycle) -> Cycle {
        let t = self.timing;
        let since = now % t.refresh_interval.max(1);
        // The first interval has no refresh before it.
        if now >= t.refresh_interval && since < t.refresh { now - since + t.refresh } else { now }
    }

    /// Channel, bank and row of a line. Neighbouring lines lie in different channels
    /// and bank groups; the row's bits are mixed into the bank's, so that strides do not meet one
    /// bank.
    fn place(&self, line: LineNumber) -> (usize, usize, u64) {
        let channels = self.bus.len() as u64;
        let banks = self.banks_a_channel as u64;
        let (channel, rest) = (line % channels, line / channels);
        let row = rest / (ROW_LINES * banks);
        let bank = (rest % banks) ^ (row % banks);
        (channel as usize, (channel * banks + bank % banks) as usize, row)
    }
}
