//! What PoCL, the OpenCL device that is the processor, needs of its environment. Without it, PoCL lists no
//! device, or ends the process.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The name of its platform.
pub(super) const PLATFORM: &str = "Portable Computing Language";

/// How a user gets more work-groups.
pub(super) const MORE_WORK_GROUPS: &str =
    "POCL_MAX_PTHREAD_COUNT in the environment sets more for PoCL";

/// The linker that it calls.
const LINKER: &str = "ld";

/// How late the times of a file system may be.
const LATE: Duration = Duration::from_millis(20);

/// The folder of compiled kernels, by the variables of the environment, as PoCL finds it.
fn cache_folder(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> PathBuf {
    let folder = |name: &str, inside: &str| {
        let folder = variable(name).filter(|value| !value.is_empty())?;
        Some(PathBuf::from(folder).join(inside))
    };
    let named = variable("POCL_CACHE_DIR").filter(|value| !value.is_empty());
    named
        .map(PathBuf::from)
        .or_else(|| folder("XDG_CACHE_HOME", "pocl/kcache"))
        .or_else(|| folder("HOME", ".cache/pocl/kcache"))
        .unwrap_or_else(|| "/tmp/pocl/kcache".into())
}

/// Why it lists no device.
pub(super) fn without_device() -> String {
    let folder = cache_folder(|name| env::var_os(name));
    format!(
        "PoCL lists no device, as when it cannot write its folder of kernels, {}; make that writable, or set \
         POCL_CACHE_DIR to a folder that is",
        folder.display()
    )
}

/// Checks that a kernel which was built since `start` can be used: PoCL links it at its first launch, unless
/// its cache has it, and without a linker it aborts the process then.
///
/// # Errors
/// What is missing.
pub(super) fn check_linker(start: SystemTime, kernel: &str) -> Result<(), String> {
    let is_there = env::var_os("PATH").is_some_and(|path| is_in(&path, LINKER));
    if is_there || is_cached(&cache_folder(|name| env::var_os(name)), start - LATE, kernel) {
        return Ok(());
    }
    Err(format!(
        "PoCL needs a linker, and no folder of PATH has a program '{LINKER}' (of the package binutils)"
    ))
}

/// Whether one of the folders of a PATH has a program.
fn is_in(path: &OsStr, program: &str) -> bool {
    let is_program = |file: Metadata| file.is_file() && file.permissions().mode() & 0o111 != 0;
    env::split_paths(path).any(|folder| fs::metadata(folder.join(program)).is_ok_and(is_program))
}

/// Whether the cache has the kernel of all programs that were used since `start`: which of these is the one,
/// PoCL does not report. A program has a folder in one of the folders of the cache, with a file that shows
/// its last use, and a folder for each form of a kernel: `AB/CDEF/resident/32-1-1/resident.so`.
fn is_cached(cache: &Path, start: SystemTime, kernel: &str) -> bool {
    let is_used = |program: &PathBuf| {
        let used = fs::metadata(program.join("last_accessed")).and_then(|file| file.modified());
        used.is_ok_and(|used| used >= start)
    };
    let is_linked = |program: PathBuf| {
        let of_kernel = program.join(kernel);
        inside(&of_kernel).any(|form| form.join(format!("{kernel}.so")).is_file())
    };
    let used: Vec<_> = inside(cache).flat_map(|part| inside(&part)).filter(is_used).collect();
    !used.is_empty() && used.into_iter().all(is_linked)
}

/// What is in a folder; nothing if it cannot be read.
fn inside(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_where_the_environment_has_it() {
        let of = |set: &[(&str, &str)]| {
            let value =
                |name: &str| set.iter().find(|(set, _)| *set == name).map(|(_, to)| to.into());
            cache_folder(value).display().to_string()
        };
        assert_eq!(of(&[]), "/tmp/pocl/kcache");
        assert_eq!(of(&[("HOME", "/root")]), "/root/.cache/pocl/kcache");
        assert_eq!(of(&[("HOME", "/root"), ("XDG_CACHE_HOME", "/c")]), "/c/pocl/kcache");
        assert_eq!(of(&[("POCL_CACHE_DIR", "/p"), ("XDG_CACHE_HOME", "/c")]), "/p");
        assert_eq!(of(&[("POCL_CACHE_DIR", ""), ("HOME", "/h")]), "/h/.cache/pocl/kcache");
    }

    #[test]
    fn a_linker_is_a_program_in_a_folder_of_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let (none, has) = (folder.path().join("none"), folder.path().join("has"));
        fs::create_dir(&none).unwrap();
        fs::create_dir(&has).unwrap();
        let path = env::join_paths([&none, &has]).unwrap();
        assert!(!is_in(&path, LINKER));
        fs::write(has.join(LINKER), "").unwrap();
        fs::set_permissions(has.join(LINKER), fs::Permissions::from_mode(0o644)).unwrap();
        assert!(!is_in(&path, LINKER), "a file that is no program");
        fs::set_permissions(has.join(LINKER), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(is_in(&path, LINKER));
        fs::create_dir(none.join("as")).unwrap();
        assert!(!is_in(&path, "as"), "a folder");
    }

    #[test]
    fn a_kernel_is_cached_if_every_program_in_use_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path();
        let start = SystemTime::now() - LATE;
        assert!(!is_cached(cache, start, "resident"));
        let program = |name: &str| cache.join("AB").join(name);
        for name in ["first", "second"] {
            let form = program(name).join("resident/32-1-1");
            fs::create_dir_all(&form).unwrap();
            fs::write(program(name).join("last_accessed"), "").unwrap();
            assert!(!is_cached(cache, start, "resident"), "not linked yet");
            fs::write(form.join("resident.so"), "").unwrap();
            assert!(is_cached(cache, start, "resident"));
            assert!(!is_cached(cache, start, "batch"));
        }
        assert!(!is_cached(cache, SystemTime::now() + LATE, "resident"), "none in use");
    }
}
