//! The text of the chain file that a command stands for, and the arguments that its parts come from.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;

use thalweg_source::{SourceError, visible};
use toml::Value;

use crate::errors::Failure;

/// The text of a chain file.
#[derive(Debug, Default)]
pub struct ChainText {
    text: String,
    /// Values, and the arguments that they come from: `-r in.pcap`.
    arguments: Vec<(Range<usize>, String)>,
}

/// A value with the argument that it comes from.
pub struct Argument {
    value: Value,
    name: String,
}

impl Argument {
    /// The value of `option`, as it is typed.
    pub fn new(option: &str, typed: &str) -> Self {
        Self::with_value(option, typed, typed)
    }

    /// A value in the place of what is typed after `option`.
    pub fn with_value(option: &str, typed: impl ToString, value: impl Into<Value>) -> Self {
        let value = match value.into() {
            // A chain file has variables in its strings.
            Value::String(text) => Value::String(text.replace("${", "$${")),
            other => other,
        };
        Self { value, name: format!("{option} {}", typed.to_string()) }
    }

    /// A path that is typed after `option`, or `standard` for `-`.
    ///
    /// # Errors
    /// When it is not UTF-8, which a chain file cannot hold.
    pub fn of_path(option: &str, path: &Path, standard: &str) -> Result<Self, Failure> {
        let typed = path.to_str().ok_or_else(|| {
            let path = path.display().to_string();
            Failure::Usage(format!("{option} {}: the name is not UTF-8", visible(&path)))
        })?;
        Ok(Self::with_value(option, typed, if typed == "-" { standard } else { typed }))
    }
}

impl ChainText {
    /// Adds a line of comment.
    pub fn comment(&mut self, text: &str) {
        self.line(&format!("# {}", visible(text)));
    }

    /// Begins a section: `[heading]`, or `[[heading]]`.
    pub fn section(&mut self, heading: &str, comment: &str) {
        self.text.push('\n');
        self.line(&with_comment(heading, comment));
    }

    /// Adds an option whose value no argument sets.
    pub fn set(&mut self, key: &str, value: impl Into<Value>, comment: &str) {
        self.line(&with_comment(&format!("{key} = {}", value.into()), comment));
    }

    /// Adds an option that an argument sets.
    pub fn take(&mut self, key: &str, argument: &Argument) {
        let _ = write!(self.text, "{key} = ");
        self.value(argument);
        self.text.push('\n');
    }

    /// Adds an option with a list of values, unless there are none.
    pub fn take_all(&mut self, key: &str, arguments: &[Argument]) {
        if arguments.is_empty() {
            return;
        }
        let _ = write!(self.text, "{key} = [");
        for (number, argument) in arguments.iter().enumerate() {
            self.text.push_str(if number > 0 { ", " } else { "" });
            self.value(argument);
        }
        self.text.push_str("]\n");
    }

    fn value(&mut self, argument: &Argument) {
        let start = self.text.len();
        let _ = write!(self.text, "{}", argument.value);
        self.arguments.push((start..self.text.len(), argument.name.clone()));
    }

    fn line(&mut self, text: &str) {
        self.text.push_str(text);
        self.text.push('\n');
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// A mistake in this text, in the words of the command line.
    pub fn explain(&self, mistake: &SourceError) -> String {
        let at = mistake.span().start;
        let argument = self.arguments.iter().find(|(span, _)| span.contains(&at));
        let place = argument.map_or_else(String::new, |(_, name)| format!("{}: ", visible(name)));
        format!("{place}{}; expected {}", mistake.message(), mistake.expected())
    }

    /// The failure to load this text: mistakes in arguments are named as such, and mistakes in
    /// files that the arguments name have their places there.
    pub fn refuse(&self, mistakes: Vec<SourceError>) -> Failure {
        let (own, of_files): (Vec<_>, Vec<_>) = mistakes.into_iter().partition(is_of_command);
        let own: Vec<_> = own.iter().map(|mistake| self.explain(mistake)).collect();
        if of_files.is_empty() {
            return Failure::Usage(own.join("\n"));
        }
        own.iter().for_each(|mistake| log::error!("{mistake}"));
        Failure::Configuration(of_files)
    }

    /// The failure of a run of this text: a port that could not be opened is named as its argument.
    pub fn refuse_port(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Port(mistake) if is_of_command(&mistake) => {
                Failure::Run(self.explain(&mistake))
            }
            other => other,
        }
    }
}

/// Whether a mistake is in the text for a command, and not in a file that it names.
pub fn is_of_command(mistake: &SourceError) -> bool {
    mistake.source_file().path().as_os_str().is_empty()
}

/// A line with a comment after it, unless that is empty.
fn with_comment(line: &str, comment: &str) -> String {
    if comment.is_empty() { line.to_owned() } else { format!("{line:<30} # {comment}") }
}
