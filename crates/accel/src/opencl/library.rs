//! The library of OpenCL, if the user names one.
//!
//! `unsafe` here: a library is loaded.
#![allow(unsafe_code)]

use std::sync::OnceLock;

use libloading::Library;

/// Names the library, if it is not where the system looks for it; several are separated by `;`.
const PATH: &str = "OPENCL_DYLIB_PATH";

/// Loads the library that `OPENCL_DYLIB_PATH` names, for good: `cl3` looks there, too, but takes the one of the
/// system if there is none.
///
/// # Errors
/// When the variable is set, and names none that can be loaded.
pub(super) fn check_named() -> Result<(), String> {
    static LOADED: OnceLock<Result<Option<Library>, String>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| match std::env::var(PATH) {
        Ok(paths) => load(&paths).map(Some),
        Err(_) => Ok(None),
    });
    loaded.as_ref().map(drop).map_err(Clone::clone)
}

/// Loads the first of these libraries that can be loaded.
fn load(paths: &str) -> Result<Library, String> {
    let mut why = String::new();
    for path in paths.split(';') {
        // SAFETY: the user names a library, whose initialisation runs, as with every library.
        match unsafe { Library::new(path) } {
            Ok(library) => return Ok(library),
            Err(e) => {
                let cause = std::error::Error::source(&e).map(ToString::to_string);
                why = cause.unwrap_or_else(|| e.to_string());
            }
        }
    }
    Err(format!("{PATH} names no library that can be loaded: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_library_that_can_be_loaded_is_taken() {
        assert!(load("libc.so.6").is_ok());
        assert!(load("/none/libOpenCL.so;libc.so.6").is_ok());
        let why = load("/none/libOpenCL.so").unwrap_err();
        assert!(why.starts_with("OPENCL_DYLIB_PATH names no library"), "{why}");
        assert!(why.contains("/none/libOpenCL.so"), "{why}");
    }
}
