//! An NF that lets everything pass and remembers it.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use thalweg_nf::{
    Blueprint, BuildError, Context, Environment, Grain, Kind, NetworkFunction, Section,
};
use thalweg_packet::{Batch, FiveTuple, Lanes, Nanoseconds};

/// The kind.
pub(crate) const KIND: Kind = Kind {
    name: "witness",
    summary: "remembers what passes",
    state: None,
    grain: Grain::None,
    limits: &[],
    chooses_output: false,
    keeps_names: false,
    takes_supers: false,
    runs_on_devices: false,
    bypass_hazard: None,
    options: || schemars::json_schema!({}),
    build,
};

/// What all witnesses have seen.
pub(crate) static LEDGER: LazyLock<Ledger> = LazyLock::new(Ledger::default);

#[derive(Default)]
pub(crate) struct Ledger(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    /// The time of the last packet of each flow, by witness.
    flows: HashMap<String, HashMap<FiveTuple, Nanoseconds>>,
    overtaken: u64,
    /// Packets behind the filter, by destination port.
    passed: HashMap<u16, u64>,
    /// The last number in the tunnel, and how often the one behind it was another than the next.
    last: Option<u32>,
    gaps: u64,
}

impl Ledger {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn overtaken(&self) -> u64 {
        self.seen().overtaken
    }

    pub(crate) fn flows(&self, witness: &str) -> usize {
        self.seen().flows.get(witness).map_or(0, HashMap::len)
    }

    pub(crate) fn passed(&self, port: u16) -> u64 {
        self.seen().passed.get(&port).copied().unwrap_or(0)
    }

    pub(crate) fn gaps(&self) -> u64 {
        self.seen().gaps
    }
}

#[allow(clippy::unnecessary_wraps, reason = "the signature of a kind")]
fn build(
    section: &Section<'_>,
    _environment: &Environment<'_>,
) -> Result<Box<dyn Blueprint>, BuildError> {
    Ok(Box::new(Witness(section.name().to_owned())))
}

#[derive(Clone)]
struct Witness(String);

impl Blueprint for Witness {
    fn instance(&self) -> Box<dyn NetworkFunction> {
        Box::new(self.clone())
    }

    fn describe(&self) -> String {
        "a witness".into()
    }
}

impl NetworkFunction for Witness {
    fn process(&mut self, batch: &mut Batch, lanes: Lanes, _context: &mut Context<'_>) {
        let mut seen = LEDGER.seen();
        let Seen { flows, overtaken, passed, last, gaps } = &mut *seen;
        if !flows.contains_key(&self.0) {
            flows.insert(self.0.clone(), HashMap::new());
        }
        let Some(flows) = flows.get_mut(&self.0) else { return };
        for lane in lanes {
            let Some(flow) = FiveTuple::of(batch, lane) else { continue };
            let time = batch.meta.timestamp[lane];
            if let Some(before) = flows.insert(flow, time) {
                *overtaken += u64::from(time < before);
            }
            match self.0.as_str() {
                "behind" => *passed.entry(flow.dst_port).or_default() += 1,
                "last" if flow.protocol == 50 => {
                    let bytes = batch.bytes(lane);
                    let at = 14 + 20 + 4;
                    let Some(number) = bytes.get(at..at + 4) else { continue };
                    let number = u32::from_be_bytes([number[0], number[1], number[2], number[3]]);
                    *gaps += u64::from(last.is_some_and(|last| number != last.wrapping_add(1)));
                    *last = Some(number);
                }
                _ => {}
            }
        }
    }
}
