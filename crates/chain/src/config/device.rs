//! NFs on devices: their keys, and the memory that their devices share.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use serde::Deserialize;
use thalweg_nf::device::{
    DeviceFacts, DevicePlace, DeviceRoom, Devices, Launches, Named, Unusable,
};
use thalweg_nf::{DEFAULT_FAILED_AFTER_MS, FAILED_AFTER_MS, Kind, MOST_WORK_GROUPS};
use thalweg_source::{Passage, Source, SourceError};
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::file::{Memory, Placed};
use super::nfs::NfPlan;
use super::parts::take;
use super::plan::PlanOptions;
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

/// What the section of an NF has on its device.
#[derive(Debug)]
pub(super) struct DeviceKeys {
    pub(super) device: OnDevice,
    /// The place of the value of `at`.
    at: Range<usize>,
    /// That of the value of `work_groups`, if it is there.
    work_groups: Option<Range<usize>>,
}

impl DeviceKeys {
    /// The places of the values, in the file of the section.
    pub(super) fn places(&self, source: &Source) -> DevicePlaces {
        let passage = |span: &Range<usize>| Passage::new(source, span.clone());
        DevicePlaces { at: passage(&self.at), work_groups: self.work_groups.as_ref().map(passage) }
    }
}

/// The places of what the section of an NF has on its device.
pub(super) struct DevicePlaces {
    at: Passage,
    work_groups: Option<Passage>,
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
) -> Option<DeviceKeys> {
    let at = take(table, "at");
    let mut others = Vec::new();
    let groups_at = table.get("work_groups").map(Spanned::span);
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
    Some(DeviceKeys { device: OnDevice { place, falls_back }, at: span, work_groups: groups_at })
}

/// A key that was found, and its place.
type Found = (&'static str, Range<usize>);

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
    if !matches!(value.get_ref(), DeValue::Integer(_)) {
        let message = format!("'{key}' is of type {}", value.get_ref().type_str());
        report(at, message, format!("a whole number, {least} to {most}"));
        return None;
    }
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
    own_name: Option<&'a str>,
    nfs: &'a [NfPlan],
    errors: &mut Vec<SourceError>,
) -> Option<(&'a str, Passage)> {
    let of_memory = memory.device.as_ref().map(|device| {
        let at = own_name.unwrap_or(device.get_ref());
        (at, Passage::new(&memory.source, device.span()))
    });
    let mut places = nfs.iter().filter_map(|nf| {
        let on_device = nf.device.as_ref()?;
        Some((nf, &*on_device.place.at)).filter(|(_, at)| *at != SOFT)
    });
    let first = places.clone().next().map(|(nf, at)| (at, place_of(nf).clone()));
    let (device, place) = of_memory.or(first)?;
    if let Some((nf, at)) = places.find(|(_, at)| *at != device) {
        let message =
            format!("NF '{}' is at '{at}', but the packets are in memory of '{device}'", nf.name);
        let expected = "one device for all NFs, in addition to \"soft\"";
        errors.push(place_of(nf).error(message, expected));
    }
    Some((device, place))
}

/// Whether devices may do their work in launches.
pub(super) fn launches(memory: &Placed<Memory>, errors: &mut Vec<SourceError>) -> Launches {
    let Some(said) = &memory.launches else { return Launches::default() };
    let known = Launches::ALL.into_iter().find(|launches| launches.name() == said.get_ref());
    known.unwrap_or_else(|| {
        let names = Launches::ALL.map(|launches| format!("\"{}\"", launches.name())).join(", ");
        errors.push(memory.source.error(said.span(), "unknown value of 'launches'", names));
        Launches::default()
    })
}

/// The devices that packet memory may be of: not for a chain that is for another machine.
pub(super) fn usable(kinds: &Kinds, options: PlanOptions) -> Option<&dyn Devices> {
    kinds.devices.as_deref().filter(|_| !options.any_interface)
}

/// The place of the device of an NF.
fn place_of(nf: &NfPlan) -> &Passage {
    nf.device_places.as_ref().map_or(&nf.place, |places| &places.at)
}

