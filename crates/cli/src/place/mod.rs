//! `thalweg place`: where each NF of a chain runs the cheapest, by measurement.

mod alone;
mod choice;
mod energy;
mod measure;
mod show;
mod traffic;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use thalweg_accel::{Device, Listing};
use thalweg_chain::{Kinds, NfPlan, Plan, PlanOptions};
use thalweg_cpu::Isa;
use thalweg_engine::Control;
use thalweg_nf::device::Launches;

use self::alone::CPU;
use self::choice::{Costs, cheapest};
use self::energy::Sensors;
use self::measure::{Missing, Sample, measure};
use self::traffic::Traffic;
use crate::args;
use crate::check::load;
use crate::errors::Failure;
use crate::report::write_json;
use crate::signals;

/// The measurements of a chain's NFs, and their cheapest placement.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Placement {
    #[schemars(extend("const" = "thalweg.place/1"))]
    schema: &'static str,
    /// The level of vector instructions: scalar, avx2 or avx512.
    isa: &'static str,
    places: Vec<Location>,
    /// Why there are no devices of OpenCL, if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    without_opencl: Option<String>,
    /// The sensors of energy, whose sum is measured.
    sensors: Vec<String>,
    /// Why no energy is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    without_joules: Option<String>,
    measurements: Vec<Measured>,
    cheapest: Cheapest,
}

/// Where NFs were measured.
#[derive(Debug, Serialize, JsonSchema)]
struct Location {
    /// Its name in a chain file.
    at: String,
    name: String,
}

/// The measurement of an NF at a place.
#[derive(Debug, Serialize, JsonSchema)]
struct Measured {
    nf: String,
    kind: &'static str,
    at: String,
    /// `own` for the chain's own packets, else the sizes of generated ones.
    traffic: String,
    /// Its median sample; absent if there is none.
    #[serde(flatten)]
    median: Option<Figures>,
    /// Why it could not be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
}

/// What was measured.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
struct Figures {
    packets_per_second: f64,
    /// The least and the most of all samples.
    packets_per_second_spread: [f64; 2],
    /// Processor time of all threads, in nanoseconds a packet.
    cpu_ns_per_packet: f64,
    /// Energy of all sensors, what others use included.
    #[serde(skip_serializing_if = "Option::is_none")]
    joules_per_packet: Option<f64>,
    /// The share of packets that were dropped.
    dropped: f64,
}

/// The cheapest placement.
#[derive(Debug, Serialize, JsonSchema)]
struct Cheapest {
    by: Criterion,
    /// The traffic whose costs were compared.
    traffic: String,
    nfs: Vec<Placed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Criterion {
    /// Joules a packet.
    Joules,
    /// Processor time a packet, in nanoseconds.
    ProcessorTime,
}

/// An NF at its cheapest place.
#[derive(Debug, Serialize, JsonSchema)]
struct Placed {
    nf: String,
    at: String,
    /// Joules, or nanoseconds of processor time, a packet.
    cost: f64,
}

/// What to measure: an NF at a place with traffic.
struct Task<'a> {
    nf: &'a NfPlan,
    at: &'a str,
    traffic: &'a Traffic,
    samples: Vec<Sample>,
    failure: Option<String>,
}

/// Measures each NF of a chain at each place where it can run, and prints the cheapest placement.
pub fn place(options: &args::Place, kinds: &Kinds, quiet: bool) -> Result<(), Failure> {
    // No outputs and no files of NFs: packets of the measurements go nowhere.
    let how = PlanOptions {
        dry_run: true,
        without_outputs: true,
        any_interface: true,
        ..PlanOptions::default()
    };
    let plan = load(&options.chain, kinds, how)?;
    check(&plan, kinds)?;
    let control = Arc::new(Control::default());
    signals::steer(control.clone()).map_err(|e| Failure::Run(format!("signal handlers: {e}")))?;
    let folder = tempfile::tempdir().map_err(|e| Failure::Run(format!("temporary folder: {e}")))?;
    let traffic = traffic::prepare(&plan, &options.sizes, options.packets, folder.path())?;
    let (places, why) = places(plan.launches);
    let sensors = Sensors::find();
    let mut tasks = tasks(&plan, &places, &traffic);
    let time = Duration::from_millis(options.time);
    // One after the other in each round, so that other load on the machine falls on all of them.
    for round in 1..=options.samples {
        for task in tasks.iter_mut().filter(|task| task.failure.is_none()) {
            if !quiet {
                let (nf, at, traffic) = (&task.nf.name, task.at, &task.traffic.name);
                log::info!("sample {round} of {}: '{nf}' at {at}, {traffic}", options.samples);
            }
            task.sample(&plan, kinds, time, sensors.as_ref().ok(), &control)?;
        }
    }
    let cheapest = Cheapest::of(&tasks, &traffic, sensors.is_ok());
    let (sensors, without_joules) = match sensors {
        Ok(sensors) => (sensors.names, None),
        Err(why) => (Vec::new(), Some(why)),
    };
    let measurements = tasks.iter().map(Measured::of).collect();
    let placement = Placement {
        schema: "thalweg.place/1",
        isa: Isa::detect().name(),
        places,
        without_opencl: why,
        sensors,
        without_joules,
        measurements,
        cheapest,
    };
    let mut out = io::stdout().lock();
    if options.json {
        write_json(&mut out, &placement)?;
    } else {
        show::show(&mut out, &placement)?;
    }
    if placement.measurements.iter().all(|measured| measured.median.is_none()) {
        return Err(Failure::Run("no NF could be measured".into()));
    }
    Ok(())
}

