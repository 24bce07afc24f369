//! The cores that threads run on, and the memory nodes (NUMA) they belong to.
//!
//! Cores have the numbers of the system, as `taskset` and `/proc/cpuinfo` show them.

mod list;

use std::fs;
use std::io;
use std::path::Path;
use std::sync::OnceLock;

#[cfg(target_os = "linux")]
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

pub use list::{BadCores, as_text, parse};

/// The highest number of a core, as of the kernel's `cpu_set_t`.
pub const HIGHEST: u32 = 1023;

/// The cores that this program may use, as they were when one of its threads first asked: of the
/// machine, or fewer in a container or under `taskset`. Empty where the system does not report them.
pub fn permitted() -> &'static [u32] {
    static PERMITTED: OnceLock<Vec<u32>> = OnceLock::new();
    PERMITTED.get_or_init(of_this_thread)
}

/// The cores of the machine that are online. Empty where the system does not report them.
pub fn online() -> Vec<u32> {
    read_list(Path::new("/sys/devices/system/cpu/online"))
}

/// The memory nodes (NUMA), each with its number and its cores, by number; empty where the system
/// does not report them.
pub fn nodes() -> Vec<(u32, Vec<u32>)> {
    let folder = Path::new("/sys/devices/system/node");
    let mut nodes: Vec<_> = read_list(&folder.join("online"))
        .into_iter()
        .map(|node| (node, read_list(&folder.join(format!("node{node}/cpulist")))))
        .collect();
    nodes.sort_unstable();
    nodes
}

/// A list in a file of the kernel; empty if there is none.
fn read_list(path: &Path) -> Vec<u32> {
    let text = fs::read_to_string(path).unwrap_or_default();
    parse(text.trim()).unwrap_or_default()
}

/// Keeps the thread that created it on one core. Dropping it there lets the thread use the cores that it
/// could use before.
#[derive(Debug)]
pub struct Pinned {
    #[cfg(target_os = "linux")]
    before: CpuSet,
}

#[cfg(target_os = "linux")]
impl Pinned {
    /// Keeps this thread on `core`. Threads that it starts begin there too: see [`release`].
    ///
    /// # Errors
    /// The system's error if there is no such core, or if the program may not use it.
    pub fn to(core: u32) -> io::Result<Self> {
        if core > HIGHEST {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // Before the first thread has one core only.
        permitted();
        let before = sched_getaffinity(None)?;
        let mut one = CpuSet::new();
        one.set(core as usize);
        sched_setaffinity(None, &one)?;
        Ok(Self { before })
    }
}

#[cfg(target_os = "linux")]
impl Drop for Pinned {
    fn drop(&mut self) {
        // A thread whose cores have all been taken away stays where the kernel has put it.
        let _ = sched_setaffinity(None, &self.before);
    }
}

#[cfg(not(target_os = "linux"))]
impl Pinned {
    /// Keeps this thread on a core, which this system cannot do.
    ///
    /// # Errors
    /// Always.
    pub fn to(core: u32) -> io::Result<Self> {
        let _ = core;
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Lets this thread, which a pinned one may have started, use all cores that the program may use.
#[cfg(target_os = "linux")]
pub fn release() {
    let mut all = CpuSet::new();
    permitted().iter().for_each(|core| all.set(*core as usize));
    // If it fails, the thread shares a core with the one that started it.
    let _ = sched_setaffinity(None, &all);
}

/// Lets this thread use all cores that the program may use.
#[cfg(not(target_os = "linux"))]
pub fn release() {}

/// The core that this thread runs on at this moment; `None` where the system does not report it.
#[inline]
pub fn current() -> Option<u32> {
    #[cfg(target_os = "linux")]
    return u32::try_from(sched_getcpu()).ok();
    #[cfg(not(target_os = "linux"))]
    None
}

#[cfg(target_os = "linux")]
fn of_this_thread() -> Vec<u32> {
    let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
    (0..=HIGHEST).filter(|core| set.is_set(*core as usize)).collect()
}

#[cfg(not(target_os = "linux"))]
fn of_this_thread() -> Vec<u32> {
    Vec::new()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_stays_on_its_core_until_it_is_released() {
        let before = of_this_thread();
        let core = *permitted().last().expect("a thread runs somewhere");
        let pinned = Pinned::to(core).expect("the core is permitted");
        assert_eq!(of_this_thread(), [core]);
        assert_eq!(current(), Some(core));
        let of_child = std::thread::spawn(|| {
            let inherited = of_this_thread();
            release();
            (inherited, of_this_thread())
        });
        assert_eq!(of_child.join().unwrap(), (vec![core], permitted().to_vec()));
        drop(pinned);
        assert_eq!(of_this_thread(), before);
    }

    #[test]
    fn a_core_that_is_not_there_is_refused_and_changes_nothing() {
        let before = of_this_thread();
        for core in [HIGHEST, HIGHEST + 1, u32::MAX] {
            assert!(Pinned::to(core).is_err(), "{core}");
        }
        assert_eq!(of_this_thread(), before);
    }

    #[test]
    fn the_machine_has_the_permitted_cores_and_nodes_have_them() {
        let online = online();
        assert!(permitted().iter().all(|core| online.contains(core)), "{online:?}");
        let of_nodes: Vec<_> = nodes().into_iter().flat_map(|(_, cores)| cores).collect();
        assert!(of_nodes.is_empty() || permitted().iter().all(|core| of_nodes.contains(core)));
    }
}
