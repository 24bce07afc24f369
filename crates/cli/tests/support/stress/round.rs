//! A round: one run, its traffic, its reloads, its end, and what has to be true of it then.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process_group};
use serde_json::Value;

use super::chain::{Frame, Generation, Medium, input_name, rules, table};
use super::feed::Feed;
use super::ledger::Ledger;
use super::outcome::check;
use super::pipes::{Shared, open, read};
use super::random::Random;
use super::traffic::Traffic;
use super::waited::{Waited, shown};
use crate::support::{command, pipe, write};

/// How long a run may take to start, and a reload: a kernel is compiled.
const START: Duration = Duration::from_secs(120);

/// After how long an answer is late: what the run does then is kept for a failure.
const LATE: Duration = Duration::from_secs(20);

/// How runs end, in turn.
pub const ENDS: [&str; 4] = ["inputs closed", "SIGTERM", "ctl stop", "SIGKILL"];

/// What was done in rounds, for a summary.
#[derive(Debug, Default)]
pub struct Done {
    pub sent: u64,
    pub received: u64,
    pub arrived: u64,
    pub dropped: u64,
    pub bursts: u64,
    pub reloads: u64,
    pub refused: u64,
    /// By [`ENDS`].
    pub ends: [u64; 4],
    /// NFs of all generations on the processor, on `soft`, on other devices.
    pub spread: [usize; 3],
    /// Rounds with one, two and three lines.
    pub lines: [u64; 3],
    /// Rounds whose packets arrive in frames.
    pub zero_copy: u64,
}

/// A run, and its way of being driven.
struct Round<'a> {
    folder: &'a Path,
    frame: Frame,
    shared: &'a Shared,
    child: Child,
    random: Random,
    done: &'a mut Done,
}

/// Runs a round in `folder`, of which `random` decides everything; the devices of NFs are `devices`.
///
/// # Errors
/// What went wrong.
pub fn round(
    folder: &Path,
    mut random: Random,
    devices: &[String],
    done: &mut Done,
) -> Result<(), String> {
    let frame = Frame::random(&mut random, devices);
    let first = Generation::random(&mut random, &frame);
    write(folder, "drop.rules", &rules("drop"));
    write(folder, "alert.rules", &rules("alert"));
    write(folder, "table.txt", &table());
    write(folder, "chain.toml", &first.chain(&frame));
    if frame.medium == Medium::Pipes {
        (0..frame.inputs).for_each(|input| pipe(folder, &frame.medium.file(input_name(input))));
    }
    let is_zero_copy = matches!(frame.medium, Medium::Rings { is_zero_copy: true, .. });
    done.lines[frame.queues() - 1] += 1;
    done.zero_copy += u64::from(is_zero_copy);
    pipe(folder, "out.pcap");
    count_places(done, &first);
    let shared = Shared::new(Ledger::new(frame.streams(), first));
    let out = open(&folder.join("out.pcap"));
    let end = random.below(ENDS.len());
    let outcome = thread::scope(|scope| {
        scope.spawn(|| read(out, &shared));
        let child = start(folder, frame.workers);
        let shared = &shared;
        shared.process.store(child.id(), Ordering::Relaxed);
        let mut round = Round { folder, frame: frame.clone(), shared, child, random, done };
        let outcome = round.drive(end);
        if outcome.is_err() {
            write_threads(folder, round.child.id(), "threads");
        }
        // Whatever happened, its threads end.
        let _ = round.child.kill();
        let ended = round.child.wait();
        shared.over.store(true, Ordering::Release);
        outcome.and_then(|()| round.is_gone().map(|()| ended.expect("the run was started")))
    });
    let ledger = shared.ledger();
    if let Some(failure) = &ledger.failure {
        return Err(failure.clone());
    }
    let status = outcome?;
    done.sent += ledger.sent();
    done.arrived += ledger.arrived;
    done.ends[end] += 1;
    if ENDS[end] == "SIGKILL" {
        let is_killed = status.signal() == Some(Signal::KILL.as_raw());
        return if is_killed { Ok(()) } else { Err(format!("it ended before: {status}")) };
    }
    let text = |name| fs::read_to_string(folder.join(name)).unwrap_or_default();
    if !status.success() {
        return Err(format!("{status}: {}", text("error")));
    }
    let report: Value = serde_json::from_str(&text("report")).map_err(|e| e.to_string())?;
    let counts = check(&report, &frame, &ledger)?;
    done.received += counts.received;
    done.dropped += counts.dropped;
    Ok(())
}

