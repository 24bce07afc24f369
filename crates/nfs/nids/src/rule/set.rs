//! What a set of rules as a whole is wrong about.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use thalweg_source::{Source, SourceError, counted};

use super::{FlowBit, Loaded};

/// The positions of the parts of a rule that depend on other rules.
#[derive(Debug, Default)]
pub(in super::super) struct Places {
    pub(super) sid: Range<usize>,
    /// Each `flowbits:isset`, in order.
    pub(super) is_set: Vec<Range<usize>>,
}

/// The result of [`examine`].
#[derive(Default)]
pub(in super::super) struct Findings {
    /// Pairs of rules that share a sid.
    pub(in super::super) errors: Vec<SourceError>,
    /// Files without rules, replaced rules, and flow bits that no rule sets.
    pub(in super::super) warnings: Vec<SourceError>,
}

/// Examines a set of rules, and removes those that a newer revision in the set replaces.
pub(in super::super) fn examine(files: &mut [(&Source, Loaded)]) -> Findings {
    let mut findings = Findings::default();
    let empty = files.iter().filter(|(_, loaded)| loaded.is_empty());
    let empty =
        empty.map(|(source, _)| source.error(0..0, "the file has no rules", "one rule per line"));
    findings.warnings.extend(empty);
    replace(files, &mut findings);
    findings.warnings.extend(never_set(files));
    findings
}

/// The number of a file and of a rule in it.
type Index = (usize, usize);

/// Finds rules that share a sid: an error, unless their revisions differ and the newest counts.
fn replace(files: &mut [(&Source, Loaded)], findings: &mut Findings) {
    let mut newest: HashMap<(u32, u32), Index> = HashMap::new();
    let mut replaced: HashSet<Index> = HashSet::new();
    let mut lines: HashMap<usize, Vec<usize>> = HashMap::new();
    let at = |(file, rule): Index| (&files[file].1.rules[rule], &files[file].1.places[rule].sid);
    for (file, (source, loaded)) in files.iter().enumerate() {
        for (index, rule) in loaded.rules.iter().enumerate() {
            let this = (file, index);
            let mut entry = match newest.entry((rule.gid, rule.sid)) {
                Entry::Vacant(entry) => {
                    entry.insert(this);
                    continue;
                }
                Entry::Occupied(entry) => entry,
            };
            let other = *entry.get();
            let (before, place) = at(other);
            if before.rev == rule.rev {
                let lines = lines.entry(other.0).or_insert_with(|| line_ends(files[other.0].0));
                let line = 1 + lines.partition_point(|end| *end < place.start);
                let path = files[other.0].0.path().display();
                let message = format!("the rule at {path}:{line} has the same sid");
                findings.errors.push(source.error(at(this).1.clone(), message, "a unique sid"));
            } else if before.rev < rule.rev {
                replaced.insert(other);
                entry.insert(this);
            } else {
                replaced.insert(this);
            }
        }
    }
    let mut all: Vec<Index> = replaced.iter().copied().collect();
    all.sort_unstable();
    if let Some(first) = all.first() {
        let count = counted(all.len() as u64, "rule");
        let verb = if all.len() == 1 { "is" } else { "are" };
        let message = format!("{count} {verb} replaced by a newer revision of the same sid");
        let source = files[first.0].0;
        findings.warnings.push(source.error(at(*first).1.clone(), message, "a unique sid"));
    }
    for (file, (_, loaded)) in files.iter_mut().enumerate() {
        let mut index = 0..;
        let mut stays = || index.next().is_some_and(|index| !replaced.contains(&(file, index)));
        loaded.rules.retain(|_| stays());
        let mut index = 0..;
        let mut stays = || index.next().is_some_and(|index| !replaced.contains(&(file, index)));
        loaded.places.retain(|_| stays());
    }
}

/// The positions of the line ends of `source`.
fn line_ends(source: &Source) -> Vec<usize> {
    source.text().match_indices('\n').map(|(at, _)| at).collect()
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
            let required = rule.bits.iter().filter_map(|bit| match bit {
                FlowBit::IsSet(names) => Some(names),
                _ => None,
            });
            for (names, span) in required.zip(&places.is_set) {
                if !names.iter().any(|name| set.contains(name.as_str())) {
                    let message = format!("no rule sets flow bit '{}'", names.join("|"));
                    warnings.push(source.error(span.clone(), message, "a bit that a rule sets"));
                }
            }
        }
    }
    summed(warnings, "rule never matches", "rules never match")
}

/// The mistakes with the same message as one, the first, with their number and `singular` or
/// `plural`.
pub(in super::super) fn summed(
    mistakes: Vec<SourceError>,
    singular: &str,
    plural: &str,
) -> Vec<SourceError> {
    let (mut sums, mut places) = (Vec::<(SourceError, u64)>::new(), HashMap::new());
    for mistake in mistakes {
        let place = *places.entry(mistake.message().to_owned()).or_insert(sums.len());
        match sums.get_mut(place) {
            Some((_, count)) => *count += 1,
            None => sums.push((mistake, 1)),
        }
    }
    let sum = |(first, count): (SourceError, u64)| {
        let what = if count == 1 { singular } else { plural };
        let message = format!("{}; {count} {what}", first.message());
        first.source_file().error(first.span(), message, first.expected())
    };
    sums.into_iter().map(sum).collect()
}
