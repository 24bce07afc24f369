//! Compiles the C code that stands between us and libipsec-mb, if the feature is on.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "ipsec-mb")]
    {
        println!("cargo::rerun-if-changed=src/cipher/intel.c");
        let built = cc::Build::new()
            .file("src/cipher/intel.c")
            .warnings(true)
            .try_compile("thalweg_ipsec_mb");
        if let Err(error) = built {
            println!(
                "cargo::error=the feature ipsec-mb needs libipsec-mb 1.3 or later and its header \
                 (Debian: libipsec-mb-dev): {error}"
            );
        }
        println!("cargo::rustc-link-lib=IPSec_MB");
    }
}