/// Checks that there is a choice.
fn check(plan: &Plan, kinds: &Kinds) -> Result<(), Failure> {
    if kinds.devices.is_none() {
        return Err(Failure::Run("this program has no devices".into()));
    }
    if plan.nfs.iter().any(|nf| nf.blueprint.device_work().is_some()) {
        return Ok(());
    }
    let can: Vec<_> = kinds.nfs.iter().filter(|kind| kind.runs_on_devices).collect();
    let can: Vec<_> = can.iter().map(|kind| format!("'{}'", kind.name)).collect();
    let message = "no NF of this chain can leave work to a device, so there is nothing to choose";
    let expected = format!("an NF of kind {} with work for one (docs/gpu.md)", can.join(" or "));
    Err(Failure::Configuration(vec![plan.source.error(0..0, message, expected)]))
}

/// The processor and all devices that can run resident kernels or, if the chain allows them, launches, and why there
/// are none of OpenCL.
fn places(launches: Launches) -> (Vec<Location>, Option<String>) {
    let Listing { devices, without_opencl: why, .. } = thalweg_accel::devices();
    let runs = |device: &Device| device.runs(launches);
    let cpu = Location { at: CPU.into(), name: "a worker".into() };
    let places = devices
        .into_iter()
        .filter(runs)
        .map(|device| Location { at: device.place, name: device.name });
    (std::iter::once(cpu).chain(places).collect(), why.map(|why| why.to_string()))
}

/// All measurements, NF by NF.
fn tasks<'a>(plan: &'a Plan, places: &'a [Location], traffic: &'a [Traffic]) -> Vec<Task<'a>> {
    let mut all = Vec::new();
    for nf in &plan.nfs {
        let has_work = nf.blueprint.device_work().is_some();
        for traffic in traffic {
            for place in places.iter().filter(|place| has_work || place.at == CPU) {
                let (samples, failure) = (Vec::new(), None);
                all.push(Task { nf, at: &place.at, traffic, samples, failure });
            }
        }
    }
    all
}

impl Task<'_> {
    fn sample(
        &mut self,
        plan: &Plan,
        kinds: &Kinds,
        time: Duration,
        sensors: Option<&Sensors>,
        control: &Control,
    ) -> Result<(), Failure> {
        let alone = alone::plan(plan, self.nf, self.at, self.traffic, kinds);
        let sample =
            alone.map_err(Missing::Failed).and_then(|alone| measure(alone, time, sensors, control));
        match sample {
            Ok(sample) => self.samples.push(sample),
            Err(Missing::Failed(why)) => self.failure = Some(why),
            // Fewer samples would have another spread.
            Err(Missing::Interrupted) => return Err(Failure::Run("interrupted".into())),
        }
        Ok(())
    }

    /// The sample in the middle by its rate, and the spread; `None` after a failure.
    fn figures(&self) -> Option<Figures> {
        if self.failure.is_some() {
            return None;
        }
        let mut samples = self.samples.clone();
        samples.sort_by(|a, b| a.packets_per_second.total_cmp(&b.packets_per_second));
        let (first, last) = (samples.first()?, samples.last()?);
        let median = samples[(samples.len() - 1) / 2];
        Some(Figures {
            packets_per_second: median.packets_per_second,
            packets_per_second_spread: [first.packets_per_second, last.packets_per_second],
            cpu_ns_per_packet: median.cpu_ns,
            joules_per_packet: median.joules,
            dropped: median.dropped,
        })
    }
}

impl Measured {
    fn of(task: &Task<'_>) -> Self {
        Self {
            nf: task.nf.name.clone(),
            kind: task.nf.kind.name,
            at: task.at.to_owned(),
            traffic: task.traffic.name.clone(),
            median: task.figures(),
            failure: task.failure.clone(),
        }
    }
}

