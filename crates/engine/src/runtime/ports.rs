//! The ports of a run, on the thread that reads and writes them.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use thalweg_io::generate::GeneratorInput;
use thalweg_io::{
    CaptureInput, CaptureOutput, DiscardOutput, Input, InterfaceInput, InterfaceOutput, IoError,
    MemoryInput, Output, OutputFailure, PacketClock,
};
use thalweg_packet::{BATCH, Batch, DropReason, Lanes, PortIndex};
use thalweg_source::poll::wait_readable;

use super::error::RunError;
use super::options::RunOptions;
use crate::control::Control;
use crate::counters::{Latencies, PortCounters};
use thalweg_chain::{InputPlan, InputSource, OutputPlan, OutputTarget, Plan};
use thalweg_cpu::cycles;

/// Batches between two readings of the clock, and between two checks of the outputs.
const CLOCK_PERIOD: u32 = 64;
/// Polls of the inputs without a packet before the thread waits for them.
const VAIN_LOOKS: u32 = 256;
/// The longest wait for inputs; afterwards the thread checks whether the run should end.
const WAIT: Duration = Duration::from_millis(10);

/// Opens the inputs of a plan, in its order.
pub(super) fn open_inputs(
    plan: &Plan,
    options: &RunOptions,
) -> Result<Vec<Box<dyn Input>>, RunError> {
    let open = |input: &InputPlan| -> Result<Box<dyn Input>, RunError> {
        let loops = options.loops.unwrap_or(input.loops);
        Ok(match &input.source {
            InputSource::Interface { name, promiscuous } => {
                Box::new(InterfaceInput::open(name, *promiscuous)?)
            }
            InputSource::Capture { path, in_memory: false } => {
                Box::new(CaptureInput::open(path, loops)?)
            }
            InputSource::Capture { path, in_memory: true } => {
                Box::new(MemoryInput::load(path, loops)?)
            }
            InputSource::Generate(spec) => Box::new(GeneratorInput::new((**spec).clone())?),
        })
    };
    plan.inputs.iter().map(open).collect()
}

/// Refuses a number of passes that no input obeys, and warns of inputs that do not.
fn check_loops(plan: &Plan, options: &RunOptions) -> Result<(), RunError> {
    let Some(loops) = options.loops else { return Ok(()) };
    let loops_none = |input: &&InputPlan| match &input.source {
        InputSource::Interface { .. } | InputSource::Generate(_) => true,
        InputSource::Capture { path, in_memory } => {
            loops != 1 && !in_memory && !path.metadata().is_ok_and(|file| file.is_file())
        }
    };
    let ignoring: Vec<_> = plan.inputs.iter().filter(loops_none).map(|i| &*i.name).collect();
    if ignoring.len() == plan.inputs.len() {
        return Err(RunError::Loops);
    }
    for name in ignoring {
        log::warn!("--loop does not apply to input '{name}': it is not a capture file");
    }
    Ok(())
}

/// All inputs, served in turn, a batch at a time.
pub(super) struct Inputs {
    ports: Vec<Box<dyn Input>>,
    clocks: Vec<PacketClock>,
    open: Vec<bool>,
    turn: usize,
    count: Option<u64>,
    left: u64,
    duration: Option<Duration>,
    /// The start of the run: its first poll for packets.
    began: Option<Instant>,
    until_clock: u32,
    vain_looks: u32,
    counters: Vec<PortCounters>,
    failures: Vec<String>,
}

impl Inputs {
    pub(super) fn open(plan: &Plan, options: &RunOptions) -> Result<Self, RunError> {
        check_loops(plan, options)?;
        let ports = open_inputs(plan, options)?;
        let count = ports.len();
        Ok(Self {
            ports,
            clocks: (0..count).map(|_| PacketClock::default()).collect(),
            open: vec![true; count],
            turn: 0,
            count: options.count,
            left: options.count.unwrap_or(u64::MAX),
            duration: options.duration,
            began: None,
            until_clock: 0,
            vain_looks: 0,
            counters: vec![PortCounters::default(); count],
            failures: Vec::new(),
        })
    }

    /// Whether no more packets will arrive.
    pub(super) fn ended(&mut self, control: &Control) -> bool {
        if self.until_clock == 0 {
            self.until_clock = CLOCK_PERIOD;
            let elapsed = self.began.get_or_insert_with(Instant::now).elapsed();
            if self.duration.is_some_and(|most| elapsed >= most) {
                self.left = 0;
            }
            control.set_share(self.share(elapsed));
        }
        self.until_clock -= 1;
        self.left == 0 || control.is_stopping() || !self.open.contains(&true)
    }

