//! One measurement of a chain.

use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use thalweg_chain::Plan;
use thalweg_engine::{Control, Engine, RunOptions};

use super::energy::{Meter, Sensors};

/// How often sensors are read.
const INTERVAL: Duration = Duration::from_millis(20);
/// The longest time to wait for a packet: a device compiles its kernel before the first one, and other
/// programs may have all processors for longer than a measurement takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) packets_per_second: f64,
    /// Processor time of all threads, in nanoseconds a packet.
    pub(super) cpu_ns: f64,
    /// Joules a packet.
    pub(super) joules: Option<f64>,
    /// The share of packets that were dropped.
    pub(super) dropped: f64,
}

/// Why there is no measurement.
#[derive(Debug)]
pub(super) enum Missing {
    /// The user has ended the program.
    Interrupted,
    /// The NF cannot run there.
    Failed(String),
}

/// The processor time of this process.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Sleeps, reading the sensors, until `is_over`.
fn wait(
    control: &Control,
    meter: &mut Option<Meter<'_>>,
    is_over: impl Fn() -> bool,
) -> Result<(), Missing> {
    while !is_over() {
        if control.is_stopping() {
            return Err(Missing::Interrupted);
        }
        thread::sleep(INTERVAL);
        read(meter)?;
    }
    Ok(())
}

fn read(meter: &mut Option<Meter<'_>>) -> Result<(), Missing> {
    match meter.as_mut().map(Meter::read) {
        Some(Err(e)) => Err(Missing::Failed(format!("a sensor of energy: {e}"))),
        _ => Ok(()),
    }
}

/// Runs a chain, and measures it for `time` once packets pass, or for longer until one has.
///
/// # Errors
/// Why there is no measurement.
pub(super) fn measure(
    plan: Plan,
    time: Duration,
    sensors: Option<&Sensors>,
    control: &Control,
) -> Result<Sample, Missing> {
    let options = RunOptions { workers: Some(1), ..RunOptions::default() };
    let engine = Engine::start(plan, options).map_err(|e| Missing::Failed(e.to_string()))?;
    let outcome = observe(&engine, time, sensors, control);
    engine.control().stop();
    let report = engine.join();
    // What ended the run says more than that it has ended.
    match report.failures.first() {
        Some(failure) if !matches!(outcome, Err(Missing::Interrupted)) => {
            Err(Missing::Failed(failure.clone()))
        }
        _ => outcome,
    }
}

fn observe(
    engine: &Engine,
    time: Duration,
    sensors: Option<&Sensors>,
    control: &Control,
) -> Result<Sample, Missing> {
    let run = engine.control();
    // The plan is there as long as the run.
    let ends = |until: Instant| run.plan().is_none() || Instant::now() >= until;
    let started = Instant::now() + PATIENCE;
    let passes = || run.progress().packets_out + run.progress().drops > 0;
    wait(control, &mut None, || passes() || ends(started))?;
    // Caches, streams and tables fill first.
    let warm = Instant::now() + time / 4;
    wait(control, &mut None, || ends(warm))?;
    let meter = sensors.map(Meter::start).transpose();
    let mut meter = meter.map_err(|e| Missing::Failed(format!("a sensor of energy: {e}")))?;
    let (before, cpu, began) = (run.progress(), processor_time(), Instant::now());
    let until = began + time;
    let passed = || run.progress().packets_in > before.packets_in;
    wait(control, &mut meter, || ends(until) && (passed() || ends(until + PATIENCE)))?;
    let (after, cpu, took) =
        (run.progress(), processor_time().saturating_sub(cpu), began.elapsed());
    read(&mut meter)?;
    let packets = after.packets_in.saturating_sub(before.packets_in);
    if packets == 0 {
        return Err(Missing::Failed("no packet passed".into()));
    }
    let each = packets as f64;
    Ok(Sample {
        packets_per_second: each / took.as_secs_f64(),
        cpu_ns: cpu.as_nanos() as f64 / each,
        joules: meter.map(|meter| meter.joules() / each),
        dropped: (after.drops.saturating_sub(before.drops) as f64 / each).min(1.0),
    })
}