/// Leaves a file with what each thread of a process does, with backtraces if the machine has a debugger: a run
/// that stands still seldom does so again.
fn write_threads(folder: &Path, process: u32, name: &str) {
    let mut file = File::create(folder.join(name)).expect("the folder takes a file");
    let _ = file.write_all(shown(process).as_bytes());
    let mut debugger = Command::new("timeout");
    debugger.args(["60", "gdb", "--batch", "-ex", "thread apply all backtrace", "--pid"]);
    let debugger = debugger.arg(process.to_string()).stdin(Stdio::null());
    let errors = file.try_clone().map_or_else(|_| Stdio::null(), Stdio::from);
    let _ = debugger.stdout(file).stderr(errors).status();
}

fn count_places(done: &mut Done, generation: &Generation) {
    done.spread.iter_mut().zip(generation.spread()).for_each(|(sum, more)| *sum += more);
}

/// Starts the run, in a group of its own.
fn start(folder: &Path, workers: usize) -> Child {
    let workers = workers.to_string();
    let run = ["run", "chain.toml", "--json", "--control=stress", "--workers", &workers];
    let file = |name| File::create(folder.join(name)).expect("the folder takes a file");
    let mut command = with_sockets(folder, &run);
    // PoCL's work-groups are threads: as many as there are processors, unless this sets more.
    command.env("POCL_MAX_PTHREAD_COUNT", "8").process_group(0).stdin(Stdio::null());
    command.stdout(file("report")).stderr(file("error")).spawn().expect("the program starts")
}

fn with_sockets(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = command(folder, arguments);
    command.env("THALWEG_RUNTIME_DIR", folder.join("sockets"));
    command
}

