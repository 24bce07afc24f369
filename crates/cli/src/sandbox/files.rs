//! The files that a run may open, as Landlock rules.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope, path_beneath_rules,
};
use thalweg_chain::Plan;
use thalweg_source::end_of_links;

/// The newest version of Landlock whose rights are used; older kernels enforce fewer.
const NEWEST: ABI = ABI::V6;

/// What a reload and the resolution of names read, beside the files of the chain.
const OF_SYSTEM: [&str; 18] = [
    "/proc",
    "/sys",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/share/zoneinfo",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/protocols",
    "/etc/networks",
    "/etc/ethers",
];

/// Devices that may be read and written.
const DEVICES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/urandom", "/dev/tty", "/dev/net/tun"];

/// Devices that drivers in this process open: VFIO's, and those of InfiniBand.
const HARDWARE: [&str; 2] = ["/dev/vfio", "/dev/infiniband"];

/// The folders that a run uses.
#[derive(Debug, Default)]
pub struct Folders {
    pub read: Vec<PathBuf>,
    /// Files in them can be created, renamed and removed, too.
    pub written: Vec<PathBuf>,
    /// Whether drivers in this process open hardware.
    pub hardware: bool,
}

impl Folders {
    /// Those of `plan`: of the files that it names, so that a reload finds new files beside them.
    pub fn of(plan: &Plan) -> Self {
        let mut folders = Self::default();
        plan.files.watched().iter().for_each(|path| folders.add_read(path));
        plan.inputs.iter().flat_map(|port| &port.files).for_each(|path| folders.add_read(path));
        folders.read.extend(plan.files.searched_folders().map(or_current));
        plan.outputs.iter().flat_map(|port| &port.files).for_each(|path| folders.add_written(path));
        plan.files.outputs_of_nfs().iter().for_each(|file| folders.add_written(file.path()));
        let sockets = plan.inputs.iter().filter_map(|port| port.blueprint.socket());
        let sockets = sockets.chain(plan.outputs.iter().filter_map(|port| port.blueprint.socket()));
        sockets.for_each(|path| folders.add_written(path));
        folders.hardware = plan.inputs.iter().any(|port| port.blueprint.drives_hardware())
            || plan.outputs.iter().any(|port| port.blueprint.drives_hardware());
        folders
    }

    /// Adds the folder of a file that is read, and of the file that it links to.
    fn add_read(&mut self, path: &Path) {
        self.read.extend([folder_of(path), folder_of(&end_of_links(path))]);
    }

    /// Adds the folder of a file that is written, and of the file that it links to.
    pub fn add_written(&mut self, path: &Path) {
        self.written.extend([folder_of(path), folder_of(&end_of_links(path))]);
    }
}

fn folder_of(path: &Path) -> PathBuf {
    or_current(path.parent().map(Path::to_owned).unwrap_or_default())
}

fn or_current(folder: PathBuf) -> PathBuf {
    if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder }
}

/// Whether the kernel has Landlock, and it is in use.
pub fn are_confinable() -> bool {
    let strict = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    strict.handle_access(AccessFs::from_all(ABI::V1)).and_then(Ruleset::create).is_ok()
}

/// Confines this thread, and all that it starts, to `folders`; returns whether the kernel does.
///
/// # Errors
/// When the kernel refuses the rules.
pub fn confine(folders: &Folders) -> Result<bool, String> {
    let status = restrict(folders).map_err(|e| format!("Landlock: {e}"))?;
    Ok(status != RulesetStatus::NotEnforced)
}

fn restrict(folders: &Folders) -> Result<RulesetStatus, landlock::RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let written = AccessFs::from_all(NEWEST) & !BitFlags::from(AccessFs::Execute);
    let device = read | AccessFs::WriteFile | AccessFs::IoctlDev;
    let rules = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        // No signals to other processes, such as the program's parent.
        .scope(Scope::Signal)?
        .create()?
        .add_rules(path_beneath_rules(&folders.read, read))?
        .add_rules(path_beneath_rules(OF_SYSTEM, read))?
        .add_rules(path_beneath_rules(DEVICES, device))?
        .add_rules(path_beneath_rules(HARDWARE.iter().filter(|_| folders.hardware), device))?
        .add_rules(path_beneath_rules(&folders.written, written))?;
    let rules = add_standard(rules, device | AccessFs::Truncate);
    Ok(rules.restrict_self()?.ruleset)
}

/// Adds the files that the standard streams are, which names such as /dev/stdout open again. Pipes
/// and sockets need no rule.
fn add_standard(rules: RulesetCreated, access: BitFlags<AccessFs>) -> RulesetCreated {
    (0..3).fold(rules, |rules, number| {
        let path = format!("/proc/self/fd/{number}");
        let is_file = |path: &Path| path.metadata().is_ok_and(|found| found.is_file());
        match PathFd::new(&path) {
            Ok(file) if is_file(Path::new(&path)) => {
                // It fails where the file is on a file system without paths.
                match rules.try_clone() {
                    Ok(kept) => rules.add_rule(PathBeneath::new(file, access)).unwrap_or(kept),
                    Err(_) => rules,
                }
            }
            _ => rules,
        }
    })
}
