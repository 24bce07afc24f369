//! How an NF is served: the keys that every section `[nf.NAME]` may have, apart from its kind.

use std::ops::Range;

use serde::Deserialize;
use thalweg_cpu::cores::HIGHEST;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::parts::take;

/// How an NF is served.
#[derive(Debug, Default)]
pub(super) struct Served {
    /// Whether a thread of its own serves it.
    pub(super) pinned: bool,
    /// The core of that thread.
    pub(super) core: Option<Spanned<u32>>,
}

/// Adds a mistake: its place, what is wrong, and what was expected.
pub(super) type Report<'r> = dyn FnMut(Range<usize>, String, String) + 'r;

impl Served {
    /// Takes the keys out of a section.
    pub(super) fn take(table: &mut DeTable<'_>, report: &mut Report<'_>) -> Self {
        let pinned = match take(table, "pinned").map(|(_, v)| (v.span(), v.into_inner())) {
            Some((_, DeValue::Boolean(pinned))) => pinned,
            Some((at, _)) => {
                report(at, "'pinned' is not a boolean".into(), "true or false".into());
                false
            }
            None => false,
        };
        Self { pinned, core: core(table, pinned, report) }
    }
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
