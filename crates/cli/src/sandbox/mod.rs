//! Privileges of a run: it gives up what it needs no more once its ports are open, and confines the
//! threads that process packets.
//!
//! Landlock and the flag that no program gains privileges hold for the whole program, and so are set
//! before it starts other threads ([`Sandbox::enter`]). Then the user changes when the ports are
//! open, and each thread that processes packets gets a filter of its system calls before its first
//! packet (the engine's [`Confinement`]). See docs/security.md.

mod calls;
mod doctor;
mod files;
mod privileges;
mod trap;
mod user;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use seccompiler::BpfProgram;
use thalweg_api::Socket;
use thalweg_chain::Plan;
use thalweg_cpu::helper;
use thalweg_engine::SandboxReport;
use thalweg_engine::guard::Confinement;
use thalweg_packet::MemoryKind;
use thalweg_source::{check_folder, outside};

use crate::args::Observed;
use crate::errors::Failure;
use files::Folders;
use privileges::Privileges;
use user::User;

pub use doctor::{Means, findings};

/// Files that the program itself writes, beside those of the chain.
#[derive(Debug, Default)]
pub struct OwnFiles<'a> {
    /// The folder to which state is exported at the end of the run.
    pub export: Option<&'a Path>,
    /// The folder from which state is imported.
    pub import: Option<&'a Path>,
    /// Files that are written during the run, such as the control socket.
    pub written: Vec<&'a Path>,
    /// Files that are created at its end.
    pub created: Vec<&'a Path>,
}

impl<'a> OwnFiles<'a> {
    /// The files of those who observe a run.
    pub fn of(observed: &'a Observed) -> Self {
        Self {
            written: observed.stats_file.as_deref().into_iter().collect(),
            created: observed.report.iter().map(|path| &**path).collect(),
            ..Self::default()
        }
    }
}

/// Confines the program to what the run of `plan` needs, if `wanted`. The user that it becomes gets
/// its `socket`.
///
/// # Errors
/// As [`Sandbox::enter`], and when the system refuses to give the socket away.
pub fn enter<'a>(
    wanted: bool,
    plan: &Plan,
    mut own: OwnFiles<'a>,
    socket: Option<&'a Socket>,
) -> Result<Option<Arc<Sandbox>>, Failure> {
    if !wanted {
        return Ok(None);
    }
    own.written.extend(socket.map(Socket::path));
    let sandbox = Sandbox::enter(plan, &own)?;
    if let (Some(socket), Some((user, group))) = (socket, sandbox.ids()) {
        let failed = |e| Failure::Run(format!("control socket: {e}"));
        socket.give_to(user, group).map_err(failed)?;
    }
    Ok(Some(Arc::new(sandbox)))
}

/// A sandbox as the engine uses it.
pub fn of_run(sandbox: Option<&Arc<Sandbox>>) -> Option<Arc<dyn Confinement>> {
    sandbox.cloned().map(|sandbox| sandbox as Arc<dyn Confinement>)
}

/// The sandbox of a run.
#[derive(Debug)]
pub struct Sandbox {
    /// The user that the program is.
    name: String,
    /// The user that it becomes, if it is another.
    user: Option<User>,
    /// The files that are written, which are given to that user.
    written: Vec<PathBuf>,
    privileges: Privileges,
    /// The filter of threads that process packets, if the kernel has filters.
    filter: Option<BpfProgram>,
    are_files_confined: bool,
    is_live: bool,
}

