//! Packet types and their rules.

use std::ops::Range;

use indexmap::IndexSet;
use thalweg_classify::flow_syntax::{self, FlowError};
use thalweg_classify::{Match, Passages, Rule, RuleId, RuleTable, classbench};
use thalweg_packet::{PacketType, field};
use thalweg_source::{Passage, Source, SourceError};
use toml::Spanned;

use super::file::{ChainFile, Class};
use super::paths::read_named;

/// The name of the default type when the file gives none.
const DEFAULT_TYPE: &str = "other";

/// The packet types by number, and the rules that assign them.
pub(super) struct Classes {
    pub(super) types: IndexSet<String>,
    pub(super) table: RuleTable,
}

/// Reads all classes. Type 0 is the default.
pub(super) fn classes(
    source: &Source,
    file: &ChainFile<'_>,
    inputs: &[String],
    errors: &mut Vec<SourceError>,
) -> Classes {
    let mut types = IndexSet::new();
    types.insert(file.default_type.as_ref().map_or(DEFAULT_TYPE.into(), |t| t.get_ref().clone()));
    let (mut rules, mut passages) = (Vec::new(), Passages::default());
    for class in &file.classes {
        let (number, _) = types.insert_full(class.get_ref().r#type.get_ref().clone());
        let Ok(number) = u16::try_from(number) else {
            errors.push(source.error(class.span(), "too many packet types", "at most 65536"));
            break;
        };
        let mut reader = Reader {
            source,
            inputs,
            packet_type: PacketType(number),
            rules: &mut rules,
            passages: &mut passages,
            errors,
        };
        reader.class(class);
    }
    errors.extend(passages.never_met(&rules));
    let mut table = RuleTable::new(PacketType(0));
    table.extend(rules);
    Classes { types, table }
}

struct Reader<'a> {
    source: &'a Source,
    inputs: &'a [String],
    packet_type: PacketType,
    rules: &'a mut Vec<Rule>,
    /// The places of the flows; lines of ClassBench files that can never match are common.
    passages: &'a mut Passages,
    errors: &'a mut Vec<SourceError>,
}

impl Reader<'_> {
    fn class(&mut self, class: &Spanned<Class>) {
        let Class { rules, file, classbench, .. } = class.get_ref();
        if rules.is_empty() && file.is_none() && classbench.is_none() {
            let expected = "rules = [...], file = \"FILE\" or classbench = \"FILE\"";
            self.errors.push(self.source.error(class.span(), "this class has no rules", expected));
        }
        for rule in rules {
            // The span within the quotes, if the file has the text verbatim.
            let span = rule.span();
            let inner = self.source.text().get(span.start + 1..span.end.saturating_sub(1));
            let verbatim = inner == Some(rule.get_ref().as_str());
            let start = verbatim.then_some(span.start + 1);
            let source = self.source.clone();
            self.flow(&source, rule.get_ref(), start, span);
        }
        if let Some(file) = file
            && let Some(source) = self.open(file)
        {
            self.flow_file(&source);
        }
        if let Some(file) = classbench
            && let Some(source) = self.open(file)
        {
            self.classbench(&source);
        }
    }

    fn open(&mut self, name: &Spanned<String>) -> Option<Source> {
        read_named(self.source, name, "a readable file", self.errors)
    }

    /// Reads one flow per line; empty lines and text after `#` do not count.
    fn flow_file(&mut self, source: &Source) {
        let lines: Vec<_> = source.lines().map(|(span, line)| (span, line.to_owned())).collect();
        for (span, line) in lines {
            let text = line.split('#').next().unwrap_or("");
            if !text.trim().is_empty() {
                self.flow(source, text, Some(span.start), span);
            }
        }
    }

    /// Reads a flow that begins at byte `start` of `source`, or lies somewhere in `whole`.
    fn flow(&mut self, source: &Source, text: &str, start: Option<usize>, whole: Range<usize>) {
        let port = |name: &str| self.inputs.iter().position(|i| i == name).map(|i| i as u16);
        let span =
            |part: Range<usize>| start.map_or(whole.clone(), |at| at + part.start..at + part.end);
        let parsed = flow_syntax::parse(text, &port);
        match parsed.and_then(|flow| self.check(text, &flow.pattern).map(|()| flow)) {
            Ok(flow) => {
                let id = RuleId(self.rules.len() as u32);
                let lead = text.len() - text.trim_start().len();
                let passage = Passage::new(source, span(lead..lead + text.trim().len()));
                self.passages.insert(id, passage);
                self.rules.push(Rule {
                    id,
                    priority: flow.priority,
                    matches: vec![flow.pattern],
                    packet_type: self.packet_type,
                    text: text.trim().to_owned(),
                });
            }
            Err(e) => self.errors.push(source.error(span(e.span), e.message, e.expected)),
        }
    }

    /// Checks that packets of this chain can match `pattern`.
    fn check(&self, text: &str, pattern: &Match) -> Result<(), FlowError> {
        // The key holds the input's number plus one: 0 is no input.
        if pattern.value().get(field::IN_PORT) <= self.inputs.len() as u64 {
            return Ok(());
        }
        Err(FlowError {
            span: flow_syntax::place_of(text, "in_port").unwrap_or_default(),
            message: "unknown input".into(),
            expected: format!(
                "the name of an input, or 0 to {}",
                self.inputs.len().saturating_sub(1)
            ),
        })
    }

    fn classbench(&mut self, source: &Source) {
        let first = RuleId(self.rules.len() as u32);
        match classbench::parse(source, first, u32::MAX, self.packet_type) {
            // All lines get the default priority of flows, and the first of equal
            // priority wins: so the order of the file holds, and flows can stand
            // before it or after it.
            Ok(rules) => self.rules.extend(
                rules.into_iter().map(|r| Rule { priority: flow_syntax::DEFAULT_PRIORITY, ..r }),
            ),
            Err(errors) => self.errors.extend(errors),
        }
    }
}
