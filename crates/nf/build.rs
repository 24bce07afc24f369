//! Compiles the glue to C libraries, if their features are enabled.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "ipsec-mb")]
    compile(
        "src/ipsec/cipher/intel.c",
        "thalweg_ipsec_mb",
        "the feature ipsec-mb needs libipsec-mb 1.3 or later and its header \
         (Debian: libipsec-mb-dev)",
        "IPSec_MB",
    );
    #[cfg(feature = "ndpi")]
    compile(
        "src/l7fw/ndpi.c",
        "thalweg_ndpi",
        "the feature ndpi needs libndpi 4.2 and its headers (Debian: libndpi-dev)",
        "ndpi",
    );
}

/// Compiles `source` into the library `name`, and links `library` to it.
#[cfg(any(feature = "ipsec-mb", feature = "ndpi"))]
fn compile(source: &str, name: &str, needs: &str, library: &str) {
    println!("cargo::rerun-if-changed={source}");
    if let Err(error) = cc::Build::new().file(source).warnings(true).try_compile(name) {
        println!("cargo::error={needs}: {error}");
    }
    println!("cargo::rustc-link-lib={library}");
}