impl Sandbox {
    /// Confines the program to the files of `plan` and its own ones, as far as the kernel can, and
    /// starts the threads that open files and interfaces for others. Called before all other threads
    /// are started.
    ///
    /// # Errors
    /// A user that the run cannot become, files that this user may not write, and what the system
    /// refuses.
    pub fn enter(plan: &Plan, own: &OwnFiles<'_>) -> Result<Self, Failure> {
        let failed = |why: String| Failure::Run(format!("sandbox: {why}"));
        // If that fails, the run reports why.
        let _ = own.export.map(std::fs::create_dir_all);
        let name = user::current();
        let user = User::of(plan)?;
        if user.is_none() && user::wants_usual(plan) {
            log::warn!("the run stays root, since there is no user 'thalweg': {}", user::REMEDY);
        }
        if let Some(user) = &user {
            check_files(user, plan, own)?;
        }
        let mut folders = Folders::of(plan);
        folders.read.extend(own.import.map(Path::to_owned));
        folders.written.extend(own.export.map(Path::to_owned));
        own.written.iter().chain(&own.created).for_each(|path| folders.add_written(path));
        if privileges::uses_interfaces(plan) {
            thalweg_io::note_sessions();
        }
        rustix::thread::set_no_new_privs(true).map_err(|e| failed(format!("no_new_privs: {e}")))?;
        // The driver of a device opens and runs what it wants when it compiles a kernel.
        let devices = plan.kinds.devices.as_ref();
        let has_driver = plan.pool.memory().kind() == MemoryKind::Foreign
            || devices.is_some_and(|devices| devices.have_driver());
        let are_files_confined = !has_driver && files::confine(&folders).map_err(failed)?;
        if let Some(devices) = devices.filter(|_| are_files_confined) {
            devices.confine();
        }
        let privileges = Privileges::reduce(plan, user.is_some()).map_err(failed)?;
        let filter = if calls::are_confinable() {
            trap::install().map_err(|e| failed(format!("the handler of SIGSYS: {e}")))?;
            Some(calls::filter().map_err(failed)?)
        } else {
            None
        };
        // At its first use it reads where the kernel has its functions, which a confined thread cannot.
        let _ = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        outside::start().map_err(|e| failed(format!("a thread: {e}")))?;
        helper::start();
        let is_live = plan.inputs.iter().any(|input| input.blueprint.is_live());
        let of_ports = plan.outputs.iter().flat_map(|port| port.files.iter().cloned());
        let of_nfs = plan.files.outputs_of_nfs().iter().map(|file| file.path().to_owned());
        let written = of_ports.chain(of_nfs).chain(own.written.iter().map(|&path| path.to_owned()));
        let written = written.collect();
        Ok(Self { name, user, written, privileges, filter, are_files_confined, is_live })
    }

    /// The numbers of the user that the program becomes, and of its group.
    pub fn ids(&self) -> Option<(u32, u32)> {
        self.user.as_ref().map(User::ids)
    }

    /// What holds, for the report of the run.
    pub fn report(&self) -> SandboxReport {
        SandboxReport {
            user: self.user.as_ref().map_or(&self.name, |user| &user.name).clone(),
            capabilities: self.privileges.names(),
            files: self.are_files_confined,
            calls: self.filter.is_some(),
            is_live: self.is_live,
        }
    }
}

impl Confinement for Sandbox {
    fn opened(&self) -> Result<(), String> {
        let Some(user) = &self.user else { return Ok(()) };
        self.written.iter().for_each(|path| user.own(path));
        user.become_it()?;
        self.privileges.after_change()?;
        if privileges::are_gone() { Ok(()) } else { Err("capabilities are left".into()) }
    }

    fn confine_thread(&self) -> Result<(), String> {
        privileges::give_up()?;
        let Some(filter) = &self.filter else { return Ok(()) };
        seccompiler::apply_filter(filter).map_err(|e| format!("the filter of system calls: {e}"))
    }
}

/// Checks that `user` may write what is written once the program is this user.
fn check_files(user: &User, plan: &Plan, own: &OwnFiles<'_>) -> Result<(), Failure> {
    let failed = |why: String| Failure::Run(format!("sandbox: {why}"));
    let errors = user.check_files(plan).map_err(failed)?;
    if !errors.is_empty() {
        return Err(Failure::Configuration(errors));
    }
    let within = own.export.map(|folder| folder.join("state"));
    let later = own.created.iter().copied().chain(within.as_deref());
    let refusal = user.check(|| {
        let mut refused = later.filter_map(|path| Some((path, check_folder(path).err()?)));
        refused.next()
    });
    match refusal.map_err(failed)? {
        None => Ok(()),
        Some((path, why)) => Err(Failure::Run(format!(
            "user '{}' cannot write {}: {why}; expected a folder that this user may write, or another \
             'user' in [run]",
            user.name,
            path.display()
        ))),
    }
}
