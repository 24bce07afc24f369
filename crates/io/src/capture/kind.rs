//! Captures as a kind of port.

use std::ops::Range;
use std::path::{Path, PathBuf};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema, schema_for};
use serde::Deserialize;
use thalweg_source::{SourceError, misplaced};
use toml::{Spanned, Value};

use super::direct::DirectInput;
use super::find::{Captures, Found, Origin, find};
use super::input::CaptureInput;
use super::output::CaptureOutput;
use super::peer::{Endpoint, Peer};
use super::records::Records;
use super::standard::{STANDARD, STANDARD_OUTPUT};
use crate::filter::Filter;
use crate::kind::{
    InputBlueprint, InputOpening, Kind, Opened, OutputBlueprint, OutputOpening, PortBlueprint,
    Section, Side,
};
use crate::memory::MemoryInput;
use crate::paced::Pace;
use crate::port::{Input, IoError, Output};
use crate::selection::{Selection, TIME, TimeRange, parse_time};

/// Capture files, pipes, standard input and output, and connections over TCP.
pub const KIND: Kind = Kind {
    name: "capture",
    key: "capture",
    example: "capture = \"FILE\"",
    noun: "a capture",
    summary: "reads and writes packets as pcap and pcapng: files, plain or gzip, pipes, and TCP",
    input: Some(Side {
        keys: &["capture", "loop", "memory", "zero_copy", "pace", "from", "to", "filter"],
        instead: &[],
        options: || schema_for!(InputOptions),
        build: build_input,
    }),
    output: Some(Side {
        keys: &["capture", "zero_copy"],
        instead: &[],
        options: || schema_for!(OutputOptions),
        build: build_output,
    }),
};

/// What names of captures are accepted for writing.
const NAMES: &str = "a name that ends in .pcap, .pcapng, .pcap.gz or .pcapng.gz, or -, or \
     tcp://HOST:PORT";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct InputOptions {
    /// A file or a pipe, - for standard input, or a connection: tcp://HOST:PORT, or
    /// tcp://HOST:PORT?listen; or several files, read as one: a folder, a pattern, or a list of
    /// names.
    #[schemars(with = "Captures")]
    capture: Spanned<Captures>,
    /// How often the files are read; 0 means without end.
    #[schemars(with = "Option<u64>", extend("default" = 1))]
    r#loop: Option<Spanned<u64>>,
    /// Load the files before the first packet.
    #[serde(default)]
    memory: bool,
    /// Have the kernel put packets into their frames, without a copy of this program: of one file that is not
    /// compressed. It takes longer.
    #[schemars(with = "Option<bool>", extend("default" = false))]
    zero_copy: Option<Spanned<bool>>,
    /// Hand packets out when their times come: 1.0 in real time, 2.0 twice as fast.
    #[schemars(with = "Option<f64>", extend("exclusiveMinimum" = 0))]
    pace: Option<Spanned<f64>>,
    /// The first captured time that is received.
    #[serde(default)]
    #[schemars(schema_with = "time_schema")]
    from: Option<Spanned<Value>>,
    /// The first captured time after those that are received.
    #[serde(default)]
    #[schemars(schema_with = "time_schema")]
    to: Option<Spanned<Value>>,
    /// A filter in libpcap's language that received packets match.
    #[schemars(with = "Option<String>")]
    filter: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OutputOptions {
    /// A file or a pipe, whose name determines the format: .pcap, .pcapng, .pcap.gz or .pcapng.gz;
    /// or - for standard output, in pcap; or a connection, in pcapng: tcp://HOST:PORT, or
    /// tcp://HOST:PORT?listen.
    #[schemars(with = "String")]
    capture: Spanned<String>,
    /// Write packets from their frames, without a copy of this program; not into a compressed file.
    #[schemars(with = "Option<bool>", extend("default" = false))]
    zero_copy: Option<Spanned<bool>>,
}

/// A time in the form of RFC 3339, or seconds since 1970.
fn time_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["string", "number"] })
}

/// An input that reads captures.
struct CaptureSource {
    origin: Origin,
    what: String,
    form: Option<String>,
    in_memory: bool,
    zero_copy: bool,
    passes: u64,
    pace: Option<Pace>,
    times: TimeRange,
    filter: Option<Filter>,
}