    /// The share of the run that is done after `elapsed`: what is nearer to its end, the inputs or
    /// the time. `None` if both are unknown.
    fn share(&self, elapsed: Duration) -> Option<f64> {
        let of_time = self.duration.map(|most| elapsed.as_secs_f64() / most.as_secs_f64());
        let received: u64 = self.counters.iter().map(|input| input.packets).sum();
        // Inputs are of different kinds and sizes: the packets of each are what it has received,
        // and as many more as the rest of it will have.
        let expected = |at: usize| {
            let share = if self.open[at] { self.ports[at].share()? } else { 1.0 };
            (share > 0.0).then_some(self.counters[at].packets as f64 / share)
        };
        let expected: Option<f64> = (0..self.ports.len()).map(expected).sum();
        let most = self.count.map_or(f64::INFINITY, |count| count as f64);
        let most = most.min(expected.unwrap_or(f64::INFINITY));
        let of_packets = (most.is_finite() && most > 0.0).then(|| received as f64 / most);
        let share = of_time.into_iter().chain(of_packets).reduce(f64::max)?;
        Some(share.clamp(0.0, 1.0))
    }

    /// Ends the inputs; returns their counts and failures.
    pub(super) fn finish(mut self) -> (Vec<PortCounters>, Vec<String>) {
        for (input, counts) in self.ports.iter().zip(&mut self.counters) {
            counts.shortfall = input.shortfall();
        }
        (self.counters, self.failures)
    }

    /// Fills `batch` (empty) from the next input in turn; returns whether anything arrived, or the
    /// input ended. An input must be open, which [`ended`](Self::ended) checks.
    pub(super) fn receive(&mut self, batch: &mut Batch, control: &Control) -> bool {
        while !self.open[self.turn] {
            self.turn = (self.turn + 1) % self.ports.len();
        }
        let turn = self.turn;
        self.turn = (self.turn + 1) % self.ports.len();
        let most = self.left.min(BATCH as u64) as usize;
        let received_at = cycles::now();
        let counters = &mut self.counters[turn];
        let before = counters.drops.total();
        batch.reserve(most);
        let mut came = true;
        match self.ports[turn].receive(batch, most, &mut counters.drops) {
            Ok(received) => {
                counters.packets += received.packets as u64;
                counters.bytes += received.bytes;
                self.left = self.left.saturating_sub(received.packets as u64);
                came = received.packets > 0 || received.ended;
                self.open[turn] = !received.ended;
                control.packets_in.fetch_add(received.packets as u64, Relaxed);
                control.bytes_in.fetch_add(received.bytes, Relaxed);
                control.drops.fetch_add(counters.drops.total() - before, Relaxed);
            }
            // The packets before the damage were delivered; later calls return
            // that the input has ended.
            Err(e) => {
                // The other captures are read to their ends; a removed interface ends the run.
                if matches!(e, IoError::Interface { .. }) {
                    control.stop();
                }
                self.failures.push(e.to_string());
            }
        }
        self.clocks[turn].date(batch, self.ports[turn].upcoming());
        batch.unreserve();
        self.vain_looks = if came { 0 } else { self.vain_looks.saturating_add(1) };
        // All lanes alike: the values of lanes without a packet are not used.
        batch.meta.in_port.fill(PortIndex(turn as u16));
        batch.meta.received_at.fill(received_at);
        came
    }

    /// Waits for packets, for a while at most, if many polls have found none; returns whether it
    /// waited.
    pub(super) fn rest(&mut self) -> bool {
        let rests = self.vain_looks >= VAIN_LOOKS && wait(&self.ports, &self.open);
        if rests {
            self.until_clock = 0;
        }
        rests
    }
}

/// Waits until one of the open inputs may have packets, for a while at most; not at all if one of
/// them always may. Returns whether it waited.
pub(super) fn wait(inputs: &[Box<dyn Input>], open: &[bool]) -> bool {
    let open = inputs.iter().zip(open).filter(|(_, open)| **open);
    let descriptors: Option<Vec<_>> = open.map(|(input, _)| input.descriptor()).collect();
    let Some(descriptors) = descriptors else { return false };
    wait_readable(descriptors.into_iter(), WAIT);
    true
}

/// All outputs.
pub(super) struct Outputs {
    ports: Vec<Box<dyn Output>>,
    counters: Vec<PortCounters>,
    latency: Latencies,
    /// Calls of [`check`](Self::check) until it looks again.
    until_check: u32,
    failures: Vec<String>,
}

/// The counts of all outputs.
pub(super) struct OutputTotals {
    pub(super) counters: Vec<PortCounters>,
    pub(super) latency: Latencies,
    pub(super) failures: Vec<String>,
}

