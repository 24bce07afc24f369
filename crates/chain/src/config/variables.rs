//! Environment variables in the strings of a chain file: `${NAME}` and `${NAME:-default}`.

use std::ffi::OsString;
use std::ops::Range;

use thalweg_source::{Mistakes, Place, Source, SourceError, Substituted};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The most bytes of a string with its variables.
const LONGEST: usize = 1 << 20;

const EXPECTED: &str = "${NAME} or ${NAME:-default}; $${ for a literal ${";

/// Replaces the variables in all strings of `table`, which was read from `source`, except in keys.
/// Returns the source that shows their names in its mistakes and not their values.
///
/// # Errors
/// Variables that are not set, and those that are written in another way.
pub(super) fn substitute(
    source: &Source,
    table: &mut DeTable<'_>,
) -> Result<Source, Vec<SourceError>> {
    let variable = |name: &str| std::env::var_os(name);
    let (values, errors) = (Vec::new(), Vec::new());
    let mut strings = Strings { source, variable: &variable, values, errors };
    strings.of_table(table);
    if strings.errors.is_empty() {
        return Ok(source.clone().with_substituted(strings.values));
    }
    strings.errors.sort_by_key(|error| error.span().start);
    let mut mistakes = Mistakes::default();
    mistakes.extend(strings.errors);
    Err(mistakes.into_vec())
}

/// The strings of a file.
struct Strings<'a> {
    source: &'a Source,
    /// The value of a variable.
    variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// The values that were substituted.
    values: Vec<Substituted>,
    errors: Vec<SourceError>,
}

impl Strings<'_> {
    fn of_table(&mut self, table: &mut DeTable<'_>) {
        table.iter_mut().for_each(|(_, value)| self.of_value(value));
    }

    fn of_value(&mut self, value: &mut Spanned<DeValue<'_>>) {
        let span = value.span();
        match value.get_mut() {
            DeValue::Table(table) => self.of_table(table),
            DeValue::Array(values) => values.iter_mut().for_each(|value| self.of_value(value)),
            DeValue::String(text) if text.contains("${") => {
                let source = self.source;
                let place = Place::of_string(source, text, span.clone());
                match expand(text, self.variable) {
                    Ok(Expanded { value, variables }) => {
                        self.values.extend(
                            variables.into_iter().map(|(text, value)| Substituted {
                                span: span.clone(),
                                text,
                                value,
                            }),
                        );
                        let whole = Substituted { span, text: text.to_string(), value };
                        *text = whole.value.clone().into();
                        self.values.push(whole);
                    }
                    Err(Mistake { at, message, expected }) => {
                        self.errors.push(place.error(at, message, expected));
                    }
                }
            }
            _ => {}
        }
    }
}

/// A string with the values of its variables.
#[derive(Debug, Default, PartialEq, Eq)]
struct Expanded {
    value: String,
    /// The variables as they stand in the text, and their values.
    variables: Vec<(String, String)>,
}

/// What is wrong at some bytes of a string.
#[derive(Debug, PartialEq, Eq)]
struct Mistake {
    at: Range<usize>,
    message: String,
    expected: String,
}

impl Mistake {
    fn new(at: Range<usize>, message: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { at, message: message.into(), expected: expected.into() }
    }
}

/// Replaces the variables in `text`. Their values are not searched for further ones.
fn expand(text: &str, variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Expanded, Mistake> {
    let mut expanded = Expanded::default();
    let mut at = 0;
    while let Some(start) = text[at..].find("${").map(|found| at + found) {
        if text[at..start].ends_with('$') {
            expanded.value += &text[at..start - 1];
            expanded.value += "${";
            at = start + 2;
            continue;
        }
        expanded.value += &text[at..start];
        let Some(end) = text[start..].find('}').map(|found| start + found + 1) else {
            return Err(Mistake::new(start..text.len(), "a variable without an end", EXPECTED));
        };
        let value = value(text, start..end, variable)?;
        expanded.value += &value;
        expanded.variables.push((text[start..end].to_owned(), value));
        if expanded.value.len() > LONGEST {
            let message =
                format!("the string has more than {} MiB with its variables", LONGEST >> 20);
            return Err(Mistake::new(start..end, message, "at most that"));
        }
        at = end;
    }
    expanded.value += &text[at..];
    Ok(expanded)
}

/// The value of the variable `${...}` at some bytes of `text`.
fn value(
    text: &str,
    at: Range<usize>,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Result<String, Mistake> {
    let inner = &text[at.start + 2..at.end - 1];
    let (name, default) = match inner.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inner, None),
    };
    if !is_name(name) || default.is_some_and(|default| default.contains("${")) {
        return Err(Mistake::new(at, "invalid variable", EXPECTED));
    }
    match (variable(name).map(OsString::into_string), default) {
        // As in a shell, the default replaces an empty value too.
        (Some(Ok(value)), Some(default)) if value.is_empty() => Ok(default.to_owned()),
        (Some(Ok(value)), _) => Ok(value),
        (None, Some(default)) => Ok(default.to_owned()),
        (Some(Err(_)), _) => {
            let message = format!("the value of the environment variable '{name}' is not UTF-8");
            Err(Mistake::new(at, message, "UTF-8 text"))
        }
        (None, None) => {
            let message = format!("the environment variable '{name}' is not set");
            let expected = format!("{name} in the environment, or a default: ${{{name}:-default}}");
            Err(Mistake::new(at, message, expected))
        }
    }
}

fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.chars().all(is_part) && text.starts_with(|c: char| !c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use proptest::prelude::*;

    use super::*;

    fn variable(name: &str) -> Option<OsString> {
        match name {
            "A" => Some("one".into()),
            "B_2" => Some("${A} two".into()),
            "EMPTY" => Some(OsString::new()),
            "BYTES" => Some(OsString::from_vec(vec![b'a', 0xff])),
            "LONG" => Some("x".repeat(1 << 19).into()),
            _ => None,
        }
    }

    fn value(text: &str) -> Result<String, Mistake> {
        expand(text, &variable).map(|expanded| expanded.value)
    }

    #[test]
    fn variables_are_replaced_by_their_values_or_defaults() {
        for (text, expected) in [
            ("${A}", "one"),
            ("é${A}${A}-", "éoneone-"),
            ("${B_2}", "${A} two"),
            ("${A:-1}${NONE:-1}${NONE:-}", "one1"),
            ("[${EMPTY}${EMPTY:-default: -}]", "[default: -]"),
            ("$A $ {A} $", "$A $ {A} $"),
            ("$${A} $$${A} $${", "${A} $${A} ${"),
            ("${A}$${A}", "one${A}"),
        ] {
            assert_eq!(value(text).as_deref(), Ok(expected), "{text}");
        }
        let expanded = expand("x${A}${NONE:-no}", &variable).unwrap();
        let pair = |text: &str, value: &str| (text.to_owned(), value.to_owned());
        assert_eq!(expanded.variables, [pair("${A}", "one"), pair("${NONE:-no}", "no")]);
    }

    #[test]
    fn a_mistake_is_at_its_variable() {
        for (text, at, message) in [
            ("a ${NONE}", 2..9, "the environment variable 'NONE' is not set"),
            ("${A} ${BYTES}", 5..13, "the value of the environment variable 'BYTES' is not UTF-8"),
            ("${}", 0..3, "invalid variable"),
            ("${1A}", 0..5, "invalid variable"),
            ("${A B}", 0..6, "invalid variable"),
            ("${A-1}", 0..6, "invalid variable"),
            ("${A:=1}", 0..7, "invalid variable"),
            ("${NONE:-${A}}", 0..12, "invalid variable"),
            ("é${A", 2..5, "a variable without an end"),
            ("${LONG}${LONG}.${A}", 15..19, "the string has more than 1 MiB with its variables"),
        ] {
            let mistake = value(text).unwrap_err();
            assert_eq!((mistake.at, mistake.message.as_str()), (at, message), "{text}");
        }
        let expected = value("${NONE}").unwrap_err().expected;
        assert_eq!(expected, "NONE in the environment, or a default: ${NONE:-default}");
    }

    proptest! {
        /// Any text is a string once its `${` are written `$${`.
        #[test]
        fn an_escaped_text_stands_for_itself(text in "([${}:A-]|[a-zé\n]){0,40}") {
            // A `$` before it would make another escape of it.
            prop_assume!(!text.contains("$${"));
            prop_assert_eq!(value(&text.replace("${", "$${")), Ok(text));
        }

        #[test]
        fn no_text_makes_the_reader_fall(text in "([$]?[{]?[A-B_2:é}-]{0,3}){0,20}") {
            let _ = value(&text);
        }
    }
}
