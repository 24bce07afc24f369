//! Options that modify the content before them.

use super::super::buffer::Buffer;
use super::super::literals::commonness;
use super::content::{Content, Number};
use super::draft::Draft;
use super::number;
use super::text::{Fault, Piece};

const MODIFIERS: &[&str] =
    &["nocase", "offset", "depth", "distance", "within", "fast_pattern", "startswith", "endswith"];

/// Reads an option that modifies the content before it; any other is not supported.
pub(super) fn modifier(
    draft: &mut Draft,
    name: Piece<'_>,
    value: Option<Piece<'_>>,
) -> Result<(), Fault> {
    if let Some(buffer) = Buffer::modifier(name.text) {
        return draft.move_content(buffer, name);
    }
    if !MODIFIERS.contains(&name.text) {
        return Err(Fault::unsupported(name.span(), format!("option '{}'", name.text)));
    }
    if name.text == "fast_pattern" {
        draft.once("fast_pattern", name)?;
    }
    let of_host = draft.last_buffer() == Some(Buffer::HttpHost);
    let variables = std::mem::take(&mut draft.variables);
    let content = draft.content().ok_or_else(|| {
        let message = format!("'{}' needs a content to modify", name.text);
        name.fault(message, "a content before it")
    })?;
    check_once(content, name)?;
    check_position(content, name, value)?;
    let numbers = Numbers { name, value, variables: &variables };
    let length = content.bytes.len();
    match name.text {
        "nocase" if of_host => {
            let message = "'nocase' for http.host, which is in lower case";
            return Err(name.fault(message, "a content in lower case without nocase"));
        }
        "nocase" => {
            content.nocase = true;
            content.bytes = content.bytes.in_any_case(commonness);
        }
        "offset" => content.offset = Some(numbers.length()?),
        "depth" => content.depth = Some(numbers.room(length, numbers.length()?)?),
        "distance" => content.distance = Some(numbers.signed()?),
        "within" => content.within = Some(numbers.room(length, numbers.signed()?)?),
        "startswith" => {
            content.offset = Some(Number::Literal(0));
            content.depth = Some(Number::Literal(length as i64));
        }
        "endswith" => content.ends_with = true,
        _ => fast_pattern(content, value)?,
    }
    draft.variables = variables;
    Ok(())
}

/// Reads the value of `fast_pattern`. It controls the prefilter, which does not change what
/// matches.
fn fast_pattern(content: &mut Content, value: Option<Piece<'_>>) -> Result<(), Fault> {
    content.fast_pattern = true;
    let Some(value) = value else { return Ok(()) };
    if value.text == "only" {
        content.anywhere = true;
        return Ok(());
    }
    let expected = "only, or OFFSET,LENGTH of a part of the content";
    let wrong = || value.fault("bad fast_pattern", expected);
    let (offset, length) = value.split_once(',').ok_or_else(wrong)?;
    let (offset, length): (usize, usize) = (offset.trim().number()?, length.trim().number()?);
    let end = offset.checked_add(length).ok_or_else(wrong)?;
    if length == 0 || end > content.bytes.len() { Err(wrong()) } else { Ok(()) }
}

/// Rejects a modifier that the content already has.
fn check_once(content: &Content, name: Piece<'_>) -> Result<(), Fault> {
    let starts = "'startswith' or 'offset' and 'depth'";
    let (given, what) = match name.text {
        "nocase" => (content.nocase, "'nocase'"),
        "offset" => (content.offset.is_some(), "'offset' or 'startswith'"),
        "depth" => (content.depth.is_some(), "'depth' or 'startswith'"),
        "startswith" => (content.offset.is_some() || content.depth.is_some(), starts),
        "distance" => (content.distance.is_some(), "'distance'"),
        "within" => (content.within.is_some(), "'within'"),
        "endswith" => (content.ends_with, "'endswith'"),
        _ => (false, ""),
    };
    if given {
        return Err(name.fault(format!("this content already has {what}"), "one of the two"));
    }
    Ok(())
}

/// Rejects a position that excludes another of the same content.
fn check_position(
    content: &Content,
    name: Piece<'_>,
    value: Option<Piece<'_>>,
) -> Result<(), Fault> {
    let absolute = content.offset.is_some() || content.depth.is_some();
    let mixed = match name.text {
        "offset" | "depth" | "startswith" => content.is_relative(),
        "distance" | "within" => absolute,
        _ => false,
    };
    if mixed {
        let message = format!("'{}' mixes an absolute with a relative position", name.text);
        return Err(name.fault(message, "offset and depth, or distance and within"));
    }
    let only = name.text == "fast_pattern" && value.is_some_and(|v| v.text == "only");
    let position = matches!(name.text, "offset" | "depth" | "startswith" | "distance" | "within");
    if only && (absolute || content.is_relative()) || position && content.anywhere {
        let message = "'fast_pattern:only' for a content with a position";
        return Err(name.fault(message, "fast_pattern alone, or no position"));
    }
    Ok(())
}

/// The value of a modifier as a number.
struct Numbers<'a> {
    name: Piece<'a>,
    value: Option<Piece<'a>>,
    variables: &'a [String],
}

impl Numbers<'_> {
    fn signed(&self) -> Result<Number, Fault> {
        let missing = || self.name.fault(format!("'{}' needs a value", self.name.text), "a value");
        let value = self.value.ok_or_else(missing)?;
        match number::variable(value, self.variables)? {
            Some(variable) => Ok(variable),
            None => Ok(Number::Literal(value.number()?)),
        }
    }

    fn length(&self) -> Result<Number, Fault> {
        match self.signed()? {
            Number::Literal(..0) => Err(self.name.fault("a negative number", "0 or more")),
            number => Ok(number),
        }
    }

    /// The `number`, if a content of `length` bytes has room in it.
    fn room(&self, length: usize, number: Number) -> Result<Number, Fault> {
        match number {
            Number::Literal(n) if n < length as i64 => {
                let message = format!("'{}' is shorter than its content", self.name.text);
                let place = self.value.unwrap_or(self.name);
                Err(place.fault(message, format!("{length} or more")))
            }
            number => Ok(number),
        }
    }
}
