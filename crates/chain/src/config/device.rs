//! NFs on devices: their keys, and the memory that their devices share.

use std::time::Duration;

use serde::Deserialize;
use thalweg_nf::device::{DevicePlace, Devices, Launches};
use thalweg_nf::{DEFAULT_FAILED_AFTER_MS, FAILED_AFTER_MS, Kind, MOST_WORK_GROUPS};
use thalweg_source::{Passage, SourceError};
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::file::{Memory, Placed};
use super::nfs::NfPlan;
use super::parts::take;
use super::plan::{Plan, PlanOptions};
use super::served::Report;
use crate::kinds::Kinds;

/// A device that does a part of an NF's work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnDevice {
    /// Where.
    pub place: DevicePlace,
    /// Whether the NF does all of it when the device has failed; otherwise the run ends.
    pub falls_back: bool,
}

/// The name of the processor as a place.
const CPU: &str = "cpu";
/// The device that shares any memory.
const SOFT: &str = "soft";

/// Takes the keys of an NF on a device out of its section; `None` for one on the processor.
pub(super) fn on_device(
    table: &mut DeTable<'_>,
    kind: Option<&Kind>,
    report: &mut Report<'_>,
) -> Option<Spanned<OnDevice>> {
    let at = take(table, "at");
    let mut others = Vec::new();
    let work_groups =
        number(table, "work_groups", (1, MOST_WORK_GROUPS as u64), &mut others, report);
    let (least, most) = FAILED_AFTER_MS.into_inner();
    let after = number(table, "failed_after_ms", (least, most), &mut others, report);
    let falls_back = fallback(table, &mut others, report);
    let span = at.as_ref().map(|(_, value)| value.span());
    let at = at.map(|(_, value)| value.into_inner());
    let at = match (&at, &span) {
        (Some(DeValue::String(at)), Some(_)) => Some(at.to_string()),
        (Some(_), Some(span)) => {
            let expected = "\"cpu\", or a device in quotes".into();
            report(span.clone(), "'at' is not a name".into(), expected);
            return None;
        }
        _ => None,
    };
    let Some((at, span)) = at.filter(|at| at != CPU).zip(span) else {
        if let Some((key, span)) = others.into_iter().next() {
            let message = format!("'{key}' is for an NF on a device");
            report(span, message, "at = \"gpu\" or another device, too".into());
        }
        return None;
    };
    if let Some(kind) = kind.filter(|kind| !kind.runs_on_devices) {
        let message = format!("an NF of kind '{}' cannot run on a device", kind.name);
        report(span.clone(), message, "at = \"cpu\", or no 'at'".into());
    }
    let patience = Duration::from_millis(after.unwrap_or(DEFAULT_FAILED_AFTER_MS));
    let place = DevicePlace { at, work_groups: work_groups.unwrap_or(1) as usize, patience };
    Some(Spanned::new(span, OnDevice { place, falls_back }))
}

/// A key that was found, and its place.
type Found = (&'static str, std::ops::Range<usize>);

fn number(
    table: &mut DeTable<'_>,
    key: &'static str,
    (least, most): (u64, u64),
    found: &mut Vec<Found>,
    report: &mut Report<'_>,
) -> Option<u64> {
    let (name, value) = take(table, key)?;
    found.push((key, name.span()));
    let at = value.span();
    let number = u64::deserialize(ValueDeserializer::from(value)).ok();
    let number = number.filter(|number| (least..=most).contains(number));
    if number.is_none() {
        report(at, format!("'{key}' is out of range"), format!("{least} to {most}"));
    }
    number
}

fn fallback(table: &mut DeTable<'_>, found: &mut Vec<Found>, report: &mut Report<'_>) -> bool {
    let Some((name, value)) = take(table, "fallback") else { return false };
    found.push(("fallback", name.span()));
    match value.get_ref() {
        DeValue::String(fallback) if fallback == CPU => true,
        DeValue::String(fallback) if fallback == "none" => false,
        _ => {
            report(
                value.span(),
                "unknown value of 'fallback'".into(),
                "\"none\" or \"cpu\"".into(),
            );
            false
        }
    }
}

/// The device whose memory the packets must be in, if there is one.
pub(super) fn sharing<'a>(
    memory: &'a Placed<Memory>,
    nfs: &'a [NfPlan],
    errors: &mut Vec<SourceError>,
) -> Option<(&'a str, Passage)> {
    let of_memory = memory
        .device
        .as_ref()
        .map(|device| (&**device.get_ref(), Passage::new(&memory.source, device.span())));
    let mut places = nfs.iter().filter_map(|nf| {
        let on_device = nf.device.as_ref()?;
        Some((nf, &*on_device.place.at)).filter(|(_, at)| *at != SOFT)
    });
    let first = places.clone().next().map(|(nf, at)| (at, nf.place.clone()));
    let (device, place) = of_memory.or(first)?;
    if let Some((nf, at)) = places.find(|(_, at)| *at != device) {
        let message =
            format!("NF '{}' is at '{at}', but the packets are in memory of '{device}'", nf.name);
        errors.push(nf.place.error(message, "one device for all NFs, in addition to \"soft\""));
    }
    Some((device, place))
}

/// Whether devices may do their work in launches; and whether NFs are on a device that is not threads of this
/// program, or may be on one after a reload.
pub(super) fn settings(
    memory: &Placed<Memory>,
    nfs: &[NfPlan],
    running: Option<&Plan>,
    errors: &mut Vec<SourceError>,
) -> (Launches, bool) {
    // Mistakes are those of the packet memory.
    let device = sharing(memory, nfs, &mut Vec::new());
    let has_driver = match running {
        Some(running) => running.has_driver,
        None => device.is_some_and(|(device, _)| device != SOFT),
    };
    (launches(memory, errors), has_driver)
}

fn launches(memory: &Placed<Memory>, errors: &mut Vec<SourceError>) -> Launches {
    let Some(said) = &memory.launches else { return Launches::default() };
    let known = Launches::NAMES.into_iter().find(|(name, _)| name == said.get_ref());
    known.map_or_else(
        || {
            let names = Launches::NAMES.map(|(name, _)| format!("\"{name}\"")).join(", ");
            errors.push(memory.source.error(said.span(), "unknown value of 'launches'", names));
            Launches::default()
        },
        |(_, launches)| launches,
    )
}

/// The devices that packet memory may be of: not for a chain that is for another machine.
pub(super) fn usable(kinds: &Kinds, options: PlanOptions) -> Option<&dyn Devices> {
    kinds.devices.as_deref().filter(|_| !options.any_interface)
}

/// Adds a mistake for each NF whose configuration leaves a device nothing to do.
pub(super) fn check(nfs: &[NfPlan], kinds: &Kinds, errors: &mut Vec<SourceError>) {
    for nf in nfs.iter().filter(|nf| nf.device.is_some()) {
        if kinds.devices.is_none() {
            errors.push(nf.place.error("this program has no devices", "at = \"cpu\", or no 'at'"));
        } else if nf.blueprint.device_work().is_none() {
            let message = format!("a device can do nothing for NF '{}'", nf.name);
            errors.push(nf.place.error(message, nothing_to_do(nf)));
        }
    }
}

/// What an NF would have to be for a device.
fn nothing_to_do(nf: &NfPlan) -> String {
    format!("what its kind can leave to a device (thalweg nf show {})", nf.kind.name)
}
