//! `thalweg ctl trace`: prints traces of packets of a run as they arrive.

use std::io::{self, Write};
use std::ops::ControlFlow;

use serde::Deserialize;
use thalweg_api::{Answer, Client, ClientError, EventReader};
use thalweg_engine::Trace;
use thalweg_source::{counted, visible_lines};

use super::Sent;
use crate::args;
use crate::errors::Failure;

/// The data of the last event.
#[derive(Debug, Deserialize)]
struct End {
    traced: u64,
    passed_over: u64,
    because: String,
}

/// Reads traces and prints them, as JSON lines if `json`; returns the answer without its body, or
/// with it if it is a refusal.
pub fn print(
    client: &Client,
    sent: &Sent,
    options: &args::CtlTrace,
    json: bool,
) -> Result<Result<Answer, ClientError>, Failure> {
    let (mut events, mut printed) =
        (EventReader::default(), Printed { json, ..Printed::default() });
    let mut failure = None;
    let answer =
        client.stream(&sent.target, sent.accept, |bytes| match printed.read(&mut events, bytes) {
            Ok(()) => ControlFlow::Continue(()),
            Err(e) => {
                failure = Some(e);
                ControlFlow::Break(())
            }
        });
    match (answer, failure) {
        (_, Some(failure)) => Err(failure.into()),
        (Ok(answer), None) if answer.status.is_success() => {
            printed.judge(options)?;
            Ok(Ok(answer))
        }
        (answer, None) => Ok(answer),
    }
}

/// What is printed.
#[derive(Default)]
struct Printed {
    json: bool,
    traces: u64,
    end: Option<End>,
}

impl Printed {
    /// Prints the traces that `bytes` complete.
    fn read(&mut self, events: &mut EventReader, bytes: &[u8]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        for (name, data) in events.read(bytes).map_err(io::Error::other)? {
            let wrong = |e| io::Error::other(format!("the run answers with another document: {e}"));
            match &*name {
                "trace" if self.json => writeln!(out, "{data}")?,
                "trace" => {
                    let trace: Trace = serde_json::from_str(&data).map_err(wrong)?;
                    let separator = if self.traces > 0 { "\n" } else { "" };
                    write!(out, "{separator}{}", visible_lines(&trace.to_string()))?;
                }
                "end" => self.end = Some(serde_json::from_str(&data).map_err(wrong)?),
                // Later versions may have more events.
                _ => continue,
            }
            self.traces += u64::from(name == "trace");
        }
        out.flush()
    }

    /// Reports what is missing.
    fn judge(&self, options: &args::CtlTrace) -> Result<(), Failure> {
        let Some(End { traced, passed_over, because }) = &self.end else {
            return Err(Failure::Run("the run ended before the traces were complete".into()));
        };
        let until = match &**because {
            "run" => "before the run ended".to_owned(),
            _ => format!("within {} s", options.seconds),
        };
        if *passed_over > 0 {
            let packets = counted(*passed_over, "packet");
            log::warn!("{packets} that matched passed over, because this reader was too slow");
        }
        if *traced == 0 {
            return Err(Failure::Run(format!("no packet matched {until}")));
        }
        if *traced < u64::from(options.count) {
            log::warn!("{traced} of {} matched {until}", counted(options.count, "packet"));
        }
        Ok(())
    }
}