impl Round<'_> {
    fn drive(&mut self, end: usize) -> Result<(), String> {
        self.await_start()?;
        let open = |input| Feed::open(self.folder, &self.frame, input, self.shared);
        let feeds = (0..self.frame.inputs).map(open);
        let mut feeds = feeds.collect::<Result<Vec<_>, _>>()?;
        for _ in 0..3 + self.random.below(15) {
            self.step(&mut feeds)?;
        }
        self.end(end, feeds)
    }

    /// The output of `thalweg ctl`, which has to answer.
    fn ctl(&self, arguments: &[&str]) -> Result<Output, String> {
        let mut command =
            with_sockets(self.folder, &[&["ctl", "-s", "stress"], arguments].concat());
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| e.to_string())?;
        let (mut waited, mut is_late) = (Waited::new(), false);
        while child.try_wait().map_err(|e| e.to_string())?.is_none() {
            let time = waited.for_any(&[child.id(), self.child.id()]);
            // What it waits for may be over when it fails.
            if time > LATE && !std::mem::replace(&mut is_late, true) {
                write_threads(self.folder, child.id(), "threads-of-ctl-when-late");
                write_threads(self.folder, self.child.id(), "threads-when-late");
            }
            if time > START {
                write_threads(self.folder, child.id(), "threads-of-ctl");
                let _ = child.kill();
                return Err(format!("{arguments:?}: no answer for {START:?}"));
            }
            thread::sleep(Duration::from_millis(2));
        }
        child.wait_with_output().map_err(|e| e.to_string())
    }

    /// Whether the run has ended.
    fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    fn await_start(&mut self) -> Result<(), String> {
        let mut waited = Waited::new();
        while !self.ctl(&["report"])?.status.success() {
            if self.has_ended() || waited.for_any(&[self.child.id()]) > START {
                let error = fs::read_to_string(self.folder.join("error")).unwrap_or_default();
                return Err(format!("it does not start: {error}"));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn step(&mut self, feeds: &mut [Feed]) -> Result<(), String> {
        let seed = self.random.next();
        let mut random = Random::new(seed);
        match self.random.below(8) {
            0 | 1 => self.burst(feeds, &mut random)?,
            2 => self.traffic(feeds).trickle(&mut random)?,
            3 => thread::sleep(Duration::from_millis(self.random.next() % 100)),
            4 => self.shared.pause.store(1 + (seed % 200) as u32, Ordering::Relaxed),
            5 => self.drain(feeds)?,
            _ => {
                let (shared, frame) = (self.shared, self.frame.clone());
                thread::scope(|scope| {
                    let traffic = scope.spawn(move || {
                        let mut traffic = Traffic { frame: &frame, shared, feeds };
                        for _ in 0..=random.below(4) {
                            traffic.burst(&mut random)?;
                            thread::sleep(Duration::from_millis(random.next() % 20));
                        }
                        Ok::<_, String>(())
                    });
                    let reloaded = self.reload();
                    traffic.join().expect("traffic does not panic").and(reloaded)
                })?;
            }
        }
        let failure = self.shared.ledger().failure.clone();
        failure.map_or(Ok(()), Err)
    }

    fn traffic<'a>(&'a self, feeds: &'a mut [Feed]) -> Traffic<'a> {
        Traffic { frame: &self.frame, shared: self.shared, feeds }
    }

    fn burst(&mut self, feeds: &mut [Feed], random: &mut Random) -> Result<(), String> {
        self.done.bursts += 1;
        self.traffic(feeds).burst(random)
    }

    /// Loads another chain, or one that cannot be loaded.
    fn reload(&mut self) -> Result<(), String> {
        let next = Generation::random(&mut self.random, &self.frame);
        let chain = next.chain(&self.frame);
        let at = format!("at = '{}'\nwork_groups = ", self.frame.device().unwrap_or_default());
        let too_many = chain.replacen(&at, &format!("{at}409"), 1);
        // Launches run any number of work-groups.
        let is_limited = self.frame.launches == "never";
        if is_limited && too_many != chain && self.random.once_in(5) {
            write(self.folder, "chain.toml", &too_many);
            let answer = self.ctl(&["reload"])?;
            let error = String::from_utf8_lossy(&answer.stderr).into_owned();
            self.done.refused += 1;
            let is_refused = !answer.status.success() && error.contains("resident work-groups");
            return if is_refused { Ok(()) } else { Err(format!("not refused: {error}")) };
        }
        write(self.folder, "chain.toml", &chain);
        count_places(self.done, &next);
        self.shared.ledger().requested(next);
        let answer = self.ctl(&["reload"])?;
        if !answer.status.success() {
            return Err(format!("not reloaded: {}", String::from_utf8_lossy(&answer.stderr)));
        }
        self.shared.ledger().reloaded();
        self.done.reloads += 1;
        Ok(())
    }

    /// Sends one more packet of each flow, and waits until all have arrived.
    fn drain(&mut self, feeds: &mut [Feed]) -> Result<(), String> {
        let mut random = Random::new(self.random.next());
        self.traffic(feeds).last(&mut random)?;
        self.shared.await_all(|| {
            if self.has_ended() {
                let error = fs::read_to_string(self.folder.join("error")).unwrap_or_default();
                return Err(format!("it has ended: {error}"));
            }
            // The output writes what it holds.
            self.signal(Signal::USR1);
            Ok(())
        })
    }

    fn signal(&self, signal: Signal) {
        // A run that has ended is not reaped before the round is over.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Ends the run: after all packets, or amid them.
    fn end(&mut self, end: usize, mut feeds: Vec<Feed>) -> Result<(), String> {
        if ENDS[end] == "inputs closed" {
            self.drain(&mut feeds)?;
            drop(feeds);
            if self.frame.medium != Medium::Pipes {
                // It waits for the next peer.
                self.signal(Signal::TERM);
            }
            return self.await_end();
        }
        let (shared, frame, mut random) = (self.shared, self.frame.clone(), self.random.clone());
        thread::scope(|scope| {
            let traffic = scope.spawn(move || {
                let mut traffic = Traffic { frame: &frame, shared, feeds: &mut feeds };
                let mut sent = Ok(());
                while sent.is_ok() && !shared.is_over() && !traffic.is_closed() {
                    sent = traffic.burst(&mut random);
                }
                sent
            });
            thread::sleep(Duration::from_millis(self.random.next() % 150));
            let requested = match ENDS[end] {
                "SIGTERM" | "SIGKILL" => {
                    self.signal(if ENDS[end] == "SIGTERM" { Signal::TERM } else { Signal::KILL });
                    Ok(())
                }
                _ => self.ctl(&["stop"]).map(drop),
            };
            let ended = requested.and_then(|()| self.await_end());
            shared.over.store(true, Ordering::Release);
            ended.and(traffic.join().expect("traffic does not panic"))
        })
    }

    fn await_end(&mut self) -> Result<(), String> {
        let mut waited = Waited::new();
        while !self.has_ended() {
            if self.shared.is_out_of_patience(&mut waited) {
                return Err(format!("it does not end within {:?}", self.shared.patience));
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Checks that no process of the run is left.
    fn is_gone(&self) -> Result<(), String> {
        let group = Pid::from_child(&self.child);
        let mut waited = Waited::new();
        while test_kill_process_group(group).is_ok() {
            if self.shared.is_out_of_patience(&mut waited) {
                return Err("a process of the run is left".into());
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}