impl Cheapest {
    /// By joules if they are measured, with the chain's own packets if it has some, else with the last
    /// of the sizes.
    fn of(tasks: &[Task<'_>], traffic: &[Traffic], by_joules: bool) -> Self {
        let own = traffic.iter().find(|traffic| traffic.name == "own");
        let compared = own.or(traffic.last()).map_or_else(String::new, |t| t.name.clone());
        let mut all: Vec<Costs<'_>> = Vec::new();
        for task in tasks.iter().filter(|task| task.traffic.name == compared) {
            if all.last().is_none_or(|costs| costs.nf != task.nf.name) {
                all.push(Costs { nf: &task.nf.name, places: Vec::new() });
            }
            // Where all packets are dropped, the work was not done.
            let Some(figures) = task.figures().filter(|figures| figures.dropped < 0.99) else {
                continue;
            };
            let cost =
                if by_joules { figures.joules_per_packet } else { Some(figures.cpu_ns_per_packet) };
            if let (Some(costs), Some(cost)) = (all.last_mut(), cost) {
                costs.places.push((task.at, cost));
            }
        }
        let by = if by_joules { Criterion::Joules } else { Criterion::ProcessorTime };
        let placed = cheapest(&all).into_iter();
        let nfs = placed.map(|c| Placed { nf: c.nf, at: c.place, cost: c.cost }).collect();
        Self { by, traffic: compared, nfs }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::built_in_kinds;

    const CHAIN: &str = "[input.in]\ngenerate = { packets = 300 }\n[output.out]\ndiscard = true\n\
        [[class]]\ntype = 'names'\nrules = ['udp,tp_dst=53']\n\
        [nf.gate]\nkind = 'filter'\ndefault = 'drop'\nrules = ['accept tcp']\n\
        [[route]]\npath = ['ingress', 'gate', 'out']\n";

    /// Measures the only NF of a chain at a place, with the chain's own packets.
    fn measured(at: &str) -> (Option<Figures>, Option<String>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chain.toml");
        fs::write(&path, CHAIN).unwrap();
        let kinds = built_in_kinds();
        let plan = load(&path, &kinds, PlanOptions::default()).unwrap();
        let traffic = traffic::prepare(&plan, &[], 300, folder.path()).unwrap();
        let (nf, samples, failure) = (&plan.nfs[0], Vec::new(), None);
        let mut task = Task { nf, at, traffic: &traffic[0], samples, failure };
        let time = Duration::from_millis(30);
        task.sample(&plan, &kinds, time, None, &Control::default()).unwrap();
        (task.figures(), task.failure)
    }

    #[test]
    fn an_nf_does_alone_what_it_does_in_its_chain() {
        let (figures, failure) = measured(CPU);
        assert_eq!(failure, None);
        let figures = figures.unwrap();
        // The generator's UDP and ICMP.
        assert!((0.1..0.6).contains(&figures.dropped), "{figures:?}");
        assert!(figures.packets_per_second > 1000.0 && figures.cpu_ns_per_packet > 0.0);
        assert_eq!(figures.joules_per_packet, None);
    }

    #[test]
    fn a_place_that_is_not_there_is_a_measurement_that_failed() {
        let (figures, failure) = measured("opencl:99");
        assert!(figures.is_none());
        let why = failure.unwrap();
        assert!(why.contains("OpenCL"), "{why}");
    }

    #[test]
    fn places_are_compared_by_the_chains_own_packets_and_not_where_all_are_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chain.toml");
        fs::write(&path, CHAIN).unwrap();
        let plan = load(&path, &built_in_kinds(), PlanOptions::default()).unwrap();
        let traffic = ["own", "64"].map(|name| Traffic { name: name.into(), captures: vec![None] });
        let sample = |cpu_ns: f64, joules: f64, dropped: f64| Sample {
            packets_per_second: 1.0,
            cpu_ns,
            joules: Some(joules),
            dropped,
        };
        let task =
            |traffic, at, samples| Task { nf: &plan.nfs[0], at, traffic, samples, failure: None };
        let [own, small] = &traffic;
        let tasks = [
            task(own, "cpu", vec![sample(5.0, 2.0, 0.0)]),
            task(own, "soft", vec![sample(4.0, 3.0, 0.0)]),
            task(own, "opencl:0", vec![sample(1.0, 1.0, 1.0)]),
            task(small, "cpu", vec![sample(1.0, 9.0, 0.0)]),
        ];
        let place = |by_joules| {
            let cheapest = Cheapest::of(&tasks, &traffic, by_joules);
            assert_eq!(cheapest.traffic, "own");
            let [placed] = &*cheapest.nfs else { panic!("{cheapest:?}") };
            (cheapest.by, placed.at.clone(), placed.cost)
        };
        assert_eq!(place(true), (Criterion::Joules, "cpu".into(), 2.0));
        assert_eq!(place(false), (Criterion::ProcessorTime, "soft".into(), 4.0));
    }

    #[test]
    fn the_median_is_the_middle_sample_and_the_spread_that_of_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chain.toml");
        fs::write(&path, CHAIN).unwrap();
        let plan = load(&path, &built_in_kinds(), PlanOptions::default()).unwrap();
        let traffic = Traffic { name: "own".into(), captures: vec![None] };
        let sample = |packets_per_second: f64| Sample {
            packets_per_second,
            cpu_ns: 1e9 / packets_per_second,
            joules: None,
            dropped: 0.0,
        };
        let samples = [900.0, 100.0, 300.0].map(sample).to_vec();
        let task = Task { nf: &plan.nfs[0], at: CPU, traffic: &traffic, samples, failure: None };
        let figures = task.figures().unwrap();
        let shown = (figures.packets_per_second, figures.packets_per_second_spread);
        assert_eq!(shown, (300.0, [100.0, 900.0]));
    }
}
