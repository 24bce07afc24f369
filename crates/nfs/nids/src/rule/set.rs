//! Warnings about a set of rules as a whole.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use thalweg_source::{Source, SourceError};

use super::{FlowBit, Loaded};

/// The positions of the parts of a rule that depend on other rules.
#[derive(Debug, Default)]
pub(in super::super) struct Places {
    pub(super) sid: Range<usize>,
    /// Each `flowbits:isset`, in order.
    pub(super) is_set: Vec<Range<usize>>,
}

/// Warnings about files without rules, sids that several rules share, and flow bits that no rule
/// sets.
pub(in super::super) fn warnings(files: &[(&Source, Loaded)]) -> Vec<SourceError> {
    let empty = files.iter().filter(|(_, loaded)| loaded.is_empty());
    let empty =
        empty.map(|(source, _)| source.error(0..0, "the file has no rules", "one rule per line"));
    empty.chain(repeated(files)).chain(never_set(files)).collect()
}

fn repeated(files: &[(&Source, Loaded)]) -> Vec<SourceError> {
    let mut first: HashMap<(u32, u32), (&Source, Range<usize>)> = HashMap::new();
    let mut warnings = Vec::new();
    for (source, loaded) in files {
        for (rule, places) in loaded.rules.iter().zip(&loaded.places) {
            let number = (rule.gid, rule.sid);
            let Some((other, span)) = first.get(&number) else {
                first.insert(number, (source, places.sid.clone()));
                continue;
            };
            let line = other.error(span.clone(), "", "").line();
            let message = format!("the rule at {}:{line} has the same sid", other.path().display());
            warnings.push(source.error(places.sid.clone(), message, "a unique sid"));
        }
    }
    warnings
}

fn never_set(files: &[(&Source, Loaded)]) -> Vec<SourceError> {
    let bits = files.iter().flat_map(|(_, l)| &l.rules).flat_map(|r| &r.bits);
    let set: HashSet<&str> = bits
        .filter_map(|bit| match bit {
            FlowBit::Set(name) | FlowBit::Toggle(name) => Some(name.as_str()),
            _ => None,
        })
        .collect();
    let mut warnings = Vec::new();
    for (source, loaded) in files {
        for (rule, places) in loaded.rules.iter().zip(&loaded.places) {
            let asked = rule.bits.iter().filter_map(|bit| match bit {
                FlowBit::IsSet(names) => Some(names),
                _ => None,
            });
            for (names, span) in asked.zip(&places.is_set) {
                if !names.iter().any(|name| set.contains(name.as_str())) {
                    let message = "no rule sets this flow bit, so this rule never matches";
                    warnings.push(source.error(span.clone(), message, "a bit that a rule sets"));
                }
            }
        }
    }
    warnings
}
