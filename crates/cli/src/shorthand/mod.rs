//! Commands that need no chain file: each stands for one, which it loads from memory or prints.

mod alerts;
mod flows;
mod hosts;
mod nat;
mod relay;
mod text;
mod traffic;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;

use thalweg_chain::{Kinds, Plan, PlanOptions, Workers};
use thalweg_engine::{Control, Report, RunOptions};
use thalweg_io::STANDARD_OUTPUT;
use thalweg_packet::MAX_FRAME_SIZE;
use thalweg_source::{PatientWriter, Source, visible};

use crate::args::Traffic;
use crate::control::{self, Claimed, Title};
use crate::errors::Failure;
use crate::observed::Observing;
use crate::progress::Shown;
use crate::report::write_json;
use crate::run::{conclude, execute};
use crate::sandbox::{self, OwnFiles};
use crate::service::Service;
use crate::terminal::{self, Messages};
use crate::{signals, summary};

use relay::{AsTheyAre, Relay, Show};
use text::{Argument, ChainText, is_of_command};
use traffic::is_standard;

/// A command that needs no chain file.
pub trait Shorthand {
    /// Its name, as it is typed.
    fn name(&self) -> &'static str;

    /// Its packets.
    fn traffic(&self) -> &Traffic;

    /// The file for the packets that leave the chain.
    fn write(&self) -> Option<&Path>;

    /// The option that names a file for its records, and that file; `None` if it has no records.
    fn records(&self) -> Option<(&'static str, Option<&Path>)>;

    /// The names of its NFs, in the order in which packets pass them.
    fn nfs(&self) -> &'static [&'static str];

    /// Adds the sections of its NFs, which write `records`.
    ///
    /// # Errors
    /// Arguments that no chain file can hold.
    fn add_nfs(&self, chain: &mut ChainText, records: Records) -> Result<(), Failure>;

    /// Whether its records are shown as the lines of JSON that they are.
    fn shows_json(&self) -> bool;

    /// How its records are shown on standard output otherwise.
    fn show(&self) -> Box<dyn Show>;

    /// Whether the report of the run is its result, as JSON.
    fn reports_json(&self) -> bool {
        false
    }
}

/// Where an NF writes its records.
pub struct Records {
    path: Argument,
    /// A comment on the path.
    comment: &'static str,
}

impl Records {
    /// Adds the option with the path.
    fn add(&self, chain: &mut ChainText, key: &str) {
        if !self.comment.is_empty() {
            chain.comment(self.comment);
        }
        chain.take(key, &self.path);
    }
}

/// Runs a command, or prints its chain file.
pub fn run(command: &dyn Shorthand, kinds: &Kinds, quiet: bool) -> Result<(), Failure> {
    check_standard_output(command)?;
    if command.traffic().print_chain {
        return print(command, kinds);
    }
    let control = Arc::new(Control::default());
    signals::steer(control.clone()).map_err(|e| Failure::Run(format!("signal handlers: {e}")))?;
    let relay = match command.records() {
        Some((_, file)) if file.is_none_or(is_standard) => {
            let as_json = command.shows_json() || file.is_some();
            let show = if as_json { Box::new(AsTheyAre) } else { command.show() };
            Some(Relay::start(show, control.clone())?)
        }
        _ => None,
    };
    let is_drawn_over = relay.is_some() && io::stdout().is_terminal();
    let outcome = execute_chain(command, kinds, relay.as_ref(), &control, quiet || is_drawn_over);
    let pipe = relay.as_ref().map(Relay::path);
    let shown = relay.map_or(Ok(()), |relay| relay.finish(outcome.is_ok()));
    let mut report = outcome?;
    if let (Some(pipe), Err(_)) = (&pipe, &shown) {
        // An NF that waited for the relay may have failed with it, which is one failure.
        report.failures.retain(|failure| !failure.contains(pipe.as_str()));
    }
    let reported = show_report(command, &report, &control, quiet);
    let concluded = conclude(&report);
    if report.warnings.iter().any(|warning| warning.contains("[memory]")) {
        log::warn!("--print-chain prints a chain file of this command for such settings");
    }
    concluded?;
    reported?;
    Ok(shown?)
}

/// Checks that not both packets and text go to standard output.
fn check_standard_output(command: &dyn Shorthand) -> Result<(), Failure> {
    if !command.write().is_some_and(is_standard) {
        return Ok(());
    }
    let (what, remedy) = match command.records() {
        Some((option, file)) if file.is_none_or(is_standard) => {
            ("the records go to standard output", format!("{option} FILE for the records"))
        }
        _ if command.reports_json() => {
            ("the report goes to standard output", "no --json, or -w FILE".into())
        }
        _ => return Ok(()),
    };
    Err(Failure::Usage(format!("-w -: {what}; expected {remedy}")))
}

/// Prints the chain file, which must be one that `thalweg check` accepts.
fn print(command: &dyn Shorthand, kinds: &Kinds) -> Result<(), Failure> {
    let chain = chain_file(command, None)?;
    let options = PlanOptions { dry_run: true, any_interface: true, ..PlanOptions::default() };
    load(&chain, kinds, command.traffic(), options)?;
    Ok(io::stdout().write_all(chain.as_str().as_bytes())?)
}

