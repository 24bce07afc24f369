//! How an NF is served: the keys that every section `[nf.NAME]` may have, apart from its kind.

use std::ops::Range;

use serde::Deserialize;
use thalweg_cpu::cores::HIGHEST;
use thalweg_nf::{DEFAULT_OVERLOAD_AFTER_MS, Kind, OVERLOAD_AFTER_MS};
use thalweg_packet::Nanoseconds;
use thalweg_source::SourceError;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::device::{self, DeviceKeys};
use super::parts::take;
use crate::overload::{OnOverload, Overload};

/// How an NF is served.
#[derive(Debug, Default)]
pub(super) struct Served {
    /// Whether a thread of its own serves it.
    pub(super) pinned: bool,
    /// The core of that thread.
    pub(super) core: Option<Spanned<u32>>,
    /// What it does with late packets; `None`: they wait.
    pub(super) overload: Option<Overload>,
    /// The device that does a part of its work.
    pub(super) device: Option<DeviceKeys>,
}

/// Adds a mistake: its place, what is wrong, and what was expected.
pub(super) type Report<'r> = dyn FnMut(Range<usize>, String, String) + 'r;

impl Served {
    /// Takes the keys out of a section of this kind, if that is known.
    pub(super) fn take(
        table: &mut DeTable<'_>,
        kind: Option<&Kind>,
        report: &mut Report<'_>,
    ) -> Self {
        let pinned = match take(table, "pinned").map(|(_, v)| (v.span(), v.into_inner())) {
            Some((_, DeValue::Boolean(pinned))) => pinned,
            Some((at, _)) => {
                report(at, "'pinned' is not a boolean".into(), "true or false".into());
                false
            }
            None => false,
        };
        let core = core(table, pinned, report);
        let device = device::on_device(table, kind, report);
        Self { pinned, core, overload: overload(table, kind, report), device }
    }
}

/// The keys that every section may have, and those of NFs on devices.
const KEYS: &str = "kind, pinned, core, on_overload, overload_after_ms";
const DEVICE_KEYS: &str = "at, work_groups, fallback, failed_after_ms";

/// A mistake in the options of an NF. If that is an unknown one of its `keys`, the keys that do not depend on the
/// kind are expected, too.
pub(super) fn extended(mistake: SourceError, keys: &[Range<usize>], kind: &Kind) -> SourceError {
    let is_own = keys.iter().any(|key| key.start == mistake.span().start);
    if !is_own || !mistake.message().starts_with("unknown field") {
        return mistake;
    }
    let more = if kind.runs_on_devices { format!("{KEYS}, {DEVICE_KEYS}") } else { KEYS.into() };
    let expected = format!("{}; or {more}", mistake.expected());
    mistake.source_file().error(mistake.span(), mistake.message(), expected)
}

fn core(table: &mut DeTable<'_>, pinned: bool, report: &mut Report<'_>) -> Option<Spanned<u32>> {
    let (key, value) = take(table, "core")?;
    let at = value.span();
    let core = u32::deserialize(ValueDeserializer::from(value)).ok();
    let Some(core) = core.filter(|core| *core <= HIGHEST) else {
        report(at, "'core' is not the number of a core".into(), format!("0 to {HIGHEST}"));
        return None;
    };
    if !pinned {
        let message = "'core' is for an NF with a thread of its own".into();
        report(key.span(), message, "pinned = true, too".into());
    }
    Some(Spanned::new(at, core))
}

fn overload(
    table: &mut DeTable<'_>,
    kind: Option<&Kind>,
    report: &mut Report<'_>,
) -> Option<Overload> {
    let after = after(table, report);
    let Some((_, value)) = take(table, "on_overload") else {
        if let Some((key, _)) = after {
            let message = "'overload_after_ms' is for an NF with 'on_overload'".into();
            report(key, message, "on_overload = \"bypass\" or \"drop\", too".into());
        }
        return None;
    };
    let at = value.span();
    let Ok(action) = OnOverload::deserialize(ValueDeserializer::from(value)) else {
        let expected = "\"bypass\" or \"drop\"; without it, packets wait".into();
        report(at, "unknown value of 'on_overload'".into(), expected);
        return None;
    };
    if let (OnOverload::Bypass, Some(Kind { name, bypass_hazard: Some(hazard), .. })) =
        (action, kind)
    {
        let message = format!("packets must not bypass an NF of kind '{name}': {hazard}");
        report(at, message, "\"drop\"; without it, packets wait".into());
    }
    let after = after.map_or(DEFAULT_OVERLOAD_AFTER_MS, |(_, after)| after);
    Some(Overload { action, after: Nanoseconds::from_millis(after) })
}

/// The age at which a packet is late, in milliseconds, and the place of its key.
fn after(table: &mut DeTable<'_>, report: &mut Report<'_>) -> Option<(Range<usize>, u64)> {
    let (key, value) = take(table, "overload_after_ms")?;
    let at = value.span();
    let after = u64::deserialize(ValueDeserializer::from(value)).ok();
    let Some(after) = after.filter(|after| OVERLOAD_AFTER_MS.contains(after)) else {
        let (start, end) = OVERLOAD_AFTER_MS.into_inner();
        let message = "'overload_after_ms' is out of range".into();
        report(at, message, format!("{start} to {end} milliseconds"));
        return None;
    };
    Some((key.span(), after))
}
