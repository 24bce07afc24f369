//! Compiles the C code that stands between us and nDPI, if the feature is on.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "ndpi")]
    {
        println!("cargo::rerun-if-changed=src/ndpi.c");
        let built = cc::Build::new().file("src/ndpi.c").warnings(true).try_compile("thalweg_ndpi");
        if let Err(error) = built {
            println!(
                "cargo::error=the feature ndpi needs libndpi 4.2 and its headers (Debian: \
                 libndpi-dev): {error}"
            );
        }
        println!("cargo::rustc-link-lib=ndpi");
    }
}
