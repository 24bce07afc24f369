//! Renders a trace as text.

use std::borrow::Cow;
use std::fmt::{self, Display, Formatter};

use thalweg_source::visible;

use super::path::{Step, Trace};
use super::words::Change;

/// The bytes of a change that are shown; the JSON form has all of them.
const SHOWN: usize = 32;

impl Display for Trace {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "packet {}: {} bytes from {}", self.packet, self.length, self.input)?;
        writeln!(f, "flow: {}", self.flow)?;
        writeln!(f, "parsed: {}", self.parsed)?;
        writeln!(f)?;
        writeln!(f, "classification ({})", self.layer)?;
        writeln!(f, "    rule: {}", visible(self.rule.as_deref().unwrap_or("none, default type")))?;
        let megaflow = if self.megaflow.is_empty() { "every packet" } else { &self.megaflow };
        writeln!(f, "    megaflow: {megaflow}")?;
        writeln!(f, "    type: {}", self.packet_type)?;
        let mut length = self.length;
        for step in &self.steps {
            writeln!(f)?;
            self::step(f, step, length)?;
            length = step.length;
        }
        writeln!(f)?;
        writeln!(f, "fate: {}", self.fate)
    }
}

fn step(f: &mut Formatter<'_>, step: &Step, length: usize) -> fmt::Result {
    writeln!(f, "{}", step.nf)?;
    for text in &step.explanations {
        writeln!(f, "    {}", visible(text))?;
    }
    for Change { offset, before, after } in &step.changes {
        writeln!(f, "    changed at {offset}: {} -> {}", shown(before), shown(after))?;
    }
    if step.length != length {
        writeln!(f, "    length {length} -> {}", step.length)?;
    }
    if let Some(flow) = &step.flow {
        writeln!(f, "    flow: {flow}")?;
    }
    for emitted in &step.emitted {
        writeln!(f, "    generated a packet of {}", visible(emitted))?;
    }
    writeln!(f, "    -> {}", visible(&step.verdict))
}

fn shown(hex: &str) -> Cow<'_, str> {
    match hex.get(..2 * SHOWN) {
        _ if hex.is_empty() => "nothing".into(),
        Some(start) if hex.len() > start.len() => {
            format!("{start}... ({} bytes)", hex.len() / 2).into()
        }
        _ => hex.into(),
    }
}
