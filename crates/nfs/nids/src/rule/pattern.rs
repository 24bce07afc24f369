//! The content by which a rule is found: its pattern.

use std::cmp::Reverse;

use hashbrown::HashMap;

use super::super::buffer::Buffer;
use super::super::literals::{WINDOW, commonness};
use super::content::{Content, Part, PayloadTest};
use super::{FastPattern, Rule};

/// More rules with one pattern are a crowd: a packet with the pattern pays for all of them.
const CROWD: u32 = 8;

/// What a byte counts for at most; above all commonness.
const RAREST: u32 = 10;

/// Further bytes of a pattern make no difference.
const LONG: usize = 64;

/// For each content by which rules can be found, in lower case, how many rules have it.
type Shares = HashMap<(Buffer, Vec<u8>), u32>;

/// Chooses the pattern of each rule: the content that it marks, else the one that traffic has least
/// by chance; where that is a crowd's, one that is nearly as rare and that fewer rules have.
pub(in super::super) fn choose(rules: &mut [Rule]) {
    let mut shares = Shares::new();
    for rule in &*rules {
        let mut own: Vec<_> = candidates(rule).map(key).collect();
        own.sort_unstable();
        own.dedup();
        own.into_iter().for_each(|content| *shares.entry(content).or_default() += 1);
    }
    for rule in rules {
        rule.fast_pattern = pattern(rule, &shares);
    }
}

fn pattern(rule: &Rule, shares: &Shares) -> FastPattern {
    let marked = candidates(rule).find(|(_, content)| content.fast_pattern);
    // Fewer bytes than a window need another search.
    let window = |content: &Content| content.bytes.len().min(WINDOW);
    let rarity = |content: &Content| (window(content), strength(&content.bytes));
    let cost = |content: &Content| Reverse((rarity(content), content.bytes.len()));
    let rarest = || candidates(rule).min_by_key(|(_, content)| cost(content));
    let share = |candidate| shares.get(&key(candidate)).copied().unwrap_or(0);
    let chosen = marked.or_else(|| {
        let rarest = rarest()?;
        if share(rarest) <= CROWD {
            return Some(rarest);
        }
        let (window, strength) = rarity(rarest.1);
        let nearly = candidates(rule).filter(|(_, content)| {
            let (own_window, own_strength) = rarity(content);
            own_window == window && 4 * own_strength >= 3 * strength
        });
        nearly.min_by_key(|candidate| (share(*candidate), cost(candidate.1)))
    });
    if let Some((buffer, content)) = chosen {
        let place = content.place.and_then(|place| u32::try_from(place).ok());
        return FastPattern { buffer, bytes: Some(content.bytes.to_vec()), place };
    }
    let buffer = usable(rule).next().map_or(Buffer::Payload, |part| part.buffer);
    FastPattern { buffer, bytes: None, place: None }
}

/// The parts by which the rule can be found: for a rule about messages, those of their buffers.
fn usable(rule: &Rule) -> impl Iterator<Item = &Part> {
    let messages = rule.is_of_messages();
    rule.parts.iter().filter(move |part| !messages || part.buffer != Buffer::Payload)
}

/// The contents that have to occur.
fn candidates(rule: &Rule) -> impl Iterator<Item = (Buffer, &Content)> {
    let plain = usable(rule).filter(|part| part.transforms.is_empty());
    plain.flat_map(|part| {
        part.tests.iter().filter_map(PayloadTest::required).map(|content| (part.buffer, content))
    })
}

fn key((buffer, content): (Buffer, &Content)) -> (Buffer, Vec<u8>) {
    (buffer, content.bytes.to_ascii_lowercase())
}

/// How seldom traffic has a pattern by chance: each byte counts by its own rarity, and little once the
/// pattern has it already, since padding repeats bytes.
fn strength(pattern: &[u8]) -> u32 {
    let is_new = |at: usize| !pattern[..at].contains(&pattern[at]);
    let of_byte = |at: usize| if is_new(at) { RAREST - commonness(pattern[at]) } else { 1 };
    (0..pattern.len().min(LONG)).map(of_byte).sum()
}
