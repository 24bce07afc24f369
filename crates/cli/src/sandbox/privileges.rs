//! Capabilities, and the flag that no program gains privileges.

use std::collections::HashSet;

use caps::{CapSet, Capability, CapsHashSet};
use thalweg_chain::Plan;
use thalweg_io::kind::PortBlueprint;
use thalweg_source::outside;

/// Those that opening a network interface needs.
const OF_INTERFACES: [Capability; 2] = [Capability::CAP_NET_RAW, Capability::CAP_NET_ADMIN];

/// Those that loading a program into the kernel needs beside them, and locking packet memory. Without
/// `CAP_PERFMON` the kernel refuses programs that compute with pointers.
const OF_PROGRAMS: [Capability; 3] =
    [Capability::CAP_BPF, Capability::CAP_PERFMON, Capability::CAP_IPC_LOCK];

/// What a program needs that only chooses queues.
const OF_STEERING: [Capability; 1] = [Capability::CAP_BPF];

/// What a driver in this process needs: hardware writes to memory that it locks.
const OF_HARDWARE: [Capability; 1] = [Capability::CAP_IPC_LOCK];

/// Those with which root, without any other, opens files of others.
const OF_FILES: [Capability; 4] = [
    Capability::CAP_CHOWN,
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_DAC_READ_SEARCH,
    Capability::CAP_FOWNER,
];

/// Those by which a process becomes another user.
const OF_USERS: [Capability; 2] = [Capability::CAP_SETUID, Capability::CAP_SETGID];

/// The capabilities of a run.
#[derive(Debug)]
pub struct Privileges {
    /// Those that one thread keeps, to open interfaces again.
    kept: CapsHashSet,
}

impl Privileges {
    /// Starts the thread that keeps what `plan` may need again, and gives up the rest on the calling
    /// thread, which has started no other thread that packets need yet. A program that `changes` its
    /// user gives it up then.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn reduce(plan: &Plan, changes: bool) -> Result<Self, String> {
        let permitted = read(CapSet::Permitted)?;
        let uses_interfaces = uses_interfaces(plan);
        let loads_programs = any_port(plan, PortBlueprint::loads_program);
        let steers_queues = any_port(plan, PortBlueprint::steers_queues);
        let of_interfaces = OF_INTERFACES.into_iter().filter(|_| uses_interfaces);
        let drives_hardware = any_port(plan, PortBlueprint::drives_hardware);
        let wanted = of_interfaces
            .chain(OF_PROGRAMS.into_iter().filter(|_| loads_programs))
            .chain(OF_STEERING.into_iter().filter(|_| steers_queues))
            .chain(OF_HARDWARE.into_iter().filter(|_| drives_hardware));
        let kept: CapsHashSet = wanted.filter(|one| permitted.contains(one)).collect();
        if permitted.contains(&Capability::CAP_SETPCAP) {
            caps::clear(None, CapSet::Bounding).map_err(refused)?;
        }
        if !read(CapSet::Ambient)?.is_empty() {
            caps::clear(None, CapSet::Ambient).map_err(refused)?;
        }
        if !kept.is_empty() {
            outside::start_privileged().map_err(|e| format!("a thread: {e}"))?;
            let until_change = if changes { &OF_USERS[..] } else { &[] };
            let most = kept.iter().chain(until_change).copied().collect();
            outside::privileged(|| {
                if changes {
                    caps::securebits::set_keepcaps(true).map_err(refused)?;
                }
                limit(&most)
            })?;
        }
        if !changes {
            let is_root = rustix::process::geteuid().is_root();
            let files = OF_FILES.into_iter().filter(|one| is_root && permitted.contains(one));
            limit(&files.collect())?;
        }
        Ok(Self { kept })
    }

    /// Gives up what the change of the user has left to the thread that keeps privileges, and makes
    /// the rest effective.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn after_change(&self) -> Result<(), String> {
        if self.kept.is_empty() { Ok(()) } else { outside::privileged(|| limit(&self.kept)) }
    }

    /// The names of those that a thread keeps, in order.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.kept.iter().map(ToString::to_string).collect();
        names.sort();
        names
    }
}

/// Whether a port of `plan` opens an interface, or a device.
pub fn uses_interfaces(plan: &Plan) -> bool {
    any_port(plan, |port| port.interface().is_some() || port.drives_hardware())
}

/// Whether a port of `plan` is such.
fn any_port(plan: &Plan, is_such: impl Fn(&dyn PortBlueprint) -> bool) -> bool {
    plan.inputs.iter().any(|port| is_such(&*port.blueprint))
        || plan.outputs.iter().any(|port| is_such(&*port.blueprint))
}

/// Gives up all capabilities of the calling thread.
///
/// # Errors
/// What the system refuses.
pub fn give_up() -> Result<(), String> {
    limit(&HashSet::new())
}

/// Whether the calling thread has none.
pub fn are_gone() -> bool {
    read(CapSet::Permitted).is_ok_and(|permitted| permitted.is_empty())
}

/// Gives up all capabilities of the calling thread but `most`, which become effective.
fn limit(most: &CapsHashSet) -> Result<(), String> {
    let set = |set, to: &CapsHashSet| {
        // A service manager may forbid the call to a program that has none.
        if read(set)? == *to { Ok(()) } else { caps::set(None, set, to).map_err(refused) }
    };
    set(CapSet::Inheritable, &HashSet::new())?;
    let fewer = read(CapSet::Effective)?.intersection(most).copied().collect();
    set(CapSet::Effective, &fewer)?;
    set(CapSet::Permitted, most)?;
    set(CapSet::Effective, most)
}

fn read(set: CapSet) -> Result<CapsHashSet, String> {
    caps::read(None, set).map_err(refused)
}

fn refused(error: caps::errors::CapsError) -> String {
    format!("capabilities: {error}")
}