/// Checks the devices of a chain, as far as they are `usable`: whether they are there, whether they can do something
/// for their NFs, and whether they have enough work-groups. NFs get the own names of their devices; returns
/// that of the device that shares packet memory, if the file names it: `memory` is absent for a chain that
/// follows a running one, which has its packet memory.
///
/// # Errors
/// When a mistake was added, by which packet memory may not be available either.
pub(super) fn check(
    nfs: &mut [NfPlan],
    memory: Option<&Placed<Memory>>,
    (usable, launches): (Option<&dyn Devices>, Launches),
    kinds: &Kinds,
    errors: &mut Vec<SourceError>,
) -> Result<Option<String>, ()> {
    let before = errors.len();
    check_work(nfs, kinds, errors);
    let Some(devices) = usable else { return done(None, before, errors) };
    let mut rooms = BTreeMap::new();
    for nf in &mut *nfs {
        let NfPlan { name, device: Some(device), device_places: Some(places), .. } = nf else {
            continue;
        };
        match devices.find(Named { at: &device.place.at, launches }) {
            Ok(DeviceFacts { place, room }) => {
                device.place.at.clone_from(&place);
                rooms.extend(room.map(|room| (place, room)));
            }
            Err(Unusable { why, expected }) => {
                let message = format!("'at' of NF '{name}': {why}");
                errors.push(places.at.error(message, format!("\"{CPU}\", or {expected}")));
            }
        }
    }
    for (at, room) in &rooms {
        check_room(nfs, at, room, errors);
    }
    let mut own_name = None;
    if let Some((source, device)) = memory.and_then(|m| Some((&m.source, m.device.as_ref()?))) {
        match devices.find(Named { at: device.get_ref(), launches }) {
            Ok(facts) => own_name = Some(facts.place),
            Err(Unusable { why, expected }) => {
                let message = format!("'device' of [memory]: {why}");
                errors.push(source.error(device.span(), message, expected));
            }
        }
    }
    done(own_name, before, errors)
}

fn done(
    own_name: Option<String>,
    before: usize,
    errors: &[SourceError],
) -> Result<Option<String>, ()> {
    if errors.len() == before { Ok(own_name) } else { Err(()) }
}

/// Adds a mistake for each NF whose configuration leaves a device nothing to do.
fn check_work(nfs: &[NfPlan], kinds: &Kinds, errors: &mut Vec<SourceError>) {
    for nf in nfs.iter().filter(|nf| nf.device.is_some()) {
        if kinds.devices.is_none() {
            let message = "this program has no devices";
            errors.push(place_of(nf).error(message, "at = \"cpu\", or no 'at'"));
        } else if nf.blueprint.device_work().is_none() {
            let message = format!("a device can do nothing for NF '{}'", nf.name);
            errors.push(place_of(nf).error(message, nothing_to_do(nf)));
        }
    }
}

/// Adds a mistake if the NFs on the device `at` need more work-groups than it runs at once.
fn check_room(nfs: &[NfPlan], at: &str, room: &DeviceRoom, errors: &mut Vec<SourceError>) {
    let there = |nf: &&NfPlan| nf.device.as_ref().is_some_and(|device| device.place.at == at);
    let groups = |nf: &NfPlan| nf.device.as_ref().map_or(0, |device| device.place.work_groups);
    let there: Vec<_> = nfs.iter().filter(there).collect();
    let needed: usize = there.iter().map(|nf| groups(nf)).sum();
    // The one with the most is what to change.
    let Some(most) = there.iter().max_by_key(|nf| groups(nf)).filter(|_| needed > room.all) else {
        return;
    };
    let names: Vec<_> = there.iter().map(|nf| format!("'{}'", nf.name)).collect();
    let (noun, verb) = if names.len() == 1 { ("NF", "needs") } else { ("NFs", "need") };
    let message = format!(
        "{noun} {} at '{at}' {verb} {needed} resident work-groups, and the device runs {}",
        names.join(", "),
        room.all
    );
    let groups = most.device_places.as_ref().and_then(|places| places.work_groups.as_ref());
    let expected = format!("'work_groups' of at most {} in all; {}", room.all, room.remedy);
    errors.push(groups.unwrap_or_else(|| place_of(most)).error(message, expected));
}

/// What an NF would have to be for a device.
fn nothing_to_do(nf: &NfPlan) -> String {
    format!("what its kind can leave to a device (thalweg nf show {})", nf.kind.name)
}
