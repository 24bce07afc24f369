//! `thalweg top`: the rates of a run by port, NF, worker and packet type, each second.

mod sample;
mod screen;
mod table;

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use thalweg_api::axum::http::Method;
use thalweg_api::{Client, ClientError, Folders};
use thalweg_source::visible;

use crate::args;
use crate::ctl::find;
use crate::ctl::{JSON, failure, refused};
use crate::errors::Failure;
use crate::terminal;

use sample::{Rates, Sample};
use screen::{Keys, Screen, Woken};

/// Between two reports.
const PERIOD: Duration = Duration::from_secs(1);
/// How long a run may take for an answer: longer than its own limit for a report.
const PATIENCE: Duration = Duration::from_secs(5);

/// Shows the rates of a run.
pub fn top(options: &args::Top) -> Result<(), Failure> {
    let folders = Folders::from_environment();
    let path = find::socket(&folders, options.socket.as_ref())?;
    let run = Run { client: Client::new(&path, PATIENCE), folders };
    match options.count {
        None if io::stdout().is_terminal() => show(&run),
        count => print(&run, count.unwrap_or(1)),
    }
}

/// What of the status is shown.
#[derive(Deserialize)]
struct Status {
    name: String,
    pid: u32,
}

/// A run, which answers by its control socket.
struct Run {
    client: Client,
    folders: Folders,
}

impl Run {
    /// Its name and its process.
    fn name(&self) -> Result<String, Failure> {
        let Status { name, pid } = self.get("/v1/status")?;
        Ok(format!("{} (process {pid})", visible(&name)))
    }

    fn get<T: DeserializeOwned>(&self, target: &str) -> Result<T, Failure> {
        self.ask(target).map_err(|e| match e {
            Unanswered::Ended(e) | Unanswered::Failed(e) => e,
        })
    }

    fn ask<T: DeserializeOwned>(&self, target: &str) -> Result<T, Unanswered> {
        let answer = self.client.request(Method::GET, target, JSON, None).map_err(|e| {
            let has_ended =
                matches!(&e, ClientError::Connect { source, .. } if find::is_dead(source));
            let failure = failure(&self.folders, e);
            if has_ended { Unanswered::Ended(failure) } else { Unanswered::Failed(failure) }
        })?;
        if !answer.status.is_success() {
            return Err(Unanswered::Failed(refused(&answer)));
        }
        let read = serde_json::from_slice(&answer.body);
        let unknown = |e| format!("the answer is not one of this version: {e}");
        read.map_err(|e| Unanswered::Failed(Failure::Run(unknown(e))))
    }
}

/// Why there is no answer.
enum Unanswered {
    /// The run does not listen any more.
    Ended(Failure),
    /// It does not answer this time.
    Failed(Failure),
}

/// Prints the rates of `count` seconds.
fn print(run: &Run, count: u32) -> Result<(), Failure> {
    let name = run.name()?;
    let keys = Keys::take(false)?;
    let mut before: Sample = run.get("/v1/report")?;
    for number in 0..count {
        let end = Instant::now() + PERIOD;
        loop {
            match keys.wait(end)? {
                Woken::Time => break,
                Woken::Quit => return Ok(()),
                Woken::Resized => {}
            }
        }
        let now: Sample = run.get("/v1/report")?;
        let text =
            table::text(&name, &Rates::between(&before, &now), terminal::columns(&io::stdout()));
        let gap = if number == 0 { "" } else { "\n" };
        io::stdout().write_all(format!("{gap}{text}\n").as_bytes())?;
        before = now;
    }
    Ok(())
}

/// Shows the rates on the terminal until the user or the run ends.
fn show(run: &Run) -> Result<(), Failure> {
    let mut name = run.name()?;
    let mut before: Sample = run.get("/v1/report")?;
    // Before the screen: a signal must not end the program without giving it back.
    let keys = Keys::take(io::stdin().is_terminal())?;
    let screen = Screen::take()?;
    let mut latest: Option<Sample> = None;
    let mut trouble = None;
    let mut end = Instant::now() + PERIOD;
    loop {
        draw(&name, &before, latest.as_ref(), trouble.as_deref())?;
        match keys.wait(end)? {
            Woken::Quit => return Ok(()),
            Woken::Resized => continue,
            Woken::Time => end = Instant::now() + PERIOD,
        }
        match run.ask::<Sample>("/v1/report") {
            Ok(now) => {
                let last = latest.as_ref().unwrap_or(&before);
                if now.duration_s < last.duration_s {
                    // Another run has taken the place of the one before.
                    name = run.name()?;
                    (before, latest) = (now, None);
                } else if let Some(last) = latest.replace(now) {
                    before = last;
                }
                trouble = None;
            }
            Err(Unanswered::Ended(_)) => {
                drop(screen);
                writeln!(io::stdout(), "{name} has ended")?;
                return Ok(());
            }
            // It may answer the next time: an output may block it.
            Err(Unanswered::Failed(failure)) => trouble = Some(failure.to_string()),
        }
    }
}

fn draw(
    name: &str,
    before: &Sample,
    now: Option<&Sample>,
    trouble: Option<&str>,
) -> io::Result<()> {
    let columns = terminal::columns(&io::stdout());
    let text = match now {
        Some(now) => table::text(name, &Rates::between(before, now), columns),
        None => name.to_owned(),
    };
    let trouble = trouble.map(|text| format!("{text}\n")).unwrap_or_default();
    Screen::draw(&format!("{trouble}{text}"))
}
