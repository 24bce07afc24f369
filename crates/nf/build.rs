//! Compiles what lies between us and libipsec-mb, where it is asked for.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "ipsec-mb")]
    {
        const SOURCE: &str = "src/ipsec/cipher/intel.c";
        println!("cargo::rerun-if-changed={SOURCE}");
        let built = cc::Build::new().file(SOURCE).warnings(true).try_compile("thalweg_ipsec_mb");
        if let Err(error) = built {
            println!(
                "cargo::error=the feature ipsec-mb needs libipsec-mb 1.3 or later and its header \
                 (Debian: libipsec-mb-dev): {error}"
            );
        }
        println!("cargo::rustc-link-lib=IPSec_MB");
    }
}