impl Outputs {
    /// Opens and locks all files that the run writes, its NFs included, and then empties the
    /// captures: a run that cannot start leaves them as they are.
    pub(super) fn open(
        plan: &Plan,
        options: &RunOptions,
        control: &Control,
    ) -> Result<Self, RunError> {
        let stop = control.stop_request().after(options.duration);
        let open = |output: &OutputPlan| -> Result<Box<dyn Output>, RunError> {
            Ok(match &output.target {
                OutputTarget::Interface(name) => Box::new(InterfaceOutput::open(name)?),
                OutputTarget::Capture(path) => Box::new(CaptureOutput::claim(path, &stop)?),
                OutputTarget::Discard => Box::new(DiscardOutput),
            })
        };
        let mut ports = plan.outputs.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        for file in plan.files.outputs_of_nfs() {
            file.stop_with(&stop);
            let failed = |source| IoError::File { path: file.path().to_owned(), source };
            file.claim().map_err(failed)?;
        }
        for port in &mut ports {
            port.flush().map_err(|failure| failure.error)?;
        }
        Ok(Self {
            ports,
            counters: vec![PortCounters::default(); plan.outputs.len()],
            latency: Latencies::new(),
            until_check: CLOCK_PERIOD,
            failures: Vec::new(),
        })
    }

    /// Ends the outputs; returns their counts.
    pub(super) fn finish(mut self) -> OutputTotals {
        for (output, counts) in self.ports.iter().zip(&mut self.counters) {
            counts.shortfall = output.shortfall();
        }
        let Self { counters, latency, failures, .. } = self;
        OutputTotals { counters, latency, failures }
    }

    /// Sends the packets of `lanes`, which stay in the batch. When the output
    /// fails they are dropped with that reason, and the run is stopped.
    pub(super) fn send(&mut self, output: usize, batch: &Batch, lanes: Lanes, control: &Control) {
        let counters = &mut self.counters[output];
        let (sent, failure) = match self.ports[output].send(batch, lanes, &mut counters.drops) {
            Ok(sent) => (sent, None),
            Err(failure) => (failure.sent, Some(failure)),
        };
        control.drops.fetch_add(lanes.without(sent).count() as u64, Relaxed);
        self.count_sent(output, batch, sent, control);
        if let Some(failure) = failure {
            self.fail(output, failure, control);
        }
    }

    /// Counts the packets of `lanes`, which `output` has sent.
    fn count_sent(&mut self, output: usize, batch: &Batch, lanes: Lanes, control: &Control) {
        let counters = &mut self.counters[output];
        let packets = lanes.count() as u64;
        let Some(first) = lanes.into_iter().next() else { return };
        let received_at = &batch.meta.received_at;
        let (mut bytes, mut together) = (0, true);
        for lane in lanes {
            bytes += u64::from(batch.lens()[lane]);
            together &= received_at[lane] == received_at[first];
        }
        counters.packets += packets;
        counters.bytes += bytes;
        control.packets_out.fetch_add(packets, Relaxed);
        let now = cycles::now();
        // Packets of one batch were usually received together.
        if together {
            self.latency.record(now.wrapping_sub(received_at[first]), packets);
            return;
        }
        for lane in lanes {
            self.latency.record(now.wrapping_sub(received_at[lane]), 1);
        }
    }

    pub(super) fn flush(&mut self, control: &Control) {
        for at in 0..self.ports.len() {
            if let Err(failure) = self.ports[at].flush() {
                self.fail(at, failure, control);
            }
        }
    }

    /// Ends the run if the target of an output no longer exists, which is looked up now and then.
    pub(super) fn check(&mut self, control: &Control) {
        self.until_check = self.until_check.checked_sub(1).unwrap_or(CLOCK_PERIOD);
        if self.until_check > 0 {
            return;
        }
        for at in 0..self.ports.len() {
            if let Err(error) = self.ports[at].check() {
                self.fail(at, error.into(), control);
            }
        }
    }

    /// Ends the run. The packets that the output has lost, which were counted as sent, are counted
    /// as dropped.
    fn fail(&mut self, output: usize, failure: OutputFailure, control: &Control) {
        let OutputFailure { error, lost, .. } = failure;
        let counters = &mut self.counters[output];
        counters.packets -= lost.packets;
        counters.bytes -= lost.bytes;
        counters.drops.add(DropReason::OutputFailed, lost.packets);
        control.packets_out.fetch_sub(lost.packets, Relaxed);
        control.drops.fetch_add(lost.packets, Relaxed);
        let failure = error.to_string();
        // Each failure is reported once; the counts show how often it occurred.
        if !self.failures.contains(&failure) {
            self.failures.push(failure);
        }
        control.stop();
    }
}
