//! A rule while its options are being read.

use std::ops::Range;

use super::super::buffer::Buffer;
use super::Rule;
use super::content::{Content, Part, PayloadTest, Transform};
use super::set::Places;

/// A rule, and the part that its next test belongs to.
pub(super) struct Draft {
    pub(super) rule: Rule,
    /// The part that receives tests.
    current: usize,
    /// The part that received the last test.
    last: usize,
    /// Tests apply to the output of the current part's last base64_decode.
    decoded: bool,
    /// Names of the variables, by index.
    pub(super) variables: Vec<String>,
    /// The parts whose size is tested, and the positions of those tests.
    pub(super) sized: Vec<(usize, Range<usize>)>,
    pub(super) places: Places,
}

impl Draft {
    pub(super) fn new(mut rule: Rule) -> Self {
        rule.parts.push(Part::default());
        Self {
            rule,
            current: 0,
            last: 0,
            decoded: false,
            variables: Vec::new(),
            sized: Vec::new(),
            places: Places::default(),
        }
    }

    /// Directs the following tests to `buffer`.
    pub(super) fn stick_to(&mut self, buffer: Buffer) {
        self.current = self.part(buffer);
        self.decoded = false;
    }

    /// Directs the following tests to the decoded data; returns `false` if there is none.
    pub(super) fn stick_to_decoded(&mut self) -> bool {
        self.current = self.last;
        let tests = &self.rule.parts[self.last].tests;
        self.decoded = matches!(tests.last(), Some(PayloadTest::Base64 { .. }));
        self.decoded
    }

    /// Transforms the current buffer before its tests.
    pub(super) fn transform(&mut self, transform: Transform) {
        let Part { buffer, transforms, .. } = &self.rule.parts[self.current];
        let (buffer, mut transforms) = (*buffer, transforms.clone());
        transforms.push(transform);
        if !self.rule.parts[self.current].tests.is_empty() {
            self.rule.parts.push(Part { buffer, ..Part::default() });
            self.current = self.rule.parts.len() - 1;
        }
        self.rule.parts[self.current].transforms = transforms;
    }

    /// Whether the following tests apply to a protocol's buffer.
    pub(super) fn is_stuck(&self) -> bool {
        self.rule.parts[self.current].buffer != Buffer::Payload
    }

    pub(super) fn test(&mut self, test: PayloadTest) {
        self.last = self.current;
        self.tests().push(test);
    }

    /// Adds a test; a relative one applies to the buffer of the previous test.
    pub(super) fn follow(&mut self, test: PayloadTest) {
        if test.is_relative() && !self.is_stuck() {
            self.tests().push(test);
        } else {
            self.test(test);
        }
    }

    /// The list that holds the last test.
    fn tests(&mut self) -> &mut Vec<PayloadTest> {
        let tests = &mut self.rule.parts[self.last].tests;
        let nested = self.decoded && matches!(tests.last(), Some(PayloadTest::Base64 { .. }));
        if !nested {
            return tests;
        }
        match tests.last_mut() {
            Some(PayloadTest::Base64 { tests, .. }) => tests,
            _ => unreachable!("it was one above"),
        }
    }

    /// Adds a test of another buffer than the current one.
    pub(super) fn test_of(&mut self, buffer: Buffer, test: PayloadTest) {
        self.last = self.part(buffer);
        self.rule.parts[self.last].tests.push(test);
    }

    /// Records that the last test, at `span`, tests the size.
    pub(super) fn note_size(&mut self, span: Range<usize>) {
        self.sized.push((self.last, span));
    }

    /// Records that the rule tests the payload's size at `span`.
    pub(super) fn note_size_of_payload(&mut self, span: Range<usize>) {
        // A draft begins with the payload's part.
        self.sized.push((0, span));
    }

    /// The last content; other tests may follow it.
    pub(super) fn content(&mut self) -> Option<&mut Content> {
        self.tests().iter_mut().rev().find_map(|test| match test {
            PayloadTest::Content(content) => Some(content),
            _ => None,
        })
    }

    /// Moves the last content to `buffer`; returns `false` if there is none.
    pub(super) fn move_content(&mut self, buffer: Buffer) -> bool {
        let is_content = |test: &PayloadTest| matches!(test, PayloadTest::Content(_));
        let Some(at) = self.tests().iter().rposition(is_content) else { return false };
        let test = self.tests().remove(at);
        self.test_of(buffer, test);
        true
    }

    /// The part for tests of `buffer`; tests of a buffer that a message has once share a part.
    fn part(&mut self, buffer: Buffer) -> usize {
        let fits = |p: &Part| p.buffer == buffer && p.transforms.is_empty();
        match self.rule.parts.iter().position(fits) {
            Some(at) if !buffer.is_multiple() => at,
            _ => {
                self.rule.parts.push(Part { buffer, ..Part::default() });
                self.rule.parts.len() - 1
            }
        }
    }
}
