//! What a set of rules as a whole is wrong about.

use std::cmp::Ordering;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use thalweg_source::{Mistakes, Source, SourceError, counted};

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
    pub(in super::super) errors: Mistakes,
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
    let replaced = replaced(files, &mut findings.errors);
    if let Some((file, rule)) = replaced.iter().min() {
        let count = counted(replaced.len() as u64, "rule");
        let verb = if replaced.len() == 1 { "is" } else { "are" };
        let message = format!("{count} {verb} replaced by a newer revision of the same sid");
        let (source, loaded) = &files[*file];
        let place = loaded.places[*rule].sid.clone();
        findings.warnings.push(source.error(place, message, "a unique sid"));
    }
    for (file, (_, loaded)) in files.iter_mut().enumerate() {
        let stays: Vec<bool> =
            (0..loaded.rules.len()).map(|rule| !replaced.contains(&(file, rule))).collect();
        let (mut of_rules, mut of_places) = (stays.iter(), stays.iter());
        loaded.rules.retain(|_| of_rules.next() == Some(&true));
        loaded.places.retain(|_| of_places.next() == Some(&true));
    }
}

/// The rules that a newer revision replaces; adds rules with the same revision to `errors`.
fn replaced(files: &[(&Source, Loaded)], errors: &mut Mistakes) -> HashSet<Index> {
    let mut newest: HashMap<(u32, u32), Index> = HashMap::new();
    let mut lines: HashMap<usize, Vec<usize>> = HashMap::new();
    let mut replaced = HashSet::new();
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
            let (path, before) = (files[other.0].0, &files[other.0].1);
            match before.rules[other.1].rev.cmp(&rule.rev) {
                Ordering::Less => {
                    replaced.insert(other);
                    entry.insert(this);
                }
                Ordering::Greater => {
                    replaced.insert(this);
                }
                Ordering::Equal => {
                    let ends = lines.entry(other.0).or_insert_with(|| line_ends(path));
                    let begin = before.places[other.1].sid.start;
                    let line = 1 + ends.partition_point(|end| *end < begin);
                    let place = loaded.places[index].sid.clone();
                    errors.push_with(|| {
                        let message = if other.0 == file {
                            format!("the rule in line {line} has the same sid")
                        } else {
                            let path = path.path().display();
                            format!("the rule at {path}:{line} has the same sid")
                        };
                        source.error(place, message, "a unique sid")
                    });
                }
            }
        }
    }
    replaced
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

/// The most messages that [`summed`] returns one by one.
const SHOWN: usize = 50;

/// The mistakes with the same message as one, the first, with their number and `singular` or
/// `plural`. If there are many messages, the last sums the rest.
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
    let rest = sums.split_off(sums.len().min(SHOWN));
    let of_rest = rest.first().map(|(first, _)| {
        let count: u64 = rest.iter().map(|(_, count)| count).sum();
        let what = if count == 1 { singular } else { plural };
        let message = format!("{} like this; {count} {what}", counted(rest.len() as u64, "other"));
        first.source_file().error(first.span(), message, first.expected())
    });
    sums.into_iter().map(sum).chain(of_rest).collect()
}
