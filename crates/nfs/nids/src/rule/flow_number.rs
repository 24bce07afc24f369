//! The option `flowint`: numbers of a connection, which rules count and compare.

use super::draft::Draft;
use super::text::{Fault, Piece};

/// The most tests and changes of numbers in a rule.
const MOST: usize = 128;

/// A test or a change of a connection's number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct FlowNumber {
    pub(in super::super) name: String,
    pub(in super::super) what: Step,
}

/// What a rule does with a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Step {
    Set(Operand),
    /// To 0 if it is not set.
    Add(Operand),
    /// Not below 0.
    Subtract(Operand),
    /// It is set, and compares so.
    Is(Comparison, Operand),
    IsSet,
    IsNotSet,
}

/// How two numbers compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Comparison {
    Less,
    AtMost,
    More,
    AtLeast,
    Equal,
    Unequal,
}

impl Comparison {
    pub(in super::super) fn holds(self, a: u32, b: u32) -> bool {
        match self {
            Self::Less => a < b,
            Self::AtMost => a <= b,
            Self::More => a > b,
            Self::AtLeast => a >= b,
            Self::Equal => a == b,
            Self::Unequal => a != b,
        }
    }
}

/// The other number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Operand {
    Literal(u32),
    /// Another number of the connection. The rule does not match if it is not set.
    Named(String),
}

impl Step {
    pub(in super::super) fn is_test(&self) -> bool {
        matches!(self, Self::Is(..) | Self::IsSet | Self::IsNotSet)
    }

    pub(in super::super) fn operand(&self) -> Option<&Operand> {
        match self {
            Self::Set(other) | Self::Add(other) | Self::Subtract(other) | Self::Is(_, other) => {
                Some(other)
            }
            Self::IsSet | Self::IsNotSet => None,
        }
    }
}

/// Reads `NAME,+,1`, `NAME,>,OTHER`, `NAME,isset` and their like.
pub(super) fn flow_number(draft: &mut Draft, value: Piece<'_>) -> Result<(), Fault> {
    let parts: Vec<Piece<'_>> = value.split(',').collect();
    let (name, operator, operand) = match parts[..] {
        [name, operator] => (name, operator, None),
        [name, operator, operand] => (name, operator, Some(operand)),
        _ => return Err(value.fault("bad flowint", "NAME,OPERATOR,VALUE or NAME,isset")),
    };
    check_name(name)?;
    let needed = || {
        let text = format!("'{}' needs a number or a name", operator.text);
        let piece = operand.ok_or_else(|| operator.fault(text, "NAME,OPERATOR,VALUE"))?;
        if piece.text.starts_with(|c: char| c.is_ascii_digit()) {
            return Ok(Operand::Literal(piece.number()?));
        }
        check_name(piece)?;
        Ok(Operand::Named(piece.text.to_owned()))
    };
    let compare = |comparison| Ok(Step::Is(comparison, needed()?));
    let what = match operator.text {
        "=" => Step::Set(needed()?),
        "+" => Step::Add(needed()?),
        "-" => Step::Subtract(needed()?),
        "<" => compare(Comparison::Less)?,
        "<=" => compare(Comparison::AtMost)?,
        ">" => compare(Comparison::More)?,
        ">=" => compare(Comparison::AtLeast)?,
        "==" => compare(Comparison::Equal)?,
        "!=" => compare(Comparison::Unequal)?,
        "isset" | "notset" | "isnotset" => {
            if let Some(operand) = operand {
                let message = format!("'{}' takes no value", operator.text);
                return Err(operand.fault(message, format!("NAME,{}", operator.text)));
            }
            if operator.text == "isset" { Step::IsSet } else { Step::IsNotSet }
        }
        _ => {
            let expected = "+, -, =, <, <=, >, >=, ==, !=, isset or notset";
            return Err(operator.fault("bad operator of flowint", expected));
        }
    };
    let new = FlowNumber { name: name.text.to_owned(), what };
    let numbers = &mut draft.rule.numbers;
    let opposite = |other: &FlowNumber| {
        let steps = (&other.what, &new.what);
        let is_set = |step: &Step| matches!(step, Step::IsSet | Step::Is(..));
        other.name == new.name
            && (steps.0 == &Step::IsNotSet && is_set(steps.1)
                || is_set(steps.0) && steps.1 == &Step::IsNotSet)
    };
    if numbers.iter().any(opposite) {
        let message = "this requires a number both set and not set";
        return Err(value.fault(message, "isset or notset of a number"));
    }
    if numbers.len() == MOST {
        let what = format!("a rule with more than {MOST} tests and changes of numbers");
        return Err(Fault::unsupported(value.span(), what));
    }
    numbers.push(new);
    Ok(())
}

fn check_name(name: Piece<'_>) -> Result<(), Fault> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':');
    if !name.text.is_empty() && name.text.chars().all(fits) {
        return Ok(());
    }
    Err(name.fault("bad name of a number", "letters, digits, '.', '_' and '-'"))
}