fn build_input(section: &Section<'_>) -> Result<Box<dyn InputBlueprint>, Vec<SourceError>> {
    let options: InputOptions = section.parse()?;
    let mut errors = Vec::new();
    let times = time_range(section, &options, &mut errors);
    let filter = options.filter.as_ref();
    let filter = filter.and_then(|text| Filter::of_option(section, text, &mut errors));
    let filtered = options.filter.is_some();
    let InputOptions { capture, r#loop: passes, memory: in_memory, zero_copy, pace, .. } = options;
    let pace = Pace::of_option(section, pace, &mut errors);
    let other = passes.as_ref().filter(|passes| *passes.get_ref() != 1).map(Spanned::span);
    let Found { origin, what, form } = find(section, capture, in_memory, other, &mut errors);
    let passes = passes.map_or(1, Spanned::into_inner);
    let zero_copy = zero_copy.filter(|zero_copy| *zero_copy.get_ref());
    if let Some(said) = zero_copy.as_ref().filter(|_| errors.is_empty()) {
        let keys = [("memory", in_memory), ("filter", filtered)];
        errors.extend(check_zero_copy(section, said.span(), (&origin, form.as_deref()), &keys));
    }
    let zero_copy = zero_copy.is_some();
    let source =
        CaptureSource { origin, what, form, in_memory, zero_copy, passes, pace, times, filter };
    if errors.is_empty() { Ok(Box::new(source)) } else { Err(errors) }
}

/// Why 'zero_copy' is no option of a compressed file.
const COMPRESSED: &str = "packets of a compressed file are copied";

fn is_compressed(form: Option<&str>) -> bool {
    form.is_some_and(|form| form.contains("gzip"))
}

/// What keeps packets of `origin`, of this form, from being received without a copy, as 'zero_copy' at `span` wants:
/// what they come from, or another key that is set.
fn check_zero_copy(
    section: &Section<'_>,
    span: Range<usize>,
    (origin, form): (&Origin, Option<&str>),
    keys: &[(&str, bool)],
) -> Option<SourceError> {
    let is_one = matches!(origin, Origin::Files(files) if files.paths().len() == 1);
    let message = if let Some((key, _)) = keys.iter().find(|(_, is_set)| *is_set) {
        format!("with '{key}', packets are copied")
    } else if !is_one || form.is_none() {
        "'zero_copy' is for one file".into()
    } else if is_compressed(form) {
        COMPRESSED.into()
    } else {
        return None;
    };
    let expected =
        "one capture that is not compressed, without 'memory' and 'filter'; or no 'zero_copy'";
    Some(section.error(span, message, expected))
}

/// The range of times between `from` and `to`.
fn time_range(
    section: &Section<'_>,
    options: &InputOptions,
    errors: &mut Vec<SourceError>,
) -> TimeRange {
    let mut time = |value: &Option<Spanned<Value>>| {
        let value = value.as_ref()?;
        let text = match value.get_ref() {
            Value::String(text) => Some(text.clone()),
            // TOML has times of its own, and writes them as RFC 3339 does.
            Value::Datetime(time) => Some(time.to_string()),
            Value::Integer(seconds) => Some(seconds.to_string()),
            Value::Float(seconds) => Some(seconds.to_string()),
            _ => None,
        };
        let time = text.and_then(|text| parse_time(&text));
        if time.is_none() {
            errors.push(section.error(value.span(), "bad time", TIME));
        }
        time
    };
    let times = TimeRange { from: time(&options.from), to: time(&options.to) };
    if times.is_empty()
        && let Some(to) = &options.to
    {
        errors.push(section.error(to.span(), "'to' is not after 'from'", "a later time"));
    }
    times
}

impl PortBlueprint for CaptureSource {
    fn describe(&self) -> String {
        self.what.clone()
    }

    fn title(&self) -> String {
        format!("capture {}", self.what)
    }

    fn is_same(&self, other: &dyn PortBlueprint) -> bool {
        other.downcast::<Self>().is_some_and(|other| {
            self.origin.is_same(&other.origin)
                && self.in_memory == other.in_memory
                && self.zero_copy == other.zero_copy
                && self.passes == other.passes
                && self.pace == other.pace
                && self.times == other.times
                && self.filter == other.filter
        })
    }

    fn mode(&self) -> Option<String> {
        self.mode_with(self.zero_copy)
    }
}

impl CaptureSource {
    /// How packets are received, by copies or with none.
    fn mode_with(&self, zero_copy: bool) -> Option<String> {
        let in_memory = self.in_memory.then(|| "in memory".to_owned());
        let zero_copy = zero_copy.then(|| "zero copy".to_owned());
        let pace = self.pace.map(|pace| pace.to_string());
        let parts = [self.form.clone(), in_memory, zero_copy, pace].into_iter().flatten();
        let parts: Vec<_> = parts.collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

impl InputBlueprint for CaptureSource {
    fn open(&self, opening: &InputOpening<'_>) -> Result<Opened<dyn Input>, IoError> {
        let overrides = opening.overrides;
        let passes = overrides.passes.unwrap_or(self.passes);
        let filter = overrides.filter.as_ref().or(self.filter.as_ref()).cloned();
        let selection = Selection { times: self.times.replaced_by(overrides.times), filter };
        if let (Origin::Files(files), true) = (&self.origin, self.zero_copy)
            && let Some(path) = files.paths().next()
        {
            if selection.filter.is_none() {
                let input = DirectInput::open(path, selection.times, passes)?;
                return Ok(Opened::single(Box::new(input), self.mode()));
            }
            log::warn!("{}: with a filter, packets are copied", path.display());
        }
        let records = match &self.origin {
            Origin::Files(files) => Records::open(files)?,
            Origin::Peer(peer) => Records::arriving(peer.path(), peer.sender(opening.stop)?),
        };
        let input: Box<dyn Input> = if self.in_memory {
            Box::new(MemoryInput::over(records, selection, passes))
        } else {
            Box::new(CaptureInput::over(records, selection, passes))
        };
        Ok(Opened::single(input, self.mode_with(false)))
    }

    fn times(&self) -> Option<TimeRange> {
        Some(self.times)
    }

    fn pace(&self) -> Option<Pace> {
        self.pace
    }

    fn can_filter(&self) -> bool {
        true
    }

    fn can_repeat(&self, passes: u64) -> bool {
        let is_file = |path: &Path| path.metadata().is_ok_and(|file| file.is_file());
        let is_of_files = match &self.origin {
            Origin::Files(files) => files.paths().all(is_file),
            Origin::Peer(_) => false,
        };
        passes == 1 || self.in_memory || is_of_files
    }
}

impl Origin {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Files(files), Self::Files(others)) => files.paths().eq(others.paths()),
            (Self::Peer(peer), Self::Peer(other)) => peer == other,
            _ => false,
        }
    }
}

