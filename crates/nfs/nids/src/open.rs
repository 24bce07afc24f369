//! Rules that wait for more of a stream.
//!
//! A rule whose pattern was found but whose other tests do not hold yet may hold with bytes to come. If
//! a content that it requires was nowhere in the stream so far, it may not before that content comes,
//! so only that is searched for in what is new.

use serde::{Deserialize, Serialize};

use super::fit::Stretch;
use super::haystack::Haystack;
use super::rule::Rule;
use super::seldom::Empty;

/// The maximum number of rules per direction that wait.
const MOST: usize = 16;

/// Longer contents are not searched for alone.
const LONG: usize = 256;

/// By direction, rules that wait.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Open {
    /// Rules, and the number of bytes that each may still wait for.
    rules: [Vec<(u32, u32)>; 2],
    /// Rules, and which of their payload tests is a content that was nowhere.
    #[serde(skip)]
    lacking: [Vec<(u32, u16)>; 2],
}

/// What they lack can be found out again.
impl PartialEq for Open {
    fn eq(&self, other: &Self) -> bool {
        self.rules == other.rules
    }
}

impl Eq for Open {}

impl Empty for Open {
    const EMPTY: &'static Self =
        &Self { rules: [const { Vec::new() }; 2], lacking: [const { Vec::new() }; 2] };

    fn is_empty(&self) -> bool {
        self.rules.iter().all(Vec::is_empty)
    }
}

impl Open {
    /// Whether no rule waits for data of a direction.
    #[inline]
    pub(super) fn is_empty_in(&self, direction: usize) -> bool {
        self.rules[direction].is_empty()
    }

    /// The rules that wait.
    pub(super) fn rules(&self) -> impl Iterator<Item = u32> {
        self.rules.iter().flatten().map(|(number, _)| *number)
    }

    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        let rules: usize = self.rules.iter().map(Vec::len).sum();
        rules * (size_of::<(u32, u32)>() + size_of::<(u32, u16)>())
    }

    /// Adds to `found` the rules that may hold now that a stream has grown to `stretch`.
    pub(super) fn reopen(
        &mut self,
        direction: usize,
        rules: &[Rule],
        stretch: Stretch<'_>,
        found: &mut Vec<u32>,
    ) {
        let (waiting, lacking) = (&mut self.rules[direction], &mut self.lacking[direction]);
        let grown = (stretch.bytes.len() - stretch.fresh) as u32;
        if grown == 0 || waiting.is_empty() {
            return;
        }
        // With what a content that ends in the new bytes may begin with.
        let recent = Haystack::new(&stretch.bytes[stretch.fresh.saturating_sub(LONG)..]);
        let may_hold = |number: &u32| {
            let lacks = lacking.iter().find(|(known, _)| known == number);
            let content = lacks.and_then(|(_, test)| rules[*number as usize].content(*test));
            content.is_none_or(|content| content.len() > LONG || recent.has(content))
        };
        found.extend(waiting.iter().map(|(number, _)| *number).filter(may_hold));
        waiting.retain_mut(|(_, left)| {
            *left = left.saturating_sub(grown);
            *left > 0
        });
        lacking.retain(|(number, _)| waiting.iter().any(|(known, _)| known == number));
    }

    /// Lets a rule wait for up to `left` bytes, if it has a place or waits already. `lacks` is which of
    /// its payload tests is a content that is nowhere, if one is.
    pub(super) fn add(&mut self, direction: usize, number: u32, left: u32, lacks: Option<u16>) {
        let (waiting, lacking) = (&mut self.rules[direction], &mut self.lacking[direction]);
        if waiting.iter().all(|(known, _)| *known != number) {
            if waiting.len() == MOST {
                return;
            }
            waiting.push((number, left));
        }
        lacking.retain(|(known, _)| *known != number);
        lacking.extend(lacks.map(|test| (number, test)));
    }

    /// Ends the wait of a rule.
    pub(super) fn close(&mut self, direction: usize, number: u32) {
        self.rules[direction].retain(|(waiting, _)| *waiting != number);
        self.lacking[direction].retain(|(waiting, _)| *waiting != number);
    }
}
