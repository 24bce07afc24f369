//! The cores that workers and pinned NFs run on.

use std::fmt;
use std::ops::Range;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use thalweg_cpu::cores;
use thalweg_source::{Passage, Source, SourceError};
use toml::Spanned;

use super::file::ChainFile;
use crate::workers::MAX_WORKERS;

/// What is expected, for messages.
pub(super) const EXPECTED: &str =
    "numbers and ranges of cores, such as \"2-3,8\" or [2, 3, \"8-11\"]";

/// The value of `cores`: one text, or a list of numbers and texts.
#[derive(Debug)]
pub(super) enum Cores {
    One(String),
    List(Vec<Spanned<Entry>>),
}

/// An entry of the list, as a text.
#[derive(Debug)]
pub(super) struct Entry(String);

impl Cores {
    /// Each part with its place; `whole` is that of the value.
    fn parts(&self, whole: Range<usize>) -> Vec<(Range<usize>, &str)> {
        match self {
            Self::One(text) => vec![(whole, text)],
            Self::List(list) => list.iter().map(|part| (part.span(), &*part.get_ref().0)).collect(),
        }
    }

    /// The cores, in their order, as far as they are given well.
    pub(super) fn numbers(&self) -> Vec<u32> {
        let parts = self.parts(0..0).into_iter();
        parts.filter_map(|(_, text)| cores::parse(text).ok()).flatten().take(MAX_WORKERS).collect()
    }
}

impl<'de> Deserialize<'de> for Cores {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CoresVisitor)
    }
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(EntryVisitor)
    }
}

struct CoresVisitor;

impl<'de> Visitor<'de> for CoresVisitor {
    type Value = Cores;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTED)
    }

    fn visit_i64<E>(self, number: i64) -> Result<Cores, E> {
        Ok(Cores::One(number.to_string()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Cores, E> {
        Ok(Cores::One(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Cores, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = list.next_element()? {
            entries.push(entry);
        }
        Ok(Cores::List(entries))
    }
}

struct EntryVisitor;

impl Visitor<'_> for EntryVisitor {
    type Value = Entry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the number of a core, or a range such as \"8-11\"")
    }

    fn visit_i64<E>(self, number: i64) -> Result<Entry, E> {
        Ok(Entry(number.to_string()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Entry, E> {
        Ok(Entry(text.to_owned()))
    }
}

/// What is found about the cores.
pub(super) struct Findings<'a> {
    /// Warnings.
    pub(super) notes: &'a mut Vec<SourceError>,
    pub(super) errors: &'a mut Vec<SourceError>,
}

/// A thread that a core is for.
struct Thread {
    what: String,
    core: u32,
    at: Passage,
}

/// Checks the cores of workers and pinned NFs; returns those of the workers, in their order. With
/// `any_core`, those of another machine are accepted.
pub(super) fn check(
    file: &ChainFile<'_>,
    workers: usize,
    any_core: bool,
    findings: &mut Findings<'_>,
) -> Vec<u32> {
    let before = findings.errors.len();
    let mut threads = of_workers(file, findings.errors);
    let found: Vec<_> = threads.iter().map(|thread| thread.core).collect();
    if let Some(cores) = &file.run.cores
        && findings.errors.len() == before
    {
        check_number(&file.run.source, cores, (found.len(), workers), findings);
    }
    threads.truncate(workers);
    threads.extend(file.nfs.iter().filter_map(|nf| {
        let core = nf.served.core.as_ref()?;
        let at = Passage::new(&nf.source, core.span());
        Some(Thread { what: format!("NF '{}'", nf.name), core: *core.get_ref(), at })
    }));
    if !any_core {
        threads.iter().filter_map(not_permitted).for_each(|error| findings.errors.push(error));
    }
    for (at, thread) in threads.iter().enumerate() {
        if let Some(other) = threads[..at].iter().find(|other| other.core == thread.core) {
            let message = format!("{} and {} share core {}", other.what, thread.what, thread.core);
            findings.notes.push(thread.at.error(message, "a core for each thread"));
        }
    }
    found
}

/// The cores of the workers, as the file gives them.
fn of_workers(file: &ChainFile<'_>, errors: &mut Vec<SourceError>) -> Vec<Thread> {
    let (source, mut threads) = (&file.run.source, Vec::new());
    let Some(value) = &file.run.cores else { return threads };
    for (span, text) in value.get_ref().parts(value.span()) {
        match cores::parse(text) {
            Ok(cores) => {
                for core in cores {
                    let what = format!("worker {}", threads.len());
                    threads.push(Thread { what, core, at: Passage::new(source, span.clone()) });
                }
            }
            Err(e) => errors.push(source.error(span.clone(), e.to_string(), EXPECTED)),
        }
        if threads.len() > MAX_WORKERS {
            let message = format!("more than {MAX_WORKERS} cores");
            errors.push(source.error(span, message, "at most one for each worker"));
            break;
        }
    }
    threads
}

/// Checks that there is a core for each worker.
fn check_number(
    source: &Source,
    value: &Spanned<Cores>,
    (cores, workers): (usize, usize),
    findings: &mut Findings<'_>,
) {
    let [of_cores, of_workers] = [(cores, "core"), (workers, "worker")]
        .map(|(number, what)| thalweg_source::counted(number, what));
    let message = format!("{of_cores} for {of_workers}");
    if cores < workers {
        let error = source.error(value.span(), message, format!("{workers}, one for each worker"));
        findings.errors.push(error);
    } else if cores > workers {
        let expected = "a worker for each, such as with workers = \"auto\"";
        findings.notes.push(source.error(value.span(), message, expected));
    }
}

/// The mistake of a thread that cannot run on its core.
fn not_permitted(thread: &Thread) -> Option<SourceError> {
    let permitted = cores::permitted();
    // Where the system does not report them, a run will find out.
    if permitted.is_empty() || permitted.contains(&thread.core) {
        return None;
    }
    let online = cores::online();
    let message = if online.is_empty() || online.contains(&thread.core) {
        format!("this program may not use core {}", thread.core)
    } else {
        format!("this machine has no core {}", thread.core)
    };
    let expected = format!("cores of {}, which it may use", cores::as_text(permitted));
    Some(thread.at.error(message, expected))
}
