//! A rule while its options are being read.

use std::ops::Range;

use super::super::buffer::Buffer;
use super::super::haystack::Needle;
use super::Rule;
use super::content::{Content, Number, Part, PayloadTest, Transform};
use super::contents;
use super::set::Places;
use super::text::{Fault, Piece};

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
    /// The options that may stand once and did.
    given: Vec<&'static str>,
    /// The option that selected or transformed a buffer that has no test yet.
    untested: Option<Range<usize>>,
    /// The value of each `content`.
    pub(super) contents: Vec<Range<usize>>,
    /// The value of each `pcre` that searches the whole of a part, with the part.
    pub(super) regexes: Vec<(usize, Range<usize>)>,
    pub(super) severity_of_class: Option<u8>,
    /// Oddities with which the rule is still taken.
    pub(super) warnings: Vec<Fault>,
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
            given: Vec::new(),
            untested: None,
            contents: Vec::new(),
            regexes: Vec::new(),
            severity_of_class: None,
            warnings: Vec::new(),
        }
    }

    /// Records the option `name`; returns whether it stands for the first time.
    pub(super) fn is_first(&mut self, name: &'static str) -> bool {
        let first = !self.given.contains(&name);
        if first {
            self.given.push(name);
        }
        first
    }

    /// Rejects the option `name` at `place` if it stands for the second time.
    pub(super) fn once(&mut self, name: &'static str, place: Piece<'_>) -> Result<(), Fault> {
        if self.is_first(name) {
            Ok(())
        } else {
            Err(place.fault(format!("a second '{name}' in one rule"), "one of the two"))
        }
    }

    /// Directs the following tests to `buffer`, which the option `name` selects.
    pub(super) fn stick_to(&mut self, buffer: Buffer, name: Piece<'_>) -> Result<(), Fault> {
        self.check_tested()?;
        self.current = self.part(buffer);
        self.decoded = false;
        self.untested = (buffer != Buffer::Payload).then(|| name.span());
        Ok(())
    }

    /// Rejects a buffer that was selected but not tested.
    pub(super) fn check_tested(&self) -> Result<(), Fault> {
        match &self.untested {
            Some(span) => {
                let message = "no test follows this option";
                Err(Fault::new(span.clone(), message, "content, pcre or another test after it"))
            }
            None => Ok(()),
        }
    }

    /// Directs the following tests to the decoded data; returns `false` if there is none.
    pub(super) fn stick_to_decoded(&mut self) -> bool {
        self.current = self.last;
        let tests = &self.rule.parts[self.last].tests;
        self.decoded = matches!(tests.last(), Some(PayloadTest::Base64 { .. }));
        self.decoded
    }

    /// Transforms the current buffer before its tests, as the option `name` requires.
    pub(super) fn transform(&mut self, transform: Transform, name: Piece<'_>) -> Result<(), Fault> {
        if !self.is_stuck() {
            let message = format!("'{}' needs a buffer to transform", name.text);
            return Err(name.fault(message, "a buffer such as http.uri before it"));
        }
        self.untested = Some(name.span());
        let Part { buffer, transforms, .. } = &self.rule.parts[self.current];
        let (buffer, mut transforms) = (*buffer, transforms.clone());
        transforms.push(transform);
        if !self.rule.parts[self.current].tests.is_empty() {
            self.rule.parts.push(Part { buffer, ..Part::default() });
            self.current = self.rule.parts.len() - 1;
        }
        self.rule.parts[self.current].transforms = transforms;
        Ok(())
    }

    /// Adds the content at `value` to the current buffer.
    pub(super) fn add_content(&mut self, content: Content, value: Piece<'_>) -> Result<(), Fault> {
        if !self.decoded {
            let part = &self.rule.parts[self.current];
            contents::check(&content, part.buffer, &part.transforms, value)?;
        }
        self.contents.push(value.span());
        self.test(PayloadTest::Content(content));
        Ok(())
    }

    /// The part that received the last test.
    pub(super) fn last_part(&self) -> usize {
        self.last
    }

    /// The buffer that received the last test, unless that tests decoded data.
    pub(super) fn last_buffer(&self) -> Option<Buffer> {
        (!self.decoded).then(|| self.rule.parts[self.last].buffer)
    }

    /// The buffer that the following tests apply to.
    pub(super) fn current_buffer(&self) -> Buffer {
        self.rule.parts[self.current].buffer
    }

    /// Whether the following tests apply to a protocol's buffer.
    pub(super) fn is_stuck(&self) -> bool {
        self.current_buffer() != Buffer::Payload
    }

    pub(super) fn test(&mut self, test: PayloadTest) {
        self.untested = None;
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
        if buffer == self.current_buffer() {
            self.untested = None;
        }
        self.last = self.part(buffer);
        self.rule.parts[self.last].tests.push(test);
    }

    /// Requires an event, which is one of the messages' buffers. It can be combined with any other
    /// test, and no option after it changes it.
    pub(super) fn event(&mut self, name: &str) {
        let length = Some(Number::Literal(name.len() as i64));
        let bytes = Needle::new(name.as_bytes());
        let whole = Content { bytes, depth: length, ends_with: true, ..Content::default() };
        let tests = vec![PayloadTest::Content(whole)];
        self.rule.parts.push(Part { buffer: Buffer::HttpEvent, tests, ..Part::default() });
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

    /// Moves the last content to `buffer`, as the option `name` requires.
    pub(super) fn move_content(&mut self, buffer: Buffer, name: Piece<'_>) -> Result<(), Fault> {
        let is_content = |test: &PayloadTest| matches!(test, PayloadTest::Content(_));
        // Rules for Snort mix file_data with these options.
        let open = |part: usize| {
            matches!(self.rule.parts[part].buffer, Buffer::Payload | Buffer::FileData)
        };
        if !open(self.current) || !open(self.last) {
            let message = format!("'{}' for a content that already has a buffer", name.text);
            return Err(name.fault(message, "one buffer for each content"));
        }
        let Some(at) = self.tests().iter().rposition(is_content) else {
            let message = format!("'{}' needs a content to modify", name.text);
            return Err(name.fault(message, "a content before it"));
        };
        let test = self.tests().remove(at);
        if let PayloadTest::Content(content) = &test {
            contents::check(content, buffer, &[], name)?;
        }
        self.test_of(buffer, test);
        Ok(())
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