/// An output that writes a capture.
#[derive(PartialEq)]
struct CaptureTarget {
    to: Destination,
    zero_copy: bool,
}

#[derive(PartialEq)]
enum Destination {
    File(PathBuf),
    Peer(Peer),
}

fn build_output(section: &Section<'_>) -> Result<Box<dyn OutputBlueprint>, Vec<SourceError>> {
    let OutputOptions { capture, zero_copy } = section.parse()?;
    let (name, span) = (&**capture.get_ref(), capture.span());
    let said = zero_copy.filter(|zero_copy| *zero_copy.get_ref()).map(|said| said.span());
    let zero_copy = said.is_some();
    if Endpoint::is_meant(name) {
        let peer = Peer::parse(section, name, span).map_err(|error| vec![error])?;
        return Ok(Box::new(CaptureTarget { to: Destination::Peer(peer), zero_copy }));
    }
    let path = if name == STANDARD { STANDARD_OUTPUT.into() } else { section.resolve(name) };
    section.writes(&path, span.clone());
    let unknown =
        || CaptureOutput::form(&path).is_none().then_some(("unknown capture format", NAMES));
    if let Some((message, expected)) = misplaced(&path).or_else(unknown) {
        return Err(vec![section.error(span, message, expected)]);
    }
    if let Some(said) = said
        && is_compressed(CaptureOutput::form(&path).as_deref())
    {
        let expected = "a capture that is not compressed, or no 'zero_copy'";
        return Err(vec![section.error(said, COMPRESSED, expected)]);
    }
    Ok(Box::new(CaptureTarget { to: Destination::File(path), zero_copy }))
}

impl PortBlueprint for CaptureTarget {
    fn describe(&self) -> String {
        match &self.to {
            Destination::File(path) => path.display().to_string(),
            Destination::Peer(peer) => peer.to_string(),
        }
    }

    fn title(&self) -> String {
        format!("capture {}", self.describe())
    }

    fn is_same(&self, other: &dyn PortBlueprint) -> bool {
        other.downcast() == Some(self)
    }

    fn mode(&self) -> Option<String> {
        let form = match &self.to {
            Destination::File(path) => CaptureOutput::form(path)?,
            Destination::Peer(_) => "pcapng".into(),
        };
        Some(if self.zero_copy { format!("{form}, zero copy") } else { form })
    }
}

impl OutputBlueprint for CaptureTarget {
    fn open(&self, opening: &OutputOpening<'_>) -> Result<Opened<dyn Output>, IoError> {
        let mut output = match &self.to {
            Destination::File(path) => CaptureOutput::claim(path, opening.stop)?,
            Destination::Peer(peer) => {
                let connection = peer.receiver(opening.stop)?;
                CaptureOutput::connected(&peer.path(), connection, opening.stop)
            }
        };
        if self.zero_copy {
            output = output.without_copies();
        }
        Ok(Opened::single(Box::new(output), self.mode()))
    }
}
