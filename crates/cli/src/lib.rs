//! The `thalweg` program: reads its arguments, calls the crates that do the
//! work, and shows their results.
//!
//! Data goes to standard output, messages to standard error.
//!
//! A program with a network function or a port of one's own calls [`main`] with
//! [`built_in_kinds`] and its own kind; see `examples/own-nf` and `examples/own-port`.

mod args;
mod check;
mod control;
mod ctl;
mod devices;
mod doctor;
mod errors;
mod generate;
mod kinds;
mod observed;
mod options;
mod place;
mod ports;
mod profile;
mod progress;
mod registry;
mod report;
mod reports;
mod run;
mod sandbox;
mod schema;
mod service;
mod shorthand;
mod signals;
mod simulate;
mod stats;
mod summary;
mod terminal;
mod top;
mod trace;
mod units;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use args::{Arguments, Command};
use errors::Failure;
use thalweg_chain::Kinds;
use thalweg_classify::secret;
use thalweg_cpu::Isa;
use thalweg_source::{is_visible, message_lines, shortened};

pub use registry::built_in_kinds;

/// The most characters of a line about arguments, which may be long.
const LONGEST_LINE: usize = 1000;

/// Checks the variables that the data path reads.
fn check_environment() -> Result<(), Failure> {
    Isa::from_environment().map_err(|e| Failure::Usage(e.to_string()))?;
    secret::check_environment().map_err(|e| Failure::Usage(e.to_string()))
}

/// Runs the program, whose chains may have ports and NFs of `kinds`; returns its exit code.
pub fn main(kinds: &Kinds) -> ExitCode {
    main_with(kinds, std::env::args_os())
}

/// As [`main`], with these arguments, of which the first is the name of the program.
pub fn main_with(kinds: &Kinds, arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = Arguments::try_parse_from(arguments).unwrap_or_else(|e| refuse(&e));
    start_log(&arguments);
    signals::survive_file_limit();
    if let Err(failure) = check_environment() {
        failure.show(false);
        return ExitCode::from(failure.exit_code());
    }
    let json = arguments.command.wants_json();
    let outcome = match &arguments.command {
        Command::Run(options) => run::run(options, kinds, arguments.quiet),
        Command::Ids(options) => shorthand::run(options, kinds, arguments.quiet),
        Command::Flows(options) => shorthand::run(options, kinds, arguments.quiet),
        Command::Assets(options) => shorthand::run(options, kinds, arguments.quiet),
        Command::Nat(options) => shorthand::run(options, kinds, arguments.quiet),
        Command::Check(options) => check::check(options, kinds),
        Command::Ctl(options) => ctl::ctl(options),
        Command::Top(options) => top::top(options),
        Command::Gen(options) => generate::generate(options),
        Command::Trace(options) => trace::trace(options, kinds),
        Command::Nf(options) => kinds::show_kinds(options, &kinds.nfs),
        Command::Port(options) => ports::show_kinds(options, &kinds.ports),
        Command::Profile(options) => profile::profile(options, kinds, arguments.quiet),
        Command::Sim(options) => simulate::simulate(options, arguments.quiet),
        Command::Schema(options) => schema::schema(options),
        Command::Doctor(options) => doctor::doctor(options),
        Command::Devices(options) => devices::list(options),
        Command::Place(options) => place::place(options, kinds, arguments.quiet),
        Command::Completions { shell } => completions(*shell),
        Command::Man { command } => man(command.as_deref()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of our output has closed it: the output ends early, without an error.
        Err(Failure::Output(e)) if e.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            failure.show(json);
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Ends the program with the help that was requested, or with what is wrong about the arguments.
fn refuse(error: &clap::Error) -> ! {
    let text = error.to_string();
    let shown: Vec<_> = text.lines().map(|line| shortened(line, LONGEST_LINE)).collect();
    // On a terminal, clap prints its own colours, and those of an argument too.
    let is_plain = |argument: OsString| argument.to_string_lossy().chars().all(is_visible);
    let is_short = text.lines().eq(shown.iter().map(|line| &**line));
    if !error.use_stderr() || is_short && std::env::args_os().all(is_plain) {
        error.exit();
    }
    eprintln!("{}", shown.join("\n"));
    std::process::exit(error.exit_code());
}

fn start_log(arguments: &Arguments) {
    let level = match (arguments.quiet, arguments.verbose) {
        (true, _) => log::LevelFilter::Error,
        (false, 0) => log::LevelFilter::Warn,
        (false, 1) => log::LevelFilter::Info,
        (false, 2) => log::LevelFilter::Debug,
        (false, _) => log::LevelFilter::Trace,
    };
    let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let style = if colour { env_logger::WriteStyle::Always } else { env_logger::WriteStyle::Never };
    // All messages pass the logger, so that a request can raise the level of a run.
    env_logger::Builder::new()
        .filter_level(log::LevelFilter::Trace)
        .target(env_logger::Target::Pipe(Box::new(terminal::Messages)))
        .write_style(style)
        .format(|out, record| {
            let style = out.default_level_style(record.level());
            let level = record.level().as_str().to_lowercase();
            writeln!(out, "{style}{level}{style:#}: {}", message_lines(&record.args().to_string()))
        })
        .init();
    log::set_max_level(level);
    // Fails only when a handler is set already, and this is the only place that sets one.
    let _ = miette::set_hook(Box::new(move |_| errors::handler(colour)));
}

fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "thalweg", &mut script);
    Ok(io::stdout().write_all(&script)?)
}

fn man(command: Option<&str>) -> Result<(), Failure> {
    let mut page = Arguments::command();
    page.build();
    if let Some(name) = command {
        page = page
            .find_subcommand(name)
            .cloned()
            .ok_or_else(|| Failure::Usage(format!("unknown command '{name}'")))?;
    }
    Ok(clap_mangen::Man::new(page).render(&mut io::stdout())?)
}
