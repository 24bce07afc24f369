//! Compiles the C code that stands between us and libpcap, if the feature is on.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "libpcap")]
    {
        println!("cargo::rerun-if-changed=src/filter/pcap.c");
        let built =
            cc::Build::new().file("src/filter/pcap.c").warnings(true).try_compile("thalweg_pcap");
        if let Err(error) = built {
            println!(
                "cargo::error=the feature libpcap needs libpcap and its headers (Debian: \
                 libpcap-dev): {error}"
            );
        }
        println!("cargo::rustc-link-lib=pcap");
    }
}
