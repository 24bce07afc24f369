//! How much memory this process may have.

use std::fs;
use std::path::Path;

/// The memory that this process may have, in bytes: of the machine, of its control groups
/// (cgroup v2), and by its limits of address space and of data (`setrlimit(2)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemMemory {
    /// All of it; `u64::MAX` where the system does not report it.
    pub total: u64,
    /// What is free, or used by caches that the kernel can drop.
    pub available: u64,
}

impl SystemMemory {
    /// That of this process, at this moment.
    pub fn read() -> Self {
        Self::read_at(Path::new("/"))
    }

    /// The same, with /proc and /sys below `root`.
    fn read_at(root: &Path) -> Self {
        let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let (machine, own) = (read("proc/meminfo"), read("proc/self/status"));
        let unknown = Self { total: u64::MAX, available: u64::MAX };
        let mut memory = Self {
            total: kibibytes(&machine, "MemTotal:").unwrap_or(u64::MAX),
            available: kibibytes(&machine, "MemAvailable:").unwrap_or(u64::MAX),
        };
        let limits = read("proc/self/limits");
        for (limit, used) in [("Max address space", "VmSize:"), ("Max data size", "VmData:")] {
            let total = limits.lines().find_map(|line| line.strip_prefix(limit));
            let total = total.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
            let used = kibibytes(&own, used).unwrap_or(0);
            memory = memory.at_most(total.map_or(unknown, |total| Self::of(total, used)));
        }
        let groups = read("proc/self/cgroup");
        let group = groups.lines().find_map(|line| line.strip_prefix("0::/"));
        for folder in Path::new(group.unwrap_or_default()).ancestors() {
            let folder = root.join("sys/fs/cgroup").join(folder);
            memory = memory.at_most(of_group(&folder).unwrap_or(unknown));
        }
        memory
    }

    /// A limit, of which a part is in use.
    fn of(total: u64, used: u64) -> Self {
        Self { total, available: total.saturating_sub(used) }
    }

    fn at_most(self, other: Self) -> Self {
        Self { total: self.total.min(other.total), available: self.available.min(other.available) }
    }
}

/// What a control group may have; `None` without a limit.
fn of_group(folder: &Path) -> Option<SystemMemory> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let total = read("memory.max")?.trim().parse().ok()?;
    let used: u64 = read("memory.current")?.trim().parse().ok()?;
    // The page cache of files counts as used, and can be dropped.
    let statistics = read("memory.stat").unwrap_or_default();
    let cached = statistics.lines().find_map(|line| line.strip_prefix("inactive_file "));
    let cached = cached.and_then(|bytes| bytes.trim().parse().ok()).unwrap_or(0);
    Some(SystemMemory::of(total, used.saturating_sub(cached)))
}

/// The value of a line of /proc/meminfo or /proc/self/status, in bytes.
fn kibibytes(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_counts() {
        let root = std::env::temp_dir().join(format!("thalweg-memory-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let read = || {
            let SystemMemory { total, available } = SystemMemory::read_at(&root);
            (total >> 10, available >> 10)
        };
        assert_eq!(SystemMemory::read_at(&root).total, u64::MAX);
        write("proc/meminfo", "MemTotal:        8000 kB\nMemAvailable:    5000 kB\n");
        assert_eq!(read(), (8000, 5000));
        write("proc/self/status", "Name:\tx\nVmSize:\t    2000 kB\nVmData:\t 1000 kB\n");
        let limits = "Max data size             unlimited            unlimited            bytes\n\
            Max address space         6144000              unlimited            bytes\n";
        write("proc/self/limits", limits);
        assert_eq!(read(), (6000, 4000));
        write("proc/self/cgroup", "1:cpu:/x\n0::/a.slice/b.service\n");
        write("sys/fs/cgroup/a.slice/b.service/memory.max", "max\n");
        write("sys/fs/cgroup/a.slice/memory.max", "5120000\n");
        write("sys/fs/cgroup/a.slice/memory.current", "3072000\n");
        assert_eq!(read(), (5000, 2000));
        write("sys/fs/cgroup/a.slice/memory.stat", "anon 1\ninactive_file 1024000\n");
        assert_eq!(read(), (5000, 3000));
        fs::remove_dir_all(&root).unwrap();
        let now = SystemMemory::read();
        assert!(now.available > 0 && now.available <= now.total, "{now:?}");
    }
}
