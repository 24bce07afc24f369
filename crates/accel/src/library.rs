//! Libraries that the user names by environment variables: of OpenCL, and CUDA's compiler.
//!
//! `unsafe` here: libraries are loaded.
#![allow(unsafe_code)]

use std::env::VarError;
use std::error::Error;
use std::sync::OnceLock;

use libloading::Library;

/// A library that a variable may name, if it is not where the system looks for it.
pub(crate) struct Named {
    variable: &'static str,
    loaded: OnceLock<Result<Option<Library>, String>>,
}

impl Named {
    /// The library that `variable` names; several are separated by `;`.
    pub(crate) const fn by(variable: &'static str) -> Self {
        Self { variable, loaded: OnceLock::new() }
    }

    /// Loads the first of them that can be loaded, for good: who looks for a library of its name later finds the
    /// one that is loaded.
    ///
    /// # Errors
    /// When the variable is set, and names none that can be loaded.
    pub(crate) fn check(&self) -> Result<(), String> {
        let loaded = self.loaded.get_or_init(|| match std::env::var(self.variable) {
            Ok(paths) => first(self.variable, &paths).map(Some),
            Err(VarError::NotPresent) => Ok(None),
            Err(e) => Err(format!("{}: {e}", self.variable)),
        });
        loaded.as_ref().map(drop).map_err(Clone::clone)
    }
}

/// Loads the first of these libraries that can be loaded.
fn first(variable: &str, paths: &str) -> Result<Library, String> {
    let mut why = String::new();
    for path in paths.split(';') {
        // SAFETY: the user names a library, whose initialisation runs, as with every library.
        match unsafe { Library::new(path) } {
            Ok(library) => return Ok(library),
            Err(e) => why = e.source().map_or_else(|| e.to_string(), ToString::to_string),
        }
    }
    Err(format!("{variable} names no library that can be loaded: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_library_that_can_be_loaded_is_taken() {
        let load = |paths| first("OPENCL_DYLIB_PATH", paths);
        assert!(load("libc.so.6").is_ok());
        assert!(load("/none/libOpenCL.so;libc.so.6").is_ok());
        let why = load("/none/libOpenCL.so").unwrap_err();
        assert!(why.starts_with("OPENCL_DYLIB_PATH names no library"), "{why}");
        assert!(why.contains("/none/libOpenCL.so"), "{why}");
    }
}
