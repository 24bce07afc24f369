//! What is measured on one worker: cycles by stage.

use thalweg_cpu::cycles;

/// The measurements of one worker.
#[derive(Default)]
pub(crate) struct Watch {
    /// Whether stages are timed: reading the counter costs as much as parsing a packet, so other
    /// runs do not pay for it.
    pub(crate) timed: bool,
    pub(crate) parse_cycles: u64,
    /// Receiving and transmitting.
    pub(crate) io_cycles: u64,
    /// Cycles in which there was something to do.
    pub(crate) busy_cycles: u64,
}

impl Watch {
    /// A watch that times stages or does not.
    pub(crate) fn new(timed: bool) -> Self {
        Self { timed, ..Self::default() }
    }

    /// Does `work`, which is parsing.
    #[inline]
    pub(crate) fn parse(&mut self, work: impl FnOnce()) {
        let start = self.reading();
        work();
        self.parse_cycles += self.reading().wrapping_sub(start);
    }

    /// Does `work`, which is transmitting.
    #[inline]
    pub(crate) fn transmit(&mut self, work: impl FnOnce()) {
        let start = self.reading();
        work();
        self.io_cycles += self.reading().wrapping_sub(start);
    }

    /// Does `work`, which is receiving and returns whether anything arrived: vain looks do not count.
    #[inline]
    pub(crate) fn receive(&mut self, work: impl FnOnce() -> bool) -> bool {
        let start = self.reading();
        let came = work();
        if came {
            self.io_cycles += self.reading().wrapping_sub(start);
        }
        came
    }

    #[inline]
    fn reading(&self) -> u64 {
        if self.timed { cycles::now() } else { 0 }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.parse_cycles += other.parse_cycles;
        self.io_cycles += other.io_cycles;
        self.busy_cycles += other.busy_cycles;
    }
}