fn execute_chain(
    command: &dyn Shorthand,
    kinds: &Kinds,
    relay: Option<&Relay>,
    control: &Arc<Control>,
    quiet: bool,
) -> Result<Report, Failure> {
    let traffic = command.traffic();
    let chain = chain_file(command, relay.map(Relay::path))?;
    let plan = load(&chain, kinds, traffic, PlanOptions::default())?;
    let title = Title::of_command(command.name(), typed());
    let claimed = control::claim(&traffic.control, title, &plan)?;
    let socket = claimed.as_ref().and_then(Claimed::socket);
    let own = OwnFiles::of(&traffic.observed);
    let sandbox = sandbox::enter(!traffic.no_sandbox, &plan, own, socket)?;
    let options = RunOptions {
        duration: traffic.duration,
        count: traffic.count,
        confinement: sandbox::of_run(sandbox.as_ref()),
        ..RunOptions::default()
    };
    let observing = Observing::start(&traffic.observed, &plan, &options, control)?;
    let serve = |claimed: Claimed| claimed.serve(&plan, plan.workers, control.clone());
    let server = claimed.map(serve).transpose()?;
    let service = Service::start(control.clone());
    let progress = Shown::start(control.clone(), quiet);
    let outcome = execute(plan, &options, control);
    service.finish(outcome.is_ok());
    drop(progress);
    drop(server);
    let mut report = outcome.map_err(|failure| chain.refuse_port(failure))?;
    report.sandbox = sandbox.map(|sandbox| sandbox.report());
    observing.finish(&mut report);
    Ok(report)
}

/// Shows the report: on standard error, unless it is the command's result.
fn show_report(
    command: &dyn Shorthand,
    report: &Report,
    control: &Control,
    quiet: bool,
) -> Result<(), Failure> {
    let mut text = Vec::new();
    if command.reports_json() {
        write_json(&mut text, report)?;
        PatientWriter::stdout(control.stop_request())?.write_all(&text)?;
    } else if !quiet {
        summary::show(&mut text, report, terminal::columns(&io::stderr()))?;
        // A report that cannot be shown changes nothing about the run.
        let _ = Messages.write_all(&text);
    }
    Ok(())
}

fn load(
    chain: &ChainText,
    kinds: &Kinds,
    traffic: &Traffic,
    options: PlanOptions,
) -> Result<Plan, Failure> {
    let source = Source::new("", chain.as_str());
    let options = PlanOptions { strict: traffic.strict, ..options };
    let plan = Plan::of_text(&source, kinds, options).map_err(|all| chain.refuse(all))?;
    for warning in plan.warnings() {
        if is_of_command(&warning) {
            log::warn!("{}", chain.explain(&warning));
        } else {
            log::warn!("{warning}");
        }
    }
    Ok(plan)
}

/// The chain file that the command stands for; `pipe` is the path of its records instead of
/// standard output.
fn chain_file(command: &dyn Shorthand, pipe: Option<String>) -> Result<ChainText, Failure> {
    let (traffic, nfs) = (command.traffic(), command.nfs());
    let mut chain = ChainText::default();
    chain.comment(&typed());
    chain.comment("Paths are relative to the folder of this file.");
    if let Some(workers) = traffic.workers {
        chain.section("[run]", "");
        let number: toml::Value = match workers {
            Workers::Auto => "auto".into(),
            Workers::Number(number) => (number as i64).into(),
        };
        chain.set("workers", number, "");
    }
    chain.section("[memory]", "");
    chain.set("frame_size", MAX_FRAME_SIZE as i64, "captures may hold packets of several KiB");
    traffic::add(&mut chain, traffic, command.write(), nfs)?;
    command.add_nfs(&mut chain, records(command, pipe)?)?;
    chain.section("[[route]]", "");
    let path: Vec<_> = ["ingress"].iter().chain(nfs).chain(&["egress"]).collect();
    let path: toml::Value = path.into_iter().map(ToString::to_string).collect::<Vec<_>>().into();
    chain.set("path", path, "");
    Ok(chain)
}

/// Where the NFs of a command write: to the file of its option, or to standard output, by way of
/// `pipe` if there is one.
fn records(command: &dyn Shorthand, pipe: Option<String>) -> Result<Records, Failure> {
    if let Some((option, Some(file))) = command.records()
        && !is_standard(file)
    {
        return Ok(Records {
            path: Argument::of_path(option, file, STANDARD_OUTPUT)?,
            comment: "",
        });
    }
    let path = pipe.unwrap_or_else(|| STANDARD_OUTPUT.into());
    // A mistake at this path would be one of "standard output".
    let path = Argument::with_value("standard", "output", path);
    let comment = "Lines of JSON on standard output, ahead of the report; or a file of their own.";
    Ok(Records { path, comment })
}

/// The command as it was typed, without the request for its chain file.
pub fn typed() -> String {
    let arguments = std::env::args_os().skip(1).filter(|argument| argument != "--print-chain");
    let quoted = |argument: OsString| {
        let text = argument.to_string_lossy().into_owned();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=%+@".contains(c);
        let is_word = !text.is_empty() && text.chars().all(is_plain);
        if is_word { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
    };
    let words: Vec<_> = ["thalweg".to_owned()].into_iter().chain(arguments.map(quoted)).collect();
    visible(&words.join(" ")).into_owned()
}
