//! A rule while its options are read.

use std::ops::Range;

use super::super::buffer::Buffer;
use super::Rule;
use super::content::{Content, Part, PayloadTest, Transform};
use super::set::Places;

/// A rule, and where its next test belongs.
pub(super) struct Draft {
    pub(super) rule: Rule,
    /// The part that tests go to.
    current: usize,
    /// The part that the last test went to.
    last: usize,
    /// Tests go to what the last base64_decode of the part at hand decodes.
    decoded: bool,
    /// The names of the variables, by index.
    pub(super) variables: Vec<String>,
    /// The parts whose size is tested, and where.
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

    /// The tests that follow are of `buffer`.
    pub(super) fn stick_to(&mut self, buffer: Buffer) {
        self.current = self.part(buffer);
        self.decoded = false;
    }

    /// The tests that follow are of what was decoded; `false` if nothing was.
    pub(super) fn stick_to_decoded(&mut self) -> bool {
        self.current = self.last;
        let tests = &self.rule.parts[self.last].tests;
        self.decoded = matches!(tests.last(), Some(PayloadTest::Base64 { .. }));
        self.decoded
    }

    /// The buffer at hand is transformed before the tests of it.
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

    /// Whether the tests that follow are of a buffer of a protocol.
    pub(super) fn is_stuck(&self) -> bool {
        self.rule.parts[self.current].buffer != Buffer::Payload
    }

    pub(super) fn test(&mut self, test: PayloadTest) {
        self.last = self.current;
        self.tests().push(test);
    }

    /// A test that, if it is relative, is of the buffer of the test before it.
    pub(super) fn follow(&mut self, test: PayloadTest) {
        if test.is_relative() && !self.is_stuck() {
            self.tests().push(test);
        } else {
            self.test(test);
        }
    }

    /// The tests among which the last one is.
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

    /// A test of another buffer than that at hand.
    pub(super) fn test_of(&mut self, buffer: Buffer, test: PayloadTest) {
        self.last = self.part(buffer);
        self.rule.parts[self.last].tests.push(test);
    }

    /// The last test, at `span`, was one of the size.
    pub(super) fn note_size(&mut self, span: Range<usize>) {
        self.sized.push((self.last, span));
    }

    /// The payload's size is tested at `span`.
    pub(super) fn note_size_of_payload(&mut self, span: Range<usize>) {
        // A draft begins with the payload's part.
        self.sized.push((0, span));
    }

    /// The last content; other tests may stand behind it.
    pub(super) fn content(&mut self) -> Option<&mut Content> {
        self.tests().iter_mut().rev().find_map(|test| match test {
            PayloadTest::Content(content) => Some(content),
            _ => None,
        })
    }

    /// Moves the last content to `buffer`; `false` if there is none.
    pub(super) fn move_content(&mut self, buffer: Buffer) -> bool {
        let is_content = |test: &PayloadTest| matches!(test, PayloadTest::Content(_));
        let Some(at) = self.tests().iter().rposition(is_content) else { return false };
        let test = self.tests().remove(at);
        self.test_of(buffer, test);
        true
    }

    /// The part for tests of `buffer`: of a buffer that a message has once, one for all.
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
